"""Several prompts in one request of OpenAI's completions: one generation for each. Pure.

The id of an event names its generation. Choices are counted over all prompts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import cast

import orjson

from llama_srb.dialects.common.response_types import Compared, compared, noted, with_warnings
from llama_srb.dialects.openai.answer import ChunkWriter, ComparedTexts, Origin, usage_of
from llama_srb.dialects.openai.completions import (
    KIND,
    PREFIX,
    Body,
    Choice,
    ChoiceWriter,
    Completion,
    Repeated,
    frames_of,
)
from llama_srb.dialects.openai.form import Form
from llama_srb.engine.events import Again, Done, Event, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest


class ChunksOfMany:
    """Renders the events of several generations as chunks with one id; requests: by generation id."""

    def __init__(self, requests: Mapping[str, CompletionRequest], form: Form, origin: Origin) -> None:
        self._named = next(iter(requests))  # the generation whose id the answer has
        self._notes = noted(*requests.values())
        self._writer = ChunkWriter(KIND, PREFIX, form, origin)
        firsts = accumulate((request.n for request in requests.values()), initial=0)
        self._first = dict(zip(requests, firsts, strict=False))
        self._choices = {
            id: ChoiceWriter(request, self._writer, self._first[id]) for id, request in requests.items()
        }
        self._done: list[Done] = []

    def render(self, events: list[Event]) -> bytes:
        """The frames of events of one generation."""
        return b"".join(map(self._render, events))

    def _end(self) -> bytes:
        return self._writer.end(_sum(self._done), _by_prompt(self._choices, self._done))

    def frames(self, events: list[Event]) -> bytes | Iterator[bytes]:
        """As render(), but see frames_of()."""
        return frames_of(events, self.render, self._each)

    def _each(self, event: Repeated) -> Iterator[bytes]:
        return self._choices[event.id].each(_moved(event, self._first[event.id]))

    def _render(self, event: Event) -> bytes:
        match event:
            case Start():
                self._writer.name(self._named)
                self._choices[event.id].begin(event)
                return (
                    self._writer.begin(with_warnings(self._notes, event)) if event.id == self._named else b""
                )
            case Done():
                self._done.append(event)
                return self._end() if len(self._done) == len(self._choices) else b""
        id = event.id  # type: ignore[union-attr]  # each event of a generation has an id
        choices, moved = self._choices[id], _moved(event, self._first[id])
        if isinstance(moved, Stream):
            return choices.text(moved)
        return choices.render(moved) or self._writer.other(event)


def _by_prompt(prompts: Iterable[str], parts: Iterable[Done]) -> ComparedTexts:
    """What was found for each prompt; no field if nothing was asked for."""
    done = {one.id: compared(one) for one in parts}
    return {"by_prompt": [done[id] for id in prompts]} if any(done.values()) else {}


def _moved(event: Event, by: int) -> Event:
    """An event with its choices' indices moved behind the choices of earlier prompts."""
    match event:
        case Stop(duplicate_of=int() as other):
            return replace(event, index=event.index + by, duplicate_of=other + by)
        case Stream() | Stop() | Again():
            return replace(event, index=event.index + by)
    return event


def _sum(parts: Iterable[Done]) -> Done:
    """The counts of all generations; texts of several prompts are not compared."""
    first, *others = parts
    for one in others:
        first = replace(
            first,
            count=first.count + one.count,
            prompt_tokens=first.prompt_tokens + one.prompt_tokens,
            cached_tokens=first.cached_tokens + one.cached_tokens,
            completion_tokens=first.completion_tokens + one.completion_tokens,
        )
    return replace(first, ranking=(), votes=None, diversity_stats=None)


class BodyOfMany:
    """Builds one body from the events of several generations; requests: by generation id."""

    def __init__(self, requests: Mapping[str, CompletionRequest], origin: Origin) -> None:
        self._notes = noted(*requests.values())
        self._parts = {id: Body(request, origin) for id, request in requests.items()}
        self._done: list[Done] = []

    def take(self, events: Iterable[Event]) -> None:
        """Takes events of one generation that follow those of the last call."""
        for event in events:
            self._parts[event.id].take([event])  # type: ignore[union-attr]
            self._done += [event] if isinstance(event, Done) else []

    def fields(self) -> Completion:
        """The body; all events must have been taken."""
        bodies = [part.fields() for part in self._parts.values()]
        choices: list[Choice] = []
        for body in bodies:
            choices += [_moved_choice(choice, len(choices)) for choice in body["choices"]]
        first = {name: value for name, value in bodies[0].items() if name not in Compared.__annotations__}
        notes = with_warnings(self._notes, next(iter(self._parts.values())).transcript.start)
        whole = {**first, "choices": choices, "usage": usage_of(_sum(self._done)), **notes}
        return cast(Completion, {**whole, **_by_prompt(self._parts, self._done)})

    def json(self) -> bytes:
        """The body as JSON."""
        return orjson.dumps(self.fields())


def _moved_choice(choice: Choice, by: int) -> Choice:
    moved: Choice = {**choice, "index": choice["index"] + by}
    if "duplicate_of" in choice:
        moved["duplicate_of"] = choice["duplicate_of"] + by
    return moved
