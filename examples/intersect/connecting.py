"""Where brokers and stores are: command line first, then the environment."""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from intersect_sdk import ControlPlaneConfig, DataStoreConfig, HierarchyConfig
from intersect_sdk_common import DataStoreConfigMap

from telling import tell

PROTOCOLS = {"mqtt": "mqtt5.0", "amqp": "amqp0.9.1"}
SHUTDOWN_LIMIT = 5.0
"""How long the SDK may take to shut down, in seconds."""


def add_broker_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every program here has."""
    env = os.environ.get
    parser.add_argument("--broker", choices=sorted(PROTOCOLS), default=env("BROKER", "mqtt"))
    parser.add_argument("--host", default=env("BROKER_HOST", "127.0.0.1"))
    parser.add_argument("--port", type=int, default=int(env("BROKER_PORT", "0")) or None)
    parser.add_argument("--user", default=env("BROKER_USER", "mainstay"))
    parser.add_argument("--password", default=env("BROKER_PASSWORD", "mainstay"))
    parser.add_argument("--store-host", default=env("STORE_HOST", "127.0.0.1"), help="of an S3 store")
    parser.add_argument("--store-port", type=int, default=int(env("STORE_PORT", "0")) or None)
    parser.add_argument("--store-user", default=env("STORE_USER", "mainstay"))
    parser.add_argument("--store-password", default=env("STORE_PASSWORD", "mainstay"))


def brokers(options: argparse.Namespace) -> list[ControlPlaneConfig]:
    """The one broker of the command line."""
    return [
        ControlPlaneConfig(
            protocol=PROTOCOLS[options.broker],
            username=options.user,
            password=options.password,
            host=options.host,
            port=options.port,
        )
    ]


def data_stores(options: argparse.Namespace) -> DataStoreConfigMap:
    """The S3 store of the command line; none without a port."""
    if options.store_port is None:
        return DataStoreConfigMap()
    store = DataStoreConfig(
        username=options.store_user,
        password=options.store_password,
        host=options.store_host,
        port=options.store_port,
    )
    return DataStoreConfigMap(minio=[store])


def hierarchy(name: str) -> HierarchyConfig:
    """`org.fac.sys.sub.svc` in its parts; `-` stands for no subsystem."""
    parts = name.split(".")
    if len(parts) != 5:
        raise SystemExit(f"{name}: a name has five parts: organization.facility.system.subsystem.service")
    organization, facility, system, subsystem, service = parts
    return HierarchyConfig(
        organization=organization,
        facility=facility,
        system=system,
        subsystem=None if subsystem == "-" else subsystem,
        service=service,
    )


class Subscriptions:
    """Counts the subscriptions that the broker has confirmed.

    The SDK's `startup()` comes back before that, and what is published until then may be lost. It has no public way to
    learn of it, so this looks at the clients inside.
    """

    def __init__(self, gateway: Any) -> None:
        self._manager = gateway._control_plane_manager
        self._mqtt = 0
        self._confirmed = threading.Condition()
        for provider in self._manager._control_providers:
            if type(provider).__name__ == "MQTTClient":
                provider._connection.on_subscribe = self._count

    def _count(self, *_args: Any) -> None:
        with self._confirmed:
            self._mqtt += 1
            self._confirmed.notify_all()

    def _amqp(self) -> int:
        tags = (provider._topics_to_consumer_tags for provider in self._amqp_providers())
        return sum(tag.consumer_tag_obtained() for of_provider in tags for tag in list(of_provider.values()))

    def _amqp_providers(self) -> Iterator[Any]:
        return (it for it in self._manager._control_providers if hasattr(it, "_topics_to_consumer_tags"))

    def wait(self, limit: float = 30.0) -> bool:
        """Whether all were confirmed within the limit, in seconds."""
        wanted = sum(1 for _ in self._manager.get_all_subscription_channels())
        with self._confirmed:
            # AMQP's are looked at from time to time: there is nothing that would notify.
            for _ in range(int(limit / 0.02)):
                if self._mqtt + self._amqp() >= wanted:
                    return True
                self._confirmed.wait(0.02)
        return False


@contextmanager
def started(gateway: Any) -> Iterator[bool]:
    """A client or service between its `startup()` and `shutdown()`; gives whether it listens."""
    subscriptions = Subscriptions(gateway)
    gateway.startup()
    try:
        yield not gateway.considered_unrecoverable() and subscriptions.wait()
    finally:
        _shut_down(gateway)


def _shut_down(gateway: Any) -> None:
    """Ends within a limit. The SDK waits for its threads without one, and on AMQP sometimes for ever."""
    ending = threading.Thread(target=gateway.shutdown, daemon=True)
    ending.start()
    ending.join(SHUTDOWN_LIMIT)
    if ending.is_alive():
        tell("stuck", seconds=SHUTDOWN_LIMIT)


def leave(code: int) -> NoReturn:
    """Ends the program, whatever threads the SDK has left."""
    sys.stderr.flush()
    os._exit(code)
