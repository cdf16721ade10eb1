"""Lists of texts, and bodies with one entry for each text: shared by vectors and scores. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import orjson

from llama_srb.dialects.common.response_types import warned
from llama_srb.engine.events import Done, Event
from llama_srb.request.values import is_text, is_tokens, wrong

Text: TypeAlias = str | list[int]


def one_text(name: str, wanted: str, *, empty: bool = True, param: str = "") -> Callable[[object], Text]:
    """A reader of a text or a list of token ids; empty: whether the text may be empty."""

    def read(value: object) -> Text:
        if isinstance(value, str) and is_text(value) and (value or empty):
            return value
        if isinstance(value, list) and is_tokens(value):
            return value
        raise wrong(name, value, wanted, param or name)

    return read


def list_of_texts(
    name: str, most: int, wanted: str, one: Callable[[str], Callable[[object], Text]]
) -> Callable[[object], tuple[Text, ...]]:
    """A reader of one text, one list of token ids, or a list of either.

    one: makes the reader of an item from the item's name, e.g. "input[3]".
    """

    def read(value: object) -> tuple[Text, ...]:
        if isinstance(value, str) or (isinstance(value, list) and is_tokens(value)):
            return (one(name)(value),)
        if not isinstance(value, list) or not 1 <= len(value) <= most:
            raise wrong(name, value, wanted)
        return tuple(one(f"{name}[{i}]")(item) for i, item in enumerate(value))

    return read


def model_name(value: object) -> str:
    """Reads the name of a model."""
    if not isinstance(value, str):
        raise wrong("model", value, "a text")
    return value


class TextsBody:
    """Builds one JSON body from events; a dialect implements `gather` and `body`."""

    def __init__(self, *, model: str, warnings: tuple[str, ...]) -> None:
        self.model, self.warnings = model, warnings
        self._done: Done | None = None

    def gather(self, event: Event) -> None:
        """Takes one event."""
        raise NotImplementedError

    def body(self, done: Done) -> Any:
        raise NotImplementedError

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        for event in events:
            self._done = event if isinstance(event, Done) else self._done
            self.gather(event)

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        assert self._done is not None
        body = self.body(self._done)
        has_place = self.warnings and isinstance(body, dict)  # a list has none
        return orjson.dumps({**body, **warned(self.warnings)} if has_place else body)
