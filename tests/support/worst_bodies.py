"""The worst bodies for a server's event loop, of any size: JSON that is deep, wide, or costly to read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

SMALL: dict[str, Any] = {  # what routes need, so that they come to their other fields
    "prompt": "x", "messages": [{"role": "user", "content": "x"}], "input": "x", "texts": ["x"],
    "content": "x", "text": "x", "tokens": [1], "query": "x", "max_tokens": 1, "stream": False,
    "max_output_tokens": 1, "message": "x", "name": "x", "root": "0", "nodes": {"0": {}},
}  # fmt: skip


def _text(unit: bytes) -> Callable[[int], bytes]:
    return lambda size: b'"' + unit * ((size - 2) // len(unit)) + b'"'


def _items(*units: bytes) -> Callable[[int], bytes]:
    """A list of them, as many as a body may have values."""

    def made(size: int) -> bytes:
        unit = b",".join(units)
        marks = sum(map(unit.count, (b",", b"[", b"{"))) + 1
        times = min((size - 2) // (len(unit) + 1), 990_000 // marks)
        return b"[" + b",".join([unit] * times) + b"]"

    return made


def _members(value: bytes) -> Callable[[int], bytes]:
    """An object with as many names, each another one."""

    def made(size: int) -> bytes:
        marks = 1 + sum(map(value.count, (b",", b"[", b"{")))
        times = min((size - 2) // (len(value) + 12), 990_000 // marks)
        return b"{" + b",".join([b'"%d":%b' % (i, value) for i in range(times)]) + b"}"

    return made


def _deep(size: int) -> bytes:
    """Lists in lists, as deep as a body may be, side by side."""
    one = b"[" * 60 + b"]" * 60
    return b"[" + b",".join([one] * min(size // 121, 16_000)) + b"]"


VALUES: Mapping[str, Callable[[int], bytes]] = {
    "one word": _text(b"a"),
    "quotes": _text(b'\\"'),
    "empty lines": _text(b"\\n"),
    "escapes": _text(b"\\u00e9"),
    "surrogates": _text(b"\\ud83d\\ude00"),
    "lone surrogates": _text(b"\\ud800"),
    "emoji": _text("😀".encode()),
    "commas": _text(b"a,"),
    "json in a text": _text(b'[{\\"a\\":'),
    "numbers": _items(b"1"),
    "fractions": _items(b"0.1234567890123"),
    "digits": lambda size: b"1" * size,
    "texts": _items(b'"abcdefghijkl"'),
    "empty lists": _items(b"[]"),
    "pairs": _items(b"[1,2]"),
    "objects": _items(b'{"a":1}'),
    "parts": _items(b'{"type":"text","text":"a"}'),
    "messages": lambda size: _items(b'{"role":"user","content":"%b"}' % (b"a" * (size // 10_100)))(size),
    "members": _members(b"0"),
    "members of lists": _members(b"[]"),
    "sequences": lambda size: b"[" + b",".join([b'{"logit_bias":%b}' % _members(b"1")(size // 8)] * 8) + b"]",
    "deep": _deep,
}
RAW: Mapping[str, Callable[[int], bytes]] = {  # no JSON at all
    "only quotes": lambda size: b"[" * 65 + b'"' * (size - 65),
    "only closing": lambda size: b"[" * 65 + b"]" * (size - 65),
    "only opening": lambda size: b"[" * size,
    "only backslashes": lambda size: b"[" * 65 + b"\\" * (size - 65),
    "only line breaks": lambda size: b"\n" * size,
    "no characters": lambda size: b'{"x":"' + b"\xff" * (size - 8) + b'"}',
}


def body(kind: str, field: str, size: int, **more: Any) -> bytes:
    """A body of at most `size` bytes, whose `field` has a value of this kind; or raw bytes."""
    if kind in RAW:
        return RAW[kind](size)
    head = json.dumps({name: value for name, value in (SMALL | more).items() if name != field}).encode()
    return head[:-1] + b', "%b": %b}' % (field.encode(), VALUES[kind](size - len(head) - len(field) - 8))
