"""What llama-server and vLLM add to OpenAI's answers if they are asked for it. Pure.

The fields: timings_per_token, return_progress, verbose (`__verbose`) of llama-server; in a stream each chunk
but the first one has timings. stream_options.continuous_usage_stats of vLLM: the chunks of a choice have its
usage so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import orjson

from llama_srb.dialects.common.timings import Stopwatch, timings_of
from llama_srb.dialects.openai.answer import ChunkWriter, Usage, usage_of
from llama_srb.dialects.openai.body import ChoicesBody
from llama_srb.dialects.openai.form import Form
from llama_srb.engine.events import Done, Event, Prompt, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

Json: TypeAlias = dict[str, Any]
ONE_PROMPT = "timings_per_token, return_progress and verbose act for one prompt a request"
Frames: TypeAlias = bytes | Iterator[bytes]


class Chunks(Protocol):
    """A renderer of chunks; empty_choice: a choice that adds nothing, for a chunk about the prompt."""

    writer: ChunkWriter

    @property
    def empty_choice(self) -> Mapping[str, Any]: ...

    def render(self, events: list[Event]) -> bytes: ...

    def frames(self, events: list[Event]) -> Frames: ...


def asked(request: CompletionRequest, form: Form) -> CompletionRequest:
    """The request; `verbose` needs the text of a chat's prompt, which only the engine has."""
    if form.is_verbose and request.messages is not None:
        return request.model_copy(update={"echo": True})
    return request


def unreported(request: CompletionRequest, form: Form) -> CompletionRequest:
    """The request of one of several prompts, with a warning about the fields that act for one prompt only."""
    if not form.reports:
        return request
    return request.model_copy(update={"warnings": (*request.warnings, ONE_PROMPT)})


@dataclass(slots=True)
class Verbose:
    """The fields of `__verbose`."""

    request: CompletionRequest
    prompt: str = ""
    fields: Json = field(default_factory=dict)

    def take(self, event: Event) -> None:
        match event:
            case Prompt():
                self.prompt += event.text
            case Start():
                text = self.request.prompt
                self.prompt = text if isinstance(text, str) else ""
            case Done():
                self.fields = {
                    "prompt": self.prompt,
                    "tokens_evaluated": event.prompt_tokens,
                    "tokens_cached": event.cached_tokens,
                    "tokens_predicted": event.completion_tokens,
                    "generation_settings": self.request.sampling.model_dump(mode="json"),
                }


class ReportedChunks:
    """Renders the events of one request as chunks with these fields."""

    def __init__(self, chunks: Chunks, request: CompletionRequest, form: Form) -> None:
        self._chunks, self._form = chunks, form
        self._stopwatch = Stopwatch()
        self._verbose = Verbose(request)

    def render(self, events: list[Event]) -> bytes:
        """The frames of events that follow those of the last call."""
        return b"".join(map(self._render, events))

    def _render(self, event: Event) -> bytes:
        self._stopwatch.take(event)
        self._verbose.take(event)
        if isinstance(event, Start):
            self._chunks.writer.add(self._added(event))  # for the chunks with the roles of a chat
            return self._chunks.render([event]) + self._progress()
        before = self._progress()
        self._chunks.writer.add(self._added(event))
        return before + self._chunks.render([event])

    def _added(self, event: Event) -> Json:
        added: Json = {}
        if self._form.has_timings and isinstance(event, Stream | Stop | Done):
            added["timings"] = self._stopwatch.timings(0 if isinstance(event, Done) else event.index)
        if self._form.has_running_usage and isinstance(event, Start | Stream | Stop):
            added["usage"] = usage_so_far(self._stopwatch, 0 if isinstance(event, Start) else event.index)
        if self._form.is_verbose and isinstance(event, Done):
            added["__verbose"] = self._verbose.fields
        return added

    def _progress(self) -> bytes:
        if not self._form.has_progress or not (progress := self._stopwatch.progress):
            return b""
        added: Json = {"prompt_progress": progress}
        if self._form.has_timings:
            added["timings"] = self._stopwatch.timings(0)
        self._chunks.writer.add(added)
        frame = self._chunks.writer.frame((self._chunks.empty_choice,))
        self._chunks.writer.add({})
        return frame


def usage_so_far(watch: Stopwatch, index: int) -> Usage:
    done = Done("", 1, watch.prompt_tokens, watch.cached_tokens, watch.length(index))
    return usage_of(done)


class ReportedBody:
    """Builds one body with these fields from the events of one request."""

    def __init__(self, body: ChoicesBody[Any], request: CompletionRequest, form: Form) -> None:
        self._body, self._form = body, form
        self._verbose = Verbose(request)
        self._length = 0  # of the first sequence
        self._done: Done | None = None

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        events = list(events)
        self._body.take(events)
        for event in events:
            self._verbose.take(event)
            match event:
                case Stop(index=0):
                    self._length = event.length
                case Done():
                    self._done = event

    def json(self) -> bytes:
        """The body as JSON; all events must have been taken."""
        made = {**self._body.fields()}
        if self._form.has_timings and self._done:
            made["timings"] = timings_of(self._done, self._length)
        if self._form.is_verbose:
            made["__verbose"] = self._verbose.fields
        return orjson.dumps(made)


def renderer(chunks: Chunks, request: CompletionRequest, form: Form) -> Callable[[list[Event]], Frames]:
    """Renders events as chunks in this form."""
    return ReportedChunks(chunks, request, form).render if form.reports else chunks.frames


def builder(
    body: ChoicesBody[Any], request: CompletionRequest, form: Form
) -> ChoicesBody[Any] | ReportedBody:
    """Builds a body in this form."""
    return ReportedBody(body, request, form) if form.reports else body
