"""The requests that are sent to a service directly and through a proxy: what has to be the same."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from wire import Message

SOURCE = "org.fac.sys.-.raw-peer"
SDK_VERSION = "0.9.6"
REQUIRED = (
    "message_id",
    "campaign_id",
    "request_id",
    "source",
    "destination",
    "created_at",
    "sdk_version",
    "operation_id",
)
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Case:
    """One request. Headers that are None are left out."""

    name: str
    operation: str = "ready"
    body: bytes = b"null"
    content_type: str | None = "application/json"
    headers: dict[str, Any] = field(default_factory=dict)
    is_answered: bool = True
    is_volatile: bool = False
    """The body of its reply differs from time to time: only its keys are compared."""
    stored: bytes | None = None
    """Is put into the store first; the body is then the pointer to it."""
    is_taken: bool = False
    """What was stored is gone before the request is sent."""


def json_case(name: str, operation: str, argument: Any, **more: Any) -> Case:
    """A request with this argument as JSON."""
    return Case(name, operation, json.dumps(argument).encode(), **more)


def request(case: Case, destination: str, capability: str) -> Message:
    """The message of a case with fresh ids."""
    operation = case.operation if "." in case.operation else f"{capability}.{case.operation}"
    headers = {
        "message_id": str(uuid.uuid4()),
        "campaign_id": str(uuid.uuid4()),
        "request_id": str(uuid.uuid4()),
        "source": SOURCE,
        "destination": destination,
        "created_at": datetime.now(UTC).isoformat(),
        "sdk_version": SDK_VERSION,
        "operation_id": operation,
        "data_handler": "MESSAGE",
        "has_error": "false",
        **case.headers,
    }
    given = tuple((name, value) for name, value in headers.items() if value is not None)
    topic = f"{destination.replace('.', '/')}/request"
    return Message(topic, case.body, case.content_type, given)


def all_cases(*, has_store: bool, has_guard: bool) -> list[Case]:
    """Every case, in the order of its sending."""
    groups = [_answers(), _errors(), _versions(), _headers()]
    if has_store:
        groups.append(_stored())
    if has_guard:
        groups.append(iter([json_case("not available", "guarded", 1)]))
    return [case for group in groups for case in group]


def _answers() -> Iterator[Case]:
    yield json_case("plain", "add", {"a": 1.5, "b": 2})
    yield json_case("plain, an argument as text", "add", {"a": "1", "b": "2"})
    yield json_case("argument given", "greet", "you")
    yield Case("default argument, null", "greet", b"null")
    yield Case("default argument, nothing", "greet", b"")
    yield json_case("no argument wanted, one given", "ready", {"any": "thing"})
    yield Case("bytes", "reverse_bytes", bytes(range(256)), BINARY)
    yield Case("no bytes", "reverse_bytes", b"", BINARY)
    yield json_case("events", "announce", "héllo")
    yield json_case("a job", "run_compute_job", {"job_id": "compared", "total": 3, "rate": 100})
    yield Case("status", "status", is_volatile=True)
    yield Case("status of the SDK", "intersect_sdk.system_capability", is_volatile=True)


def _errors() -> Iterator[Case]:
    yield json_case("explicit error", "refuse", "because")
    yield json_case("explicit error of two lines", "refuse", "one\ntwo ünd drei")
    yield json_case("other error", "crash", "hidden")
    yield Case("unknown operation", "nothing")
    yield Case("unknown capability", "Nobody.nothing")
    yield Case("operation without capability", headers={"operation_id": "ready"})
    yield Case("empty operation", headers={"operation_id": ""})
    yield json_case("wrong content type", "add", {"a": 1, "b": 2}, content_type="text/plain")
    yield Case("JSON where bytes are wanted", "reverse_bytes", b"null")
    yield Case("content type with a parameter", "ready", content_type="application/json; charset=utf-8")
    yield json_case("bad argument", "add", {"a": 1})
    yield Case("null where there is no default", "add", b"null")
    yield Case("broken JSON", "add", b'{"a": 1, ')
    yield Case("no UTF-8", "greet", b'"\xff\xfe"')
    yield Case("unknown operation, wrong content type", "nothing", content_type="text/plain")


def _versions() -> Iterator[Case]:
    yield Case("version of the same minor", headers={"sdk_version": "0.9.999"})
    yield Case("version of another minor", headers={"sdk_version": "0.8.6"})
    yield Case("version of another major", headers={"sdk_version": "1.9.6"})
    yield Case("version with zeros", headers={"sdk_version": "00.09.06"})
    yield Case("version of two parts", headers={"sdk_version": "0.9"}, is_answered=False)
    yield Case("version with a suffix", headers={"sdk_version": "0.9.6-rc1"}, is_answered=False)
    yield Case("version and operation wrong", "nothing", headers={"sdk_version": "1.0.0"})


def _headers() -> Iterator[Case]:
    for name in REQUIRED:
        yield Case(f"without {name}", headers={name: None}, is_answered=False)
    yield Case("without data_handler", headers={"data_handler": None})
    yield Case("without has_error", headers={"has_error": None})
    for word in ("true", "True", "TRUE", "1", "yes", "on", "t", "y", "0", "off"):
        yield Case(f"has_error {word}", headers={"has_error": word})
    for word in ("", "maybe", " true"):
        yield Case(f"has_error {word!r}", headers={"has_error": word}, is_answered=False)
    yield Case("an unknown header", headers={"x-trace": "abc"})
    yield from _ids()
    yield from _names()
    yield Case("unknown data handler", headers={"data_handler": "NOWHERE"}, is_answered=False)
    yield Case("data handler in small letters", headers={"data_handler": "message"}, is_answered=False)
    yield Case("no content type", content_type=None, is_answered=False)
    yield Case("no headers", headers=dict.fromkeys((*REQUIRED, "data_handler", "has_error")), is_answered=False)


def _ids() -> Iterator[Case]:
    some = uuid.UUID("6f9619ff-8b86-4d11-b42d-00c04fc964ff")
    for name in ("message_id", "campaign_id", "request_id"):
        yield Case(f"{name} is no id", headers={name: "no-id"}, is_answered=False)
    yield Case("campaign_id in capitals", headers={"campaign_id": str(some).upper()})
    yield Case("campaign_id without hyphens", headers={"campaign_id": some.hex})
    yield Case("campaign_id as urn", headers={"campaign_id": some.urn})
    yield Case("campaign_id in braces", headers={"campaign_id": f"{{{some}}}"})
    yield Case("campaign_id of zeros", headers={"campaign_id": str(uuid.UUID(int=0))})


def _names() -> Iterator[Case]:
    yield Case("created_at without offset", headers={"created_at": "2026-01-02T03:04:05"}, is_answered=False)
    yield Case("created_at with Z", headers={"created_at": "2026-01-02T03:04:05Z"})
    yield Case("created_at with an offset", headers={"created_at": "2026-01-02T03:04:05.5+02:00"})
    yield Case("created_at as a number", headers={"created_at": "1700000000"})
    yield Case("created_at is no time", headers={"created_at": "yesterday"}, is_answered=False)
    yield Case("source in capitals", headers={"source": "Org.fac.sys.-.raw-peer"}, is_answered=False)
    yield Case("source with a space", headers={"source": "org fac"}, is_answered=False)
    yield Case("empty source", headers={"source": ""}, is_answered=False)
    yield Case("another destination", headers={"destination": "org.fac.sys.sub.other"}, is_answered=False)
    yield Case("destination with slashes", headers={"destination": "org/fac/sys/sub/x"}, is_answered=False)


def _stored() -> Iterator[Case]:
    minio = {"data_handler": "MINIO"}
    yield Case("argument in the store", "length", headers=minio, stored=json.dumps("x" * 5000).encode())
    yield Case("bytes in the store", "reverse_bytes", content_type=BINARY, headers=minio, stored=b"abc" * 1000)
    yield Case("bad argument in the store", "length", headers=minio, stored=b"[1]")
    yield Case("argument gone from the store", "length", headers=minio, stored=b'"x"', is_taken=True)
    yield json_case("answer in the store", "report", 3000)
    yield Case("pointer is no JSON", "length", b"nowhere", headers=minio)
    yield json_case("pointer without keys", "length", {"minio_url": "x"}, headers=minio)
    pointer = {"minio_url": "http://127.0.0.1:1", "minio_bucket": "bucket", "minio_object_id": "none"}
    yield json_case("pointer to another store", "length", pointer, headers=minio)
