"""Other programs' long texts in recorded requests become texts of ours that have as many tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients.capture.proxy import Recorded
from tests.clients.captured import compact, fill
from tests.support.places import ROOT
from tests.support.serving import Server

ADDRESS = "127.0.0.1:9090"
LONG = 40  # characters; what is shorter is a name, a field's value or a stop text
SOURCES = ("docs/engine.md", "docs/diversity.md", "docs/structure.md", "docs/settings.md", "docs/install.md")


def _prose(path: Path) -> str:
    """The paragraphs of a page, without its tables, lists, headings and examples."""
    lines = path.read_text().split("\n")
    return " ".join(line for line in lines if line[:1].isalpha())


class Texts:
    """Texts of ours by the texts that they stand for; `named` is what a capture keeps of them."""

    def __init__(self, server: Server, message: str) -> None:
        """message: what the person wrote; it and what stands behind it stay."""
        self._server, self._message = server, message
        self._pool = self._tokens(" ".join(_prose(ROOT / name) for name in SOURCES))
        self._names: dict[str, str] = {}  # by the text that was replaced
        self.named: dict[str, str] = {}

    def replaced(self, value: Any) -> Any:
        """The same JSON; a long text is <<NAME>>, perhaps with its end."""
        match value:
            case str() if len(value) > LONG and " " in value:  # without a space it is an address or an id
                return self._replaced(value)
            case list():
                return [self.replaced(item) for item in value]
            case dict():
                return {name: self.replaced(item) for name, item in value.items()}
        return value

    def filled(self, body: str) -> str:
        """JSON with the texts in the places of their names."""
        return fill(body, self.named)

    def _replaced(self, text: str) -> str:
        """What stands before the person's message, from the line that this begins, is the program's."""
        head, found, _ = text.rpartition(self._message)
        if not found:
            return f"<<{self._name(text)}>>"
        head = head[: head.rfind("\n") + 1]
        return (f"<<{self._name(head)}>>" if head else "") + text[len(head) :]

    def _name(self, text: str) -> str:
        if text not in self._names:
            name = f"text {len(self._names)}"
            self._names[text], self.named[name] = name, self._of_as_many_tokens(text)
        return self._names[text]

    def _of_as_many_tokens(self, text: str) -> str:
        """A part of our pages with as many tokens; at its ends a text that is cut may get other tokens."""
        ending = "\n" * text.endswith("\n")
        n = len(self._tokens(text))
        for made in self._parts(n - len(ending), ending):
            if len(self._tokens(made)) == n:
                return made
        raise ValueError(f"no part of our pages has {n} tokens")

    def _parts(self, n: int, ending: str) -> Iterator[str]:
        for start in range(len(self._pool) - n):
            status, answer = self._server.json(
                "POST", "/detokenize", {"tokens": self._pool[start : start + n]}
            )
            assert status == 200
            yield answer["content"].strip() + ending

    def _tokens(self, text: str) -> list[int]:
        status, answer = self._server.json("POST", "/tokenize", {"content": text})
        assert status == 200
        tokens: list[int] = answer["tokens"]
        return tokens


def fits(body: str) -> bool:
    """Whether a body can be kept as an object: what JSON.stringify wrote, it would write again."""
    return compact(json.loads(body)) == body


def as_json(client: str, what: str, request: Recorded, texts: Texts | None = None) -> dict[str, object]:
    """A request as a capture keeps it: at the usual address, with `texts` in place of long ones."""
    body = request.body.decode()
    headers = [[name, ADDRESS if name.lower() == "host" else value] for name, value in request.headers]
    kept: object = body
    if body:
        assert fits(body), f"{client} {what} writes JSON otherwise than JSON.stringify"
        kept = json.loads(body)
        if texts is not None:
            kept = texts.replaced(kept)
            length = len(texts.filled(compact(kept)).encode())
            headers = [[n, str(length) if n.lower() == "content-length" else value] for n, value in headers]
    return {
        "client": client, "what": what, "method": request.method, "target": request.target,
        "headers": headers, "body": kept,
    }  # fmt: skip
