"""What an engine writes to stderr: emptied, because a full pipe would block it; its last lines are kept."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

log = logging.getLogger("llama_srb.engine")  # as operators know it
LINES_KEPT = 40  # llama.cpp says in about ten why it cannot load
LINES_SHOWN = 5  # of those, in an error message
LINE_LIMIT = 16 << 10  # bytes of one line that are kept
OWN_WORDS = "llama-batched: "  # a full disk, say; all else is llama.cpp's


class ErrorOutput:
    """Of one engine."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    @property
    def tail(self) -> str:
        """The last lines: for the operator, as they may be about anybody's request."""
        return " | ".join(list(self._lines)[-LINES_SHOWN:]) or "nothing"

    async def read(self, stderr: asyncio.StreamReader, pid: int, read_size: int) -> None:
        """Until its end; what the engine itself says is logged as a warning."""
        rest = b""
        while chunk := await stderr.read(read_size):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._keep(line, pid)
            rest = rest[-LINE_LIMIT:]
        if rest:
            self._keep(rest, pid)

    def _keep(self, line: bytes, pid: int) -> None:
        text = line[:LINE_LIMIT].decode(errors="replace").rstrip()
        if text:
            self._lines.append(text)
            level = logging.WARNING if text.startswith(OWN_WORDS) else logging.DEBUG
            log.log(level, "engine %d says: %s", pid, text)
