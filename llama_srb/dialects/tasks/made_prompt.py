"""The exact prompt of a request: its parts, each with its tokens. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Literal, NotRequired, TypeAlias, TypeVar

from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, StoryNotes, Warned, story_notes, warned
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.shapes import Part
from llama_srb.request.story.parts import Assembled

T = TypeVar("T")
PartKind: TypeAlias = Literal[
    "begin", "prelude", "recall", "prefix", "prompt", "postfix", "answer", "system", "template", "message",
    "memory", "lore", "summary", "text", "note",
]  # fmt: skip
Texts: TypeAlias = Sequence[tuple[PartKind, str, bool]]
"""The kind of each part, its text, and whether the names of control tokens in it are these tokens."""


class PromptPart(TypedDict):
    """A part of a prompt, with the ids of the tokens that begin in it.

    kind: begin is a token that the model's tokenizer adds; template and message are parts of a chat; memory,
    lore, summary, text and note are parts of a story, the others those of a task. special: the names of
    control tokens in it are these tokens. pieces: the texts of the tokens; a token may have a part of a
    character, which is then U+FFFD. Prompts that are given as token ids have none.
    """

    kind: PartKind
    text: str
    special: bool
    tokens: list[Count]
    pieces: NotRequired[list[str]]


class MadePrompt(Warned):
    """control: the ids of control tokens in the prompt. story: how it was made of a story."""

    model: str
    prompt: str
    prompt_tokens: Count
    parts: list[PromptPart]
    control: NotRequired[list[Count]]
    story: NotRequired[StoryNotes]


def texts_of(request: CompletionRequest, *, is_chat: bool) -> Texts:
    """The parts of a prompt that is no task's. is_chat: the model's template has made it."""
    kinds: tuple[PartKind, PartKind] = ("message", "template") if is_chat else ("prompt", "prompt")
    if isinstance(request.prompt, str):
        return [(kinds[True], request.prompt, True)]
    parts = [one for one in request.prompt if isinstance(one, Part)]
    return [(kinds[one.special], one.text, one.special) for one in parts]


def with_story(texts: Texts, story: Assembled | None) -> Texts:
    """The parts, with those of a story in place of the prompt that was made of it."""
    if story is None:
        return texts
    made = list[tuple[PartKind, str, bool]]()
    for kind, text, special in texts:
        if kind == "prompt":
            made += [(part.name, part.text, special) for part in story.parts]
        else:
            made.append((kind, text, special))
    return made


def made_prompt(
    model: str, texts: Texts, result: Mapping[str, Any], request: CompletionRequest
) -> MadePrompt:
    """The answer. result: that of the engine's command tokenize, with pieces."""
    ids, pieces = list(result["tokens"]), list(map(bytes, result["pieces"]))
    at = _places([text.encode() for _, text, _ in texts], pieces)
    texts_of_tokens = [piece.decode(errors="replace") for piece in pieces]

    tokens_of, pieces_of = _by_place(ids, at), _by_place(texts_of_tokens, at)

    def part(i: int | None, kind: PartKind, text: str, special: bool) -> PromptPart:
        tokens, pieces = tokens_of.get(i, []), pieces_of.get(i, [])
        return {"kind": kind, "text": text, "special": special, "tokens": tokens, "pieces": pieces}

    begin = [part(None, "begin", "", True)]
    parts = [part(i, *one) for i, one in enumerate(texts)]
    made: MadePrompt = {
        "model": model,
        "prompt": "".join(text for _, text, _ in texts),
        "prompt_tokens": len(ids),
        "parts": (begin if begin[0]["tokens"] else []) + parts,
        "control": list(result["control"]),
    }
    if request.assembled is not None:
        made["story"] = story_notes(request.assembled)
    return {**made, **warned(request.warnings)}


def _by_place(values: Iterable[T], places: Iterable[int | None]) -> dict[int | None, list[T]]:
    found = defaultdict[int | None, list[T]](list)
    for value, place in zip(values, places, strict=True):
        found[place].append(value)
    return found


def _places(texts: Sequence[bytes], pieces: Iterable[bytes]) -> list[int | None]:
    """For each token the part in which it begins; None for one that is before the text."""
    whole, ends, places, offset = b"".join(texts), [*accumulate(map(len, texts))], list[int | None](), 0
    for piece in pieces:
        fits = next((one for one in (piece, piece.lstrip(b" ")) if whole.startswith(one, offset)), None)
        if not fits and not offset:
            places.append(None)
            continue
        places.append(min(bisect_right(ends, offset), len(texts) - 1))
        offset += len(fits or b"")
    return places
