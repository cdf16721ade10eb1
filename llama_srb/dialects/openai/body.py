"""One body with all choices, which chats and completions share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Generic

import orjson

from llama_srb.dialects.common.reply import OneText, Transcript
from llama_srb.dialects.common.response_types import compared, noted, with_warnings
from llama_srb.dialects.openai.answer import Origin, PromptTokens, usage_of
from llama_srb.engine.events import Event, Stop
from llama_srb.request.fields import CompletionRequest


class ChoicesBody(Generic[OneText]):
    """Builds one body from the events of one request. A dialect implements `choice`.

    kind: its `object`. prefix: stands before its id.
    """

    kind: ClassVar[str]
    prefix: ClassVar[str]
    usage_of = staticmethod(usage_of)

    def __init__(self, request: CompletionRequest, origin: Origin, transcript: Transcript[OneText]) -> None:
        self.request, self.transcript, self.prompt = request, transcript, PromptTokens()
        self._origin = origin

    def choice(self, index: int, text: OneText, stop: Stop | None) -> Mapping[str, Any]:
        """A choice; index: its position in the body."""
        raise NotImplementedError

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        for event in events:
            self.take_one(event)

    def take_one(self, event: Event) -> None:
        """Takes the next event."""
        self.prompt.take(event)
        self.transcript.take((event,))

    def fields(self) -> Mapping[str, Any]:
        """The body; all events must have been taken."""
        done = self.transcript.done
        assert done is not None
        return {
            "id": self.prefix + done.id,
            **self._origin.fields(self.kind),
            "choices": [self.choice(*one) for one in _in_order(self.transcript)],
            "usage": self.usage_of(done),
            **with_warnings(noted(self.request), self.transcript.start),
            **compared(done),
        }

    def json(self) -> bytes:
        """The body as JSON."""
        return orjson.dumps(self.fields())


def _in_order(transcript: Transcript[OneText]) -> Iterator[tuple[int, OneText, Stop | None]]:
    """The choices of a body, best first if ranked: the position in the body, the text, the stop event.

    The stop event's duplicate_of is a position in the body, too.
    """
    places = {number: i for i, number in enumerate(transcript.ordered)}
    for number, i in places.items():
        text = transcript.texts[number]
        stop = text.stop
        if stop is not None and stop.duplicate_of is not None:
            stop = replace(stop, duplicate_of=places[stop.duplicate_of])
        yield i, text, stop
