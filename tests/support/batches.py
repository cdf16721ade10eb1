"""Inputs and outputs of batches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

COMPLETIONS = "/v1/completions"


def line(custom_id: str, url: str = COMPLETIONS, **body: Any) -> dict[str, Any]:
    body = body or {"prompt": f"Once upon a time, {custom_id}", "max_tokens": 3}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


def as_bytes(lines: Iterable[Any]) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in lines)


def write(path: Path, lines: Iterable[Any]) -> Path:
    path.write_bytes(as_bytes(lines))
    return path


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of an output; none if it is not there. Each must be complete."""
    if not path.exists():
        return []
    data = path.read_bytes()
    assert not data or data.endswith(b"\n"), data[-200:]
    return [json.loads(one) for one in data.splitlines()]


def ids(lines: Iterable[dict[str, Any]]) -> list[str]:
    return [one["custom_id"] for one in lines]
