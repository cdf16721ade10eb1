"""The field `then`: a text behind each free answer, and a second answer with a structure of its own. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from llama_srb.request.shapes import choices, from_json, schema, structural_tag, structure_text, texts
from llama_srb.request.values import INT32_MAX, RequestError, is_text, shown, switch, whole, wrong


@dataclass(frozen=True, slots=True)
class Then:
    """A second answer, behind `text`. return_free: the client gets the free answer, too.

    special: the names of control tokens in `text` are these tokens.
    """

    text: str
    grammar: str | None = None
    json_schema: str | None = None
    regex: str | None = None
    choice: tuple[str, ...] | None = None
    structural_tag: str | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    return_free: bool = False
    special: bool = True

    @property
    def most_tokens(self) -> int:
        """An upper bound for text and second answer, if that has a limit: a token has at least one byte."""
        limit = 128 if self.max_tokens is None else max(self.max_tokens, 0)
        return len(self.text.encode()) + limit

    def fields(self) -> dict[str, Any]:
        """The object for the engine: only given fields; the engine has the defaults."""
        given = {name: getattr(self, name) for name in READERS}
        given = {name: value for name, value in given.items() if value or name == "text"}
        return given if self.special else given | {"special": False}


def _text(value: object) -> object:
    if not is_text(value):
        raise wrong("text", value, "a text")
    return value


def _max_tokens(value: object) -> object:
    if (n := whole("max_tokens", value, -1, INT32_MAX)) == 0:
        raise wrong("max_tokens", value, "-1 or at least 1")
    return n


READERS: dict[str, Callable[[object], Any]] = {
    "text": _text,
    "grammar": structure_text("grammar"),
    "json_schema": schema,
    "regex": structure_text("regex"),
    "choice": choices,
    "structural_tag": structural_tag,
    "max_tokens": _max_tokens,
    "stop": texts("stop"),
    "return_free": partial(switch, "return_free"),
}
STRUCTURES = ("grammar", "json_schema", "regex", "choice", "structural_tag")


def read_then(value: object) -> object:
    """An object, or one as JSON; errors name its fields as then.text."""
    if value is None or isinstance(value, Then):
        return value
    value = from_json("then", value)
    if not isinstance(value, dict):
        raise wrong("then", value, "an object: " + ", ".join(READERS))
    given = {name: one for name, one in value.items() if one is not None}
    for name in [name for name in given if name not in READERS]:
        raise RequestError(f"then has no field {shown(name)}, only {', '.join(READERS)}", param="then")
    if "text" not in given:
        raise RequestError("then.text is missing", param="then.text")
    structures = [name for name in STRUCTURES if name in given]
    if len(structures) > 1:
        first, second = structures[:2]
        raise RequestError(f"only one of then.{first} and then.{second} may be given", param=f"then.{second}")
    return Then(**{name: _read(name, one) for name, one in given.items()})


def _read(name: str, value: object) -> Any:
    try:
        return READERS[name](value)
    except RequestError as error:
        raise RequestError(f"then.{error.message}", param=f"then.{name}", status=error.status) from None
