"""What requests say about files and batches. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_srb.batch.lines import ENDPOINTS, PATHS
from llama_srb.request.parse import read_fields
from llama_srb.request.values import RequestError, shown, whole, wrong

HOUR, DAY = 3600, 86400
KEPT = 30 * DAY  # seconds until a file expires, if its sender says nothing
SECONDS = {"s": 1, "m": 60, "h": HOUR, "d": DAY}
WINDOW = re.compile(r"([1-9]\d{0,5})([smhd])", re.ASCII)
MOST_BATCHES = 100  # of one answer; "has_more" says that there are others
MOST_LISTED, MAX_PAIRS, MAX_KEY, MAX_VALUE = 10_000, 16, 64, 512
DEFAULT_FILES, DEFAULT_BATCHES = 10_000, 20  # of a list


@dataclass(frozen=True, slots=True)
class AskedBatch:
    """The body of a new batch. seconds: of its window. keep: seconds until its outputs expire."""

    input_file_id: str
    endpoint: str
    window: str
    seconds: int
    keep: int
    metadata: Mapping[str, str] | None


def batch_of(body: Mapping[str, Any], *, strict: bool = False) -> AskedBatch:
    """Reads the body of a new batch; RequestError."""
    readers = {
        "input_file_id": lambda value: _text("input_file_id", value),
        "endpoint": _endpoint,
        "completion_window": _window,
        "metadata": _metadata,
        "output_expires_after": lambda value: _expiry("output_expires_after", value),
    }
    given = read_fields(body, readers, strict=strict)
    for name in ("input_file_id", "endpoint", "completion_window"):
        if name not in given:
            message = f"{name} is missing; input_file_id, endpoint and completion_window are needed"
            raise RequestError(message, param=name)
    window, seconds = given["completion_window"]
    keep, metadata = given.get("output_expires_after", KEPT), given.get("metadata")
    return AskedBatch(given["input_file_id"], given["endpoint"], window, seconds, keep, metadata)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise wrong(name, value, "a text")
    return value


def _endpoint(value: object) -> str:
    if not isinstance(value, str) or value not in ENDPOINTS:
        raise wrong("endpoint", value, f"one of {PATHS}")
    return value


def _window(value: object) -> tuple[str, int]:
    """As it is written, and in seconds."""
    found = WINDOW.fullmatch(value) if isinstance(value, str) else None
    seconds = int(found[1]) * SECONDS[found[2]] if found else 0
    if not 0 < seconds <= KEPT:
        raise wrong("completion_window", value, '"24h", or another time up to "30d"')
    return str(value), seconds


def _metadata(value: object) -> dict[str, str]:
    wanted = f"at most {MAX_PAIRS} texts of {MAX_VALUE} characters, with names of {MAX_KEY}"
    if not isinstance(value, dict) or len(value) > MAX_PAIRS:
        raise wrong("metadata", value, wanted)
    for name, text in value.items():
        if len(name) > MAX_KEY or not isinstance(text, str) or len(text) > MAX_VALUE:
            raise RequestError(
                f"metadata has {shown(name)}: {shown(text)}; it must be {wanted}", param="metadata"
            )
    return value


def _expiry(name: str, value: object) -> int:
    if not isinstance(value, dict):
        raise wrong(name, value, 'as {"anchor": "created_at", "seconds": 86400}')
    return expiry(name, value.get("anchor"), value.get("seconds"))


def expiry(name: str, anchor: object, seconds: object) -> int:
    """The seconds of `expires_after`; RequestError."""
    if anchor != "created_at":
        raise wrong(f"{name}.anchor", anchor, '"created_at"', name)
    return whole(f"{name}.seconds", seconds, HOUR, KEPT)


def file_expiry(form: Mapping[str, str]) -> int:
    """The seconds that a file is kept, of the fields of its form."""
    name = "expires_after"
    anchor, seconds = (form.get(f"{name}[{part}]") for part in ("anchor", "seconds"))
    if anchor is None and seconds is None:
        return KEPT
    is_number = seconds is not None and seconds.isascii() and seconds.isdecimal() and len(seconds) < 10
    return expiry(name, anchor, int(seconds or 0) if is_number else seconds)


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list. after: an id; None: it begins with the first one."""

    limit: int
    after: str | None
    newest_first: bool = True
    purpose: str | None = None

    @classmethod
    def of(cls, query: Mapping[str, str], default: int) -> Page:
        """Reads the parameters of a list; RequestError."""
        limit, order = query.get("limit", str(default)), query.get("order", "desc")
        if not limit.isascii() or not limit.isdecimal():
            raise wrong("limit", limit, f"between 1 and {MOST_LISTED}")
        if order not in ("asc", "desc"):
            raise wrong("order", order, "asc or desc")
        bound = whole("limit", int(limit[:9]), 1, MOST_LISTED)
        return cls(bound, query.get("after"), order == "desc", query.get("purpose"))
