"""Parts of answers that several APIs share, as types. /openapi.json is made of these types. Pure.

Modules with such types do not import `annotations` from `__future__`: annotations would be texts then, and a
TypedDict would compile each of them, which makes the server's start longer.
"""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired, TypeAlias, TypeVar, cast, get_args

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.engine.events import Done, Error, Start, Stop, TokenList
from llama_srb.request.fields import CompletionRequest, Recalled
from llama_srb.request.story.parts import Assembled, LoreReport, PartName, Place, StoryPart, Why
from llama_srb.request.values import MAX_WARNINGS

Count: TypeAlias = Annotated[int, Field(ge=0)]
Vector: TypeAlias = tuple[float, ...]
Cut: TypeAlias = Literal["surplus", "pruned", "repetition"]
"""Why finish, prune or the fields of loops have ended a text: only clients that send these fields see it."""
Finish: TypeAlias = Literal["stop", "length"] | Cut
UNFINISHED: Literal["length"] = "length"
"""finish_reason of other texts that did not end by themselves: other APIs have no "cancelled"."""
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
    """A chunk of a memory in the prompt. score: the cosine of its vector and that of the client's text.

    score: none in a memory without vectors. scores: why it came: words (BM25), meaning (the cosine), fused.
    """

    memory: str
    id: str
    document: str
    score: NotRequired[float]
    scores: NotRequired[dict[str, float]]


class StoryPartSize(TypedDict):
    """A part of the prompt, in its order. entry: the number of the lore's entry that it is."""

    name: PartName
    tokens: Count
    entry: NotRequired[Count]


class LoreNote(TypedDict):
    """Why an entry of the lore is there (always, key, meaning) or not (no_key, no_second_key, budget).

    place: top, or beside the note if it was found after the last cut. key: the one that was found; at: its
    place in the client's prompt, in characters. nearness: to the story's end by meaning, where it was asked.
    """

    entry: Count
    name: NotRequired[str]
    place: Place | None
    why: Why
    key: NotRequired[str]
    at: NotRequired[Count]
    nearness: NotRequired[float]
    tokens: Count


class StoryNotes(TypedDict):
    """The prompt that was made of a story. begins: where its text begins in the client's prompt.

    begins is in characters (Unicode code points); cut_tokens is the number of tokens before it; room: tokens
    that the prompt may have.
    """

    parts: list[StoryPartSize]
    begins: Count
    cut_tokens: Count
    room: Count
    lore: list[LoreNote]


class Noted(Warned, total=False):
    """recalled: what a task has recalled for the last turn, if it found something.

    story: the prompt's parts, if the request has a story and one prompt.
    """

    recalled: list[RecalledChunk]
    story: StoryNotes


NOTHING: Noted = {}


class PromptSize(TypedDict, total=False):
    """Fields of the error for a prompt that exceeds the context.

    n_prompt_tokens is a lower bound if the message says "at least". n_ctx: tokens of one sequence.
    """

    n_prompt_tokens: Count
    n_ctx: Count


NO_SIZE: PromptSize = {}


class Alternative(TypedDict):
    """bytes: as of a token."""

    id: Count
    text: str
    bytes: NotRequired[list[int]]
    logprob: float


class Token(TypedDict):
    """A token as the engine writes it. The first token of a prompt has no logprob: nothing predicts it.

    bytes: of a token that is no text, but has parts of characters; text has U+FFFD for them. processed_…:
    after the samplers, with logprobs_mode both.
    """

    id: Count
    text: str
    bytes: NotRequired[list[int]]
    logprob: float | None
    top: NotRequired[list[Alternative]]
    processed_logprob: NotRequired[float]
    processed_top: NotRequired[list[Alternative]]


class RankedToken(Token):
    """A token of the prompt; rank: 1 if it was the likeliest one."""

    rank: NotRequired[Count]


class CallPiece(TypedDict):
    """A piece of a tool call; only the first piece has id and name."""

    index: Count
    id: NotRequired[str]
    name: NotRequired[str]
    arguments: str


def warned(warnings: tuple[str, ...], start: Start | None = None) -> Warned:
    """The field warnings of an answer, with those of the engine; no field if there are no warnings."""
    if start is not None:
        warnings = (*warnings, *start.warnings)[:MAX_WARNINGS]
    return {"warnings": warnings} if warnings else {}


def with_warnings(notes: Noted, start: Start | None) -> Noted:
    """The notes of an answer, with the engine's warnings."""
    return {**notes, **warned(notes.get("warnings", ()), start)}


def cut_of(stop: Stop | None) -> Cut | None:
    """Why one of the fields of Cut has ended the text; None if none has."""
    reason = None if stop is None else stop.finish_reason
    return cast(Cut, reason) if reason in get_args(Cut) else None


def finish_of(stop: Stop | None) -> Finish:
    """The finish_reason of a text in the words of OpenAI's API and those that follow it."""
    ended = "stop" if stop is not None and stop.finish_reason == "stop" else UNFINISHED
    return cut_of(stop) or ended


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
    if first.assembled is not None and not others:
        notes["story"] = story_notes(first.assembled)
    return notes


def story_notes(story: Assembled) -> StoryNotes:
    """The parts of a story's prompt, and the reasons for its lore."""
    return {
        "parts": [_part_size(part) for part in story.parts],
        "begins": story.begins,
        "cut_tokens": story.cut_tokens,
        "room": story.room,
        "lore": [_lore_note(i, one) for i, one in enumerate(story.lore)],
    }


def _part_size(part: StoryPart) -> StoryPartSize:
    made: StoryPartSize = {"name": part.name, "tokens": part.tokens}
    if part.entry is not None:
        made["entry"] = part.entry
    return made


def _lore_note(entry: int, report: LoreReport) -> LoreNote:
    call = report.call
    made: LoreNote = {"entry": entry, "place": report.place, "why": call.why, "tokens": report.tokens}
    if report.name:
        made["name"] = report.name
    if call.at is not None:
        made["key"], made["at"] = call.key, call.at
    if call.nearness is not None:
        made["nearness"] = round(call.nearness, 4)
    return made


def recalled_for(request: CompletionRequest) -> list[RecalledChunk]:
    """The chunks that stand in the prompt for the user's last turn."""
    chunks = request.recalled[max(request.recalled)] if request.recalled else ()
    return list(map(_recalled_chunk, chunks))


def _recalled_chunk(one: Recalled) -> RecalledChunk:
    chunk: RecalledChunk = {"memory": one.memory, "id": one.id, "document": one.document}
    if one.score is not None:
        chunk["score"] = one.score
    if one.scores:
        chunk["scores"] = dict(one.scores)
    return chunk


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
