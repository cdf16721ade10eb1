"""JSON of clients: both parsers read and refuse the same, and none has more than the bounds."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from llama_srb.request import json_text
from llama_srb.request.json_text import MAX_CONTAINERS, MAX_VALUES, json_of, read_json
from llama_srb.request.values import RequestError, shown
from tests.support.rows import each_row
from tests.support.worst_bodies import VALUES

# fmt: off
TEXTS = [
    b"1", b"-0", b"-0.0", b"18446744073709551615", b"18446744073709551616", b"-9223372036854775808",
    b"-9223372036854775809", b"99999999999999999999", b"1" * 400, b"1" * 5000, b"1e999", b"1e-999", b"NaN", b"-Infinity",
    b"01", b"1.", b".5", b"+1", b"[1e5, 1E+2, 0.1e-3]", b'"\\ud800"', b'{"\\ud800": 1}', b'"\\ud83d\\ude00"', b'"\x01"',
    b'"\\u0000"', b'"\\x"', b'"\xff"', b'"\xed\xa0\x80"', b"\xef\xbb\xbf1", b"\xc2\xa01", b"", b" ", b"1 2", b"[1,]", b"[1 ,2]", b"{'a':1}",
    b'{"a":1,"a":2}', b'{"a":[{"b":null}],"c":true}', b'{"a"', b"[[]", b"nul",
]
# fmt: on


def outcome(read: Callable[[bytes], Any], text: bytes) -> str:
    try:
        return repr(read(text))
    except json.JSONDecodeError:
        return "no JSON"


@each_row("text", TEXTS, ids=lambda text: repr(text[:30]))
def test_both_parsers_read_and_refuse_the_same(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    by_orjson = outcome(orjson.loads, text)
    monkeypatch.setattr(json_text, "MAX_WORK", -1)
    assert outcome(lambda data: read_json("x", data), text) == by_orjson


def test_an_object_of_many_members_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "MAX_WORK", -1)
    dice = random.Random(7)
    value = {str(dice.randrange(40_000)): i for i in range(25_000)}
    assert list(read_json("x", orjson.dumps(value)).items()) == list(value.items())


@each_row(
    ("text", "message"),
    [
        (b"[" + b"1," * MAX_VALUES + b"1]", f"x has {MAX_VALUES + 1} commas and opening brackets"),
        (b"[" + b"[]," * MAX_CONTAINERS + b"1]", f"x has more than {MAX_CONTAINERS} lists and objects"),
        (b"[" + b"{}," * MAX_CONTAINERS + b"1]", f"x has more than {MAX_CONTAINERS} lists and objects"),
        (b"[" * 70 + b"[]," * MAX_CONTAINERS, f"x has more than {MAX_CONTAINERS} lists and objects"),
        (b"[" * 10**6, "x is nested over 300 levels deep; it must be at most 64"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_text_beyond_a_bound_is_refused(text: bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        read_json("x", text)
    assert caught.value.message.startswith(message)


@each_row("kind", [*VALUES])
def test_an_error_that_shows_a_large_value_makes_no_copy_of_it(kind: str) -> None:
    """A copy would take 0.1 s for each 16 MB, in the event loop."""
    value = outcome_of(VALUES[kind](1 << 20))
    seen: list[int] = []

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "return" and isinstance(argument, str):
            seen.append(len(argument))

    sys.setprofile(profile)
    try:
        shown(value)
    finally:
        sys.setprofile(None)
    assert max(seen) < 10_000


def outcome_of(text: bytes) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


@each_row(
    "value",
    [{}, [], {"a": [1] * 120_001, "é": "x"}, [[0.5] * 300_000] * 3, [{"a": [1, 2]}] * 250, {"a": [[]] * 101}],
    ids=["{}", "[]", "numbers", "vectors", "objects", "lists"],
)
def test_a_long_answer_is_written_as_orjson_writes_it(value: Any) -> None:
    assert json_of(value) == orjson.dumps(value)
