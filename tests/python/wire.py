"""Raw peers on both brokers: they send any headers, and hear each message as it stands on the wire."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import paho.mqtt.client as paho
import pika
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

EXCHANGE = "intersect-messages"
LIMIT = 15.0
"""How long a broker may take to confirm something, in seconds."""


@dataclass(frozen=True)
class Message:
    """One message; names in its topic are parted by slashes on both brokers."""

    topic: str
    body: bytes
    content_type: str | None
    headers: tuple[tuple[str, Any], ...] = field(default_factory=tuple)
    delivery: int = 0
    """MQTT's quality of service, or AMQP's delivery mode."""
    seconds: float = 0.0
    """When it came, on a clock that only goes forward."""
    properties: tuple[tuple[str, Any], ...] = field(default_factory=tuple)
    """What else is set: expiry, retain, redelivered."""

    def header(self, name: str) -> Any:
        """The header's value, None without one."""
        return dict(self.headers).get(name)


class Peer(Protocol):
    """What both kinds of peers can do. Patterns are written with `*` for one word and `#` for the rest."""

    heard: queue.Queue[Message]

    def listen(self, pattern: str) -> None:
        """Hears what is published from now on; the broker has confirmed it when this returns."""

    def publish(self, message: Message) -> None:
        """Publishes; the broker has taken it when this returns."""

    def close(self) -> None:
        """Ends the connection."""


class MqttPeer:
    """A raw peer over MQTT 5."""

    def __init__(self, host: str, port: int, user: str, password: str) -> None:
        self.heard: queue.Queue[Message] = queue.Queue()
        self._client = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.username_pw_set(user, password)
        self._confirmed = threading.Semaphore(0)
        self._client.on_connect = lambda *_: self._confirmed.release()
        self._client.on_subscribe = lambda *_: self._confirmed.release()
        self._client.on_message = self._hear
        self._client.connect(host, port)
        self._client.loop_start()
        self._await("no connection to the broker")

    def listen(self, pattern: str) -> None:
        """See `Peer`."""
        self._client.subscribe(pattern.replace("*", "+"), qos=2)
        self._await(f"no subscription to {pattern}")

    def publish(self, message: Message) -> None:
        """See `Peer`."""
        properties = Properties(PacketTypes.PUBLISH)
        if message.content_type is not None:
            properties.ContentType = message.content_type
        if message.headers:
            properties.UserProperty = list(message.headers)
        for name, value in message.properties:
            setattr(properties, name, value)
        sent = self._client.publish(message.topic, message.body, qos=message.delivery, properties=properties)
        sent.wait_for_publish(LIMIT)

    def close(self) -> None:
        """See `Peer`."""
        self._client.disconnect()
        self._client.loop_stop()

    def _await(self, problem: str) -> None:
        if not self._confirmed.acquire(timeout=LIMIT):
            raise SystemExit(problem)

    def _hear(self, _client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        given = message.properties
        properties = [("retain", True)] if message.retain else []
        if hasattr(given, "MessageExpiryInterval"):
            properties.append(("MessageExpiryInterval", given.MessageExpiryInterval))
        self.heard.put(
            Message(
                topic=message.topic,
                body=message.payload,
                content_type=getattr(given, "ContentType", None),
                headers=tuple(getattr(given, "UserProperty", ())),
                delivery=message.qos,
                seconds=time.monotonic(),
                properties=tuple(properties),
            )
        )


class AmqpPeer:
    """A raw peer over AMQP 0-9-1, on a queue of its own. One thread owns the connection."""

    def __init__(self, host: str, port: int, user: str, password: str) -> None:
        self.heard: queue.Queue[Message] = queue.Queue()
        parameters = pika.ConnectionParameters(
            host=host, port=port, credentials=pika.PlainCredentials(user, password), heartbeat=60
        )
        self._connection = pika.BlockingConnection(parameters)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()
        self._channel.exchange_declare(EXCHANGE, exchange_type="topic", durable=True)
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue
        self._channel.basic_consume(self._queue, self._hear, auto_ack=True)
        self._open = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def listen(self, pattern: str) -> None:
        """See `Peer`."""
        key = pattern.replace("/", ".")
        self._do(lambda: self._channel.queue_bind(self._queue, EXCHANGE, routing_key=key))

    def publish(self, message: Message) -> None:
        """See `Peer`."""
        properties = pika.BasicProperties(
            content_type=message.content_type,
            headers=dict(message.headers) or None,
            delivery_mode=message.delivery or 1,
            **dict(message.properties),
        )
        key = message.topic.replace("/", ".")
        self._do(lambda: self._channel.basic_publish(EXCHANGE, key, message.body, properties))

    def close(self) -> None:
        """See `Peer`."""
        self._open = False
        self._thread.join(LIMIT)
        self._connection.close()

    def _serve(self) -> None:
        while self._open:
            self._connection.process_data_events(time_limit=0.2)

    def _do(self, work: Callable[[], Any]) -> None:
        done = threading.Event()
        problems: list[Exception] = []

        def run() -> None:
            try:
                work()
            except Exception as problem:
                problems.append(problem)
            done.set()

        self._connection.add_callback_threadsafe(run)
        if not done.wait(LIMIT):
            raise SystemExit("the broker does not answer")
        if problems:
            raise problems[0]

    def _hear(self, _channel: Any, deliver: Any, given: Any, body: bytes) -> None:
        properties = [("redelivered", True)] if deliver.redelivered else []
        if given.expiration is not None:
            properties.append(("expiration", given.expiration))
        self.heard.put(
            Message(
                topic=deliver.routing_key.replace(".", "/"),
                body=body,
                content_type=given.content_type,
                headers=tuple((given.headers or {}).items()),
                delivery=given.delivery_mode or 0,
                seconds=time.monotonic(),
                properties=tuple(properties),
            )
        )


def connect(broker: str, host: str, port: int, user: str, password: str) -> Peer:
    """A peer on `mqtt` or `amqp`."""
    peer = MqttPeer if broker == "mqtt" else AmqpPeer
    return peer(host, port, user, password)


def queue_name(service: str, channel: str = "request") -> str:
    """The name of the SDK's queue for a service on AMQP."""
    return hashlib.sha384(f"{service.replace('.', '/')}/{channel}".encode()).hexdigest()
