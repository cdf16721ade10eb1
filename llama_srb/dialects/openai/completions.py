"""OpenAI's completions: chunks that end in `data: [DONE]`, or one JSON body. Pure.

One choice a frame, its text always a string: clients append it unseen. usage counts all choices. Why a
sequence ended is said in OpenAI's words: what was cancelled is "length", since its text is not finished.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import Count, Finish, Frames, Warned, as_json, warned
from llama_srb.dialects.common.reply import Text, Transcript
from llama_srb.dialects.openai.answer import (
    ChunkEnds,
    ChunkWriter,
    Error,
    Head,
    Marks,
    Usage,
    finish_of,
    in_order,
    marks_of,
    usage_of,
)
from llama_srb.dialects.openai.form import Form
from llama_srb.engine.events import Again, Done, Event, Extend, Prompt, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

KIND: Literal["text_completion"] = "text_completion"
PREFIX = "cmpl-"  # of ids
REPEATED = (Prompt, Extend, Again)  # events after which choices are told the prompt, if it is to be echoed

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class Logprobs(TypedDict):
    """Of one choice: an entry a token in each list."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]


class ChunkChoice(Marks):
    text: str
    index: Count
    logprobs: Logprobs | None
    finish_reason: Finish | None


class Choice(Marks):
    text: str
    index: Count
    logprobs: Logprobs | None
    finish_reason: Finish


class Completion(Head, Warned):
    object: Literal["text_completion"]
    choices: list[Choice]
    usage: Usage


class Chunk(Head, ChunkEnds):
    object: Literal["text_completion"]
    choices: Annotated[list[ChunkChoice], Field(max_length=1)]


CHUNKS = Frames(
    Chunk | Error,
    "Frames `data: <Chunk>`, each with one choice; `data: [DONE]` last, or a frame with an error.",
)

# ----------------------------------------------------------------------------------------------------
# What events add to choices
# ----------------------------------------------------------------------------------------------------


class Place:
    """Where tokens stand in a text that comes in pieces, in characters.

    A piece of a character (its token's text is U+FFFD) stands where the character does, and what follows is
    looked for behind it.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset  # of _text
        self._text = ""  # what no token has claimed yet

    def of(self, text: str, tokens: Iterable[str]) -> list[int]:
        """Offsets of these tokens, when this text has come since the last call."""
        self._text += text
        offsets, at, missed = [], 0, 0
        for token in tokens:
            found = self._text.find(token, at, at + missed + len(token))
            start = at if found < 0 else found
            offsets.append(self._offset + start)
            at, missed = (at, missed + len(token)) if found < 0 else (found + len(token), 0)
        self._offset, self._text = self._offset + at, self._text[at:]
        return offsets

    def skip(self) -> int:
        """The end of the text so far, where the next token stands."""
        self._offset, self._text = self._offset + len(self._text), ""
        return self._offset


def _lists(tokens: Iterable[Mapping[str, Any]], offsets: list[int]) -> Logprobs:
    """Tokens as OpenAI's four parallel lists; nothing predicts the first token of a prompt: null."""
    made: Logprobs = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": offsets}
    for token in tokens:
        known = token["logprob"] is not None
        made["tokens"].append(token["text"])
        made["token_logprobs"].append(token["logprob"])
        made["top_logprobs"].append(as_json(_by_text(token.get("top", ()))) if known else None)
    return made


def _by_text(others: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Most probable first; of tokens that read alike (pieces of characters) the first counts."""
    made: dict[str, float] = {}
    for other in others:
        made.setdefault(other["text"], other["logprob"])
    return made


@dataclass(frozen=True, slots=True)
class Piece:
    """What one event adds to one choice."""

    index: int
    text: str
    logprobs: Logprobs | None = None
    stop: Stop | None = None

    @property
    def choice(self) -> ChunkChoice:
        return _chunk_choice(self.index, self.text, self.logprobs, self.stop)


def _chunk_choice(index: int, text: str, logprobs: Logprobs | None, stop: Stop | None) -> ChunkChoice:
    if stop is None:
        return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": None}
    ended = finish_of(stop)
    return {"text": text, "index": index, "logprobs": logprobs, "finish_reason": ended, **marks_of(stop)}


class Pieces:
    """Events as what they add to choices, first to first + n - 1: chunks write the pieces one by one, a body
    adds them up.

    Choices that an extend adds begin with the prompt, too, as far as it has come by then.
    """

    def __init__(self, n: int, first: int = 0) -> None:
        self._first, self._n = first, n
        self._prompt = Place()
        self._echoed: list[tuple[str, Logprobs | None]] = []  # what every choice begins with
        self._places: dict[int, Place] = {}  # only with logprobs

    def of(self, event: Event) -> Iterator[Piece]:
        match event:
            case Stream():
                yield Piece(event.index, event.text, self._logprobs(event))
            case Prompt():
                offsets = self._prompt.of(event.text, _texts(event.tokens))
                self._echoed.append((event.text, _lists(event.tokens, offsets) if event.tokens else None))
                yield from (
                    Piece(index, *self._echoed[-1]) for index in range(self._first, self._first + self._n)
                )
            case Extend():
                self._n = event.count
                new = range(event.first, event.count)
                yield from (Piece(index, *echoed) for echoed in self._echoed for index in new)
            case Again():
                self._places.pop(event.index, None)
                yield from (Piece(event.index, *echoed) for echoed in self._echoed)
            case Stop():
                yield Piece(event.index, "", None, event)

    def _logprobs(self, event: Stream) -> Logprobs | None:
        if event.index not in self._places:
            self._places[event.index] = Place(self._prompt.skip())
        offsets = self._places[event.index].of(event.text, _texts(event.tokens))
        return _lists(event.tokens, offsets) if event.tokens else None


def _texts(tokens: Iterable[Mapping[str, Any]]) -> list[str]:
    return [token["text"] for token in tokens]


# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


class ChoiceWriter:
    """What events add to choices first to first + n - 1 as frames."""

    def __init__(self, request: CompletionRequest, writer: ChunkWriter, first: int = 0) -> None:
        self._writer = writer
        self._pieces = Pieces(request.n, first)
        self._plain = request.logprobs is None

    def text(self, event: Stream) -> bytes:
        """The frame of a new text. Nearly all frames are this one, so it is put together by hand."""
        if not self._plain:
            return self.render(event)
        writer = self._writer
        return b'%b,"choices":[{"text":%b,"index":%d,"logprobs":null,"finish_reason":null}]%b' % (
            writer.head, orjson.dumps(event.text), event.index, writer.tail,
        )  # fmt: skip

    def render(self, event: Event) -> bytes:
        """Its frames."""
        return b"".join(self.each(event))

    def each(self, event: Event) -> Iterator[bytes]:
        """The same one by one, and only when it is wanted."""
        return (self._writer.frame((piece.choice,)) for piece in self._pieces.of(event))


class Chunks:
    """Events as chunks, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, form: Form, *, model: str, created: int) -> None:
        self._writer = ChunkWriter(KIND, PREFIX, form, model=model, created=created)
        self._choices = ChoiceWriter(request, self._writer)
        self._warnings = request.warnings

    def render(self, events: list[Event]) -> bytes:
        """Frames for these events, which follow those of the last call."""
        text = self._choices.text
        return b"".join([text(one) if type(one) is Stream else self._render(one) for one in events])

    def frames(self, events: list[Event]) -> bytes | Iterator[bytes]:
        """The same as render(); what every choice repeats comes one by one, and only when it is wanted."""
        if not any(isinstance(event, REPEATED) for event in events):
            return self.render(events)
        return (frame for event in events for frame in self._each(event))

    def _each(self, event: Event) -> Iterable[bytes]:
        return self._choices.each(event) if isinstance(event, REPEATED) else (self._render(event),)

    def _render(self, event: Event) -> bytes:
        match event:
            case Start():
                self._writer.name(event.id)
                return self._writer.begin(self._warnings, [_chunk_choice(0, "", None, None)])
            case Done():
                return self._writer.end(event)
        return self._choices.render(event) or self._writer.other(event)


@dataclass(slots=True)
class EchoedText(Text):
    """A text in pieces that may begin with the prompt."""

    logprobs: Logprobs = field(default_factory=lambda: _lists((), []))

    def append(self, piece: Piece) -> None:
        self.pieces.append(piece.text)
        if (more := piece.logprobs) is not None:
            self.logprobs["tokens"] += more["tokens"]
            self.logprobs["token_logprobs"] += more["token_logprobs"]
            self.logprobs["top_logprobs"] += more["top_logprobs"]
            self.logprobs["text_offset"] += more["text_offset"]


def _in_pieces(text: EchoedText, event: Stream) -> None:
    """What a stream event adds to a text comes as its pieces."""


class Body:
    """Events folded into one JSON body, for one request; created is in seconds since 1970."""

    def __init__(self, request: CompletionRequest, *, model: str, created: int) -> None:
        self._request, self._model, self._created = request, model, created
        self._transcript = Transcript(request.n, EchoedText, _in_pieces)
        self._pieces = Pieces(request.n)

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            self._transcript.take((event,))
            for piece in self._pieces.of(event):
                self._transcript.texts[piece.index].append(piece)

    def fields(self) -> Completion:
        """The body; all events must have been taken."""
        done = self._transcript.done
        assert done is not None
        return {
            "id": PREFIX + done.id,
            "object": KIND,
            "created": self._created,
            "model": self._model,
            "choices": [self._choice(*one) for one in in_order(self._transcript)],
            "usage": usage_of(done),
            **warned(self._request.warnings),
        }

    def _choice(self, index: int, text: EchoedText, stop: Stop | None) -> Choice:
        logprobs = text.logprobs if self._request.logprobs is not None else None
        ended = finish_of(stop)
        return {
            "text": text.text,
            "index": index,
            "logprobs": logprobs,
            "finish_reason": ended,
            **marks_of(stop),
        }

    def json(self) -> bytes:
        """The same as JSON."""
        return orjson.dumps(self.fields())
