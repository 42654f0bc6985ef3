"""Sends the requests of cases.py to a service, and prints all that comes back, as it stands on the wire, as JSON.

Run against an SDK service itself and against a proxy in front of it, the two outputs have to be equal: ids, times, and
the name that was called are replaced by words.

python compare.py --broker mqtt --port 1883 --to org.fac.sys.sub.worker > direct.json
"""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import queue
import re
import subprocess
import sys
import time
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

from minio import Minio

from cases import SOURCE, Case, all_cases, request
from wire import Message, Peer, connect

PROGRAMS = Path(__file__).resolve().parents[2] / "examples" / "intersect"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?([+-]\d\d:\d\d|Z)")
LAST_CASE = Case("the last one")
CLIENT = "tmp-/tmp-/tmp-/-"
"""Where the SDK's clients live."""


def arguments() -> argparse.Namespace:
    """The command line."""
    env = os.environ.get
    parser = argparse.ArgumentParser(description="Records what a service answers.")
    parser.add_argument("--broker", choices=["mqtt", "amqp"], default="mqtt")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default=env("BROKER_USER", "mainstay"))
    parser.add_argument("--password", default=env("BROKER_PASSWORD", "mainstay"))
    parser.add_argument("--to", required=True, help="the service that is called: org.fac.sys.sub.svc")
    parser.add_argument("--capability", default="Compute")
    parser.add_argument("--store-port", type=int, help="of an S3 store that the service knows")
    parser.add_argument("--guarded", action="store_true", help="the service was started with --forbid guarded")
    parser.add_argument("--only", action="append", default=[], help="a case's name; all without it")
    parser.add_argument("--reply-within", type=float, default=10.0, help="how long to wait for a reply, in seconds")
    parser.add_argument("--quiet-for", type=float, default=0.5, help="how long nothing may come at the end, in seconds")
    parser.add_argument("--without-client", action="store_true", help="leave out what the SDK's own client sees")
    return parser.parse_args()


class Store:
    """The S3 store, as the SDK uses it."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._minio = Minio(f"127.0.0.1:{port}", access_key="mainstay", secret_key="mainstay", secure=False)
        if not self._minio.bucket_exists("compare"):
            self._minio.make_bucket("compare")

    def put(self, content: bytes, *, is_taken: bool) -> bytes:
        """Stores an argument, and removes it again if it shall be gone; gives the pointer to it."""
        name = str(uuid.uuid4())
        self._minio.put_object("compare", name, io.BytesIO(content), len(content))
        if is_taken:
            self._minio.remove_object("compare", name)
        return json.dumps({"minio_url": self._url, "minio_bucket": "compare", "minio_object_id": name}).encode()

    def read(self, pointer: bytes) -> dict[str, Any]:
        """What an answer's pointer says, without its ids, and what is there."""
        given = json.loads(pointer)
        response = self._minio.get_object(given["minio_bucket"], given["minio_object_id"])
        ending = given["minio_object_id"].partition(".")[2]
        return {"bucket": given["minio_bucket"], "ending": ending, "content": told_body(response.data)}


def told_body(body: bytes) -> dict[str, str]:
    """A body as text where it is UTF-8."""
    try:
        return {"text": body.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(body).decode()}


def keys(value: Any) -> Any:
    """What stays of a JSON value when its leaves are left out."""
    if isinstance(value, dict):
        return {name: keys(inner) for name, inner in value.items()}
    return type(value).__name__


class Recorder:
    """Sends cases one after another, and keeps what comes back."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._service = options.to
        self._peer: Peer = connect(options.broker, options.host, options.port, options.user, options.password)
        self._store = Store(options.store_port) if options.store_port else None
        self._heard: list[Message] = []
        self._sent: list[tuple[Case, Message]] = []

    def listen(self) -> None:
        """Hears replies to the raw peer and to every client of the SDK, the service's events, and what it is sent."""
        service = self._service.replace(".", "/")
        for pattern in (f"{SOURCE.replace('.', '/')}/response", f"{CLIENT}/*/response", f"{service}/events/#"):
            self._peer.listen(pattern)
        self._peer.listen(f"{service}/request")

    def send_all(self, cases: list[Case]) -> None:
        """Each case waits for its reply. One that has none is followed by one that has."""
        for case in cases:
            self._send(case)
            if not case.is_answered:
                self._send(replace(LAST_CASE, name=f"after: {case.name}"))
        self._settle()

    def _send(self, case: Case) -> None:
        if case.stored is not None:
            assert self._store is not None
            case = replace(case, body=self._store.put(case.stored, is_taken=case.is_taken))
        message = request(case, self._service, self._options.capability)
        self._sent.append((case, message))
        self._peer.publish(message)
        if case.is_answered:
            self._await(case, message)

    def _await(self, case: Case, message: Message) -> None:
        end = time.monotonic() + self._options.reply_within
        while time.monotonic() < end:
            try:
                heard = self._peer.heard.get(timeout=0.1)
            except queue.Empty:
                continue
            self._heard.append(heard)
            if heard.topic.endswith("/response") and same_id(heard.header("request_id"), message.header("request_id")):
                return
        print(f"no reply to: {case.name}", file=sys.stderr)

    def _settle(self) -> None:
        """Hears until nothing has come for a while."""
        while True:
            try:
                self._heard.append(self._peer.heard.get(timeout=self._options.quiet_for))
            except queue.Empty:
                return

    def call_as_client(self) -> list[dict[str, Any]]:
        """Lets the SDK's own client call; gives what it saw."""
        asked = [
            {"operation": f"{self._options.capability}.{operation}", "payload": payload}
            for operation, payload in (
                ("add", {"a": 1, "b": 2}),
                ("greet", None),
                ("refuse", "because"),
                ("crash", "hidden"),
                ("nothing", None),
                ("reverse_bytes", None),
                ("announce", "from a client"),
            )
        ]
        events = [f"{self._service}:{self._options.capability}:{name}" for name in ("announced", "announced_bytes")]
        told = self._run_client(asked, events)
        self._settle()
        return sorted(told, key=lambda it: json.dumps(it, sort_keys=True))

    def _run_client(self, asked: list[dict[str, Any]], events: list[str]) -> list[dict[str, Any]]:
        options = self._options
        command = [sys.executable, str(PROGRAMS / "client.py"), "--to", self._service, "--requests", "-"]
        command += ["--broker", options.broker, "--host", options.host, "--port", str(options.port)]
        command += ["--user", options.user, "--password", options.password]
        command += ["--replies", str(len(asked)), "--seconds", "20"]
        command += [word for event in events for word in ("--events", event)]
        ended = subprocess.run(command, input=json.dumps(asked), capture_output=True, text=True, check=False)
        lines = [json.loads(line) for line in ended.stdout.splitlines()]
        told = [line for line in lines if line["event"] in ("reply", "event", "ended")]
        for line in told:
            del line["at"]
            line.pop("number", None)
            if line.get("source") == self._service:
                line["source"] = "<service>"
        return [*told, {"event": "exit", "code": ended.returncode}]

    def close(self) -> None:
        """Ends the connection."""
        self._peer.close()

    def report(self) -> dict[str, Any]:
        """All that came back, case by case."""
        cases = [{"case": case.name, "replies": self._replies(case, sent)} for case, sent in self._sent]
        known = [sent.header("request_id") for _, sent in self._sent]
        replies = [it for it in self._heard if it.topic.endswith("/response")]
        unmatched = [it for it in replies if not any(same_id(it.header("request_id"), one) for one in known)]
        events = [it for it in self._heard if "/events/" in it.topic]
        return {
            "cases": cases,
            "to_clients": sorted((self._told(it, None) for it in unmatched), key=json.dumps),
            "events": [self._told(it, None) for it in events],
        }

    def _replies(self, case: Case, sent: Message) -> list[dict[str, Any]]:
        wanted = sent.header("request_id")
        of_it = [
            it for it in self._heard if it.topic.endswith("/response") and same_id(it.header("request_id"), wanted)
        ]
        return [self._told(it, (case, sent)) for it in of_it]

    def _told(self, message: Message, request_of: tuple[Case, Message] | None) -> dict[str, Any]:
        sent = request_of[1] if request_of else None
        told: dict[str, Any] = {
            "topic": self._plain(message.topic.replace("/", ".")),
            "content_type": message.content_type,
            "headers": [[name, self._told_header(name, value, sent)] for name, value in message.headers],
            "delivery": message.delivery,
            "properties": list(message.properties),
        }
        told["body"] = self._told_body(message, request_of[0] if request_of else None)
        return told

    def _told_body(self, message: Message, case: Case | None) -> Any:
        if case is not None and case.is_volatile and message.header("has_error") == "false":
            return keys(json.loads(message.body))
        if message.header("data_handler") == "MINIO" and self._store is not None:
            return self._store.read(message.body)
        # Events of jobs name the worker: it is not the service that was called.
        return told_body(message.body)

    def _told_header(self, name: str, value: Any, sent: Message | None) -> Any:
        if not isinstance(value, str):
            return {"type": type(value).__name__, "value": repr(value)}
        if name == "created_at" and TIME.fullmatch(value):
            return "<time>"
        if sent is not None and name in ("campaign_id", "request_id"):
            if value == sent.header(name):
                return "<as sent>"
            if same_id(value, sent.header(name)):
                return "<as sent, written anew>"
        if name in ("message_id", "campaign_id", "request_id") and canonical(value) == value:
            return "<id>"
        return self._plain(value)

    def _plain(self, text: str) -> str:
        """A text without the name of the service that was called, and of the client."""
        text = text.replace(self._service, "<service>")
        return re.sub(r"tmp-\.tmp-\.tmp-\.-\.tmp-[0-9a-f-]{36}", "<client>", text)


def canonical(text: Any) -> str | None:
    """An id as it is usually written."""
    try:
        return str(uuid.UUID(text))
    except (AttributeError, TypeError, ValueError):
        return None


def same_id(one: Any, other: Any) -> bool:
    """Whether two texts are the same id."""
    return canonical(one) is not None and canonical(one) == canonical(other)


def main() -> int:
    """Prints the report; 1 if a case that is answered had no reply."""
    options = arguments()
    cases = all_cases(has_store=options.store_port is not None, has_guard=options.guarded)
    cases = [case for case in cases if not options.only or case.name in options.only]
    recorder = Recorder(options)
    recorder.listen()
    recorder.send_all(cases)
    seen = [] if options.without_client else recorder.call_as_client()
    recorder.close()
    report = {"broker": options.broker, **recorder.report(), "seen_by_client": seen}
    print(json.dumps(report, indent=1, ensure_ascii=False))
    answered = {case.name for case in cases if case.is_answered}
    lost = [case["case"] for case in report["cases"] if case["case"] in answered and not case["replies"]]
    return 1 if lost else 0


if __name__ == "__main__":
    raise SystemExit(main())
