"""Hears what is published on some topics, as it stands on the wire; tells each message as a line of JSON.

python subscribe.py --broker mqtt --port 1883 --topic 'org/fac/sys/sub/compute/lifecycle'
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from wire import connect

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "intersect"))

from telling import tell, told_payload  # noqa: E402


def arguments() -> argparse.Namespace:
    """The command line."""
    env = os.environ.get
    parser = argparse.ArgumentParser(description="Tells what is published.")
    parser.add_argument("--broker", choices=["mqtt", "amqp"], default="mqtt")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--user", default=env("BROKER_USER", "mainstay"))
    parser.add_argument("--password", default=env("BROKER_PASSWORD", "mainstay"))
    parser.add_argument("--topic", action="append", required=True, help="a pattern with * and #, parted by slashes")
    return parser.parse_args()


def main() -> None:
    """Hears until it is ended."""
    options = arguments()
    peer = connect(options.broker, options.host, options.port, options.user, options.password)
    for topic in options.topic:
        peer.listen(topic)
    tell("started", pid=os.getpid())
    while True:
        heard = peer.heard.get()
        given: dict[str, Any] = told_payload(heard.body)
        tell("message", topic=heard.topic, headers=dict(heard.headers), content_type=heard.content_type, **given)


if __name__ == "__main__":
    main()
