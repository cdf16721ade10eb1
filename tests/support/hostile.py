"""Generates hostile bodies for every POST route: known field names with values that break parsers."""

# ruff: noqa: E501 (tables)

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from llama_srb.http.routes import ROUTES
from llama_srb.request.aliases import CONVERTED, NON_SAMPLING_FIELDS, REFUSED, UNSUPPORTED
from llama_srb.request.fields import CANONICAL

PATHS = tuple(
    route.path
    for route in ROUTES
    if route.method == "POST"
    and "{" not in route.path
    and not route.files
    and route.handler.__name__ != "drain"
)
ELSEWHERE = (
    "messages", "model", "stream", "stream_options", "input", "texts", "content", "tokens", "options", "context",
    "system", "template", "raw", "format", "input_prefix", "input_suffix", "input_extra", "samplers", "preset",
    "suffix", "prompt", "continue", "response_format", "structured_outputs", "tools", "user_input", "text",
    "encoding_format", "dimensions", "genkey", "quiet", "n_predict", "sampler_order", "logprobs", "timeout",
)  # fmt: skip
NAMES = tuple(sorted({*CANONICAL, *CONVERTED, *NON_SAMPLING_FIELDS, *REFUSED, *UNSUPPORTED, *ELSEWHERE}))
DEEP: Any = []
for _ in range(200):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 2**31, 2**32 - 1, 2**63, -(2**63), 2**64, 0.1, -0.0, 1e308, 1e-320, "", "x", "7",
    "-1", "NaN", "\x00", "\x1b[2J", "‮", "﷽", "🦊" * 50, "a" * 5000, "../../etc/passwd", "%s%n", "' OR 1=1", "((((a*)*)*)*)*",
    'root ::= "a" root root | ""', "<|im_start|>", [], {}, [None], [[]], [{}], {"": ""}, {"a": None}, [0] * 300,
    ["x"] * 2000, {str(key): 1 for key in range(300)}, DEEP, [-1], [2**40], [1.5], ["x", 7, None],
    {"type": "json_schema", "json_schema": {"schema": {"$ref": "#"}}}, {"type": "object"},
    {"id": "17", "index": 10**9}, [{"role": "user", "content": "x"}], [{"role": 7}], [{"role": "user"}],
    [{"type": "function", "function": {"name": "f", "parameters": {"$ref": "#"}}}], {"1": 1e300}, [[1, "x"]],
)  # fmt: skip
BYTES = (
    b"", b"\x00", b"\xff\xfe", b"null", b"[]", b'"', b"{", b'{"a":', b"{}" * 2, b'{"prompt":"\xff"}', b"1e999",
    b'{"prompt":"\\ud800"}', b'{"temperature":NaN}', b"[" * 3000, b'{"a":' * 3000, b'{"prompt":1' + b"0" * 5000 + b"}",
    b'{"prompt":"x","prompt":7}', b"\xef\xbb\xbf{}", b"prompt=x",
)  # fmt: skip
START = {"prompt": "x", "max_tokens": 1, "n": 1, "stream": False}


def body(dice: random.Random) -> bytes:
    """One body: bytes that are not JSON, or fields of which some are valid."""
    if dice.random() < 0.1:
        return dice.choice(BYTES)
    fields = dict(START) if dice.random() < 0.7 else {}
    for name in dice.sample(NAMES, dice.randint(1, 4)):
        fields[name] = dice.choice(VALUES)
    data = json.dumps(fields).encode()
    return data if dice.random() < 0.95 else data[: dice.randrange(len(data))]


def requests(n: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """n pairs of a path and a body for it."""
    dice = random.Random(seed)
    for _ in range(n):
        yield dice.choice(PATHS), body(dice)
