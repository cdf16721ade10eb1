"""Log lines: the id of their request, their form, and a writer that never waits for the log's reader.

Prompts and texts are logged only with --log-prompts.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import select
import threading
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime

log = logging.getLogger("llama_srb.server")  # this name is documented

WIRE = "llama_srb.wire"  # the logger of lines to and from engines, with prompts and texts
TEXT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
MAX_BUFFERED = 256 << 10  # bytes, some thousand lines, so that lines are lost only if the reader stops
FLUSH_GRACE = 1.0  # seconds that an ending process waits until its last lines are read
PLAIN_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""The id of the current request; "" outside of a request."""

log_summary: ContextVar[str] = ContextVar("log_summary", default="")
"""What a handler adds to the log line of its request; it runs in the context of what writes the line."""


def name_request(wanted: str) -> str:
    """Sets the id of the current request: the client's X-Request-Id if it is plain, else a random one."""
    name = wanted if PLAIN_ID.fullmatch(wanted) else secrets.token_hex(8)
    request_id.set(name)
    return name


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, request_id, and `extra={"fields": …}`."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        row |= {"request_id": name} if (name := request_id.get()) else {}
        row |= {"exception": self.formatException(record.exc_info)} if record.exc_info else {}
        return json.dumps(row | getattr(record, "fields", {}), ensure_ascii=False, default=str)


def formatter(log_format: str) -> logging.Formatter:
    return JsonFormatter() if log_format == "json" else logging.Formatter(TEXT)


def keep_quiet(level: str) -> None:
    """Shows lines of other packages about each of their steps only at the level debug."""
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    logging.getLogger("httpx").setLevel(logging.NOTSET if level == "debug" else logging.WARNING)


def show_wire(shown: bool) -> None:
    """Turns lines with prompts and texts, at the level DEBUG, on or off."""
    logging.getLogger(WIRE).disabled = not shown


class Writer(logging.Handler):
    """Writes lines to a file descriptor from its own thread, so that logging never waits for the reader.

    A pipe that nobody reads holds 64 KiB; MAX_BUFFERED more bytes are buffered here. Further lines are
    dropped and counted; the first line after them says how many.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines: deque[bytes] = deque()
        self._size = 0  # bytes of these lines and of the one that is being written
        self._dropped = 0  # lines since the last report
        self._change = threading.Condition()
        threading.Thread(target=self._write_all, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        line = self._line(record)
        with self._change:
            if self._size and self._size + len(line) > MAX_BUFFERED:
                self._dropped += 1
                return
            self._report()
            self._append(line)

    def _line(self, record: logging.LogRecord) -> bytes:
        """Formats a line. Never raises: logging would report the error on stderr and wait for its reader."""
        try:
            text = self.format(record)
        except Exception as error:
            text = f"{record.levelname} {record.name}: a line that cannot be formatted: {error!r}"
        return text.encode(errors="backslashreplace") + b"\n"

    def _append(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        self._change.notify_all()

    def _report(self) -> None:
        """Logs how many lines were dropped."""
        if self._dropped:
            message = f"{self._dropped} lines were dropped: nobody read the log"
            fields = {"name": __name__, "levelno": logging.WARNING, "levelname": "WARNING", "msg": message}
            self._dropped = 0
            self._append(self._line(logging.makeLogRecord(fields)))

    def _write_all(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._lines)
                line = self._lines.popleft()
            try:
                self._write(line)
            except OSError:  # the reader has left, or the disk is full
                written = False
            else:
                written = True
            with self._change:
                self._size -= len(line)
                self._dropped += not written
                if written and not self._lines:
                    self._report()
                self._change.notify_all()

    def _write(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # another process that shares the pipe has made it non-blocking
                select.select([], [self._descriptor], [])

    def flush(self) -> None:
        """Waits until all lines are written, at most FLUSH_GRACE seconds."""
        with self._change:
            self._change.wait_for(lambda: not self._size, FLUSH_GRACE)


def log_line(what: str, outcome: str, seconds: float, name: str) -> None:
    """Logs a request that is over. name: its id."""
    fields = {"what": what, "outcome": outcome, "seconds": round(seconds, 6)}
    line = (what, outcome, log_summary.get(), seconds, name)
    log.info("%s %s%s %.3f s %s", *line, extra={"fields": fields})
