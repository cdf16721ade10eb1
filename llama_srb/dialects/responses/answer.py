"""OpenAI's responses: the types of a response, of its items, and of the events of a stream. Pure.

Names and shapes are those of the openai package (openai.types.responses).
"""

from typing import Annotated, Any, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count, Cut, Frames, Told
from llama_srb.dialects.common.timings import PromptProgress, Timings
from llama_srb.dialects.openai.answer import CachedTokens, ChatToken

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]

# ----------------------------------------------------------------------------------------------------
# Items of the output
# ----------------------------------------------------------------------------------------------------


class ReasoningPart(TypedDict):
    type: Literal["reasoning_text"]
    text: str


class TextPart(TypedDict):
    """logprobs: empty, if none are asked for."""

    type: Literal["output_text"]
    annotations: Annotated[list[str], Field(max_length=0)]
    logprobs: list[ChatToken]
    text: str


class ReasoningItem(TypedDict):
    """The model's reasoning, which is neither summed up nor encrypted."""

    id: str
    type: Literal["reasoning"]
    summary: Annotated[list[str], Field(max_length=0)]
    content: list[ReasoningPart]
    status: Status


class MessageItem(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    content: list[TextPart]
    status: Status


class CallItem(TypedDict):
    """A call of a function; arguments: a JSON object as text."""

    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    namespace: NotRequired[str]
    arguments: str
    status: Status


class CustomCallItem(TypedDict):
    """A call of a custom tool; input: a text."""

    id: str
    type: Literal["custom_tool_call"]
    call_id: str
    name: str
    namespace: NotRequired[str]
    input: str
    status: Status


OutputItem: TypeAlias = ReasoningItem | MessageItem | CallItem | CustomCallItem

# ----------------------------------------------------------------------------------------------------
# The response
# ----------------------------------------------------------------------------------------------------


class InputTokensDetails(CachedTokens):
    cache_write_tokens: Literal[0]


class OutputTokensDetails(TypedDict):
    reasoning_tokens: Count


class ResponseUsage(TypedDict):
    input_tokens: Count
    input_tokens_details: InputTokensDetails
    output_tokens: Count
    output_tokens_details: OutputTokensDetails
    total_tokens: Count


class ResponseFault(TypedDict):
    code: str
    message: str


class IncompleteDetails(TypedDict):
    reason: Literal["max_output_tokens"] | Cut


class Reasoning(TypedDict):
    effort: str | None
    summary: str | None


class ResponseObject(Told):
    """created_at, completed_at: seconds since 1970. Most other fields are those of the request."""

    id: str
    object: Literal["response"]
    created_at: Count
    completed_at: Count | None
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    background: Literal[False]
    error: ResponseFault | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: Count | None
    max_tool_calls: Count | None
    metadata: dict[str, Any]
    model: str
    system_fingerprint: str
    frequency_penalty: float
    output: list[OutputItem]
    parallel_tool_calls: bool
    presence_penalty: float
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: Reasoning
    safety_identifier: str | None
    service_tier: Literal["default"]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_logprobs: Count
    top_p: float
    truncation: Literal["auto", "disabled"]
    usage: ResponseUsage | None
    user: str | None


class InputTokens(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: Count


class InputItems(TypedDict):
    """Items as the client has sent them, each with an id."""

    object: Literal["list"]
    data: list[dict[str, Any]]
    first_id: str | None
    last_id: str | None
    has_more: bool


class DeletedResponse(TypedDict):
    id: str
    object: Literal["response"]
    deleted: Literal[True]


# ----------------------------------------------------------------------------------------------------
# Events
# ----------------------------------------------------------------------------------------------------


class Numbered(TypedDict):
    """sequence_number: of the event in its stream, from 0."""

    sequence_number: Count


class Timed(TypedDict):
    """timings: only with timings_per_token."""

    timings: NotRequired[Timings]


class ResponseEvent(Numbered, Timed):
    """The response as it begins, and as it ends. prompt_progress: only with return_progress."""

    type: Literal[
        "response.created",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: ResponseObject
    prompt_progress: NotRequired[PromptProgress]


class OutputItemEvent(Numbered):
    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: Count
    item: OutputItem


class Placed(Numbered):
    """Belongs to an item of the output."""

    output_index: Count
    item_id: str


class ContentPartEvent(Placed):
    type: Literal["response.content_part.added", "response.content_part.done"]
    content_index: Count
    part: TextPart | ReasoningPart


class OutputTextDelta(Placed, Timed):
    type: Literal["response.output_text.delta"]
    content_index: Count
    delta: str
    logprobs: list[ChatToken]


class OutputTextDone(Placed):
    type: Literal["response.output_text.done"]
    content_index: Count
    text: str
    logprobs: list[ChatToken]


class ReasoningTextDelta(Placed, Timed):
    type: Literal["response.reasoning_text.delta"]
    content_index: Count
    delta: str


class ReasoningTextDone(Placed):
    type: Literal["response.reasoning_text.done"]
    content_index: Count
    text: str


class CallDeltaEvent(Placed, Timed):
    type: Literal["response.function_call_arguments.delta", "response.custom_tool_call_input.delta"]
    delta: str


class ArgumentsDone(Placed):
    type: Literal["response.function_call_arguments.done"]
    arguments: str
    name: str


class CustomInputDone(Placed):
    type: Literal["response.custom_tool_call_input.done"]
    input: str


EVENTS = Frames(
    ResponseEvent
    | OutputItemEvent
    | ContentPartEvent
    | OutputTextDelta
    | OutputTextDone
    | ReasoningTextDelta
    | ReasoningTextDone
    | CallDeltaEvent
    | ArgumentsDone
    | CustomInputDone,
    "Frames `event: <type>`, `data: <event>`. The last event has the whole response: response.completed, "
    "response.incomplete or response.failed.",
)
