"""The types of answers that handlers make, not dialects. Pure."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import ModelState
from llama_srb.dialects.common.response_types import Count, Warned
from llama_srb.engine.pool import PoolState
from llama_srb.request.fields import ROWS
from llama_srb.serving.observe.metrics import ModelTotals, Totals

# ----------------------------------------------------------------------------------------------------
# Running requests
# ----------------------------------------------------------------------------------------------------


class Extended(Warned):
    """The new sequences have the indices first to count - 1."""

    id: str
    first: Count
    count: Count


class Computed(Warned):
    id: str
    prompt_tokens: Count
    cached_tokens: Count
    superseded: NotRequired[
        Annotated[Literal[True], Field(description="A newer prefix of the same client has replaced it.")]
    ]


class Cancelled(TypedDict):
    id: str
    cancelled: Literal[True]


class AbortedRequests(TypedDict):
    """How many requests were running or waiting; several prompts of one request count each."""

    aborted: Count


class DrainState(TypedDict):
    """requests_open: that run or wait, also those of the WebSockets that are open."""

    status: Literal["draining", "serving"]
    requests_open: Count
    websockets_open: Count


# ----------------------------------------------------------------------------------------------------
# The model, and what requests may name
# ----------------------------------------------------------------------------------------------------


class EmbeddingFacts(TypedDict):
    only: Annotated[bool, Field(description="The model makes only vectors; it generates no text.")]
    pooling: Literal["mean", "cls", "last", "rank"]
    dimensions: Count
    max_tokens: Count


class ModelMeta(TypedDict):
    """Facts from the model file's header; n_ctx and embedding come from the engine.

    chat_template: whether there is one, so that the model can be told what to do. infill:
    whether it can write a text between two others; false until an engine has loaded it.
    """

    name: str
    architecture: str
    parameters: Count
    quantisation: str
    context: Count | None
    size_bytes: Count
    chat_template: bool
    infill: bool
    n_ctx: int | None
    embedding: NotRequired[EmbeddingFacts]


class ModelStatus(TypedDict):
    """failed, error: with value failed; error is the reason."""

    value: ModelState
    failed: NotRequired[Literal[True]]
    error: NotRequired[str]


class Model(TypedDict):
    """aliases, tags: those of --alias and --tags.

    root: the model's own name; of an adapter that has a name its file, once it is loaded. parent: of an
    adapter or a task, its model's name. max_model_len: tokens of one sequence.
    """

    id: str
    aliases: list[str]
    tags: list[str]
    object: Literal["model"]
    created: Count
    owned_by: str
    status: ModelStatus
    size_bytes: Count
    root: str | None
    parent: NotRequired[str]
    max_model_len: Count | None
    meta: ModelMeta


class Models(TypedDict):
    object: Literal["list"]
    data: list[Model]


class Adapter(TypedDict):
    id: Count
    name: str
    path: str
    scale: float


class Adapters(TypedDict):
    object: Literal["list"]
    data: list[Adapter]


class Preset(TypedDict):
    """title: its name for writers."""

    name: str
    title: str
    about: str
    fields: dict[str, Any]


class Presets(TypedDict):
    object: Literal["list"]
    data: list[Preset]


class TaskEntry(TypedDict):
    """A task. named_model: what its table has as `model`. fields: defaults of request fields.

    private_tokens: only for admins, if keys are needed.
    """

    id: str
    object: Literal["task"]
    about: str
    model: str
    named_model: str | None
    prelude: str
    prefix: str
    postfix: str
    fields: dict[str, Any]
    locked: list[str]
    recall: dict[str, Any] | None
    private_tokens: NotRequired[list[str]]


class TaskList(TypedDict):
    object: Literal["list"]
    data: list[TaskEntry]


class FieldRow(TypedDict):
    """A request field; low and high are inclusive.

    title, about: its name and what it does, for writers; empty if it has none.

    values: values that a writer may choose, with their names; empty if any other fits as well.
    """

    name: str
    title: str
    about: str
    values: dict[str, str]
    type: Annotated[str, Field(json_schema_extra={"enum": sorted({row.type for row in ROWS.values()})})]
    default: Any
    low: float | None
    high: float | None
    neutral: Any
    aliases: tuple[str, ...]
    group: str
    per_choice: bool
    meaning: str


class Fields(TypedDict):
    """converted: by the name of another server's field, the field that it becomes.

    stories: whether the server keeps stories, so that a page asks for them only where it does.
    """

    samplers: list[FieldRow]
    request: list[FieldRow]
    converted: dict[str, str]
    stories: bool


# ----------------------------------------------------------------------------------------------------
# The server
# ----------------------------------------------------------------------------------------------------


class EngineStats(TypedDict):
    status: PoolState
    requests_open: Count
    engine_memory_bytes: Count
    engine: Annotated[
        dict[str, Any], Field(description="The engine's counts of cells, requests and sequences.")
    ]


class ModelStats(ModelTotals, EngineStats):
    pass


class Stats(Totals, EngineStats):
    """tasks: asyncio tasks of the server. status, engine: of the first model."""

    tasks: Count


class StatsByModel(Stats):
    """Those of a server of several models. models: by name."""

    models: dict[str, ModelStats]
