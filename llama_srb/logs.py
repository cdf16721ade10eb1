"""Log lines: which request they belong to, and their form. Prompts and texts only with --log-prompts."""

from __future__ import annotations

import json
import logging
import re
import secrets
from contextvars import ContextVar
from datetime import UTC, datetime

WIRE = "llama_srb.wire"  # the logger of lines to and from engines: all prompts and texts
TEXT = "%(asctime)s %(levelname).1s %(name)s: %(message)s"
PLAIN_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)

request_id: ContextVar[str] = ContextVar("request_id", default="")
"""Of the request at hand, "" outside of one."""


def name_request(wanted: str) -> str:
    """A name for the request at hand: what its client calls it, if that is plain, or a random one."""
    name = wanted if PLAIN_ID.fullmatch(wanted) else secrets.token_hex(8)
    request_id.set(name)
    return name


class JsonFormatter(logging.Formatter):
    """An object a line: time, level, logger, message, request_id, and what `extra={"fields": …}` gives."""

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


def show_wire(shown: bool) -> None:
    """Whether lines with prompts and texts are logged, at the level debug."""
    logging.getLogger(WIRE).disabled = not shown
