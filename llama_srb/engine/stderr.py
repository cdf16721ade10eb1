"""Reads an engine's stderr, because a full pipe would block the engine, and keeps its last lines."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

log = logging.getLogger("llama_srb.engine")  # this name is documented
LINES_KEPT = 40  # llama.cpp takes about ten lines to say why it cannot load a model
LINES_SHOWN = 5  # in an error message
LINE_LIMIT = 16 << 10  # bytes kept of one line
OWN_PREFIX = "llama-batched: "  # of our engine's messages (a full disk, say); the others are llama.cpp's


class ErrorOutput:
    """The last lines that one engine wrote to stderr."""

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)

    @property
    def tail(self) -> str:
        """The last lines, in one line. Only for the operator: they may be about any client's request."""
        return " | ".join(list(self._lines)[-LINES_SHOWN:]) or "nothing"

    async def read(self, stderr: asyncio.StreamReader, pid: int, read_size: int) -> None:
        """Reads stderr to its end. The engine's own messages are logged as warnings, llama.cpp's at DEBUG."""
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
            level = logging.WARNING if text.startswith(OWN_PREFIX) else logging.DEBUG
            log.log(level, "engine %d says: %s", pid, text)
