"""OpenAI's chat completions: chunks of deltas that end in `data: [DONE]`, or one JSON body of messages. Pure.

The engine writes the prompt and parses the answers, with the model's template; this module gives its events
OpenAI's form. A model's reasoning is `reasoning_content`, as in DeepSeek and llama-server, and `reasoning`,
as in vLLM.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NotRequired, TypeAlias

import orjson
from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import ServerInfo, Text, Transcript
from llama_srb.dialects.common.response_types import (
    Compared,
    Count,
    Finish,
    Frames,
    Noted,
    as_json,
    finish_of,
    noted,
    with_warnings,
)
from llama_srb.dialects.common.token_names import Name
from llama_srb.dialects.openai.answer import (
    NO_DRAWN,
    NO_IDS,
    ChatToken,
    ChunkExtras,
    ChunkWriter,
    DrawnFields,
    EndFields,
    Error,
    Head,
    Origin,
    PromptFields,
    Usage,
    all_drawn,
    chat_token,
    chat_usage_of,
    drawn_fields,
    end_fields,
    names_of,
)
from llama_srb.dialects.openai.body import ChoicesBody
from llama_srb.dialects.openai.form import REPORTS, Form, form_of, refuse_prompt_logprobs
from llama_srb.engine.events import Done, Event, Extend, Start, Stop, Stream
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.values import MAX_LOGPROBS, RequestError, wrong

KIND: Literal["chat.completion"] = "chat.completion"
N, MAX_TOKENS = 1, -1  # OpenAI's defaults
PREFIX = "chatcmpl-"  # before the id
READ_HERE = frozenset({
    "stream", "stream_options", "model", "user", "logprobs", "top_logprobs", "store", "metadata",
    "service_tier", "safety_identifier", "prompt_cache_key", *REPORTS,
})  # fmt: skip


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------

ChatFinish: TypeAlias = Finish | Literal["tool_calls"]


class ChatLogprobs(TypedDict):
    content: list[ChatToken]


class Function(TypedDict):
    """arguments: a JSON object as text."""

    name: str
    arguments: str


class ToolCall(TypedDict):
    id: str
    type: Literal["function"]
    function: Function


class FunctionDelta(TypedDict):
    name: NotRequired[str]
    arguments: str


class CallDelta(TypedDict):
    """A piece of a tool call; only the first piece has id, type and name."""

    index: Count
    id: NotRequired[str]
    type: NotRequired[Literal["function"]]
    function: FunctionDelta


class Message(TypedDict):
    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: NotRequired[str]
    reasoning: NotRequired[str]
    tool_calls: NotRequired[list[ToolCall]]


class Delta(TypedDict, total=False):
    """The first delta of a choice has role, and content without text."""

    role: Literal["assistant"]
    content: str | None  # null: as llama-server begins
    reasoning_content: str
    reasoning: str
    tool_calls: list[CallDelta]


class ChatChoice(EndFields, DrawnFields):
    index: Count
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish


class ChatChunkChoice(EndFields, DrawnFields):
    index: Count
    delta: Delta
    logprobs: ChatLogprobs | None
    finish_reason: ChatFinish | None


class ChatCompletion(Head, Noted, Compared, PromptFields):
    object: Literal["chat.completion"]
    choices: list[ChatChoice]
    usage: Usage


class ChatChunk(Head, ChunkExtras):
    object: Literal["chat.completion.chunk"]
    choices: Annotated[list[ChatChunkChoice], Field(max_length=1)]


CHUNKS = Frames(
    ChatChunk | Error,
    "Frames `data: <ChatChunk>`, each with one choice; the last frame is `data: [DONE]` or an error.",
)

# ----------------------------------------------------------------------------------------------------
# Requests
# ----------------------------------------------------------------------------------------------------


def parse(body: Mapping[str, Any], defaults: Defaults) -> tuple[CompletionRequest, Form]:
    """Reads a body as a request and the form of its answer; RequestError if a field is wrong."""
    form = form_of(body)
    if body.get("messages") is None:
        raise RequestError("messages is missing", param="messages")
    if _has_two_answers_at_end(body["messages"]):
        raise RequestError("messages ends in two messages of the assistant; it may be one", param="messages")
    request = request_from(
        body, replace(defaults, n=N, max_tokens=MAX_TOKENS, whole=not form.stream), known=READ_HERE
    )
    refuse_prompt_logprobs(request, form)
    return request.model_copy(update={"logprobs": _logprobs(body)}), form


def prompt_of(body: Mapping[str, Any], about: ServerInfo) -> CompletionRequest:
    """The request whose prompt /v1/chat/completions/input_tokens counts."""
    return parse(body, about.defaults)[0]


def _has_two_answers_at_end(messages: Any) -> bool:
    """Whether it is unclear which message is to be continued."""
    last = messages[-2:] if isinstance(messages, list) else []
    return [one.get("role") for one in last if isinstance(one, dict)] == ["assistant"] * 2


def _logprobs(body: Mapping[str, Any]) -> int | None:
    """The number of alternatives (top_logprobs); None without logprobs."""
    wanted, top = body.get("logprobs"), body.get("top_logprobs")
    if wanted is not None and not isinstance(wanted, bool):
        raise wrong("logprobs", wanted, "true or false")
    if top is not None and (type(top) is not int or not 0 <= top <= MAX_LOGPROBS):
        raise wrong("top_logprobs", top, f"a whole number between 0 and {MAX_LOGPROBS}")
    if top and not wanted:
        raise RequestError("top_logprobs is given without logprobs", param="top_logprobs")
    return (top or 0) if wanted else None


# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


def _logprobs_of(tokens: Iterable[Mapping[str, Any]], name: Name) -> ChatLogprobs:
    """Each token is serialized now: with many alternatives, a whole answer would be too many objects."""
    return {"content": [as_json(chat_token(token, name)) for token in tokens]}


def _call(call: Mapping[str, Any]) -> CallDelta:
    arguments = call["arguments"]
    if "name" not in call:
        return {"index": call["index"], "function": {"arguments": arguments}}
    function: FunctionDelta = {"name": call["name"], "arguments": arguments}
    return {"index": call["index"], "id": call["id"], "type": "function", "function": function}


def _delta(event: Stream) -> Delta:
    delta: Delta = {"content": event.text} if event.text else {}
    if event.reasoning:
        delta["reasoning_content"] = delta["reasoning"] = event.reasoning
    if event.tool_calls:
        delta["tool_calls"] = list(map(_call, event.tool_calls))
    return delta


def _finish_reason(stop: Stop, *, called: bool) -> ChatFinish:
    """OpenAI's finish_reason; called: whether the choice has called a tool."""
    ended = finish_of(stop)
    return "tool_calls" if called and ended == "stop" else ended


def _unfinished(index: int, delta: Delta) -> ChatChunkChoice:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}


class Chunks:
    """Renders the events of one request as chunks."""

    def __init__(self, request: CompletionRequest, form: Form, origin: Origin) -> None:
        self.writer = ChunkWriter(f"{KIND}.chunk", PREFIX, form, origin, chat_usage_of)
        self.empty_choice = _unfinished(0, {})
        self._notes = noted(request)
        self._name = names_of(request)
        self._plain = not request.tells_of_tokens
        self._no_ids = NO_IDS if request.return_token_ids else NO_DRAWN
        self._role: Delta = {"role": "assistant", "content": None if form.is_of_llama_server else ""}
        self._called: set[int] = set()  # the choices that called a tool

    def render(self, events: list[Event]) -> bytes:
        """The frames of events that follow those of the last call."""
        return b"".join(map(self._render, events))

    frames = render

    def _render(self, event: Event) -> bytes:
        match event:
            case Stream(reasoning="", tool_calls=()) if self._plain or not (
                event.tokens or drawn_fields(event) or self._no_ids
            ):
                # Nearly all frames are of this kind, so they are formatted by hand, which is faster.
                return (
                    b'%b,"choices":[{"index":%d,"delta":{"content":%b},"logprobs":null,"finish_reason":null}]%b'
                    % (self.writer.head, event.index, orjson.dumps(event.text), self.writer.tail)
                )
            case Stream():
                return self._piece(event)
            case Stop():
                return self._ended(event)
            case Start():
                self.writer.name(event.id)
                return self._begin(event)
            case Extend():
                return self._roles(range(event.first, event.count))
            case Done():
                return self.writer.end(event)
        return self.writer.other(event)

    def _begin(self, start: Start) -> bytes:
        """What there is to tell about the request, and the roles; the first of these has the prompt's ids."""
        ids = list(start.prompt_token_ids)
        role: ChatChunkChoice = {**self._no_ids, **_unfinished(0, self._role)}
        first = self.writer.frame((role,), {"prompt_token_ids": ids} if ids else {})
        return (
            self.writer.begin(with_warnings(self._notes, start)) + first + self._roles(range(1, start.count))
        )

    def _piece(self, event: Stream) -> bytes:
        if event.tool_calls:
            self._called.add(event.index)
        logprobs = _logprobs_of(event.tokens, self._name) if event.tokens else None
        return self._chunk(
            {**_unfinished(event.index, _delta(event)), "logprobs": logprobs, **drawn_fields(event)}
        )

    def _ended(self, stop: Stop) -> bytes:
        ended = _finish_reason(stop, called=stop.index in self._called)
        return self._chunk({**_unfinished(stop.index, {}), "finish_reason": ended, **end_fields(stop)})

    def _roles(self, indices: Iterable[int]) -> bytes:
        return b"".join(self._chunk(_unfinished(index, self._role)) for index in indices)

    def _chunk(self, choice: ChatChunkChoice) -> bytes:
        return self.writer.frame(({**self._no_ids, **choice},))


def _message(one: Text) -> Message:
    calls = [_tool_call(call) for _, call in sorted(one.calls.items())]
    text = one.text if one.text or not calls else None
    made: Message = {"role": "assistant", "content": text, "refusal": None}
    if reasoning := "".join(one.thoughts):
        made["reasoning_content"] = made["reasoning"] = reasoning
    if calls:
        made["tool_calls"] = calls
    return made


def _tool_call(call: Mapping[str, Any]) -> ToolCall:
    function: Function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


class Body(ChoicesBody[Text]):
    """Builds one body from the events of one request."""

    kind, prefix = KIND, PREFIX
    usage_of = staticmethod(chat_usage_of)

    def __init__(self, request: CompletionRequest, origin: Origin) -> None:
        super().__init__(request, origin, Transcript(request.n, Text, Text.add))

    def fields(self) -> Mapping[str, Any]:
        """The body; all events must have been taken."""
        return {**super().fields(), **self.prompt.fields(self.request)}

    def choice(self, index: int, text: Text, stop: Stop | None) -> ChatChoice:
        assert stop is not None  # each sequence stops before done
        request = self.request
        wanted = request.logprobs is not None
        logprobs = _logprobs_of(text.tokens, names_of(request)) if wanted else None
        return {
            "index": index,
            "message": _message(text),
            "logprobs": logprobs,
            "finish_reason": _finish_reason(stop, called=bool(text.calls)),
            **end_fields(stop),
            **all_drawn(text, request),
        }
