"""A service of the INTERSECT SDK that calls another one; tells every reply as a line of JSON.

Workers that were started with `--report-to` send it the results of its jobs as requests; it tells them as well.

The SDK looks at a service's own requests twice a second, but first ten seconds after its start. It reads annotations as
they stand: none of them may be put off by `from __future__ import annotations`.

python caller_service.py --name org.fac.sys.sub.caller --to org.fac.sys.sub.compute --requests requests.json
"""

import argparse
import os
import signal
import threading
import time
from typing import Any

from intersect_sdk import (
    IntersectBaseCapabilityImplementation,
    IntersectService,
    IntersectServiceConfig,
    intersect_message,
)

from client import message, read_requests
from compute import JobResult, named
from connecting import add_broker_arguments, brokers, data_stores, hierarchy, leave, started
from telling import tell, told_payload


class Caller(IntersectBaseCapabilityImplementation):
    """Calls others."""

    intersect_sdk_capability_name = "Caller"

    @intersect_message()
    def present(self) -> bool:
        """A service needs an operation."""
        return True

    @intersect_message()
    def job_result(self, result: JobResult) -> int:
        """Takes a result of a job of its own; answers with its index."""
        tell("result", **result.model_dump())
        return result.index


class Replies:
    """Counts and tells what comes back."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._came = 0
        self.ended = threading.Event()

    def hear(self, destination: str, operation: str, has_error: bool, payload: Any) -> None:
        """Called by the SDK."""
        self._came += 1
        told = told_payload(payload)
        tell("reply", number=self._came, source=destination, operation=operation, has_error=has_error, **told)
        if self._came >= self._wanted:
            self.ended.set()


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A service that calls another one.")
    add_broker_arguments(parser)
    parser.add_argument("--name", default="org.fac.sys.sub.caller")
    parser.add_argument("--capability", default="Compute", help="which has the operation job_result")
    parser.add_argument("--to", help="destination of requests that name none")
    parser.add_argument("--requests", required=True, help="a file with a JSON list of requests; - is standard input")
    parser.add_argument("--seconds", type=float, default=60.0, help="end after this time")
    parser.add_argument("--stay", action="store_true", help="stay to the end of the time when every request has its reply")
    return parser.parse_args()


def main() -> int:
    """0 when every request has its reply, 1 if the broker cannot be used, 2 if the time is over."""
    begun = time.monotonic()
    options = arguments()
    requests = [message(it, options.to) for it in read_requests(options.requests)]
    replies = Replies(len(requests))
    signalled = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: (signalled.set(), replies.ended.set()))
    config = IntersectServiceConfig(
        hierarchy=hierarchy(options.name), brokers=brokers(options), data_stores=data_stores(options)
    )
    service = IntersectService([named(Caller, options.capability)()], config)
    with started(service) as listens:
        if not listens:
            tell("unusable")
            return 1
        tell("started", worker=options.name, pid=os.getpid(), seconds=round(time.monotonic() - begun, 3))
        for request in requests:
            service.create_external_request(request, replies.hear)
        ended = replies.ended.wait(options.seconds)
        if options.stay:
            signalled.wait(options.seconds)
        tell("ended", why="replies" if ended else "time")
    return 0 if ended else 2


if __name__ == "__main__":
    leave(main())
