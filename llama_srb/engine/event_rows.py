"""Reads the events' fields as rows. Imports nothing of the house.

A row is one line of a dataclass in `events`. A field is private until its row says Public. From the rows
follow the parsers (`codec`), the frames (`dialects/events`), gRPC's messages, and the classes that
scripts/events writes: the types of the frames and the client's events.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args, get_origin


@dataclass(frozen=True, slots=True)
class Public:
    """Makes a field a key of the event's frames.

    number: in llama_srb.proto; None if gRPC has no such event. type, about: its type in /openapi.json, where
    the field's own type says too little, and a description. place: among the keys, where it is not that of
    the row. always: the key is needed, although the engine may leave it out.
    """

    number: int | None = None
    type: str = ""
    about: str = ""
    place: int | None = None
    always: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A field. needed: the engine's line must have it. public: None if clients do not see it."""

    name: str
    type: Any
    needed: bool
    default: Any
    public: Public | None

    @property
    def may_be_absent(self) -> bool:
        """Whether frames leave the key out where its value is empty."""
        is_empty = self.default is not MISSING and not self.default
        return is_empty and not (self.public and self.public.always)


def rows(event: type[Any]) -> list[Row]:
    """The fields of an event, in the order of its class."""
    made = []
    for f in fields(event):
        kind, public = get_args(f.type) if get_origin(f.type) is Annotated else (f.type, None)
        needed = f.default is MISSING and f.default_factory is MISSING
        made.append(Row(f.name, kind, needed, f.default, public))
    return made


def public_rows(event: type[Any]) -> dict[str, Row]:
    """The fields that clients see, by name, in the promised order of the keys."""
    found = [(row, row.public) for row in rows(event) if row.public]
    order = [row for row, public in found if public.place is None]
    for row, public in found:
        if public.place is not None:
            order.insert(public.place, row)
    return {row.name: row for row in order}


def wire_name(event: type[Any]) -> str:
    """The name of an event in lines, frames and llama_srb.proto."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", event.__name__).lower()
