"""What the events of a stream make: the choices, each with its text so far; and scores of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from llama_srb.client.errors import ServerError
from llama_srb.client.events import Done, Event, Prompt, Start, Stop, Text, Then
from llama_srb.client.reader import read_as

RECALLED = "X-Recalled"  # the header of an answer for which a task has recalled something
MAX_SEQUENCES = 1 << 20  # of one answer; each takes memory before its first text


@dataclass(frozen=True, slots=True)
class Choice:
    """One continuation. While it runs, finish_reason is None.

    length: in tokens, so far. seed: gives the same text again with the same request, the same n, a new engine
    and diversity none. In a chat, reasoning is the model's reasoning, and a tool call has id, name and
    arguments (JSON).

    With `then` the text is the second answer; length counts both answers, free_length the free one, if
    a second one follows. With then.return_free, free is the free answer, as a choice of its own. end:
    sentences or paragraphs, if the field of that name has ended the text. token_ids, entropies: with
    return_token_ids and return_entropies, of all tokens that were drawn. parsed: the text as an object, if
    json_schema (that of `then`, for a second answer) is a Pydantic class; None if the text was cut.
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
    free_length: int | None = None
    free: Choice | None = None
    end: str = ""
    token_ids: tuple[int, ...] = ()
    entropies: tuple[float, ...] = ()
    parsed: Any = None


class SchemaClass(Protocol):
    """A class of Pydantic, on which the client does not depend."""

    def model_json_schema(self) -> dict[str, Any]: ...

    def model_validate_json(self, json_data: str) -> Any: ...


def as_class(value: object) -> SchemaClass | None:
    """The value if it is a class of Pydantic."""
    is_one = isinstance(value, type) and hasattr(value, "model_json_schema")
    return cast(SchemaClass, value) if is_one else None


def class_of(body: Mapping[str, Any]) -> SchemaClass | None:
    """The class of Pydantic that the texts of a request fit."""
    then = body.get("then")
    return as_class((then if isinstance(then, Mapping) else body).get("json_schema"))


@dataclass(frozen=True, slots=True)
class Score:
    """A text's score after its prompt: the sum and mean of its tokens' natural log-probabilities.

    greedy: each token was the likeliest. A text without predicted tokens has no mean. certainty: of the
    model, the mean over the tokens, if it was asked for.
    """

    index: int
    sum: float
    mean: float | None
    perplexity: float | None
    count: int
    greedy: bool
    tokens: tuple[Mapping[str, Any], ...] = ()
    certainty: float | None = None


@dataclass(frozen=True, slots=True)
class Recalled:
    """A chunk of a memory in a prompt. score: the cosine of its vector and that of the client's text.

    memory and document are empty if the server does not say them. score: None in a memory without a model.
    scores: why it came: words (BM25), meaning (the cosine), fused (of both ranks).
    """

    id: str
    score: float | None = None
    memory: str = ""
    document: str = ""
    scores: Mapping[str, float] = field(default_factory=dict)


def recalled_of(start: Start | None) -> tuple[Recalled, ...]:
    """The chunks that the start event names."""
    return tuple(read_as(Recalled, one) for one in start.recalled) if start else ()


class _Text:
    """One text so far, with all that came with it."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[Mapping[str, Any]] = []
        self.reasoning: list[str] = []
        self.calls: dict[int, dict[str, str]] = {}
        self.token_ids: list[int] = []
        self.entropies: list[float] = []

    def add(self, event: Text) -> None:
        self.texts.append(event.text)
        self.tokens += event.tokens
        self.token_ids += event.token_ids
        self.entropies += event.entropies
        self.reasoning.append(event.reasoning)
        for piece in event.tool_calls:
            new = {"id": piece.get("id", ""), "name": piece.get("name", ""), "arguments": ""}
            self.calls.setdefault(piece["index"], new)["arguments"] += piece["arguments"]

    def choice(self, index: int, prompt: str, seed: int | None, end: Stop | Then | None) -> Choice:
        return Choice(
            index,
            text=prompt + "".join(self.texts),
            length=end.length if end else len(self.texts),
            finish_reason=end.finish_reason or None if end else None,
            stop_text=end.stop_text if end else "",
            seed=seed,
            tokens=tuple(self.tokens),
            reasoning="".join(self.reasoning),
            tool_calls=tuple(call for _, call in sorted(self.calls.items())),
            token_ids=tuple(self.token_ids),
            entropies=tuple(self.entropies),
            end=end.end if end else "",
        )


class _Sequence:
    """One sequence so far. has_free: its first text is the free answer, which is returned."""

    def __init__(self, has_free: bool) -> None:
        self.free = _Text() if has_free else None
        self.text = _Text()
        self.then: Then | None = None
        self.stop: Stop | None = None

    def add(self, event: Text) -> None:
        (self.text if self.free is None or self.then else self.free).add(event)

    def begin_second(self, then: Then) -> None:
        if self.free is None:  # the request's `then` is a task's, which the client has not seen
            self.free, self.text = self.text, _Text()
        self.then = then

    def choice(self, index: int, prompt: str, seed: int | None) -> Choice:
        made = self.text.choice(index, prompt, seed, self.stop)
        if self.stop:
            made = replace(made, free_length=self.stop.free_length)
        if self.free is None:
            return made
        free = self.free.choice(index, "", seed, self.then or self.stop)
        return replace(made, length=made.length if self.stop else made.length + free.length, free=free)


class Answer:
    """The answer so far, made of the events; body is the request."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        then = body.get("then")
        self._class = class_of(body)
        self._has_free = isinstance(then, Mapping) and bool(then.get("return_free"))
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
            case Then():
                self._sequence(event.index).begin_second(event)
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
        self._sequences += [_Sequence(self._has_free) for _ in range(index + 1 - len(self._sequences))]
        return self._sequences[index]

    @property
    def recalled(self) -> tuple[Recalled, ...]:
        """The chunks that the start event names."""
        return recalled_of(self.start)

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
        made = self._sequences[index].choice(index, self.prompt, self._seed(index))
        if self._class is None or made.finish_reason is None:
            return made
        try:
            return replace(made, parsed=self._class.model_validate_json(made.text[len(self.prompt) :]))
        except ValueError:  # it was cut
            return made

    def _seed(self, index: int) -> int | None:
        """A sequence's own seed, else the request's seed + index, as in engine/sampling."""
        sequences, seeds = self._body.get("sequences") or (), self._body.get("seed")
        own = sequences[index].get("seed") if index < len(sequences) else None
        if own is None and isinstance(seeds, list | tuple):
            own = seeds[index]
        if own is not None and 0 <= own < 2**32 - 1:
            return int(own)
        return None if self.start is None else (self.start.seed + index) % (2**32 - 1)
