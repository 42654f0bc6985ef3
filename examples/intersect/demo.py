"""Two workers, a proxy in front of them and a client: the proxy's work step by step, each step checked.

Faults are put into the workers by `mainstay inject`. Exit code 0 if all went as told, 1 if something did not.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from private_broker import Broker, free_port, private_broker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
SERVICE = "org.fac.sys.sub.compute"
PRIMARY, STANDBY = "primary-a", "standby-a"
NAMES = {PRIMARY: "org.fac.sys.sub.primary", STANDBY: "org.fac.sys.sub.standby"}
ACK_TIMEOUT, RETRY_DELAY, RESULT_TIMEOUT, CHECK_INTERVAL = 1.0, 0.2, 3.0, 1.0
"""Shorter than those of mainstay.toml, so that nobody waits long, in seconds."""
ATTEMPTS = 2
SLACK = 1.5
"""What a busy machine may add to a limit, in seconds."""
FAILBACK_LIMIT = 30.0
START_LIMIT = 180.0
"""A machine that builds beside it takes half a minute for the imports alone, in seconds."""
OVERRIDES = """\
[server]
listen = "127.0.0.1:{http}"
data_dir = "{folder}/data"
[services.compute.brokers.main]
protocol = "{protocol}"
host = "{broker.host}"
port = {broker.port}
user = "{broker.user}"
password = "env:BROKER_PASSWORD"
[services.compute.timeouts]
ack_timeout = "{ack}ms"
result_timeout = "{result}ms"
heartbeat_interval = "{check}ms"
missed_intervals = 3
[services.compute.retry]
count = {retries}
delay = "{delay}ms"
backoff = 2.0
"""


class SurpriseError(Exception):
    """Something did not go as told."""


class Program:
    """A program that tells lines of JSON."""

    def __init__(self, name: str, command: list[str], environment: dict[str, str], log: Path) -> None:
        self.name = name
        self._log = log.open("ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, env=environment, cwd=ROOT
        )
        self.told: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self._news: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            self.lines.append(text)
            if text.startswith("{"):
                event = json.loads(text)
                self.told.append(event)
                self._news.put(event)

    def say(self, value: dict[str, Any]) -> None:
        """Writes a line to its input."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(value).encode() + b"\n")
        self._process.stdin.flush()

    def next(self, what: str, limit: float, fits: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The next line that fits."""
        end = time.monotonic() + limit
        while True:
            try:
                event = self._news.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise SurpriseError(f"{self.name}: {what} did not come within {limit:.1f} s") from None
            if fits(event):
                return event

    def calls(self, operation: str) -> int:
        """How often a worker was called for this."""
        return sum(1 for it in self.told if it["event"] == "call" and it["operation"] == operation)

    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends it as kill -9 does."""
        self._process.kill()
        self._process.wait()

    def end(self) -> None:
        """Ends it, by force if it takes long."""
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()


class Demo:
    """All that runs, and what is known of it."""

    def __init__(self, options: argparse.Namespace, broker: Broker, folder: Path) -> None:
        self._options = options
        self._broker = broker
        self._folder = folder
        self._asked = 0
        self._replied = 0
        self.faults = folder / "faults"
        self.faults.mkdir()
        self.faults.chmod(0o755)
        self.workers: dict[str, Program] = {}

    def environment(self) -> dict[str, str]:
        """Of every program."""
        broker = self._broker
        return {
            **os.environ,
            "BROKER": broker.kind,
            "BROKER_HOST": broker.host,
            "BROKER_PORT": str(broker.port),
            "BROKER_USER": broker.user,
            "BROKER_PASSWORD": broker.password,
            "MAINSTAY_FAULT_DIR": str(self.faults),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        """Workers, proxy and client from their start to their end."""
        with ExitStack() as stack:
            for target, name in NAMES.items():
                more = ["--name", name, "--fault-name", target, "--one-writer"]
                self.workers[target] = self._script(stack, target, "worker.py", *more)
            for worker in self.workers.values():
                worker.next("the start", START_LIMIT, lambda it: it["event"] == "started")
            self._proxy = self._start(stack, "proxy", [*self._mainstay(), "serve", *self._configuration()])
            events = ["--events", f"{SERVICE}:Compute:job_result"]
            self._client = self._script(
                stack, "client", "client.py", "--to", SERVICE, "--follow", "--seconds", "600", *events
            )
            self._client.next("the start", START_LIMIT, lambda it: it["event"] == "started")
            yield

    def _script(self, stack: ExitStack, name: str, script: str, *arguments: str) -> Program:
        return self._start(stack, name, [sys.executable, str(HERE / script), *arguments])

    def _start(self, stack: ExitStack, name: str, command: list[str]) -> Program:
        program = Program(name, command, self.environment(), self._folder / f"{name}.log")
        stack.callback(program.end)
        return program

    def _mainstay(self) -> list[str]:
        given = self._options.mainstay or os.environ.get("MAINSTAY_PROGRAM")
        return shlex.split(given) if given else ["cargo", "run", "--quiet", "-p", "mainstay-cli", "--"]

    def _configuration(self) -> list[str]:
        text = OVERRIDES.format(
            http=free_port(),
            folder=self._folder,
            protocol={"mqtt": "mqtt5", "amqp": "amqp091"}[self._broker.kind],
            broker=self._broker,
            ack=milliseconds(ACK_TIMEOUT),
            result=milliseconds(RESULT_TIMEOUT),
            check=milliseconds(CHECK_INTERVAL),
            retries=ATTEMPTS - 1,
            delay=milliseconds(RETRY_DELAY),
        )
        own = self._folder / "demo.toml"
        own.write_text(text)
        return ["--config", str(HERE / "mainstay.toml"), "--config", str(own)]

    def inject(self, target: str, fault: str) -> None:
        """Tells a worker to fail, or to stop failing."""
        say(f"$ mainstay inject {target} {fault}")
        command = [*self._mainstay(), "inject", target, fault]
        done = subprocess.run(command, env=self.environment(), cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SurpriseError(f"mainstay inject: {done.stderr.strip()}")

    def ask(self, operation: str, payload: Any) -> None:
        """Sends a request."""
        self._asked += 1
        self._client.say({"operation": f"Compute.{operation}", "payload": payload})

    def reply(self, limit: float) -> dict[str, Any]:
        """The reply to the request before; it must come from the fronted name and be no error."""
        reply = self._client.next("a reply", limit, lambda it: it["event"] == "reply")
        self._replied += 1
        check(reply["source"] == SERVICE, f"the reply came from {reply['source']}")
        check(not reply["has_error"], f"the reply is an error: {reply['payload']}")
        return reply

    def add(self, limit: float) -> float:
        """Asks for a sum; gives how long it took."""
        begun = time.monotonic()
        self.ask("add", {"a": 1, "b": 2})
        reply = self.reply(limit)
        check(reply["payload"] == 3, f"1 + 2 was {reply['payload']}")
        return time.monotonic() - begun

    def results(self, job_id: str, limit: float) -> Iterator[dict[str, Any]]:
        """The results of a job up to the last one; each may take so long."""
        while True:
            event = self._client.next(
                f"a result of {job_id}",
                limit,
                lambda it: it["event"] == "event" and it["payload"]["job_id"] == job_id,
            )
            check(event["source"] == SERVICE, f"the result came from {event['source']}")
            yield event["payload"]
            if event["payload"]["status"] == "done":
                return

    def wait_for_proxy(self) -> None:
        """Asks until somebody answers. On MQTT what is sent to nobody is lost."""
        end = time.monotonic() + self._options.start_limit
        while time.monotonic() < end:
            check(self._proxy.is_running(), "the proxy ended: see its log")
            self.ask("add", {"a": 1, "b": 2})
            try:
                self._client.next("a reply", 1.0, lambda it: it["event"] == "reply")
            except SurpriseError:
                continue
            # Earlier ones may have been kept for it by the broker.
            time.sleep(0.5)
            self._asked = self._replied = self.replies_so_far()
            return
        raise SurpriseError("the proxy does not answer")

    def replies_so_far(self) -> int:
        """How many replies the client has seen."""
        return sum(1 for it in self._client.told if it["event"] == "reply")

    def calls(self, target: str, operation: str = "add") -> int:
        """How often a worker was called."""
        return self.workers[target].calls(operation)

    def await_failback(self) -> None:
        """Asks until the primary answers again."""
        limit = FAILBACK_LIMIT
        end = time.monotonic() + limit
        while time.monotonic() < end:
            before = self.calls(PRIMARY), self.calls(STANDBY)
            self.add(limit)
            if self.calls(PRIMARY) > before[0] and self.calls(STANDBY) == before[1]:
                return
            time.sleep(0.2)
        raise SurpriseError(f"the primary got no work within {limit:.0f} s")

    def check_replies(self) -> None:
        """Every request has had exactly one reply."""
        time.sleep(0.5)
        seen = self.replies_so_far()
        check(seen == self._asked, f"{self._asked} requests had {seen} replies")

    def show_logs(self) -> None:
        """What the programs said last."""
        for log in sorted(self._folder.glob("*.log")):
            text = log.read_text(errors="replace")[-2000:]
            print(f"--- {log.name}\n{text}", file=sys.stderr)


def happy_path(demo: Demo) -> None:
    """All is well: the primary does the work."""
    before = demo.calls(STANDBY)
    demo.add(ACK_TIMEOUT + SLACK)
    say("1 + 2 = 3, from the service's name; the caller never learns of the workers.")
    demo.ask("run_compute_job", {"job_id": "happy", "total": 5, "rate": 20})
    check(demo.reply(ACK_TIMEOUT + SLACK)["payload"]["accepted"], "the job was not accepted")
    results = list(demo.results("happy", RESULT_TIMEOUT))
    check([it["index"] for it in results] == list(range(5)), f"the results were {results}")
    check({it["worker"] for it in results} == {"primary-a"}, f"the results were {results}")
    check(demo.calls(STANDBY) == before, "the standby was called")
    say("A job was accepted, and its 5 results came in order, all from the primary.")


def error_then_failover(demo: Demo) -> None:
    """The primary answers with errors: tried again, then the standby."""
    demo.inject(PRIMARY, "error")
    before = demo.calls(PRIMARY), demo.calls(STANDBY)
    took = demo.add(ATTEMPTS * ACK_TIMEOUT + RETRY_DELAY + SLACK)
    tried, helped = demo.calls(PRIMARY) - before[0], demo.calls(STANDBY) - before[1]
    check((tried, helped) == (ATTEMPTS, 1), f"the primary was called {tried} times, the standby {helped} times")
    say(
        f"The primary failed {tried} times, then the standby answered; the caller waited {took:.2f} s and saw no error."
    )


def recovery_then_failback(demo: Demo) -> None:
    """The primary is well again: it gets the work back."""
    demo.inject(PRIMARY, "none")
    begun = time.monotonic()
    demo.await_failback()
    say(f"A health check found the primary well, and it answers again after {time.monotonic() - begun:.1f} s.")


def hang_then_failover(demo: Demo) -> None:
    """The primary says nothing: after the ack timeouts the standby does."""
    demo.inject(PRIMARY, "hang")
    before = demo.calls(STANDBY)
    took = demo.add(ATTEMPTS * ACK_TIMEOUT + RETRY_DELAY + SLACK)
    check(demo.calls(STANDBY) == before + 1, "the standby was not called once")
    check(took >= ACK_TIMEOUT, f"the reply came after {took:.2f} s, before the ack timeout")
    say(f"The primary hung; after {took:.2f} s the standby had answered.")
    demo.inject(PRIMARY, "none")
    demo.await_failback()
    demo.check_replies()
    say("The primary woke up and got the work back; what it said too late reached nobody.")


def kill_then_failover(demo: Demo) -> None:
    """The primary is killed in the middle of a job: the standby does the job anew."""
    demo.ask("run_compute_job", {"job_id": "killed", "total": 20, "rate": 10})
    demo.reply(ACK_TIMEOUT + SLACK)
    results: list[dict[str, Any]] = []
    for result in demo.results("killed", RESULT_TIMEOUT + ATTEMPTS * ACK_TIMEOUT + RETRY_DELAY + SLACK):
        results.append(result)
        if len(results) == 3:
            say("$ kill -9 (the primary)")
            demo.workers[PRIMARY].kill()
    anew = [it["index"] for it in results if it["worker"] == "standby-a"]
    check(anew == list(range(20)), f"the standby's results were {anew}")
    say("The primary died in a job. Its results stopped, and the standby did the job anew: 20 results, each once.")
    took = demo.add(ATTEMPTS * ACK_TIMEOUT + RETRY_DELAY + SLACK)
    say(f"A call is answered by the standby as well, after {took:.2f} s.")


STEPS = (happy_path, error_then_failover, recovery_then_failback, hang_then_failover, kill_then_failover)


def check(holds: bool, problem: str) -> None:
    """Raises what is not as it should be."""
    if not holds:
        raise SurpriseError(problem)


def milliseconds(seconds: float) -> int:
    """Durations are written as whole numbers with their unit."""
    return round(seconds * 1000)


def say(text: str) -> None:
    """Tells the reader."""
    print(f"   {text}", flush=True)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="demo", description="A proxy in front of two workers, through failures.")
    parser.add_argument("broker", choices=["mqtt", "amqp"], help="mosquitto or RabbitMQ")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, help="of a broker that runs; without it a private one is started")
    parser.add_argument("--user", default=os.environ.get("BROKER_USER", "mainstay"))
    parser.add_argument("--password", default=os.environ.get("BROKER_PASSWORD", "mainstay"))
    parser.add_argument("--mainstay", help="the program, or MAINSTAY_PROGRAM; default: cargo run")
    parser.add_argument("--start-limit", type=float, default=300.0, help="for the proxy's start, which may build it")
    return parser.parse_args()


def walk(demo: Demo) -> None:
    """All steps."""
    demo.wait_for_proxy()
    for number, step in enumerate(STEPS, 1):
        print(f"{number}. {step.__doc__}", flush=True)
        step(demo)
    demo.check_replies()


def main() -> int:
    """0 if all went as told."""
    options = arguments()
    # What was started is ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="mainstay-demo-") as name, ExitStack() as stack:
        folder = Path(name)
        folder.chmod(0o755)
        if options.port is None:
            place = folder / "broker"
            place.mkdir()
            broker = stack.enter_context(private_broker(options.broker, place))
        else:
            broker = Broker(options.broker, options.host, options.port, options.user, options.password)
        demo = Demo(options, broker, folder)
        try:
            with demo.running():
                walk(demo)
        except SurpriseError as problem:
            demo.show_logs()
            return _fail(problem)
    print("All went as told.")
    return 0


def _fail(problem: SurpriseError) -> int:
    print(f"SURPRISE: {problem}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
