"""What SillyTavern 1.19.0 sends, and readers that take answers as it does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tests.clients.captured import Captured, read
from tests.clients.fixtures import ONCE

SENT = read("sillytavern.json")
"""Requests of its real page (capture/sillytavern.py): of each type those of connecting and of each round."""

_UNIVERSAL = {"min_p": 0.1, "temperature_last": False, "sampler_order": [5, 6, 0, 1, 2, 3, 4]}
_KOBOLD = {"rep_pen_slope": 0, "tfs": 1, "top_a": 0}
PRESETS: dict[str, dict[str, Any]] = {
    "Default": {"temperature": 1, "top_p": 0.95, "min_p": 0.01, "temperature_last": True},
    "Deterministic": {"temperature": 0, "top_p": 0, "top_k": 1, "do_sample": False, "temperature_last": True},
    "Neutral": {"temperature": 1, "top_p": 1, "top_k": 0, "temperature_last": True},
    "Universal-Light": {"temperature": 1.25, **_UNIVERSAL},
    "Universal-Creative": {"temperature": 1.5, **_UNIVERSAL},
    "Universal-Super-Creative": {"temperature": 2, **_UNIVERSAL},
    "Kobold, Neutral": _KOBOLD,
    "Kobold, RecoveredRuins": {**_KOBOLD, "sampler_order": [6, 0, 1, 2, 3, 4, 5]},
    "Kobold, Universal-Light": {**_KOBOLD, "sampler_order": [5, 6, 0, 1, 2, 3, 4]},
}
"""What its own presets change of samplers (default/content/presets of 1.19.0), by the names that it sends."""

WHOLE, STREAM, THREE_WHOLE, THREE_STREAM = (
    "whole", "stream", "whole, three at once", "stream, three at once",
)  # fmt: skip
WHOLE_PROBABILITIES, STREAM_PROBABILITIES = "whole, probabilities", "stream, probabilities"
GENERATING = ("/v1/completions", "/completion", "/api/generate", "/v1/chat/completions")
LENGTHS = ("max_tokens", "max_new_tokens", "n_predict", "num_predict")


def sent(client: str, what: str) -> Captured:
    """The request by which a type generates in a round."""
    (found,) = (one for one in SENT if (one.client, one.what) == (client, what) and one.target in GENERATING)
    return found


def brief(one: Captured) -> Captured:
    """With a short prompt, a seed and few tokens, all else as it was: its answer is known."""
    lengths = {name: 8 for name in LENGTHS if name in one.fields}
    return one.having(prompt=ONCE, seed=7, **lengths)


def _appended(fields: dict[str, Any], name: str) -> str:
    """What JavaScript's += appends: an absent field reads undefined."""
    value = fields.get(name, "undefined")
    return "null" if value is None else str(value)


def read_as_silly_tavern(data: bytes) -> list[str]:
    """The text and its swipes: the first choice of each frame, else content by a top-level index."""
    texts: dict[int, str] = {0: ""}
    for frame in data.decode().split("\n\n"):
        payload = "\n".join(line[6:] for line in frame.split("\n") if line.startswith("data: "))
        if payload == "[DONE]":
            break
        if not payload:
            continue
        one = json.loads(payload)
        choice = (one.get("choices") or [{}])[0]
        if index := choice.get("index", 0):
            texts[index] = texts.get(index, "") + _appended(choice, "text")
        elif index := one.get("index", 0):
            texts[index] = texts.get(index, "") + _appended(one, "content")
        else:
            texts[0] += choice.get("text") or one.get("content") or ""
    return [texts[index] for index in sorted(texts)]


def probabilities_as_silly_tavern(data: bytes) -> list[list[Any]]:
    """For each frame of the first text the candidates beside its token."""
    found = []
    for line in data.decode().splitlines():
        one = json.loads(line[6:]) if line.startswith("data: {") else {}
        choice = (one.get("choices") or [one])[0]
        if choice.get("index", 0) == 0 and (
            told := choice.get("logprobs") or one.get("completion_probabilities")
        ):
            first = told[0]["top_logprobs"] if isinstance(told, list) else told["top_logprobs"][0]
            found.append(list(first))
    return found


def read_ollama_as_silly_tavern(chunks: Iterable[bytes]) -> str:
    """It parses its buffer as one object, so it never reads two objects that arrive at once."""
    text, rest = "", ""
    for chunk in chunks:
        rest += chunk.decode()
        try:
            text, rest = text + json.loads(rest)["response"], ""
        except json.JSONDecodeError:
            continue
    assert rest == "", "the end of the text is lost"
    return text


def tokens_of_a_body_as_silly_tavern(answer: dict[str, Any]) -> list[tuple[str, list[Any]]]:
    """The tokens of one body's first text, cut by their offsets, each with its candidates."""
    choice = answer["choices"][0]
    text, offsets = choice["text"], choice["logprobs"]["text_offset"]
    ends = [*offsets[1:], len(text)]
    tokens = [text[start:end] for start, end in zip(offsets, ends, strict=True)]
    return list(zip(tokens, map(list, choice["logprobs"]["top_logprobs"]), strict=True))
