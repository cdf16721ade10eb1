"""The fields that name a sequence, running or ended: `continue` and `fork`; and the ids of requests. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llama_srb.request.values import INT32_MAX, MAX_INDEX, RequestError, is_text, shown, switch, whole, wrong


@dataclass(frozen=True, slots=True)
class SequenceName:
    """Names a sequence, running or ended. at: only its first tokens. No id: a sequence of this request.

    exact: as its tokens were drawn, with those that have no text; else as its text is.
    """

    index: int
    at: int | None = None
    id: str = ""
    exact: bool = False

    def fields(self) -> dict[str, Any]:
        """The object for the engine."""
        return self.place() | ({"exact": True} if self.exact else {})

    def place(self) -> dict[str, Any]:
        given = {"id": self.id} if self.id else {}
        return given | {"index": self.index} | ({} if self.at is None else {"at": self.at})


def sequence_name(name: str, *, with_id: bool) -> Callable[[object], object]:
    """A reader of {"id", "index", "at", "exact"}; null is absent. The id may have OpenAI's prefix: cmpl-…

    Without an id there is no exact: the sequence is one of this request.
    """
    required = ("id", "index") if with_id else ("index",)
    known = (*required, "at", "exact") if with_id else (*required, "at")

    def normalise(value: object) -> object:
        if value is None or isinstance(value, SequenceName):
            return value
        if not isinstance(value, dict):
            raise wrong(name, value, "an object: " + ", ".join(known))
        given = {key: one for key, one in value.items() if one is not None}
        for key in [key for key in given if key not in known]:
            raise RequestError(f"{name} has no field {shown(key)}, only {', '.join(known)}", param=name)
        for key in [key for key in required if key not in given]:
            raise RequestError(f"{name}.{key} is missing", param=f"{name}.{key}")
        id = plain_id(f"{name}.id", given["id"]) if with_id else ""
        at = whole(f"{name}.at", given["at"], 0, INT32_MAX) if "at" in given else None
        exact = switch(f"{name}.exact", given.get("exact", False))
        return SequenceName(whole(f"{name}.index", given["index"], 0, MAX_INDEX), at, id, exact)

    return normalise


continued = sequence_name("continue", with_id=True)


def plain_id(name: str, value: object) -> str:
    """The id of a request, without OpenAI's prefix `cmpl-`, `chatcmpl-` or `resp_` if it has one."""
    given = value if isinstance(value, str) and is_text(value) else ""
    id = given.removeprefix("chat").removeprefix("cmpl-").removeprefix("resp_")
    if not id:
        raise wrong(name, value, "the id of a request")
    return id
