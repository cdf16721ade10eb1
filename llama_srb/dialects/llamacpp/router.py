"""llama.cpp's server as a router of several models: loads, unloads, and their events. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NotRequired

from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import ModelState
from llama_srb.dialects.common.response_types import Frames

STAGE = "text_model"  # the only part of a model that is loaded here


class Success(TypedDict):
    success: Literal[True]


class StageProgress(TypedDict):
    """value: 0 to 1."""

    stages: list[str]
    current: str
    value: float


class StatusData(TypedDict):
    """exit_code, with unloaded: 1 if the load failed, for the reason in error; else 0."""

    status: Literal["loading", "loaded", "unloaded"]
    progress: NotRequired[StageProgress]
    exit_code: NotRequired[int]
    error: NotRequired[str]


class ModelEvent(TypedDict):
    """model: a name; `*` with models_reload."""

    model: str
    event: Literal["model_status", "model_remove", "models_reload"]
    data: NotRequired[StatusData]


MODEL_EVENTS = Frames(ModelEvent, "Server-sent events about loads and unloads, from now on.")


@dataclass(frozen=True, slots=True)
class Seen:
    """A model at one moment. progress: of a load, 0 to 1 in steps of 0.01. error: why the load failed."""

    state: ModelState
    progress: float = 0.0
    error: str = ""


def changes(before: Mapping[str, Seen], now: Mapping[str, Seen]) -> Iterator[ModelEvent]:
    """The events between two moments of the same models, by name."""
    for name in before.keys() - now.keys():
        yield {"model": name, "event": "model_remove"}
    if before.keys() != now.keys():
        yield {"model": "*", "event": "models_reload"}
    for name, one in now.items():
        if (data := _change(before.get(name, Seen("unloaded")), one)) is not None:
            yield {"model": name, "event": "model_status", "data": data}


def _change(before: Seen, now: Seen) -> StatusData | None:
    if now == before:
        return None
    match now.state:
        case "loading" if now.progress > 0:
            progress: StageProgress = {"stages": [STAGE], "current": STAGE, "value": now.progress}
            return {"status": "loading", "progress": progress}
        case "failed":
            return {"status": "unloaded", "exit_code": 1, "error": now.error}
        case "unloaded":
            return {"status": "unloaded", "exit_code": 0}
    return {"status": now.state}
