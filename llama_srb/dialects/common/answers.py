"""Parts of answers that several APIs share, as types. /openapi.json is made of these types. Pure.

Modules with such types do not import `annotations` from `__future__`: annotations would be texts then, and a
TypedDict would compile each of them, which makes the server's start longer.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, cast

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.engine.events import Done, Error, TokenList
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


class AnswerVotes(TypedDict):
    """An answer that texts have, and how many of them; with rank_by.vote."""

    answer: str
    count: Count


class DiversityFigures(TypedDict):
    """How much the texts differ; incomplete ones do not count.

    beginnings: different first three words. mean_overlap: of two texts, the share of their words, pairs and
    triples that both have; null with fewer than two. effective_number: exp of the entropy of the sizes of
    clusters, in which texts overlap by a third.
    """

    texts: Count
    beginnings: Count
    mean_overlap: float | None
    effective_number: float


class Compared(TypedDict, total=False):
    """What the comparison of all texts has found. votes: the leading answer first."""

    votes: list[AnswerVotes]
    diversity_stats: DiversityFigures


class Told(Warned, Compared, total=False):
    """The field warnings, and what the comparison of all texts has found."""


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


def compared(done: Done | None) -> Compared:
    """What the comparison of all texts has found; no field if they were not compared."""
    found: Compared = {}
    if done is not None and done.votes is not None:
        found["votes"] = [{"answer": one.answer, "count": one.count} for one in done.votes]
    if done is not None and (stats := done.diversity_stats) is not None:
        found["diversity_stats"] = {
            "texts": stats.texts,
            "beginnings": stats.beginnings,
            "mean_overlap": stats.mean_overlap,
            "effective_number": stats.effective_number,
        }
    return found


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
