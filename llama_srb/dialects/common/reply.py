"""What the dialects of other servers have in common: a generation as their frames or as one body. Pure.

A dialect says what its JSON looks like; here events are gathered by sequence. ServerInfo is this server, as
clients are told of it; an InfoEndpoint is a path that generates nothing.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, TypeAlias, TypeVar

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import Count, Warned, warned
from llama_srb.engine.events import Again, Done, Error, Event, Extend, Queued, Start, Stop, Stream, TokenList
from llama_srb.request.fields import CompletionRequest, Limit
from llama_srb.request.parse import Defaults

Json: TypeAlias = dict[str, Any]
SSE = "text/event-stream; charset=utf-8"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """The server and its model; context is tokens of a sequence, modified and now seconds since 1970."""

    model: str
    path: str = ""
    names: frozenset[str] = frozenset()
    architecture: str = ""
    parameters: int = 0
    quantisation: str = ""
    size_bytes: int = 0
    modified: float = 0.0
    context: int = 0
    parallel: int = 1
    chat_template: str = ""
    cpu: str = ""  # what the engine's products are compiled for
    infill: Mapping[str, str] = field(default_factory=dict)
    version: str = ""
    now: float = 0.0
    uptime: float = 0.0
    defaults: Defaults = field(default_factory=Defaults)

    def defaults_of(self, n: int, max_tokens: int, *, stream: bool, sampling: Json | None = None) -> Defaults:
        """The server's, but for what a dialect has otherwise."""
        own: Json = {"n": n, "max_tokens": max_tokens, "whole": not stream, "sampling": sampling or {}}
        return replace(self.defaults, **own)


@dataclass(frozen=True, slots=True)
class InfoEndpoint:
    """A path without a generation: an engine's command, or none, its arguments from the body, the answer."""

    answer: Callable[[Json, Mapping[str, Any], ServerInfo], Any]
    op: str = ""
    arguments: Callable[[Json], Json] = lambda body: {}


def told(value: Callable[[ServerInfo], Any]) -> InfoEndpoint:
    """A path that answers what this server says of itself."""
    return InfoEndpoint(lambda body, result, about: value(about))


class LikelyToken(TypedDict):
    id: Count
    token: str
    bytes: list[Count]
    logprob: float


class TokenLogprob(LikelyToken):
    """A token with its alternatives."""

    top_logprobs: list[LikelyToken]


def token_json(token: Mapping[str, Any]) -> TokenLogprob:
    """A token with its alternatives."""
    return {**_alone(token), "top_logprobs": list(map(_alone, token.get("top", ())))}


def _alone(token: Mapping[str, Any]) -> LikelyToken:
    text = token["text"]
    return {"id": token["id"], "token": text, "bytes": list(text.encode()), "logprob": token["logprob"]}


@dataclass(slots=True)
class Text:
    """The text so far of one sequence."""

    pieces: list[str] = field(default_factory=list)
    token_lists: list[TokenList] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)  # of a chat
    calls: dict[int, Json] = field(default_factory=dict)  # of a chat's tools: name, arguments as text
    stop: Stop | None = None
    count: int = 0  # of the pieces
    has_new_line: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def tokens(self) -> Iterator[Mapping[str, Any]]:
        return itertools.chain.from_iterable(self.token_lists)

    def add(self, event: Stream) -> None:
        self.pieces.append(event.text)
        if event.tokens:
            self.token_lists.append(event.tokens)
        self.thoughts.append(event.reasoning)
        self.note(event)

    def note(self, event: Stream) -> None:
        """What is still to be known of a piece that was streamed: with logprobs all may be gigabytes."""
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
    """One request's events by sequence: what is said again begins anew, an extend brings more.

    new: a text of which nothing has come. add: takes a stream event into one.
    """

    def __init__(self, n: int, new: Callable[[], OneText], add: Callable[[OneText, Stream], None]) -> None:
        self._new, self._add = new, add
        self.texts = [new() for _ in range(n)]
        self.id = ""  # once it is known
        self.begun: Start | None = None
        self.done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case Queued():
                self.id = event.id
            case Start():
                self.id, self.begun = event.id, event
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
        """The sequences as a body has them: best first, if they are ranked."""
        return list(self.done.ranking if self.done and self.done.ranking else range(len(self.texts)))


class Reply(Transcript[Text]):
    """One request's answer: frames while it runs, or a body at its end.

    A dialect writes `piece`, `end`, `body` and `failure`; what a method yields becomes a frame each.
    """

    limit: Limit | None = None  # where a prompt that is too long is cut
    content_type: ClassVar[str] = SSE
    pause: ClassVar[bytes] = b": keep-alive\n\n"  # what keeps an idle stream open

    def __init__(self, request: CompletionRequest, about: ServerInfo, *, stream: bool) -> None:
        super().__init__(request.n, Text, Text.note if stream else Text.add)
        self.request = request
        self.about = about
        self.stream = stream
        self._last = Stop("", 0, 0, 0, "")

    # What a dialect writes

    def piece(self, event: Stream) -> Iterator[Mapping[str, Any]]:
        raise NotImplementedError

    def end(self, index: int, stop: Stop) -> Iterator[Mapping[str, Any]]:
        """The end of one sequence. The last one comes with done."""
        raise NotImplementedError

    def body(self) -> Any:
        raise NotImplementedError

    def failure(self, error: Error) -> Mapping[str, Any]:
        """What went wrong behind the first byte."""
        raise NotImplementedError

    def frame(self, data: Mapping[str, Any]) -> bytes:
        return b"data: %b\n\n" % orjson.dumps(data)

    # What all have in common

    def render(self, events: Iterable[Event]) -> bytes:
        """Frames for these events, which follow those of the last call."""
        return b"".join(self.frame(data) for event in events for data in self.messages(event))

    def json(self) -> bytes:
        """The body; all events must have been taken."""
        return orjson.dumps(self.body())

    @property
    def prompt_tokens(self) -> int:
        return self.begun.prompt_tokens if self.begun else 0

    @property
    def warned(self) -> Warned:
        """The warnings, for the body or the last frame."""
        return warned(self.request.warnings)

    def messages(self, event: Event) -> Iterator[Mapping[str, Any]]:
        """What an event becomes, a frame each."""
        self.take((event,))
        match event:
            case Stream():
                yield from self.piece(event)
            case Stop() if any(text.stop is None for text in self.texts):
                yield from self.end(event.index, event)
            case Stop():
                self._last = event  # its frame has what only done knows: timings
            case Done():
                yield from self.end(self._last.index, self._last)
            case Error():
                yield self.failure(event)
