"""Anthropic's messages: the types of the answers, content blocks, errors. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NotRequired, TypeAlias

from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import Text, arguments_of
from llama_srb.dialects.common.response_types import NO_SIZE, Count, Cut, Frames, PromptSize, Told, cut_of
from llama_srb.engine.events import Stop, Stream

PREFIX = "msg_"  # before the id
SIGNATURE = "unsigned"  # clients drop thinking without a signature; here nobody checks it

# ----------------------------------------------------------------------------------------------------
# A message
# ----------------------------------------------------------------------------------------------------

StopReason: TypeAlias = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"] | Cut


class TextBlock(TypedDict):
    type: Literal["text"]
    text: str
    citations: None


class ThinkingBlock(TypedDict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUseBlock(TypedDict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


ContentBlock: TypeAlias = TextBlock | ThinkingBlock | ToolUseBlock


class OutputDetails(TypedDict):
    thinking_tokens: Count


class UsageSoFar(TypedDict):
    """Tokens. The prompt has input_tokens and cache_read_input_tokens together."""

    input_tokens: Count
    cache_creation_input_tokens: Count
    cache_read_input_tokens: Count
    output_tokens: Count
    output_tokens_details: OutputDetails
    server_tool_use: None


class Created(TypedDict):
    ephemeral_5m_input_tokens: Count
    ephemeral_1h_input_tokens: Count


class AnthropicUsage(UsageSoFar):
    """What only Anthropic's servers sell is 0, null, or the usual."""

    cache_creation: Created
    inference_geo: None
    service_tier: Literal["standard"]


class Stopped(TypedDict):
    """stop_details, container: always null, since nothing is refused, and no code is run."""

    stop_reason: StopReason | None
    stop_sequence: str | None
    stop_details: None
    container: None


class AnthropicMessage(Stopped, Told):
    """stop_reason is null only in message_start."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    usage: AnthropicUsage


class CountedTokens(TypedDict):
    input_tokens: Count


def usage_of(prompt: int, cached: int, output: int, thoughts: int) -> UsageSoFar:
    """thoughts: the tokens of the output that are thoughts."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
        "output_tokens_details": {"thinking_tokens": thoughts},
        "server_tool_use": None,
    }


def whole_usage(so_far: UsageSoFar) -> AnthropicUsage:
    created: Created = {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0}
    return {**so_far, "cache_creation": created, "inference_geo": None, "service_tier": "standard"}


def counted(tokens: int) -> CountedTokens:
    return {"input_tokens": tokens}


def content_of(text: Text) -> list[ContentBlock]:
    """The blocks of a message as a whole."""
    content: list[ContentBlock] = []
    if thought := "".join(text.thoughts):
        content.append({"type": "thinking", "thinking": thought, "signature": SIGNATURE})
    if text.text:
        content.append({"type": "text", "text": text.text, "citations": None})
    for _, call in sorted(text.calls.items()):
        given = arguments_of(call["arguments"])
        content.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": given})
    return content


def stopped(stop: Stop, stops: tuple[str, ...], *, called: bool) -> Stopped:
    """Why a message ended. stops: the client's stop sequences; the template has others of its own."""
    if stop.finish_reason != "stop":
        return ended(cut_of(stop) or "max_tokens")
    if stop.stop_text in stops:
        return ended("stop_sequence", stop.stop_text)
    return ended("tool_use" if called else "end_turn")


def ended(reason: StopReason | None, sequence: str | None = None) -> Stopped:
    return {"stop_reason": reason, "stop_sequence": sequence, "stop_details": None, "container": None}


# ----------------------------------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------------------------------

AnthropicErrorType: TypeAlias = Literal[
    "invalid_request_error", "authentication_error", "permission_error", "not_found_error",
    "request_too_large", "rate_limit_error", "api_error", "overloaded_error", "timeout_error",
]  # fmt: skip
TYPES: Mapping[int, AnthropicErrorType] = {
    401: "authentication_error", 403: "permission_error", 404: "not_found_error", 413: "request_too_large",
    429: "rate_limit_error", 503: "overloaded_error",
}  # fmt: skip
TYPES_OF_CODE: Mapping[str | None, AnthropicErrorType] = {
    "invalid_request": "invalid_request_error", "context_exceeded": "invalid_request_error",
    "invalid_api_key": "authentication_error", "timed_out": "timeout_error", "busy": "overloaded_error",
    "unavailable": "overloaded_error", "shutting_down": "overloaded_error",
}  # fmt: skip
STATUSES: Mapping[AnthropicErrorType, int] = {"overloaded_error": 529, "timeout_error": 504}
NO_THREADS = "thread_unsupported_request"  # its clients then send the whole conversation


class ErrorDetails(TypedDict):
    """error_code: one of Anthropic's own. unsupported: the fields that this server refuses."""

    error_code: str
    unsupported: list[str]


class AnthropicErrorFields(TypedDict):
    type: AnthropicErrorType
    message: str
    details: NotRequired[ErrorDetails]


class AnthropicError(TypedDict):
    type: Literal["error"]
    error: AnthropicErrorFields


def _type_of(status: int, code: str | None) -> AnthropicErrorType:
    other: AnthropicErrorType = "invalid_request_error" if status < 500 else "api_error"
    return TYPES_OF_CODE.get(code) or TYPES.get(status, other)


def status_of(status: int, code: str | None) -> int:
    """The status that Anthropic's API has for an error with this status and code."""
    return STATUSES.get(_type_of(status, code), status)


def error_body(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
) -> AnthropicError:
    """An error in Anthropic's form."""
    if size:  # agents find this sentence and its numbers, and shorten the conversation
        message = f"prompt is too long: {size['n_prompt_tokens']} tokens > {size['n_ctx'] - 1} maximum"
    error: AnthropicErrorFields = {"type": _type_of(status, code), "message": message}
    if code == NO_THREADS and param is not None:
        error["details"] = {"error_code": code, "unsupported": [param]}
    return {"type": "error", "error": error}


# ----------------------------------------------------------------------------------------------------
# Events
# ----------------------------------------------------------------------------------------------------


class MessageStart(TypedDict):
    type: Literal["message_start"]
    message: AnthropicMessage


class BlockStart(TypedDict):
    type: Literal["content_block_start"]
    index: Count
    content_block: ContentBlock


class TextDelta(TypedDict):
    type: Literal["text_delta"]
    text: str


class ThinkingDelta(TypedDict):
    type: Literal["thinking_delta"]
    thinking: str


class SignatureDelta(TypedDict):
    type: Literal["signature_delta"]
    signature: str


class InputDelta(TypedDict):
    """A piece of a tool's input, which is JSON as text."""

    type: Literal["input_json_delta"]
    partial_json: str


BlockPiece: TypeAlias = TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockDelta(TypedDict):
    type: Literal["content_block_delta"]
    index: Count
    delta: BlockPiece


class BlockStop(TypedDict):
    type: Literal["content_block_stop"]
    index: Count


class MessageEnd(TypedDict):
    """usage counts the whole message."""

    type: Literal["message_delta"]
    delta: Stopped
    usage: UsageSoFar


class MessageStop(TypedDict):
    type: Literal["message_stop"]


class Ping(TypedDict):
    type: Literal["ping"]


BlockEvent: TypeAlias = BlockStart | BlockDelta | BlockStop
EVENTS = Frames(
    MessageStart | BlockEvent | MessageEnd | MessageStop | Ping | AnthropicError,
    "Frames `event: TYPE` and `data: <event>`; the last one is message_stop or error.",
)


class Blocks:
    """Cuts a message into blocks, in the order in which its pieces come. One block is open at a time."""

    def __init__(self) -> None:
        self._count = 0
        self._open: object = None  # "text", "thinking" or the index of a tool call

    def add(self, event: Stream) -> Iterator[BlockEvent]:
        """The events of new pieces. Those of the open block come first: other blocks end it."""
        for key, start, delta in sorted(_pieces(event), key=lambda piece: piece[0] != self._open):
            if key != self._open:
                yield from self.close()
                self._open, self._count = key, self._count + 1
                yield {"type": "content_block_start", "index": self._count - 1, "content_block": start}
            if delta is not None:
                yield self._delta(delta)

    def close(self) -> Iterator[BlockEvent]:
        """The end of the open block, if there is one."""
        if self._open == "thinking":
            yield self._delta({"type": "signature_delta", "signature": SIGNATURE})
        if self._open is not None:
            yield {"type": "content_block_stop", "index": self._count - 1}
        self._open = None

    def _delta(self, delta: BlockPiece) -> BlockDelta:
        return {"type": "content_block_delta", "index": self._count - 1, "delta": delta}


def _pieces(event: Stream) -> Iterator[tuple[object, ContentBlock, BlockPiece | None]]:
    """The pieces of an event: the block's key, the block when it begins, and what is added to it."""
    if thought := event.reasoning:
        begun: ThinkingBlock = {"type": "thinking", "thinking": "", "signature": ""}
        yield "thinking", begun, {"type": "thinking_delta", "thinking": thought}
    if text := event.text:
        yield "text", {"type": "text", "text": "", "citations": None}, {"type": "text_delta", "text": text}
    for call in event.tool_calls:
        empty: dict[str, Any] = {}
        tool: ToolUseBlock = {
            "type": "tool_use", "id": call.get("id", ""), "name": call.get("name", ""), "input": empty,
        }  # fmt: skip
        added: InputDelta = {"type": "input_json_delta", "partial_json": call["arguments"]}
        yield call["index"], tool, added if call["arguments"] else None
