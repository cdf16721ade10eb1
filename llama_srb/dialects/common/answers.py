"""Parts of answers that several APIs share, as types. /openapi.json is made of these types. Pure.

Modules with such types do not import `annotations` from `__future__`: a TypedDict would compile each of them
from a text, which makes the server's start longer.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, cast

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.engine.events import TokenList

Count: TypeAlias = Annotated[int, Field(ge=0)]
Vector: TypeAlias = tuple[float, ...]
Finish: TypeAlias = Literal["stop", "length"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frames:
    """A stream of texts as an answer: the type of each frame, and how frames are separated."""

    of: Any
    meaning: str


class Warned(TypedDict, total=False):
    warnings: tuple[str, ...]


class Alternative(TypedDict):
    id: Count
    text: str
    logprob: float


class Token(TypedDict):
    """A token as the engine writes it. Nothing predicts the first token of a prompt: null."""

    id: Count
    text: str
    logprob: float | None
    top: NotRequired[list[Alternative]]


def warned(warnings: tuple[str, ...]) -> Warned:
    """The part of an answer with the warnings; nothing where there are none."""
    return {"warnings": warnings} if warnings else {}


def tokens_json(tokens: TokenList) -> list[Token]:
    """The engine's tokens, which are JSON already. For the type checker the JSON is still the tokens."""
    return cast(list[Token], orjson.Fragment(tokens.json))


def as_json(value: T) -> T:
    """A value that is written at once: as objects the tokens of a whole answer may be gigabytes.

    For the type checker the JSON is still the value.
    """
    return cast(T, orjson.Fragment(orjson.dumps(value)))
