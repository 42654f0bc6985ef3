"""A private broker in a folder of its own, for the demo: mosquitto or RabbitMQ on free loopback ports."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

START_LIMIT = 60.0
"""How long a broker may take to listen, in seconds."""
FOLDERS = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/usr/lib/rabbitmq/bin", "/usr/local/bin")
MOSQUITTO = """\
listener {port} 127.0.0.1
allow_anonymous false
password_file {folder}/passwords
persistence false
user {user}
"""
RABBITMQ = """\
listeners.tcp.1 = 127.0.0.1:{port}
default_user = {user}
default_pass = {password}
log.console = true
log.file = false
"""


@dataclass(frozen=True)
class Broker:
    """Where a broker listens, and who may log in."""

    kind: str
    host: str
    port: int
    user: str
    password: str


@contextmanager
def private_broker(kind: str, folder: Path) -> Iterator[Broker]:
    """Starts a broker; it ends with the block."""
    broker = Broker(kind, "127.0.0.1", free_port(), "mainstay", "demo")
    start = _start_mosquitto if kind == "mqtt" else _start_rabbitmq
    process, environment = start(broker, folder)
    try:
        _wait_ready(broker, process, folder)
        yield broker
    finally:
        process.terminate()
        process.wait(30)
        if kind == "amqp":
            # Its daemon of names would stay.
            subprocess.run([_program("epmd"), "-kill"], env=environment, capture_output=True, check=False)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def _start_mosquitto(broker: Broker, folder: Path) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    passwords = folder / "passwords"
    make = [_program("mosquitto_passwd"), "-c", "-b", str(passwords), broker.user, broker.password]
    subprocess.run(make, check=True, capture_output=True)
    user = "root" if os.geteuid() == 0 else "mosquitto"
    (folder / "mosquitto.conf").write_text(MOSQUITTO.format(port=broker.port, folder=folder, user=user))
    command = [_program("mosquitto"), "-c", str(folder / "mosquitto.conf")]
    return _spawn(command, folder, None), {}


def _start_rabbitmq(broker: Broker, folder: Path) -> tuple[subprocess.Popen[bytes], dict[str, str]]:
    text = RABBITMQ.format(port=broker.port, user=broker.user, password=broker.password)
    (folder / "rabbitmq.conf").write_text(text)
    (folder / "plugins").write_text("[].")
    environment = {
        **os.environ,
        "HOME": str(folder),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "ERL_EPMD_PORT": str(free_port()),
        "RABBITMQ_NODENAME": f"demo{broker.port}@localhost",
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
        "RABBITMQ_LOG_BASE": str(folder),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_PID_FILE": str(folder / "pid"),
    }
    user = "rabbitmq" if os.geteuid() == 0 else None
    if user:
        folder.chmod(0o755)
        for path in (folder, *folder.iterdir()):
            shutil.chown(path, user)
    # The script of Debian's path would start the machine's own.
    server = next((it for it in (Path("/usr/lib/rabbitmq/bin/rabbitmq-server"),) if it.exists()), None)
    return _spawn([str(server or _program("rabbitmq-server"))], folder, user, environment), environment


def _spawn(
    command: list[str], folder: Path, user: str | None, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    with (folder / "broker.log").open("wb") as log:
        more = {"user": user, "group": user, "extra_groups": []} if user else {}
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=folder, env=environment, **more)


def _wait_ready(broker: Broker, process: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + START_LIMIT
    while process.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection((broker.host, broker.port), 1).close()
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise SystemExit(f"the broker did not start:\n{(folder / 'broker.log').read_text(errors='replace')[-3000:]}")


def _program(name: str) -> str:
    path = os.pathsep.join([os.environ.get("PATH", ""), *FOLDERS])
    found = shutil.which(name, path=path)
    if found is None:
        raise SystemExit(f"{name} is missing: install mosquitto or rabbitmq-server, or give --host and --port")
    return found
