"""Prepared lines, which are written faster than any reader reads."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from .output import dumped

if TYPE_CHECKING:
    from .requests import Request

PREPARED = 64  # different steps of a torrent, after which it repeats


def prepare(request: Request) -> list[str]:
    """Prepares the lines of each step."""
    count = PREPARED if request.logprobs is None else 1  # lines with logprobs are long
    return [lines_of_step(request, position) for position in range(count)]


def lines_of_step(request: Request, position: int) -> str:
    made = []
    for sequence in request.running:
        text = sequence.word(position)
        line = dumped({"event": "stream", "id": request.id, "index": sequence.index, "text": text})
        made.append(f"{line[:-1]}{tokens_field(text, request.logprobs)}}}\n")
    return "".join(made)


@functools.cache
def tokens_field(text: str, logprobs: int | None) -> str:
    """The rest of a line: a token with its alternatives; empty without logprobs."""
    if logprobs is None:
        return ""
    top = [{"id": i, "text": f" {i}", "logprob": -0.125 * i - 1} for i in range(logprobs)]
    return ',"tokens":' + dumped([{"id": 0, "text": text, "logprob": -1.0, "top": top}])
