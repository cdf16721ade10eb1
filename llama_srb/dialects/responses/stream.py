"""OpenAI's responses: the events of a generation as those of a response, as frames or as one body. Pure."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, TypeAlias, TypeVar

import orjson

from llama_srb.dialects.common.response_types import NO_SIZE, PromptSize, as_json, compared, cut_of, warned
from llama_srb.dialects.common.timings import Stopwatch, timings_of
from llama_srb.dialects.openai import answer as openai
from llama_srb.dialects.responses.body import Asked
from llama_srb.dialects.responses.history import PREFIX
from llama_srb.dialects.responses.output import Call, Item, Message, Thought, call_of
from llama_srb.engine.events import Done, Error, Event, Queued, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

Json: TypeAlias = dict[str, Any]
OneItem = TypeVar("OneItem", Thought, Message)

IN_PROGRESS = "response.in_progress"
PARAMS = {"messages": "input", "prompt": "input"}  # fields of a chat → fields of a response
CODES = {"invalid_request": "invalid_prompt", "context_exceeded": "context_length_exceeded"}


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
) -> openai.Error:
    """An error in OpenAI's form, with the field's name in a response."""
    return openai.error_body(
        message, is_clients=status < 500, param=PARAMS.get(param or "", param), code=code, size=size
    )


class Output:
    """Turns the events of one request into those of a response.

    A response is the first sequence: others, which `extend` adds, are not in it.
    """

    def __init__(self, request: CompletionRequest, asked: Asked, origin: openai.Origin) -> None:
        self._request, self._asked, self._origin = request, asked, origin
        self._form, self._watch = asked.form, Stopwatch()
        self._id, self._count = "", 0  # of the response; of its events so far
        self._items: list[Json] = []  # those that are complete
        self._item: Item | None = None  # the one that is being generated
        self._tokens: list[openai.ChatToken] = []  # of text that is held back
        self._start: Start | None = None
        self._stop: Stop | None = None
        self.final: Json | None = None  # the response, once it is completed or incomplete

    def events(self, event: Event) -> Iterator[Json]:
        """The events of a response that one of the engine's becomes."""
        self._watch.take(event)
        if self._form.has_progress and self._watch.progress and not isinstance(event, Start):
            yield self._numbered({"type": IN_PROGRESS, "response": self._response("in_progress")})
        match event:
            case Start():
                self._start = event
                yield from self._begin(event.id)
            case Stream(index=0):
                yield from self._stream(event)
            case Stop(index=0):
                self._stop = event
            case Done():
                yield from self._end(event)
            case Error():
                yield from self._fail(event)

    def _numbered(self, event: Json) -> Json:
        numbered = {"type": event["type"], "sequence_number": self._count, **event}
        self._count += 1
        if self._form.has_progress and event["type"] == IN_PROGRESS:
            numbered["prompt_progress"] = self._watch.progress
        if self._form.has_timings and event["type"].endswith(".delta"):
            numbered["timings"] = self._watch.timings(0)
        return numbered

    # The response

    def _begin(self, id: str) -> Iterator[Json]:
        self._id = id
        for kind in ("response.created", IN_PROGRESS):
            yield self._numbered({"type": kind, "response": self._response("in_progress")})

    def _end(self, done: Done) -> Iterator[Json]:
        assert self._stop is not None  # each sequence stops before done
        more: Json = {"usage": self._usage(done), **compared(done)}
        if self._stop.finish_reason == "stop":
            status = "completed"
            more["completed_at"] = self._origin.created + round(done.total_ms / 1000)
        else:
            status = "incomplete"
            more["incomplete_details"] = {"reason": cut_of(self._stop) or "max_output_tokens"}
        yield from self._close(status)
        kind = "completed" if self._asked.always_completes else status
        self.final = self._response(status, **more)
        last = self._numbered({"type": f"response.{kind}", "response": self.final})
        if self._form.has_timings:
            last["timings"] = timings_of(done, self._stop.length)
        yield last

    def _fail(self, error: Error) -> Iterator[Json]:
        if not self._count:
            yield from self._begin(error.id)
        yield from self._close("incomplete")
        fault = {"code": CODES.get(error.code, "server_error"), "message": error.message}
        yield self._numbered({"type": "response.failed", "response": self._response("failed", error=fault)})

    def _response(self, status: str, **more: Any) -> Json:
        sampling = self._request.sampling
        return {
            "id": PREFIX + self._id,
            "object": "response",
            "created_at": self._origin.created,
            "status": status,
            "model": self._origin.model,
            "system_fingerprint": self._origin.fingerprint(),
            "output": [*self._items],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "presence_penalty": sampling.presence_penalty,
            "frequency_penalty": sampling.frequency_penalty,
            **self._asked.repeated,
            "completed_at": None,
            "usage": None,
            "incomplete_details": None,
            "error": None,
            **more,
            **warned(self._request.warnings, self._start),
        }

    def _usage(self, done: Done) -> Json:
        return {
            "input_tokens": done.prompt_tokens,
            "input_tokens_details": {"cached_tokens": done.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": done.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": done.reasoning_tokens},
            "total_tokens": done.prompt_tokens + done.completion_tokens,
        }

    # Its items

    def _stream(self, event: Stream) -> Iterator[Json]:
        """The rest of a call's arguments comes before the text that follows the call."""
        self._tokens += [as_json(openai.chat_token(token)) for token in event.tokens]
        rest = [*takewhile(lambda piece: "name" not in piece, event.tool_calls)]
        for piece in rest:
            yield from self._add_to_call(piece)
        if event.reasoning:
            thought = yield from self._opened(Thought)
            yield from self._placed(thought.add(event.reasoning))
        if event.text:
            message = yield from self._opened(Message)
            yield from self._placed(message.add_with(event.text, self._tokens))
        for piece in event.tool_calls[len(rest) :]:
            yield from self._add_to_call(piece)
        if event.reasoning or event.text or event.tool_calls:
            self._tokens = []

    def _add_to_call(self, piece: Mapping[str, Any]) -> Iterator[Json]:
        """A piece with a name begins a call."""
        if "name" in piece:
            yield from self._open(call_of(self._next_id, piece, self._asked.tools))
        if isinstance(self._item, Call):
            yield from self._placed(self._item.add(piece["arguments"]))

    def _opened(self, kind: type[OneItem]) -> Generator[Json, None, OneItem]:
        """The item that is being generated; a new one, if that is of another kind."""
        if isinstance(self._item, kind):
            return self._item
        item = kind(self._next_id)
        yield from self._open(item)
        return item

    def _open(self, item: Item) -> Iterator[Json]:
        yield from self._close("completed")
        self._item = item
        yield self._of_item("response.output_item.added", item.json("in_progress"))
        yield from self._placed(item.begin())

    def _close(self, status: str) -> Iterator[Json]:
        if self._item is None:
            return
        yield from self._placed(self._item.end())
        item, self._item = self._item.json(status), None
        yield self._of_item("response.output_item.done", item)
        self._items.append(item)

    @property
    def _next_id(self) -> str:
        return f"{self._id}_{len(self._items) + (self._item is not None)}"

    def _of_item(self, kind: str, item: Json) -> Json:
        return self._numbered({"type": kind, "output_index": len(self._items), "item": item})

    def _placed(self, events: Iterator[Json]) -> Iterator[Json]:
        """Events of the item that is being generated."""
        assert self._item is not None
        place = {"output_index": len(self._items), "item_id": self._item.id}
        return (self._numbered({**event, **place}) for event in events)


class Frames:
    """Renders the events of one request as frames."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def render(self, events: list[Event]) -> bytes:
        """The frames of events that follow those of the last call."""
        return b"".join(map(self._render, events))

    def _render(self, event: Event) -> bytes:
        if isinstance(event, Queued):
            return b": queued at position %d\n\n" % event.position
        return b"".join(
            b"event: %b\ndata: %b\n\n" % (made["type"].encode(), orjson.dumps(made))
            for made in self._output.events(event)
        )


class Body:
    """Builds one body: the response of the last event."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._last: Json = {}

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        for event in events:
            for made in self._output.events(event):
                self._last = made

    def json(self) -> bytes:
        """The body as JSON; all events must have been taken."""
        return orjson.dumps(self._last["response"])
