"""Lets one thread do all the writing to an AMQP broker.

The SDK publishes and acknowledges from whatever thread has something to say, which its AMQP library does not bear:
when a job emits an event while a call is answered, their frames mix, RabbitMQ closes the connection with
UNEXPECTED_FRAME, and both are lost. With `worker.py --one-writer` the SDK is as it is installed, but two of its methods
are called on its network thread. A program that emits from one thread only while nobody calls it does not need this.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


def write_from_one_thread(gateway: Any) -> None:
    """Changes the AMQP clients of a service or client that is not started yet."""
    for provider in gateway._control_plane_manager._control_providers:
        if hasattr(provider, "_consume_message_subthread"):
            _Writer(provider)


class _Writer:
    """Stands before the methods of one AMQP client that write."""

    def __init__(self, provider: Any) -> None:
        self._provider = provider
        self._publish = provider.publish
        self._consume = provider._consume_message_subthread
        provider.publish = self.publish
        provider._consume_message_subthread = self.consume

    def publish(self, *message: Any) -> None:
        """Comes back when the message is written; waits for the connection as the SDK does."""
        while not self._on_network_thread(lambda: self._publish(*message)):
            self._provider._channel_flags.wait(1.0)

    def consume(self, channel: Any, *delivery: Any) -> None:
        """Handles a delivery on this thread, and acknowledges it on the other."""
        self._consume(_Channel(channel, self), *delivery)

    def acknowledge(self, channel: Any, tag: int) -> None:
        """A channel that was closed meanwhile has given the delivery back."""
        self._on_network_thread(lambda: channel.is_open and channel.basic_ack(tag))

    def _on_network_thread(self, write: Callable[[], Any]) -> bool:
        """Whether it was done; not while there is no connection."""
        provider = self._provider
        if not provider._channel_flags.is_set():
            return False
        write_once = _Once(write, provider._channel_flags.is_set)
        try:
            provider._connection.ioloop.add_callback_threadsafe(write_once.run)
        except Exception:
            return False
        return write_once.wait(1.0)


class _Once:
    """A piece of work for the network thread, done there once or given up."""

    def __init__(self, work: Callable[[], Any], is_possible: Callable[[], bool]) -> None:
        self._work = work
        self._is_possible = is_possible
        self._taken = threading.Lock()
        self._ended = threading.Event()
        self._is_done = False

    def run(self) -> None:
        """Only the network thread closes and opens: what is open now is open until this has written."""
        if not self._taken.acquire(blocking=False):
            return
        if self._is_possible():
            self._work()
            self._is_done = True
        self._ended.set()

    def wait(self, limit: float) -> bool:
        """Whether it was done. A lost connection runs nothing any more: what has not begun by then never does."""
        if not self._ended.wait(limit) and self._taken.acquire(blocking=False):
            return False
        self._ended.wait()
        return self._is_done


class _Channel:
    """The channel that the SDK acknowledges on."""

    def __init__(self, channel: Any, writer: _Writer) -> None:
        self._channel = channel
        self._writer = writer

    def basic_ack(self, tag: int) -> None:
        """See `_Writer.acknowledge`."""
        self._writer.acknowledge(self._channel, tag)
