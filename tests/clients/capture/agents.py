"""Recorded requests of programs with long prompts of their own, as a capture keeps them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.clients.capture.proxy import Recorded
from tests.clients.capture.texts import LONG, Texts, fits
from tests.clients.captured import FOLDER, compact

PROSE = frozenset({"text", "description", "instructions", "definition"})  # fields that have texts for a model
HOST = "127.0.0.1:9090"  # in place of the proxy's


@dataclass(frozen=True, slots=True)
class Kept:
    """One request, and what its client did then."""

    client: str
    what: str
    request: Recorded


def _replaced(value: Any, texts: Texts) -> Any:
    """The same JSON; long texts for a model are <<NAME>>."""
    match value:
        case list():
            return [_replaced(item, texts) for item in value]
        case dict():
            return {name: _field(name, item, texts) for name, item in value.items()}
    return value


def _field(name: str, value: Any, texts: Texts) -> Any:
    if name in PROSE and isinstance(value, str) and len(value) > LONG:
        return texts.replaced(value)
    return _replaced(value, texts)


def _as_json(kept: Kept, texts: Texts) -> dict[str, object]:
    body = kept.request.body.decode()
    assert fits(body), f"{kept.client} {kept.what} writes JSON otherwise than JSON.stringify"
    replaced = _replaced(json.loads(body), texts)
    request = kept.request
    changed = {"host": HOST, "content-length": str(len(texts.filled(compact(replaced)).encode()))}
    return {
        "client": kept.client, "what": kept.what, "method": request.method, "target": request.target,
        "headers": [[name, changed.get(name.lower(), value)] for name, value in request.headers],
        "body": replaced,
    }  # fmt: skip


def write(name: str, source: str, kept: Iterable[Kept], texts: Texts) -> None:
    """A capture in this folder's form: a request a line."""
    lines = ",\n  ".join(json.dumps(_as_json(one, texts), ensure_ascii=False) for one in kept)
    named = json.dumps(texts.named, ensure_ascii=False, indent=1)
    (FOLDER / name).write_text(
        f'{{"source": "{source}",\n "texts": {named},\n "requests": [\n  {lines}\n]}}\n'
    )
