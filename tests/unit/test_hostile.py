"""Any body becomes a request, whose line the engine can read, or a RequestError."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llama_srb.dialects import (
    messages,
)
from llama_srb.engine.codec import Lines, ProtocolError, parse
from llama_srb.request.parse import parse_body
from llama_srb.request.values import MAX_DEPTH, RequestError
from tests.support.hostile import NAMES, VALUES
from tests.support.long import amount
from tests.support.parsers import PARSERS

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=8,
)
BODIES = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=9), st.sampled_from(VALUES) | JSON, max_size=6
)


@pytest.mark.parametrize("read", PARSERS.values(), ids=PARSERS)
@settings(max_examples=amount(20, 150), deadline=None)
@given(body=BODIES)
def test_a_body_is_a_request_or_a_request_error(
    read: Callable[[dict[str, Any]], Any], body: dict[str, Any]
) -> None:
    with contextlib.suppress(RequestError):
        read(dict(body))


def depth(value: Any) -> int:
    """The number of levels of nested JSON."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


def nested(kinds: str, levels: int, inner: Any) -> Any:
    """A value nested in lists (l) and objects (o), alternating by this pattern."""
    for i in range(levels):
        inner = [inner] if kinds[i % len(kinds)] == "l" else {"function": inner}
    return inner


CARRIERS = (
    "chat_template_kwargs",
    "json_schema",
    "messages",
    "tools",
    "response_format",
    "format",
    "sequences",
)
DEEP = st.builds(
    nested,
    st.text("lo", min_size=1, max_size=4),
    st.integers(MAX_DEPTH - 6, MAX_DEPTH + 2),
    st.sampled_from((None, 1, "x", {}, [], {"type": "json_schema"})),
)
DEEP_BODIES = st.dictionaries(
    st.sampled_from(CARRIERS) | st.sampled_from(NAMES),
    DEEP | DEEP.map(lambda value: orjson.dumps(value).decode()),
    min_size=1,
    max_size=3,
)
START = {"prompt": "x", "messages": [{"role": "user", "content": "x"}]}


@pytest.mark.parametrize("read", PARSERS.values(), ids=PARSERS)
@settings(max_examples=amount(15, 100), deadline=None)
@given(body=DEEP_BODIES)
def test_no_body_becomes_a_line_that_is_too_deep_for_the_engine(
    read: Callable[[dict[str, Any]], Any], body: dict[str, Any]
) -> None:
    with contextlib.suppress(RequestError):
        line = read(parse_body(orjson.dumps(START | body)))
        if isinstance(line, bytes):
            assert depth(orjson.loads(line)) <= MAX_DEPTH


@settings(max_examples=amount(150, 500), deadline=None)
@given(
    data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode(errors="surrogatepass"))
)
def test_bytes_are_a_body_or_a_message_or_a_request_error(data: bytes) -> None:
    for read in (parse_body, messages.parse):
        with contextlib.suppress(RequestError):
            read(data)


@settings(max_examples=amount(150, 500), deadline=None)
@given(
    chunks=st.lists(
        st.binary(max_size=80) | st.sampled_from((b'{"event":"stream",', b'"id":"1"}', b"\n")), max_size=9
    )
)
def test_lines_are_events_or_protocol_errors(chunks: list[bytes]) -> None:
    lines = Lines()
    for line in (line for chunk in chunks for line in lines.feed(chunk)):
        with contextlib.suppress(ProtocolError):
            parse(line)
