"""The fields `phrase_bias` and `banned_strings`: phrases that are likelier, rarer, or never there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llama_srb.request.shapes import from_json
from llama_srb.request.values import (
    MAX_TEXT_BYTES,
    MAX_TEXTS,
    RequestError,
    is_number,
    is_text,
    shown,
    wrong,
)

MAX_PHRASES, MAX_PHRASE = 256, 1000  # of a list; bytes of one
MAX_PHRASE_BIAS = 1000
ALIASES = {"ensure_sequence_finish": "finish", "generate_once": "once"}  # NovelAI's names
NAMES = ("text", "bias", "finish", "once")


@dataclass(frozen=True, slots=True)
class PhraseBias:
    """bias: is added to the logits of the phrase's tokens; below 0 to that of its last one.

    finish: once it has begun, it is written to its end. once: until it stands in the text.
    """

    text: str
    bias: float
    finish: bool = False
    once: bool = False


@dataclass(frozen=True, slots=True)
class BannedRegex:
    """A regular expression that matches no part of a text. The engine says whether it has a longest match."""

    regex: str


def read_banned(value: object) -> tuple[str | BannedRegex, ...]:
    """A text, {regex}, or a list of these; empty texts are dropped."""
    items = list(value) if isinstance(value, list | tuple) else [value]
    read = [_banned(i, item, value) for i, item in enumerate(items[: MAX_TEXTS + 1])]
    if len(items) > MAX_TEXTS:
        message = f"banned_strings has {len(items)} texts; it may have {MAX_TEXTS}"
        raise RequestError(message, param="banned_strings")
    return tuple(one for one in read if one)


def _banned(place: int, item: object, whole: object) -> str | BannedRegex:
    if isinstance(item, BannedRegex):
        return item
    text = item.get("regex") if isinstance(item, Mapping) else item
    if isinstance(item, Mapping) and not (item.keys() == {"regex"} and is_text(text) and text):
        raise wrong(f"banned_strings[{place}]", item, 'a text, or {"regex": a text}', "banned_strings")
    if not (is_text(text) and isinstance(text, str)):
        raise wrong("banned_strings", whole, 'a text, {"regex": a text}, or a list of these')
    if (n := len(text.encode())) > MAX_TEXT_BYTES:
        message = f"banned_strings has a text of {n} bytes; it may have {MAX_TEXT_BYTES}"
        raise RequestError(message, param="banned_strings")
    return BannedRegex(text) if isinstance(item, Mapping) else text


def read_phrases(value: object) -> object:
    """A list of objects, or one as JSON; errors name its fields as phrase_bias[0].bias."""
    given = from_json("phrase_bias", value)
    if not isinstance(given, list | tuple):
        raise wrong("phrase_bias", value, "a list of objects: " + ", ".join(NAMES))
    if len(given) > MAX_PHRASES:
        raise RequestError(
            f"phrase_bias has {len(given)} phrases; it may have {MAX_PHRASES}", param="phrase_bias"
        )
    return tuple(
        one if isinstance(one, PhraseBias) else _phrase(f"phrase_bias[{i}]", one)
        for i, one in enumerate(given)
    )


def _phrase(where: str, value: object) -> PhraseBias:
    if not isinstance(value, Mapping):
        raise wrong(where, value, "an object: " + ", ".join(NAMES), "phrase_bias")
    given = {ALIASES.get(name, name): one for name, one in value.items() if one is not None}
    if unknown := [name for name in given if name not in NAMES]:
        raise RequestError(
            f"{where} has no field {shown(unknown[0])}, only {', '.join(NAMES)}", param="phrase_bias"
        )
    text, bias = given.get("text"), given.get("bias")
    if not (is_text(text) and isinstance(text, str) and 0 < len(text.encode()) <= MAX_PHRASE):
        raise wrong(f"{where}.text", text, f"a text of 1 to {MAX_PHRASE} bytes", "phrase_bias")
    if not (isinstance(bias, int | float) and is_number(bias) and abs(bias) <= MAX_PHRASE_BIAS):
        raise wrong(
            f"{where}.bias", bias, f"a number between -{MAX_PHRASE_BIAS} and {MAX_PHRASE_BIAS}", "phrase_bias"
        )
    for name in ("finish", "once"):
        if not isinstance(given.get(name, False), bool):
            raise wrong(f"{where}.{name}", given[name], "true or false", "phrase_bias")
    return PhraseBias(text, float(bias), given.get("finish", False), given.get("once", False))
