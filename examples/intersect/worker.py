"""A service of the INTERSECT SDK with one capability; tells what happens as lines of JSON.

python worker.py --name org.fac.sys.sub.primary --broker mqtt --port 1883 --user mainstay --password secret
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time

from intersect_sdk import IntersectService, IntersectServiceConfig

from compute import Compute, StoringCompute, named
from connecting import add_broker_arguments, brokers, data_stores, hierarchy, leave, started
from one_writer import write_from_one_thread
from telling import tell

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description="A worker for Mainstay's message face.")
    add_broker_arguments(parser)
    env = os.environ.get
    parser.add_argument("--name", default=env("WORKER_NAME", "org.fac.sys.sub.worker"), help="org.fac.sys.sub.svc")
    parser.add_argument("--fault-name", help="the name of its file of faults; default: the last part of --name")
    parser.add_argument("--capability", default=env("WORKER_CAPABILITY", "Compute"))
    parser.add_argument("--status-interval", type=float, default=300.0, help="of lifecycle messages, in seconds")
    parser.add_argument("--report-to", help="send results of jobs as requests to this service, not as events")
    parser.add_argument("--forbid", action="append", default=[], help="a key whose operations are not available")
    parser.add_argument("--one-writer", action="store_true", help="AMQP: write from one thread, see one_writer.py")
    return parser.parse_args()


def make_service(options: argparse.Namespace) -> IntersectService:
    """The service, not started."""
    stores = data_stores(options)
    capability = named(StoringCompute if stores.minio else Compute, options.capability)
    worker = options.fault_name or options.name.rsplit(".", 1)[-1]
    config = IntersectServiceConfig(
        hierarchy=hierarchy(options.name),
        brokers=brokers(options),
        data_stores=stores,
        status_interval=options.status_interval,
    )
    return IntersectService([capability(worker, options.report_to)], config)


def main() -> int:
    """Serves until a signal comes; 1 if the broker cannot be used."""
    begun = time.monotonic()
    options = arguments()
    ended = threading.Event()
    for number in SIGNALS:
        signal.signal(number, lambda *_: ended.set())
    service = make_service(options)
    if options.one_writer:
        write_from_one_thread(service)
    with started(service) as listens:
        if not listens:
            tell("unusable", worker=options.name)
            return 1
        if options.forbid:
            service.forbid_keys(set(options.forbid))
        tell("started", worker=options.name, pid=os.getpid(), seconds=round(time.monotonic() - begun, 3))
        while not ended.wait(1.0):
            if service.considered_unrecoverable():
                tell("unusable", worker=options.name)
                return 1
    tell("stopped", worker=options.name)
    return 0


if __name__ == "__main__":
    leave(main())
