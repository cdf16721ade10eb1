"""Why a request fails: an exception or the engine's refusal becomes a status and a message."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from llama_srb.dialects.common.response_types import PromptSize, size_in
from llama_srb.engine.events import Error
from llama_srb.engine.exchange import CommandRefused, EngineUnavailable
from llama_srb.memory.records import MemoryOutdated, MemoryUnusable
from llama_srb.models.residency import ModelBusy
from llama_srb.request.values import RequestError

STATUS_OF_CODE: Mapping[str, int] = {
    "invalid_request": 400,
    "context_exceeded": 400,
    "cancelled": 400,  # by its own client; official ones try again after 409 and 5xx
    "invalid_api_key": 401,
    "scope_missing": 403,
    "engine_died": 500,
    "internal_error": 500,
    "unavailable": 503,
    "shutting_down": 503,
    "busy": 503,
    "timed_out": 503,
}
FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
DISK = FULL | {
    errno.EACCES, errno.EPERM, errno.EIO, errno.EROFS, errno.ESTALE, errno.EMFILE, errno.ENFILE,
    errno.ENOTDIR, errno.EISDIR, errno.ENXIO, errno.ELOOP, errno.EINVAL,
}  # fmt: skip
DATABASE = {  # the same of SQLite
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB,
}  # fmt: skip


class StartError(Exception):
    """The server cannot start; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a request fails. status: the HTTP status. retry_after: seconds."""

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    retry_after: float | None = None
    size: PromptSize = field(default_factory=PromptSize)


INTERNAL = Fault(500, "internal error; the server's log has more", code="internal_error")


def fault_in(error: Error, tokens: str = "prompt") -> Fault:
    """The engine's refusal. `tokens`: the request field that the engine calls tokens."""
    status, param = STATUS_OF_CODE.get(error.code, 500), error.param
    param = tokens if param == "tokens" else param
    return Fault(status, error.message, param, error.code, size=size_in(error))


def fault_of(error: Exception) -> Fault | None:
    """The fault that an exception is; None: it is a fault of ours."""
    match error:
        case RequestError():
            return Fault(error.status, error.message, error.param, error.code, error.retry_after)
        case EngineUnavailable():
            return Fault(503, str(error), code="unavailable", retry_after=error.retry_after)
        case CommandRefused():
            return fault_in(error.error, "tokens")
        case ModelBusy():
            return Fault(409, str(error), param="model", code="model_busy")
        case MemoryOutdated():
            return Fault(409, str(error), code="memory_outdated")
        case MemoryUnusable():
            return Fault(503, str(error), code="memory_unusable")
        case OSError() if error.errno in DISK:
            return _disk_fault(error.strerror, is_full=error.errno in FULL)
        case sqlite3.Error() if (code := getattr(error, "sqlite_errorcode", 0) & 0xFF) in DATABASE:
            return _disk_fault(str(error), is_full=code == sqlite3.SQLITE_FULL)
    return None


def _disk_fault(reason: str | None, *, is_full: bool) -> Fault:
    code = "no_room" if is_full else "disk_unusable"
    return Fault(503, f"the server cannot use one of its files: {reason}; tell its operator", code=code)
