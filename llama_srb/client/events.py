"""The events of a stream, the choices that they make, and the errors of a client. No I/O here.

ClientError
├── UnknownField       the server has no field of this name (also a TypeError)
├── RequestRefused     the server refused the request; param names the field
├── ServerError        the server or its engine failed, or it did not answer as llama-srb does
└── ConnectionFailed   no connection, or it was lost
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias

REFUSED = frozenset({"invalid_request", "context_exceeded"})
"""The codes of error events that mean a faulty request."""
MAX_SEQUENCES = 1 << 20  # of one answer; each takes memory before its first text


class ClientError(Exception):
    """The base class of a client's errors; code is the server's code of the error."""

    def __init__(self, message: str, *, code: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class UnknownField(ClientError, TypeError):
    """The server has no such field; the message names the nearest one."""


class RequestRefused(ClientError):
    """The server refused the request; the message has the field, its value and the bound."""


class ServerError(ClientError):
    """The server failed, or its answer is not one of llama-srb."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or the connection broke during the answer."""


@dataclass(frozen=True, slots=True)
class Loading:
    """The request waits for its model's load; progress goes from 0 to 1."""

    id: str
    progress: float


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits in the queue; position 1 is admitted next."""

    position: int
    id: str


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; warnings name fields that are ignored, recalled a task's chunks."""

    count: int
    id: str
    prompt_tokens: int
    cached_tokens: int
    seed: int
    warnings: tuple[str, ...] = ()
    recalled: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A piece of the prompt, if the request has echo; each choice's text begins with it."""

    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tokens of a long prompt are prefilled."""

    processed: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """New text of one sequence (the server's event "stream"); tokens only if the request has logprobs.

    In a chat also the reasoning and pieces of tool calls. Only a call's first piece has its id and name.
    """

    index: int
    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One sequence has ended, after length tokens; stop is 1 if a stop token or stop string ended it.

    With best_of or rank_by: the sum and mean of its tokens' logprobs, and distinct-2, its share of different
    pairs of words. With dedupe: the index of the sequence that this one is a duplicate of.
    """

    index: int
    length: int
    stop: int
    finish_reason: str
    stop_text: str = ""
    logprob: float | None = None
    mean_logprob: float | None = None
    distinct_2: float | None = None
    duplicate_of: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All sequences have ended; with best_of or rank_by, ranking has their indices, best first."""

    count: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    timings: Mapping[str, float] = field(default_factory=dict)
    ranking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """Ends the stream; iterating raises it as a ClientError."""

    code: str
    message: str
    param: str | None = None


Event: TypeAlias = Loading | Queued | Start | Prompt | Progress | Text | Stop | Done | Error

EVENTS: dict[str, type[Any]] = {
    "loading": Loading, "queued": Queued, "start": Start, "prompt": Prompt, "progress": Progress,
    "stream": Text, "stop": Stop, "done": Done, "error": Error,
}  # fmt: skip
_NAMES = {event: name for name, event in EVENTS.items()}
_FIELDS = {event: tuple(fields(event)) for event in EVENTS.values()}


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_list(value: object, each: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(each, value))


def _is_call(value: object) -> bool:
    """Whether a value is a piece of a tool call."""
    if not isinstance(value, Mapping) or not is_count(value.get("index")):
        return False
    texts = (value.get("id", ""), value.get("name", ""), value.get("arguments"))
    return all(isinstance(text, str) for text in texts)


def is_object(value: object) -> bool:
    return isinstance(value, Mapping)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: isinstance(value, str),
    "int": is_count,
    "int | None": is_count,
    "float": is_number,
    "float | None": is_number,
    "bool": lambda value: isinstance(value, bool),
    "Mapping[str, float]": lambda value: is_object(value) and all(map(is_number, value.values())),
    "tuple[str, ...]": lambda value: is_list(value, lambda one: isinstance(one, str)),
    "tuple[int, ...]": lambda value: is_list(value, is_count),
    "tuple[Mapping[str, Any], ...]": lambda value: is_list(value, is_object),
    "tool_calls: tuple[Mapping[str, Any], ...]": lambda value: is_list(value, _is_call),
}
"""Type checks by the text of an annotation, or by the field's name and that text."""


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of a dataclass as a key of JSON; needed: it may be neither null nor absent."""

    name: str
    type: str
    is_right: Callable[[Any], bool]
    has_default: bool
    needed: bool


def _keys(kind: type[Any]) -> list[_Key]:
    made = []
    for row in fields(kind):
        type, has_default = str(row.type), (row.default, row.default_factory) != (MISSING, MISSING)
        is_right = _TYPES.get(f"{row.name}: {type}") or _TYPES[type]
        made.append(_Key(row.name, type, is_right, has_default, not has_default and "None" not in type))
    return made


def read_as(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """Makes a dataclass from a JSON object. Null counts as absent, unknown keys are ignored.

    TypeError or KeyError for a wrong or missing value.
    """
    given: dict[str, Any] = {}
    for key in _KEYS[kind]:
        value = data.get(key.name)
        if value is None:
            if key.needed:
                raise KeyError(key.name)
            if not key.has_default:
                given[key.name] = None
        elif not key.is_right(value):
            raise TypeError(f"{key.name} is no {key.type}")
        else:
            given[key.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def event_from(data: Mapping[str, Any]) -> Event | None:
    """Makes an event from a JSON object of the stream; None for an unknown event of a newer server.

    Unknown keys are ignored. ServerError if a key is missing or its value has another type.
    """
    kind = EVENTS.get(str(data.get("event")))
    if kind is None:
        return None
    try:
        event: Event = read_as(kind, data)
    except KeyError as missing:
        raise ServerError(f"an event of the server is incomplete: no {missing} in {data['event']}") from None
    except TypeError as error:
        raise ServerError(f"an event of the server is wrong: in {data['event']} {error}") from None
    return event


def as_json(event: Event) -> dict[str, Any]:
    """The event as the server writes it, without fields at their default."""
    values = {row.name: getattr(event, row.name) for row in _FIELDS[type(event)]}
    defaults = {row.name: row.default for row in _FIELDS[type(event)] if row.default is not MISSING}
    written = {key: one for key, one in values.items() if key not in defaults or one != defaults[key]}
    return {"event": _NAMES[type(event)], **written}


@dataclass(frozen=True, slots=True)
class Choice:
    """One continuation. While it runs, finish_reason is None.

    length: in tokens, so far. seed: gives the same text again with the same request, the same n, a new engine
    and diversity none. In a chat, reasoning is the model's reasoning, and a tool call has id, name and
    arguments (JSON).
    """

    index: int
    text: str
    length: int = 0
    finish_reason: str | None = None
    stop_text: str = ""
    seed: int | None = None
    tokens: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """A text's score after its prompt: the sum and mean of its tokens' natural log-probabilities.

    greedy: each token was the likeliest. A text without predicted tokens has no mean.
    """

    index: int
    sum: float
    mean: float | None
    perplexity: float | None
    count: int
    greedy: bool
    tokens: tuple[Mapping[str, Any], ...] = ()


_KEYS = {kind: _keys(kind) for kind in (*EVENTS.values(), Score)}


class _Sequence:
    """The parts of one sequence so far."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[Mapping[str, Any]] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, dict[str, str]] = {}
        self.stop: Stop | None = None

    def add(self, event: Text) -> None:
        self.texts.append(event.text)
        self.tokens += event.tokens
        self.reasoning.append(event.reasoning)
        for piece in event.tool_calls:
            new = {"id": piece.get("id", ""), "name": piece.get("name", ""), "arguments": ""}
            self.calls.setdefault(piece["index"], new)["arguments"] += piece["arguments"]

    def choice(self, index: int, prompt: str, seed: int | None) -> Choice:
        stop = self.stop or Stop(index, len(self.texts), 0, "")
        return Choice(
            index,
            text=prompt + "".join(self.texts),
            length=stop.length,
            finish_reason=stop.finish_reason or None,
            stop_text=stop.stop_text,
            seed=seed,
            tokens=tuple(self.tokens),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(call for _, call in sorted(self.calls.items())),
        )


class Answer:
    """The answer so far, made of the events; body is the request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._sequences: list[_Sequence] = []
        self.prompt = ""  # the echo
        self.last: Event | None = None
        self.start: Start | None = None
        self.done: Done | None = None

    def take(self, event: Event) -> None:
        """Adds the next event; ServerError if it names an impossible sequence."""
        self.last = event
        match event:
            case Text():
                self._sequence(event.index).add(event)
            case Stop():
                self._sequence(event.index).stop = event
            case Start():
                self.start = event
                self._sequence(event.count - 1)
            case Prompt():
                self.prompt += event.text
            case Done():
                if not all(0 <= index < len(self._sequences) for index in event.ranking):
                    raise ServerError(f"the server ranks {event.ranking} of {len(self._sequences)} sequences")
                self.done = event

    def _sequence(self, index: int) -> _Sequence:
        """A sequence, created if needed: a request that is cancelled in the queue has no start event."""
        if not 0 <= index < MAX_SEQUENCES:
            raise ServerError(f"the server wrote of sequence {index}; it must be below {MAX_SEQUENCES}")
        self._sequences += [_Sequence() for _ in range(index + 1 - len(self._sequences))]
        return self._sequences[index]

    @property
    def choices(self) -> list[Choice]:
        """All n choices, ended or not; empty before the start event."""
        return [self.choice(index) for index in range(len(self._sequences))]

    @property
    def ranked(self) -> list[Choice]:
        """The same, best first if the request has best_of or rank_by."""
        if self.done and self.done.ranking:
            return [self.choice(index) for index in self.done.ranking]
        return self.choices

    def choice(self, index: int) -> Choice:
        """The choice of this index."""
        return self._sequences[index].choice(index, self.prompt, self._seed(index))

    def _seed(self, index: int) -> int | None:
        """A sequence's own seed, else the request's seed + index, as in engine/sampling."""
        sequences, seeds = self._body.get("sequences") or (), self._body.get("seed")
        own = sequences[index].get("seed") if index < len(sequences) else None
        if own is None and isinstance(seeds, list | tuple):
            own = seeds[index]
        if own is not None and 0 <= own < 2**32 - 1:
            return int(own)
        return None if self.start is None else (self.start.seed + index) % (2**32 - 1)


def failure(error: Error) -> ClientError:
    """Makes an exception from an error event."""
    kind = RequestRefused if error.code in REFUSED else ServerError
    return kind(error.message, code=error.code, param=error.param)
