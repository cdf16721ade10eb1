"""The metrics under llama-server's names, for the dashboards and clients that read those."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

from llama_srb.serving.observe.model_metrics import DRAFT_SOURCES

Counts: TypeAlias = Mapping[str, Any]


def _rate(tokens: float, seconds: float) -> float:
    return tokens / seconds if seconds else 0.0


def _of_drafts(of: Counts, what: str) -> int:
    return sum(of[f"engine_draft_{source}_{what}"] for source in DRAFT_SOURCES)


Row: TypeAlias = tuple[str, Literal["counter", "gauge"], str, Callable[[Counts], float]]
# fmt: off
ROWS: tuple[Row, ...] = (  # name, type, meaning, value
    ("prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
        lambda of: of["prompt_tokens"] - of["cached_tokens"]),
    ("prompt_tokens_cached_total", "counter", "Tokens of prompts that were in the prefix cache.",
        lambda of: of["cached_tokens"]),
    ("prompt_seconds_total", "counter", "Time from a request's admission to the end of its prompt.",
        lambda of: of["prompt_seconds"]),
    ("tokens_predicted_total", "counter", "Tokens that were generated.", lambda of: of["completion_tokens"]),
    ("tokens_predicted_seconds_total", "counter", "Time from a prompt's end to the end of its request.",
        lambda of: of["decode_seconds"]),
    ("n_decode_total", "counter", "Decode steps.", lambda of: of["engine_steps"]),
    ("n_tokens_max", "counter", "Most tokens that one sequence had at its end, with its prompt.",
        lambda of: of["longest"]),
    ("spec_decode_num_draft_tokens_total", "counter", "Tokens that were guessed.",
        lambda of: _of_drafts(of, "tokens")),
    ("spec_decode_num_accepted_tokens_total", "counter", "Those of them that were right.",
        lambda of: _of_drafts(of, "accepted_tokens")),
    ("spec_decode_num_drafts_total", "counter", "Times that next tokens of a sequence were guessed.",
        lambda of: of["engine_drafts"]),
    ("prompt_tokens_seconds", "gauge", "Tokens of prompts per second.",
        lambda of: _rate(of["prompt_tokens"] - of["cached_tokens"], of["prompt_seconds"])),
    ("predicted_tokens_seconds", "gauge", "Generated tokens per second.",
        lambda of: _rate(of["completion_tokens"], of["decode_seconds"])),
    ("requests_processing", "gauge", "Requests that the engine runs.", lambda of: of["requests_running"]),
    ("requests_deferred", "gauge", "Requests in the engine's queue, without those that yield.",
        lambda of: of["requests_queued"]),
    ("n_busy_slots_per_decode", "gauge", "Tokens in a decode step: the batch size.",
        lambda of: _rate(of["engine_step_tokens"], of["engine_steps"])),
)
# fmt: on


def lines(counts: Counts) -> Iterator[str]:
    """The metrics in Prometheus' text format."""
    for name, kind, meaning, value in ROWS:
        yield f"# HELP llamacpp:{name} {meaning}"
        yield f"# TYPE llamacpp:{name} {kind}"
        yield f"llamacpp:{name} {float(value(counts)):g}"
