"""A client of the INTERSECT SDK: sends requests, tells every reply and event as a line of JSON.

A request is an object: {"operation": "Compute.add", "payload": {"a": 1, "b": 2}}, and where it differs from the usual
"destination", "content_type", "data_handler" ("MINIO").

python client.py --to org.fac.sys.sub.compute --requests requests.json --replies 2
python client.py --to org.fac.sys.sub.compute --follow        # one request a line on standard input, sent as it comes
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from intersect_sdk import (
    IntersectClient,
    IntersectClientCallback,
    IntersectClientConfig,
    IntersectDataHandler,
    IntersectDirectMessageParams,
    IntersectEventMessageParams,
)

from connecting import add_broker_arguments, brokers, data_stores, leave, started
from telling import tell, told_payload


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A client for Mainstay's message face.")
    add_broker_arguments(parser)
    parser.add_argument("--to", help="destination of requests that name none: org.fac.sys.sub.svc")
    parser.add_argument("--requests", help="a file with a JSON list of requests; - is standard input")
    parser.add_argument("--follow", action="store_true", help="read one request a line and send it at once")
    parser.add_argument("--events", action="append", default=[], help="service:Capability:event to listen to")
    parser.add_argument("--replies", type=int, help="end after so many replies")
    parser.add_argument("--seconds", type=float, default=60.0, help="end after this time")
    return parser.parse_args()


def message(request: dict[str, Any], to: str | None) -> IntersectDirectMessageParams:
    """What the SDK sends for a request of the list."""
    return IntersectDirectMessageParams(
        destination=request.get("destination") or to or "",
        operation=request["operation"],
        payload=request.get("payload"),
        content_type=request.get("content_type", "application/json"),
        data_handler=IntersectDataHandler(request.get("data_handler", "MESSAGE")),
    )


def listening(text: str) -> IntersectEventMessageParams:
    """`service:Capability:event`."""
    service, capability, event = text.split(":")
    return IntersectEventMessageParams(hierarchy=service, capability_name=capability, event_name=event)


class Listener:
    """Hears replies and events. Its callbacks never raise: the SDK would end the program."""

    def __init__(self, wanted: int | None) -> None:
        self._wanted = wanted
        self._replies = 0
        self._events = 0
        self.ended = threading.Event()
        self.why = "time"

    def end(self, why: str) -> None:
        """Ends the program, once."""
        if not self.ended.is_set():
            self.why = why
            self.ended.set()

    def reply(self, source: str, operation: str, has_error: bool, payload: Any) -> None:
        """Called by the SDK."""
        self._replies += 1
        told = told_payload(payload)
        tell("reply", number=self._replies, source=source, operation=operation, has_error=has_error, **told)
        if self._wanted is not None and self._replies >= self._wanted:
            self.end("replies")

    def event(self, source: str, capability: str, name: str, payload: Any) -> None:
        """Called by the SDK."""
        self._events += 1
        told = told_payload(payload)
        tell("event", number=self._events, source=source, capability=capability, name=name, **told)


def read_requests(path: str | None) -> list[dict[str, Any]]:
    """The list of requests to begin with."""
    if path is None:
        return []
    text = sys.stdin.read() if path == "-" else Path(path).read_text()
    return json.loads(text)


def follow(client: IntersectClient, options: argparse.Namespace, listener: Listener) -> None:
    """Sends the requests of standard input as they come; its end ends nothing."""
    for line in sys.stdin:
        if not line.strip() or listener.ended.is_set():
            continue
        request = json.loads(line)
        # The SDK sends at its start and from callbacks; between them there is only this.
        client._send_userspace_message(message(request, options.to))
        tell("sent", operation=request["operation"])


def make_client(options: argparse.Namespace, listener: Listener) -> IntersectClient:
    """The client, not started."""
    requests = [message(it, options.to) for it in read_requests(options.requests)]
    events = [listening(it) for it in options.events]
    if not requests and not events:
        # The SDK refuses a client that has nothing to do; nobody ever sends this one an event.
        events = [IntersectEventMessageParams(hierarchy="no.body.at.-.all", capability_name="No", event_name="thing")]
    return IntersectClient(
        config=IntersectClientConfig(
            brokers=brokers(options),
            data_stores=data_stores(options),
            initial_message_event_config=IntersectClientCallback(
                messages_to_send=requests, services_to_start_listening_for_events=events
            ),
        ),
        user_callback=listener.reply,
        event_callback=listener.event,
    )


def main() -> int:
    """0 when it has its replies or its time is over; 1 if the broker cannot be used; 3 if the SDK ended it."""
    begun = time.monotonic()
    options = arguments()
    listener = Listener(options.replies)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: listener.end("signal"))
    client = make_client(options, listener)
    with started(client) as listens:
        if not listens:
            tell("unusable")
            return 1
        source = client._hierarchy.hierarchy_string(".")
        tell("started", source=source, pid=os.getpid(), seconds=round(time.monotonic() - begun, 3))
        if options.follow:
            threading.Thread(target=follow, args=(client, options, listener), daemon=True).start()
        listener.ended.wait(options.seconds)
        tell("ended", why=listener.why)
    return 3 if listener.why == "signal" else 0


if __name__ == "__main__":
    leave(main())
