"""Faults on request: a file named after the worker, in a folder that the environment names, holds what shall go wrong.

`hang` (until the file says otherwise), `error`, `stall K` (a job emits K results and stops for as long), `none`.
`mainstay inject <target> hang|error|none` writes the file. Without the variable nothing is read and nothing happens.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

FOLDERS = ("MAINSTAY_FAULT_DIR", "PROXY_DEMO_FAULT_DIR")
HANG_MAX = 600.0
"""A hang ends by itself after this, in seconds."""
LOOK_AGAIN = 0.05
"""How often a hanging call looks at the file, in seconds."""


class InjectedError(RuntimeError):
    """What a call raises while the file says `error`."""


class Faults:
    """The faults of one worker."""

    def __init__(self, name: str) -> None:
        folder = next((os.environ[it] for it in FOLDERS if os.environ.get(it)), None)
        self._file = Path(folder) / name if folder else None

    def words(self) -> list[str]:
        """What the file says now, word by word; nothing is `none`."""
        if self._file is None:
            return ["none"]
        try:
            return self._file.read_text().split() or ["none"]
        except OSError:
            return ["none"]

    def now(self) -> str:
        """The fault that calls meet now: `hang`, `error`, `stall` or `none`."""
        return self.words()[0]

    def stall_after(self) -> int | None:
        """After how many results a job stalls now."""
        words = self.words()
        return int(words[1]) if words[0] == "stall" and len(words) == 2 else None

    def hang(self, name: str = "hang") -> None:
        """Comes back when the file no longer says this."""
        end = time.monotonic() + HANG_MAX
        while self.now() == name and time.monotonic() < end:
            time.sleep(LOOK_AGAIN)
