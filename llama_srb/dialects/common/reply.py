"""A generation as frames or as one body, for the dialects of other servers. Pure.

This module collects the events of each sequence; a dialect subclasses Reply and writes the JSON. ServerInfo
has the facts of this server that clients may read. An InfoEndpoint is a path that generates nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, Told, compared, warned
from llama_srb.engine.events import Again, Done, Error, Event, Extend, Queued, Start, Stop, Stream, TokenList
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.parse import Defaults

Json: TypeAlias = dict[str, Any]
SSE = "text/event-stream; charset=utf-8"
ModelState: TypeAlias = Literal["unloaded", "loading", "loaded", "failed"]
UNTOLD = frozenset({"prompt_logprobs", "return_token_ids", "return_entropies"})
"""What the forms of the other servers' answers have no place for."""


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server and the model of a request.

    model: its own name. asked: its name in the answer, if that is another one. parent: of an adapter or a
    task in a list, the model's name. context: tokens of one sequence. modified, now: seconds since 1970.
    agent: the client's User-Agent. models: for a list, all that the client may use. leaves: when it will be
    unloaded if no request comes, in seconds since 1970; None: never. max_instances: None if the request names
    its model, or if the server has one model; else the most models that are loaded at once, 0: no limit.
    """

    model: str
    asked: str = ""
    parent: str = ""
    is_task: bool = False
    state: ModelState = "loaded"
    models: tuple[ServerInfo, ...] = ()
    path: str = ""
    architecture: str = ""
    parameters: int = 0
    quantisation: str = ""
    size_bytes: int = 0
    modified: float = 0.0
    context: int = 0
    parallel: int = 1
    chat_template: str = ""
    slots: bool = True  # whether /slots is answered
    special_tokens: Mapping[str, str] = field(default_factory=dict)  # by Hugging Face's names: bos_token, …
    only_embeds: bool = False  # the model makes vectors, and generates no text
    cpu: str = ""  # the CPU that the engine's kernels are compiled for
    devices: tuple[Mapping[str, Any], ...] = ()  # of the engine, with what lies there
    layers: int = 0
    gpu_layers: int = 0
    drafts: str = "none"  # what next tokens are guessed from: none, texts, model
    infill: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    now: float = 0.0
    uptime: float = 0.0
    agent: str = ""
    leaves: float | None = None
    max_instances: int | None = None
    defaults: Defaults = field(default_factory=Defaults)

    @property
    def name(self) -> str:
        """The model's name in the answer."""
        return self.asked or self.model

    def defaults_of(self, n: int, max_tokens: int, *, stream: bool, sampling: Json | None = None) -> Defaults:
        """The server's defaults, except those of a dialect."""
        own: Json = {"n": n, "max_tokens": max_tokens, "whole": not stream, "sampling": sampling or {}}
        own |= {"untold": UNTOLD}
        return replace(self.defaults, **own)


@dataclass(frozen=True, slots=True)
class InfoEndpoint:
    """A path that generates nothing.

    answer: makes the answer from the body, the result of the engine's command, and the server's facts.
    op: the engine's command, or how it follows from the body; empty if none is needed. arguments: makes its
    arguments from the body.
    lists: the answer lists all models.
    """

    answer: Callable[[Json, Mapping[str, Any], ServerInfo], Any]
    op: str | Callable[[Json], str] = ""
    arguments: Callable[[Json], Json] = lambda body: {}
    lists: bool = False

    def op_for(self, body: Json) -> str:
        """The engine's command for this body."""
        return self.op(body) if callable(self.op) else self.op


def from_server_info(value: Callable[[ServerInfo], Any]) -> InfoEndpoint:
    """A path whose answer is made from the server's facts alone."""
    return InfoEndpoint(lambda body, result, about: value(about))


def from_models(value: Callable[[tuple[ServerInfo, ...]], Any]) -> InfoEndpoint:
    """A path whose answer is made from the facts of all models."""
    return InfoEndpoint(lambda body, result, about: value(about.models), lists=True)


class LikelyToken(TypedDict):
    id: Count
    token: str
    bytes: list[Count]
    logprob: float


class TokenLogprob(LikelyToken):
    """A token with its alternatives."""

    top_logprobs: list[LikelyToken]


def token_json(token: Mapping[str, Any]) -> TokenLogprob:
    """The engine's token as a TokenLogprob."""
    return {**_likely_token(token), "top_logprobs": list(map(_likely_token, token.get("top", ())))}


def _likely_token(token: Mapping[str, Any]) -> LikelyToken:
    return {
        "id": token["id"],
        "token": token["text"],
        "bytes": bytes_of(token),
        "logprob": token["logprob"],
    }


def bytes_of(token: Mapping[str, Any]) -> list[int]:
    """The bytes of a token, which may be parts of characters."""
    given: list[int] | None = token.get("bytes")
    return list(token["text"].encode()) if given is None else given


def arguments_of(text: str) -> Any:
    """A tool call's arguments as an object; it is empty if the call is incomplete."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}


@dataclass(slots=True)
class Text:
    """The text so far of one sequence."""

    pieces: list[str] = field(default_factory=list)
    token_lists: list[TokenList] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)  # the pieces of reasoning, in a chat
    token_ids: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    calls: dict[int, Json] = field(default_factory=dict)  # tool calls by index: id, name, arguments as text
    stop: Stop | None = None
    count: int = 0  # stream events
    has_new_line: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def tokens(self) -> Iterator[Mapping[str, Any]]:
        return itertools.chain.from_iterable(self.token_lists)

    def add(self, event: Stream) -> None:
        """Adds the event's text and tokens, for a body."""
        self.add_text(event)
        if event.tokens:
            self.token_lists.append(event.tokens)
        self.add_ids(event)

    def add_ids(self, event: Stream) -> None:
        self.token_ids += event.token_ids
        self.entropies += event.entropies

    def add_text(self, event: Stream) -> None:
        """Adds the event's text, for a stream whose last frame has all texts."""
        self.pieces.append(event.text)
        self.thoughts.append(event.reasoning)
        self.note(event)

    def note(self, event: Stream) -> None:
        """Notes only what the last frame needs, for a stream: with logprobs all events may take gigabytes."""
        self.count += 1
        self.has_new_line = self.has_new_line or "\n" in event.text
        for piece in event.tool_calls:
            new = {"id": piece.get("id", ""), "name": piece.get("name", ""), "arguments": ""}
            self.calls.setdefault(piece["index"], new)["arguments"] += piece["arguments"]

    @property
    def length(self) -> int:
        """Its tokens. While the sequence runs: the stream events so far, which are about as many."""
        return self.stop.length if self.stop else self.count


OneText = TypeVar("OneText", bound=Text)


class Transcript(Generic[OneText]):
    """Collects the events of one request by sequence.

    An again event clears its sequence, an extend event adds sequences. new: makes an empty text.
    add: adds a stream event to a text.
    """

    def __init__(self, n: int, new: Callable[[], OneText], add: Callable[[OneText, Stream], None]) -> None:
        self._new, self._add = new, add
        self.texts = [new() for _ in range(n)]
        self.id = ""  # empty until the first event
        self.start: Start | None = None
        self.done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Queued():
                self.id = event.id
            case Start():
                self.id, self.start = event.id, event
            case Stream():
                self._add(self.texts[event.index], event)
            case Stop():
                self.texts[event.index].stop = event
            case Again():
                self.texts[event.index] = self._new()
            case Extend():
                self.texts += [self._new() for _ in range(event.first, event.count)]
            case Done():
                self.done = event

    @property
    def ordered(self) -> list[int]:
        """The indices of the sequences in the order of a body: best first, if they are ranked."""
        return list(self.done.ranking if self.done and self.done.ranking else range(len(self.texts)))


class Reply(Transcript[Text]):
    """The answer to one request: frames while it runs, or one body at its end.

    A dialect implements `piece`, `end`, `body` and `failure`. Each object that `piece` or `end` yields
    becomes one frame.
    """

    limit: Limit | None = None  # a longer prompt is truncated; None: it is refused
    content_type: ClassVar[str] = SSE
    pause: ClassVar[bytes] = b": keep-alive\n\n"  # is sent on an idle stream, so that no proxy closes it

    def __init__(
        self, request: CompletionRequest, about: ServerInfo, *, stream: bool, keeps_texts: bool = False
    ) -> None:
        of_a_stream = Text.add_text if keeps_texts else Text.note
        super().__init__(request.n, Text, of_a_stream if stream else Text.add)
        self.request = request
        self.about = about
        self.stream = stream
        self._last = Stop("", 0, 0, 0, "")

    # A dialect implements these

    def piece(self, event: Stream) -> Iterator[Mapping[str, Any]]:
        raise NotImplementedError

    def end(self, index: int, stop: Stop) -> Iterator[Mapping[str, Any]]:
        """The end of one sequence. For the last one it is called at the done event."""
        raise NotImplementedError

    def body(self) -> Any:
        raise NotImplementedError

    def failure(self, error: Error) -> Mapping[str, Any]:
        """An error after the first byte was sent."""
        raise NotImplementedError

    def frame(self, data: Mapping[str, Any]) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(data)

    # All dialects share these

    def render(self, events: Iterable[Event]) -> bytes | Iterator[bytes]:
        """The frames of events that follow those of the last call; an iterator of what is written at once."""
        return b"".join(self.frame(data) for event in events for data in self.messages(event))

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        return orjson.dumps(self.body())

    @property
    def prompt_tokens(self) -> int:
        return self.start.prompt_tokens if self.start else 0

    @property
    def told(self) -> Told:
        """The field warnings, and what all texts say together, for the body or the last frame."""
        return {**warned(self.request.warnings, self.start), **compared(self.done)}

    def messages(self, event: Event) -> Iterator[Mapping[str, Any]]:
        """The objects of an event's frames."""
        self.take((event,))
        match event:
            case Stream():
                yield from self.piece(event)
            case Stop() if any(text.stop is None for text in self.texts):
                yield from self.end(event.index, event)
            case Stop():
                self._last = event  # its frame has timings, which come with done
            case Done():
                yield from self.end(self._last.index, self._last)
            case Error():
                yield self.failure(event)
