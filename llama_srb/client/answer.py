"""What the events of a stream make: the choices, each with its text so far; and scores of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from llama_srb.client.errors import ServerError
from llama_srb.client.events import Done, Event, Prompt, Start, Stop, Text

MAX_SEQUENCES = 1 << 20  # of one answer; each takes memory before its first text


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
