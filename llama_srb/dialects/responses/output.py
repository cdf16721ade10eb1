"""OpenAI's responses: the items of an output while they are generated, each as the events of a stream. Pure.

An item's events lack what the whole output knows: their numbers, and where the item is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypeAlias

import orjson

from llama_srb.dialects.openai.answer import ChatToken
from llama_srb.dialects.responses.tools import INPUT, Tool

Json: TypeAlias = dict[str, Any]


class Item:
    """One item. A kind of items implements `begin`, `add`, `end` and `json`."""

    prefix: ClassVar[str]  # of the id

    def __init__(self, id: str) -> None:
        self.id = self.prefix + id
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self) -> Iterator[Json]:
        """The events after that which adds the item."""
        raise NotImplementedError

    def add(self, piece: str) -> Iterator[Json]:
        """The events of more text."""
        raise NotImplementedError

    def end(self) -> Iterator[Json]:
        """The events before that which ends the item."""
        raise NotImplementedError

    def json(self, status: str) -> Json:
        raise NotImplementedError


class Content(Item):
    """An item with one part, which is text."""

    kind: ClassVar[str]  # of the part, as in the names of its events

    def part(self) -> Json:
        raise NotImplementedError

    def more(self) -> Json:
        """More fields of the events of the text."""
        return {}

    def content(self, status: str) -> list[Json]:
        return [] if status == "in_progress" else [self.part()]

    def begin(self) -> Iterator[Json]:
        yield {"type": "response.content_part.added", "content_index": 0, "part": self.part()}

    def add(self, piece: str) -> Iterator[Json]:
        self._pieces.append(piece)
        yield {"type": f"response.{self.kind}.delta", "content_index": 0, "delta": piece}

    def end(self) -> Iterator[Json]:
        yield {"type": f"response.{self.kind}.done", "content_index": 0, "text": self.text, **self.more()}
        yield {"type": "response.content_part.done", "content_index": 0, "part": self.part()}


class Thought(Content):
    prefix = "rs_"
    kind = "reasoning_text"

    def part(self) -> Json:
        return {"type": self.kind, "text": self.text}

    def json(self, status: str) -> Json:
        return {
            "id": self.id,
            "type": "reasoning",
            "summary": [],
            "content": self.content(status),
            "status": status,
        }


class Message(Content):
    prefix = "msg_"
    kind = "output_text"

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self._logprobs: list[ChatToken] = []

    def part(self) -> Json:
        return {"type": self.kind, "annotations": [], "logprobs": self._logprobs, "text": self.text}

    def more(self) -> Json:
        return {"logprobs": self._logprobs}

    def add_with(self, piece: str, tokens: list[ChatToken]) -> Iterator[Json]:
        """As add(), with the logprobs of the tokens of this text."""
        self._logprobs += tokens
        return ({**event, "logprobs": tokens} for event in self.add(piece))

    def json(self, status: str) -> Json:
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "content": self.content(status),
            "status": status,
        }


class Call(Item):
    """A call of a function."""

    prefix = "fc_"

    def __init__(self, id: str, call_id: str, tool: Tool) -> None:
        super().__init__(id)
        self._call_id, self.tool = call_id, tool

    def begin(self) -> Iterator[Json]:
        return iter(())

    def add(self, piece: str) -> Iterator[Json]:
        self._pieces.append(piece)
        if piece:
            yield {"type": "response.function_call_arguments.delta", "delta": piece}

    def end(self) -> Iterator[Json]:
        name = self.tool.name
        yield {"type": "response.function_call_arguments.done", "arguments": self.text, "name": name}

    def json(self, status: str) -> Json:
        return {**self.head("function_call"), "arguments": self.text, "status": status}

    def head(self, kind: str) -> Json:
        namespace = {"namespace": self.tool.namespace} if self.tool.namespace else {}
        named = {"call_id": self._call_id, "name": self.tool.name, **namespace}
        return {"id": self.id, "type": kind, **named}


class CustomCall(Call):
    """A call of a custom tool: its text is an argument, so it is read at the end."""

    prefix = "ctc_"

    def add(self, piece: str) -> Iterator[Json]:
        self._pieces.append(piece)
        return iter(())

    def end(self) -> Iterator[Json]:
        yield {"type": "response.custom_tool_call_input.delta", "delta": self._input()}
        yield {"type": "response.custom_tool_call_input.done", "input": self._input()}

    def json(self, status: str) -> Json:
        text = "" if status == "in_progress" else self._input()
        return {**self.head("custom_tool_call"), "input": text, "status": status}

    def _input(self) -> str:
        """Of a call that was cut off: what there is of its arguments."""
        try:
            return str(orjson.loads(self.text)[INPUT])
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return self.text


def call_of(id: str, piece: Mapping[str, Any], tools: Mapping[str, Tool]) -> Call:
    """The item of a call whose first piece this is."""
    tool = tools.get(piece["name"]) or Tool(piece["name"], {})
    return (CustomCall if tool.is_custom else Call)(id, piece["id"], tool)
