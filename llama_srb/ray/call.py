"""A request on its way from the ingress to a replica, and what the ingress reads of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Set
from dataclasses import dataclass
from typing import Any

import orjson

from llama_srb.dialects.openai import error_body
from llama_srb.dialects.responses.history import is_reference
from llama_srb.request.json_text import read_json
from llama_srb.request.values import MAX_MESSAGES, RequestError

Headers = list[tuple[str, str]]

PROMPTS = ("system", "prompt", "messages", "message", "input", "input_prefix", "instructions")
HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade"})
OF_THIS_END = HOP_BY_HOP | {
    "date",
    "server",
    "x-request-id",
    "x-worker",
}  # set by Ray's HTTP server, or by a replica
NEW_ID = re.compile(rb'"id": ?"(?:[a-z]+[-_])?([0-9a-f]{32})"')
LONGEST_ID = 80  # bytes that NEW_ID matches at most
START, NEW_REQUEST = '{"event": "start"', re.compile(r'"request": ?"([0-9a-f]{32})"')
ID_IN_PATH = re.compile(r"/(?:v1/completions|responses)/(?:[a-z]+[-_])?([0-9a-f]{32})(?:/|$)")
NAMED = re.compile(r"(?:[a-z]+[-_])?([0-9a-f]{32})(?:_i?\d+)?")  # a request, or an item of its answer
WORKER = re.compile(r"/w/([A-Za-z0-9_-]{1,64})(?=/)")


@dataclass(frozen=True, slots=True)
class Call:
    """A request.

    target: its path and query. prompt: what the router compares: prompts that begin alike may share cells.
    """

    method: str
    target: str
    headers: Headers
    body: bytes = b""
    prompt: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of an answer."""

    status: int
    headers: Headers

    @property
    def is_event_stream(self) -> bool:
        return any(
            name.lower() == "content-type" and value.startswith("text/event-stream")
            for name, value in self.headers
        )


def without(names: Set[str], headers: Headers) -> Headers:
    """The headers that are passed on."""
    return [(name, value) for name, value in headers if name.lower() not in names]


def texts(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Headers as Ray's and aiohttp's bytes have them."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def parsed(body: bytes) -> dict[str, Any]:
    """A JSON object; empty for any other body, of which the server says what is wrong."""
    try:
        found = read_json("the body", body)
    except (json.JSONDecodeError, RequestError):
        return {}
    return found if isinstance(found, dict) else {}


class NewId:
    """Finds the id of the request that an answer is for: the first one in its bytes."""

    def __init__(self) -> None:
        self._rest: bytes | None = b""  # the end of what was read; None: the id was found

    def read(self, chunk: bytes) -> str | None:
        """Reads more of the answer; the id if it is there now."""
        if self._rest is None:
            return None
        data = self._rest + chunk
        if (found := NEW_ID.search(data)) is None:
            self._rest = data[-LONGEST_ID:]
            return None
        self._rest = None
        return found[1].decode()


def new_id_in(message: str) -> str | None:
    """The id of the request that begins with a WebSocket's message, whose own `id` may be the client's."""
    if not message.startswith(START):
        return None
    if found := NEW_REQUEST.search(message):
        return found[1]
    return NewId().read(message.encode())


def prompt_of(fields: dict[str, Any]) -> str:
    """The text that the router compares: the fields that make the prompt, in its order."""
    parts = [fields[name] for name in PROMPTS if fields.get(name)]
    return "".join(part if isinstance(part, str) else orjson.dumps(part).decode() for part in parts)


def id_of(path: str, fields: dict[str, Any]) -> str | None:
    """The id of the earlier request that this one is about: it is in the path, or the body names it."""
    if found := ID_IN_PATH.search(path):
        return found[1]
    named = fields.get("continue")
    ids = [named.get("id") if isinstance(named, dict) else None, fields.get("previous_response_id")]
    items = fields.get("input")
    items = items[:MAX_MESSAGES] if isinstance(items, list) else []
    ids += [one.get("id") for one in items if is_reference(one)]
    found = next((NAMED.fullmatch(id) for id in ids if isinstance(id, str)), None)
    return found[1] if found else None


def refusal(status: int, message: str, code: str, headers: Headers | None = None) -> list[Head | bytes]:
    """An error in OpenAI's form."""
    body = orjson.dumps(error_body(message, code=code, is_clients=status < 500))
    return [Head(status, [("Content-Type", "application/json"), *(headers or [])]), body]
