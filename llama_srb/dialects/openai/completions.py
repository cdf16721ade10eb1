"""OpenAI's completions: chunks that end in `data: [DONE]`, or one JSON body. Pure.

Each frame has one choice. Its text is always a string, since clients append it without a check. usage counts
all choices. A cancelled sequence has the finish_reason "length", since its text is not finished.
"""

import codecs
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import Text, Transcript
from llama_srb.dialects.common.response_types import (
    Count,
    Finish,
    Frames,
    Noted,
    as_json,
    finish_of,
    noted,
    with_warnings,
)
from llama_srb.dialects.common.token_names import Name, by_name, id_name, key_name
from llama_srb.dialects.openai.answer import (
    NO_DRAWN,
    NO_IDS,
    NO_PROMPT,
    ChunkExtras,
    ChunkWriter,
    ComparedTexts,
    DrawnFields,
    EndFields,
    Error,
    Head,
    Origin,
    PromptFields,
    PromptTokens,
    Usage,
    all_drawn,
    drawn_fields,
    end_fields,
)
from llama_srb.dialects.openai.body import ChoicesBody
from llama_srb.dialects.openai.form import Form
from llama_srb.engine.events import Again, Done, Event, Extend, Prompt, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

KIND: Literal["text_completion"] = "text_completion"
PREFIX = "cmpl-"  # before the id
Repeated: TypeAlias = Prompt | Extend | Again
"""The events after which choices get the prompt, if the request has echo."""

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class Logprobs(TypedDict):
    """The tokens of one choice; each list has one entry for each token.

    processed_…: after the samplers, with logprobs_mode both.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[Count]
    processed_token_logprobs: NotRequired[list[float]]
    processed_top_logprobs: NotRequired[list[dict[str, float]]]


class ChunkChoice(EndFields, DrawnFields, PromptFields):
    """prompt_token_ids: in the first chunk of each choice, with return_token_ids."""

    text: str
    index: Count
    logprobs: Logprobs | None
    finish_reason: Finish | None


class Choice(EndFields, DrawnFields, PromptFields):
    text: str
    index: Count
    logprobs: Logprobs | None
    finish_reason: Finish


class Completion(Head, Noted, ComparedTexts):
    object: Literal["text_completion"]
    choices: list[Choice]
    usage: Usage


class Chunk(Head, ChunkExtras):
    object: Literal["text_completion"]
    choices: Annotated[list[ChunkChoice], Field(max_length=1)]


CHUNKS = Frames(
    Chunk | Error,
    "Frames `data: <Chunk>`, each with one choice; the last frame is `data: [DONE]` or an error.",
)

# ----------------------------------------------------------------------------------------------------
# Events as pieces of choices
# ----------------------------------------------------------------------------------------------------


class OffsetFinder:
    """Finds the offsets of tokens, in characters, in a text that comes in pieces.

    A token that is a part of a character gets the character's offset; its bytes tell where the character
    ends. Others are searched for, since some have no place in the text: those of control, for instance.
    """

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset  # of _text
        self._text = ""  # the end of the text so far, whose tokens have not come yet
        self._to_come = 0  # characters whose tokens have come, but not their text
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def of(self, text: str, tokens: Iterable[Mapping[str, Any]]) -> list[int]:
        """Adds the next piece of text; returns the offsets of the tokens that came with it."""
        self._text += text[self._to_come :]
        self._to_come -= min(self._to_come, len(text))
        offsets, at, missed = [], 0, 0
        for token in tokens:
            if "bytes" in token:
                offsets.append(self._offset + at)
                at += len(self._decoder.decode(bytes(token["bytes"])))
                continue
            at += len(self._decoder.decode(b"", final=True))  # a character that has no end
            own = token["text"]
            found = self._text.find(own, at, at + missed + len(own))
            offsets.append(self._offset + (at if found < 0 else found))
            at, missed = (at, missed + len(own)) if found < 0 else (found + len(own), 0)
        self._to_come += max(0, at - len(self._text))
        self._offset, self._text = self._offset + at, self._text[at:]
        return offsets

    def skip(self) -> int:
        """Returns the length of the text so far, which is the offset of the next token."""
        self._offset, self._text = self._offset + len(self._text) - self._to_come, ""
        self._to_come = 0
        return self._offset


def _no_lists() -> Logprobs:
    return {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}


def _lists(tokens: Iterable[Mapping[str, Any]], offsets: list[int], name: Name) -> Logprobs:
    """Tokens as OpenAI's four parallel lists; null for the first token of a prompt: nothing predicts it."""
    made: Logprobs = {**_no_lists(), "text_offset": offsets}
    for token in tokens:
        known = token["logprob"] is not None
        made["tokens"].append(name(token))
        made["token_logprobs"].append(token["logprob"])
        made["top_logprobs"].append(as_json(by_name(token.get("top", ()), name)) if known else None)
        if "processed_logprob" in token:
            made.setdefault("processed_token_logprobs", []).append(token["processed_logprob"])
            likely = as_json(by_name(token["processed_top"], name))
            made.setdefault("processed_top_logprobs", []).append(likely)
    return made


@dataclass(frozen=True, slots=True)
class Piece:
    """The part that one event adds to one choice."""

    index: int
    text: str
    logprobs: Logprobs | None = None
    stop: Stop | None = None
    drawn: Stream | None = None  # the event with the tokens that were drawn


def _chunk_choice(
    piece: Piece, drawn: DrawnFields = NO_DRAWN, prompt: PromptFields = NO_PROMPT
) -> ChunkChoice:
    return {
        **prompt,
        "text": piece.text,
        "index": piece.index,
        "logprobs": piece.logprobs,
        "finish_reason": None if piece.stop is None else finish_of(piece.stop),
        **end_fields(piece.stop),
        **drawn,
    }


class Pieces:
    """Converts events to pieces of the choices first to first + n - 1, for chunks and for a body.

    With echo, choices that an extend adds also begin with the prompt, as far as it has come by then.
    """

    def __init__(self, request: CompletionRequest, first: int = 0) -> None:
        self._first, self._n = first, request.n
        self._name = id_name if request.return_tokens_as_token_ids else key_name
        self._prompt = OffsetFinder()
        self._echoed: list[tuple[str, Logprobs | None]] = []  # the pieces of the prompt, for each choice
        self._offsets: dict[int, OffsetFinder] = {}  # by choice

    def of(self, event: Event) -> Iterator[Piece]:
        match event:
            case Stream():
                yield Piece(event.index, event.text, self._logprobs(event), drawn=event)
            case Prompt():
                offsets = self._prompt.of(event.text, event.tokens)
                lists = _lists(event.tokens, offsets, self._name) if event.tokens else None
                self._echoed.append((event.text, lists))
                yield from (
                    Piece(index, *self._echoed[-1]) for index in range(self._first, self._first + self._n)
                )
            case Extend():
                self._n = event.count
                new = range(event.first, event.count)
                yield from (Piece(index, *echoed) for echoed in self._echoed for index in new)
            case Again():
                self._offsets.pop(event.index, None)
                yield from (Piece(event.index, *echoed) for echoed in self._echoed)
            case Stop():
                yield Piece(event.index, "", None, event)

    def _logprobs(self, event: Stream) -> Logprobs | None:
        if event.index not in self._offsets:
            self._offsets[event.index] = OffsetFinder(self._prompt.skip())
        offsets = self._offsets[event.index].of(event.text, event.tokens)
        return _lists(event.tokens, offsets, self._name) if event.tokens else None


# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


class ChoiceWriter:
    """Renders events as frames of the choices first to first + n - 1."""

    def __init__(self, request: CompletionRequest, writer: ChunkWriter, first: int = 0) -> None:
        self._writer = writer
        self._pieces = Pieces(request, first)
        self._plain = not request.tells_of_tokens
        self._wants_ids = request.return_token_ids
        self._prompt = PromptTokens()
        self._begun: set[int] = set()  # choices that have the ids of the prompt

    def begin(self, start: Start) -> None:
        """Takes the start event, which is no frame of a choice."""
        self._prompt.take(start)

    def text(self, event: Stream) -> bytes:
        """The frame of new text. Nearly all frames are of this kind, so they are formatted by hand."""
        if not self._plain:
            return self.render(event)
        writer = self._writer
        return b'%b,"choices":[{"text":%b,"index":%d,"logprobs":null,"finish_reason":null}]%b' % (
            writer.head, orjson.dumps(event.text), event.index, writer.tail,
        )  # fmt: skip

    def render(self, event: Event) -> bytes:
        """All frames of an event."""
        return b"".join(self.each(event))

    def each(self, event: Event) -> Iterator[bytes]:
        """The frames of an event one by one, each made when it is taken."""
        return (self._writer.frame((self._choice(piece),)) for piece in self._pieces.of(event))

    def _choice(self, piece: Piece) -> ChunkChoice:
        drawn = drawn_fields(piece.drawn) if piece.drawn else NO_DRAWN
        if not self._wants_ids:
            return _chunk_choice(piece, drawn)
        drawn = {**NO_IDS, **drawn}
        if piece.index in self._begun:
            return _chunk_choice(piece, drawn)
        self._begun.add(piece.index)
        return _chunk_choice(piece, drawn, {"prompt_token_ids": self._prompt.ids})


def frames_of(
    events: list[Event],
    render: Callable[[list[Event]], bytes],
    each: Callable[[Repeated], Iterator[bytes]],
) -> bytes | Iterator[bytes]:
    """Renders events; if each choice repeats the prompt, each frame is made when it is taken, by each().

    All copies of a long prompt at once would take too much memory.
    """
    if not any(isinstance(event, Repeated) for event in events):
        return render(events)
    one_by_one = (each(one) if isinstance(one, Repeated) else (render([one]),) for one in events)
    return itertools.chain.from_iterable(one_by_one)


class Chunks:
    """Renders the events of one request as chunks."""

    def __init__(self, request: CompletionRequest, form: Form, origin: Origin) -> None:
        self.writer = ChunkWriter(KIND, PREFIX, form, origin)
        self.empty_choice = _chunk_choice(Piece(0, ""))
        self._choices = ChoiceWriter(request, self.writer)
        self._notes = noted(request)

    def render(self, events: list[Event]) -> bytes:
        """The frames of events that follow those of the last call."""
        text = self._choices.text
        return b"".join([text(one) if type(one) is Stream else self._render(one) for one in events])

    def frames(self, events: list[Event]) -> bytes | Iterator[bytes]:
        """As render(), but see frames_of()."""
        return frames_of(events, self.render, self._choices.each)

    def _render(self, event: Event) -> bytes:
        match event:
            case Start():
                self.writer.name(event.id)
                self._choices.begin(event)
                return self.writer.begin(with_warnings(self._notes, event), [self.empty_choice])
            case Done():
                return self.writer.end(event)
        return self._choices.render(event) or self.writer.other(event)


@dataclass(slots=True)
class EchoedText(Text):
    """The text so far of one choice, and its logprobs; with echo it begins with the prompt."""

    logprobs: Logprobs = field(default_factory=_no_lists)

    def append(self, piece: Piece) -> None:
        self.pieces.append(piece.text)
        if piece.drawn is not None:
            self.add_ids(piece.drawn)
        if (more := piece.logprobs) is not None:
            self.logprobs["tokens"] += more["tokens"]
            self.logprobs["token_logprobs"] += more["token_logprobs"]
            self.logprobs["top_logprobs"] += more["top_logprobs"]
            self.logprobs["text_offset"] += more["text_offset"]
            if "processed_token_logprobs" in more:
                drawn, likely = more["processed_token_logprobs"], more["processed_top_logprobs"]
                self.logprobs.setdefault("processed_token_logprobs", []).extend(drawn)
                self.logprobs.setdefault("processed_top_logprobs", []).extend(likely)


def _ignore(text: EchoedText, event: Stream) -> None:
    """Adds nothing: Body appends the event's pieces itself."""


class Body(ChoicesBody[EchoedText]):
    """Builds one body from the events of one request."""

    kind, prefix = KIND, PREFIX

    def __init__(self, request: CompletionRequest, origin: Origin) -> None:
        super().__init__(request, origin, Transcript(request.n, EchoedText, _ignore))
        self._pieces = Pieces(request)

    def take_one(self, event: Event) -> None:
        super().take_one(event)
        for piece in self._pieces.of(event):
            self.transcript.texts[piece.index].append(piece)

    def choice(self, index: int, text: EchoedText, stop: Stop | None) -> Choice:
        request = self.request
        return {
            "text": text.text,
            "index": index,
            "logprobs": text.logprobs if request.logprobs is not None else None,
            "finish_reason": finish_of(stop),
            **end_fields(stop),
            **all_drawn(text, request),
            **self.prompt.fields(request),
        }
