"""Anthropic's messages: the answer to one request as a message or as events. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from llama_srb.dialects.anthropic.answer import (
    PREFIX,
    AnthropicError,
    AnthropicMessage,
    BlockEvent,
    Blocks,
    MessageEnd,
    MessageStart,
    MessageStop,
    Stopped,
    UsageSoFar,
    content_of,
    ended,
    error_body,
    stopped,
    usage_of,
    whole_usage,
)
from llama_srb.dialects.anthropic.body import request_of
from llama_srb.dialects.common.fields import switch
from llama_srb.dialects.common.reply import Reply, ServerInfo
from llama_srb.dialects.common.response_types import size_in
from llama_srb.engine.events import Done, Error, Event, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest

UNSTOPPED = ended(None)


class Messages(Reply):
    """The answer of /v1/messages; sequences that are added to a running request are not part of it."""

    pause = b'event: ping\ndata: {"type":"ping"}\n\n'

    def __init__(self, body: Mapping[str, Any], about: ServerInfo) -> None:
        stream = switch(body, "stream", False)
        super().__init__(request_of(body, about, stream=stream), about, stream=stream)
        self._blocks = Blocks()

    def messages(self, event: Event) -> Iterator[Mapping[str, Any]]:
        """The objects of an event's frames; the first one comes before the prompt is computed."""
        yield from super().messages(event)
        if isinstance(event, Start):
            yield self._begin()

    def piece(self, event: Stream) -> Iterator[BlockEvent]:
        if event.index == 0:
            yield from self._blocks.add(event)

    def end(self, index: int, stop: Stop) -> Iterator[Mapping[str, Any]]:
        if self.done is not None:
            if self.start is None:  # cancelled in the queue
                yield self._begin()
            yield from self._blocks.close()
            end: MessageEnd = {"type": "message_delta", "delta": self._stopped(), "usage": self._usage()}
            over: MessageStop = {"type": "message_stop"}
            yield from (end, over)

    def failure(self, error: Error) -> AnthropicError:
        return error_body(500, error.message, code=error.code, size=size_in(error))

    def frame(self, data: Mapping[str, Any]) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), orjson.dumps(data))

    def body(self) -> AnthropicMessage:
        return {**self._message(self._stopped()), "content": content_of(self.texts[0])}

    def _begin(self) -> MessageStart:
        return {"type": "message_start", "message": self._message(UNSTOPPED)}

    def _stopped(self) -> Stopped:
        stop = self.texts[0].stop
        assert stop is not None
        return stopped(stop, self.request.stop, called=bool(self.texts[0].calls))

    def _message(self, end: Stopped) -> AnthropicMessage:
        """The message without content, with the usage so far."""
        return {
            "id": PREFIX + self.id,
            "type": "message",
            "role": "assistant",
            "model": self.about.name,
            "content": [],
            **end,
            "usage": whole_usage(self._usage()),
            **self.told,
        }

    def _usage(self) -> UsageSoFar:
        """The tokens so far."""
        counts: Start | Done | None = self.done or self.start
        assert counts is not None
        output, thoughts = (self.done.completion_tokens, self.done.reasoning_tokens) if self.done else (0, 0)
        return usage_of(counts.prompt_tokens, counts.cached_tokens, output, thoughts)


def prompt_of(body: Mapping[str, Any], about: ServerInfo) -> CompletionRequest:
    """The request whose prompt /v1/messages/count_tokens counts."""
    return request_of(body, about, stream=False)


REPLIES: dict[str, Any] = {"/v1/messages": Messages}
