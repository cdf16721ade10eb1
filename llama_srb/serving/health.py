"""Whether a server serves requests, and why not: for health checks of any protocol."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypeAlias

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.serving.model_registry import ModelRegistry

Failed: TypeAlias = Annotated[
    dict[str, str], Field(description="Of several models: those that could not be loaded, with the causes.")
]


class Healthy(TypedDict):
    status: Literal["ok"]
    failed: NotRequired[Failed]


class Unhealthy(TypedDict):
    status: Literal["unloaded", "loading", "failed", "draining", "stopped"]
    progress: Annotated[float, Field(ge=0, le=1)]
    error: NotRequired[Annotated[str, Field(description="With status failed: the cause, and what to do.")]]
    failed: NotRequired[Failed]


HEALTHY: Healthy = {"status": "ok"}
Ended: TypeAlias = Literal["draining", "stopped", "failed"]
ENDED: tuple[Ended, ...] = ("draining", "stopped")
SERVING = ("ready", "unloaded", "loading")  # states of a model of several that takes requests


def health_of(registry: ModelRegistry) -> Healthy | Unhealthy:
    """Whether requests are served at once or after a load; else the state and the reason."""
    answer = _health_of_models(registry)
    if registry.admission.is_draining and answer["status"] == "ok":
        return {"status": "draining", "progress": 1.0}
    return answer


def _health_of_models(registry: ModelRegistry) -> Healthy | Unhealthy:
    return _health_of_several(registry) if registry.are_several else _health_of_one(registry)


def _health_of_one(registry: ModelRegistry) -> Healthy | Unhealthy:
    (model,) = registry
    state, has_failed = model.pool.state, registry.state_of(model) == "failed"
    if state == "ready" or (state == "unloaded" and not has_failed):
        return HEALTHY
    answer: Unhealthy = {
        "status": "failed" if has_failed else state,
        "progress": round(model.pool.progress, 3),
    }
    if has_failed and model.failure:
        answer["error"] = model.failure
    return answer


def _health_of_several(registry: ModelRegistry) -> Healthy | Unhealthy:
    """While models are loaded at the start, `progress` is that of the one that loads."""
    failed = {one.name: one.failure for one in registry if registry.state_of(one) == "failed"}
    able = [one for one in registry if one.name not in failed and one.pool.state in SERVING]
    if able and not registry.is_starting:
        return {**HEALTHY, "failed": failed} if failed else HEALTHY
    states = {one.pool.state for one in registry}
    ended: Ended = next((state for state in ENDED if state in states), "failed")
    progress = [one.pool.progress for one in able if one.pool.state == "loading"]
    answer: Unhealthy = {
        "status": "loading" if able else ended,
        "progress": round(min(progress, default=0.0), 3),
    }
    if failed:
        answer["failed"] = failed
        answer["error"] = "; ".join(f"{name}: {reason}" for name, reason in failed.items())
    return answer
