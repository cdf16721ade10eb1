"""Parts of answers that several APIs share, as types. /openapi.json is made of these types. Pure.

Modules with such types do not import `annotations` from `__future__`: annotations would be texts then, and a
TypedDict would compile each of them, which makes the server's start longer.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, cast

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.engine.events import Error, TokenList
from llama_srb.request.fields import CompletionRequest

Count: TypeAlias = Annotated[int, Field(ge=0)]
Vector: TypeAlias = tuple[float, ...]
Finish: TypeAlias = Literal["stop", "length"]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Frames:
    """A streamed answer: the type of each frame, and a description of how frames are written."""

    of: Any
    meaning: str


class Warned(TypedDict, total=False):
    warnings: tuple[str, ...]


class RecalledChunk(TypedDict):
    """A chunk of a memory in the prompt. score: the cosine of its vector and that of the client's text."""

    memory: str
    id: str
    document: str
    score: float


class Noted(Warned, total=False):
    """recalled: what a task has recalled for the last turn, if it found something."""

    recalled: list[RecalledChunk]


NOTHING: Noted = {}


class PromptSize(TypedDict, total=False):
    """Fields of the error for a prompt that exceeds the context.

    n_prompt_tokens is a lower bound if the message says "at least". n_ctx: tokens of one sequence.
    """

    n_prompt_tokens: Count
    n_ctx: Count


NO_SIZE: PromptSize = {}


class Alternative(TypedDict):
    id: Count
    text: str
    logprob: float


class Token(TypedDict):
    """A token as the engine writes it. The first token of a prompt has no logprob: nothing predicts it."""

    id: Count
    text: str
    logprob: float | None
    top: NotRequired[list[Alternative]]


def warned(warnings: tuple[str, ...]) -> Warned:
    """The field warnings of an answer; no field if there are no warnings."""
    return {"warnings": warnings} if warnings else {}


def noted(first: CompletionRequest, *others: CompletionRequest) -> Noted:
    """The fields of an answer about its prompts: warnings of the first, what a task has recalled for all."""
    notes: Noted = {}
    if first.warnings:
        notes["warnings"] = first.warnings
    if chunks := [chunk for one in (first, *others) for chunk in recalled_for(one)]:
        notes["recalled"] = chunks
    return notes


def recalled_for(request: CompletionRequest) -> list[RecalledChunk]:
    """The chunks that stand in the prompt for the user's last turn."""
    chunks = request.recalled[max(request.recalled)] if request.recalled else ()
    return [
        {"memory": one.memory, "id": one.id, "document": one.document, "score": one.score} for one in chunks
    ]


def size_in(error: Error) -> PromptSize:
    """The sizes in the engine's error; no field if it is about anything but the prompt's size."""
    if error.n_prompt_tokens is None or error.n_ctx is None:
        return NO_SIZE
    return {"n_prompt_tokens": error.n_prompt_tokens, "n_ctx": error.n_ctx}


def tokens_json(tokens: TokenList) -> list[Token]:
    """The engine's tokens, which are JSON already and are copied as they are; typed as the parsed tokens."""
    return cast(list[Token], orjson.Fragment(tokens.json))


def as_json(value: T) -> T:
    """Serializes a value now: as objects, the tokens of a whole answer may take gigabytes.

    The result is typed as the value.
    """
    return cast(T, orjson.Fragment(orjson.dumps(value)))
