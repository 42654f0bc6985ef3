"""What a program tells: one JSON object a line on standard output, whole lines only."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import Any

_lock = threading.Lock()


def tell(event: str, **fields: Any) -> None:
    """Writes one line. Threads may tell at once; nobody reading is no mistake."""
    line = json.dumps({"event": event, "at": round(time.time(), 4), **fields}) + "\n"
    rest = line.encode()
    with _lock:
        try:
            while rest:
                rest = rest[os.write(1, rest) :]
        except BrokenPipeError:
            pass


def explain(text: str) -> None:
    """Writes a sentence for a person to standard error."""
    print(text, file=sys.stderr, flush=True)


def told_payload(payload: Any) -> dict[str, Any]:
    """A payload with the type that Python sees. Bytes are shown as text where they are UTF-8, else as base64."""
    if not isinstance(payload, bytes):
        return {"payload_type": type(payload).__name__, "payload": payload}
    try:
        return {"payload_type": "bytes", "payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_type": "bytes", "base64": base64.b64encode(payload).decode()}
