"""Requests that clients really sent, as this folder's JSON keeps them; capture/ records them."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.support.serving import Server

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Captured:
    """One request. what: what its client did then; headers in their order, spelled as they were sent."""

    client: str
    what: str
    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: str

    @property
    def fields(self) -> dict[str, Any]:
        """Of the body, which is an object."""
        fields: dict[str, Any] = json.loads(self.body)
        return fields

    def header(self, name: str) -> str:
        return next((value for other, value in self.headers if other.lower() == name.lower()), "")

    def having(self, **fields: Any) -> Captured:
        """The same with other values in its body; the rest of it as it was."""
        body = compact(self.fields | fields)
        length = str(len(body.encode()))
        headers = tuple((n, length if n.lower() == "content-length" else v) for n, v in self.headers)
        return replace(self, headers=headers, body=body)

    def send(self, server: Server) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Status, headers and body of the answer to just these bytes."""
        with contextlib.closing(server.connect()) as connection:
            self.begin(connection)
            with connection.getresponse() as response:
                return response.status, response.headers, response.read()

    def begin(self, connection: http.client.HTTPConnection) -> None:
        """Sends it; the caller reads the answer."""
        connection.putrequest(self.method, self.target, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers:
            connection.putheader(name, value)
        connection.endheaders(self.body.encode())

    def __str__(self) -> str:
        return f"{self.client} {self.what}"


def compact(body: object) -> str:
    """As JavaScript's JSON.stringify writes it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def fill(body: str, texts: Mapping[str, str]) -> str:
    """JSON with texts in the places of their names, <<NAME>>."""
    for name, text in texts.items():
        body = body.replace(f"<<{name}>>", json.dumps(text, ensure_ascii=False)[1:-1])
    return body


def read(name: str) -> list[Captured]:
    """All requests of a file. A body is there as text, or as the object that `compact` makes it of.

    Texts that many requests share stand once, in `texts`, and where they belong as <<NAME>>.
    """
    data = json.loads((FOLDER / name).read_text())
    return [_captured(one, data.get("texts", {})) for one in data["requests"]]


def _captured(one: Mapping[str, Any], texts: Mapping[str, str]) -> Captured:
    body = one["body"] if isinstance(one["body"], str) else compact(one["body"])
    body = fill(body, texts)
    headers = tuple((name, value) for name, value in one["headers"])
    return Captured(one["client"], one["what"], one["method"], one["target"], headers, body)
