"""Requests and their sequences, as data. No dataclasses: their import alone takes a sixth of a start."""

from __future__ import annotations

import functools
import sys
import zlib
from argparse import Namespace
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from .stories import cut, story, word

END_AFTER = 40  # words; a story ends by itself after this many to twice as many


class Sequence(SimpleNamespace):
    index: int
    word: Callable[[int], str]  # the word at a position
    total: int
    finish_reason: str
    more: Callable[[int, int], Sequence]  # makes another sequence of the request: index, limit
    stop_text: str = ""
    length: int = 0
    second: Callable[[], Sequence] | None = None  # makes the sequence of its second answer
    free_length: int | None = None  # of the second answer: words of the free one
    silent: bool = False  # a free answer that is not returned

    @property
    def over(self) -> bool:
        return self.length >= self.total


class Request(SimpleNamespace):
    id: str
    n: int
    prompt_tokens: int
    seed: int
    running: list[Sequence]
    echo: str | None = None  # the prompt's text, if the client asks for it
    text: str = ""  # the prompt
    sequences: list[Sequence]  # ended ones included
    limit: int = 128
    to_compute: int = 0  # for a prefix: steps until it is done
    client: str = ""  # for a prefix
    priority: int = 0  # the lower, the earlier
    warnings: list[str]
    started: bool = False
    completion_tokens: int = 0
    sum_logprobs: bool = False
    certainty: bool = False
    logprobs: int | None = None
    guesses: bool = False  # with drafts: each token is guessed, and the last one is another
    steps: list[str]  # for a torrent: the lines of each step

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{"running": [], "sequences": [], "warnings": [], "steps": []} | fields)


def make_sequence(
    flags: Namespace, command: dict[str, Any], prompt: str, seed: int, index: int, limit: int
) -> Sequence:
    """The whole text is known beforehand, so no text is held back for stop strings."""
    more = functools.partial(make_sequence, flags, command, prompt, seed)
    limit = sys.maxsize if limit < 0 else limit
    tail = zlib.crc32(f"{prompt}{index}".encode()) % END_AFTER
    endless = flags.endless or command.get("sampling", {}).get("ignore_eos")
    end = sys.maxsize if endless else END_AFTER + tail
    reason = "length" if limit <= end else "stop"
    then, second = command.get("then"), None
    if then is not None:
        inner = {name: value for name, value in command.items() if name not in ("then", "stop")}
        inner |= {"stop": then["stop"]} if "stop" in then else {}
        text, most = prompt + then["text"], then.get("max_tokens", 128)
        second = functools.partial(make_sequence, flags, inner, text, seed, index, most)
    silent = then is not None and not then.get("return_free")
    whole = functools.partial(word, prompt, seed, index)
    make = functools.partial(Sequence, index=index, more=more, second=second, silent=silent)
    uncut = make(word=whole, total=min(limit, end), finish_reason=reason)
    words = story(prompt, seed, index, min(uncut.total, 1000)) if command.get("stop") else []
    text = "".join(words)
    cuts = [(text.find(stop), stop) for stop in command.get("stop", []) if stop in text]
    if not cuts:
        return uncut
    at, stop_text = min(cuts)
    kept = cut(words, at, at + len(stop_text))
    return make(word=kept.__getitem__, total=len(kept), finish_reason="stop", stop_text=stop_text)
