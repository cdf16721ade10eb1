"""The counts and times of one model, as Prometheus metrics; times are in seconds. Knows no HTTP.

Times are measured in this process, from a request's arrival to an event's arrival, without the network.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge

from llama_srb.engine.events import Done, Error, Event, Start, Stop, Stream
from llama_srb.serving.observe.request_metrics import (
    NO_LABELS,
    PREFIX,
    Labels,
    RequestFamilies,
    RequestMetrics,
)

# fmt: off
GENERATIONS = {
    "prompt_tokens": "Tokens of prompts.",
    "cached_tokens": "Tokens of prompts that were in the prefix cache.",
    "completion_tokens": "Tokens that were generated.",
    "prompt_seconds": "From admission to the end of the prompt.",
    "decode_seconds": "From the end of the prompt to the end of the request.",
}
GAUGES = {  # fields of the engine's status
    "cells": "Cells of the KV cache.",
    "cells_used": "Cells in use.",
    "cells_idle": "Cells of idle prompts and continuations.",
    "cells_pinned": "Cells of pinned prompts, which requests cannot have.",
    "cells_shared": "Additional cells that would be needed without sharing.",
    "requests": "Requests that the engine runs.",
    "queued": "Requests in the engine's queue, without those that yield.",
    "sequences": "Sequences that share each decode step.",
    "sequences_waiting": "Sequences that wait to be scheduled, without those of requests that yield.",
}
COUNTS = {  # name in the engine's status, divisor, help text; a new process counts from 0
    "steps": ("steps", 1, "Decode steps."),
    "step_tokens": ("step_tokens", 1, "Tokens in decode steps; divided by the steps: the batch size."),
    "step_seconds": ("step_us", 1e6, "Time in decode steps."),
    "model_seconds": ("model_us", 1e6, "Part of it in the model; the rest is sampling, events, bookkeeping."),
    "drafts": ("drafts", 1, "Times that next tokens of a sequence were guessed, in one step."),
}
DRAFT_SOURCES = {
    "grammar": "what a grammar allows only",
    "prompt": "the prompt",
    "own": "the sequence's own text",
    "siblings": "the request's other texts",
    "earlier": "the same client's earlier texts of such a prompt",
    "model": "a draft model",
}
for _source, _words in DRAFT_SOURCES.items():
    _name = f"draft_{_source}"
    COUNTS[f"{_name}_tokens"] = (_name, 1, f"Tokens that were guessed from {_words}.")
    COUNTS[f"{_name}_accepted_tokens"] = (f"{_name}_accepted", 1, f"Those from {_words} that were right.")
# fmt: on

Metric = TypeVar("Metric", Counter, Gauge)


@dataclass(frozen=True, slots=True)
class ModelNow:
    """The current values of a model.

    open: its requests that run or wait. memory: bytes. engine: its status; empty if no engine can be asked.
    begun, not_begun: the sequences of generations that have begun, and of those that have not.
    """

    is_ready: bool
    open: int
    memory: int
    engine: Mapping[str, Any]
    begun: int = 0
    not_begun: int = 0

    @property
    def kv_cache_usage(self) -> float:
        """The share of the KV cache's cells that nothing can evict, 0 to 1; NaN if it is not known."""
        return self.cells_held / self.cells if self.cells else math.nan

    @property
    def cells(self) -> int:
        """The cells of the KV cache; 0 if that is not known."""
        return int(self.engine.get("cells", 0))

    @property
    def cells_held(self) -> int:
        """The cells that nothing can evict."""
        return int(self.engine.get("cells_used", 0)) - int(self.engine.get("cells_idle", 0))

    @property
    def running(self) -> int:
        """The sequences that share each decode step."""
        return int(self.engine.get("sequences", self.begun))

    @property
    def waiting(self) -> int:
        """The sequences that wait to be scheduled, also of queued requests, not of those that yield."""
        return int(self.engine.get("sequences_waiting", 0)) + self.not_begun

    def beside(self, old: ModelNow) -> ModelNow:
        """The values of both. old: a model with this name that is being removed."""
        both = {name: getattr(self, name) + getattr(old, name) for name in ADDED}
        return replace(self, **both)


ADDED = ("open", "memory", "begun", "not_begun")


class Families:
    """The metrics that each model has; with several models they have the label `model`."""

    def __init__(self, registry: CollectorRegistry, *, by_model: bool) -> None:
        self._registry, self._labels = registry, ("model",) if by_model else ()
        self._generations = {name: self._counter(name, text) for name, text in GENERATIONS.items()}
        self._requests = RequestFamilies(registry, self._labels)
        about = "Tokens that were computed for a key, as its budget counts them."
        keyed = (*self._labels, "key")
        self._spent = Counter(f"{PREFIX}_key_tokens", about, keyed, registry=registry)
        self._starts = self._counter("engine_starts", "Engine processes that were started.")
        self._memory = self._gauge("engine_memory_bytes", "Resident memory of all engine processes.")
        self._up = self._gauge("engine_ready", "1 when requests are served at once.")
        about = "Share of the KV cache that nothing can evict: running requests and pins."
        self._usage = self._gauge("kv_cache_usage_ratio", about)
        self._counts = {name: self._counter("engine_" + name, text) for name, (_, _, text) in COUNTS.items()}
        self._gauges = {name: self._gauge("engine_" + name, text) for name, text in GAUGES.items()}

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", about, self._labels, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", about, self._labels, registry=self._registry)

    def of(self, model: str) -> ModelMetrics:
        """The metrics of one model."""

        def one(metric: Metric) -> Metric:
            return metric.labels(model) if self._labels else metric

        values = (model,) if self._labels else ()
        return ModelMetrics(
            partial(self._requests.of, values),
            lambda key, tokens: self._spent.labels(*values, key).inc(tokens),
            {name: one(count) for name, count in self._generations.items()},
            one(self._starts),
            one(self._memory),
            one(self._up),
            one(self._usage),
            {name: one(count) for name, count in self._counts.items()},
            {name: one(gauge) for name, gauge in self._gauges.items()},
        )


NOT_SERVED = ModelNow(is_ready=False, open=0, memory=0, engine={})


@dataclass(slots=True)
class ModelMetrics:
    """The metrics of one model.

    spent(key, tokens): counts tokens that were computed for a key. longest: most tokens that one sequence
    had at its end, with its prompt.
    """

    requests: Callable[[Labels], RequestMetrics]
    spent: Callable[[str, int], None]
    generations: Mapping[str, Counter]
    starts: Counter
    memory: Gauge
    up: Gauge
    usage: Gauge
    counts: Mapping[str, Counter]
    gauges: Mapping[str, Gauge]
    longest: int = 0
    running: int = 0  # requests, in the last status of an engine
    queued: int = 0
    _counted: dict[str, int] | None = None  # the counts in the last status
    _by_labels: dict[Labels, RequestMetrics] = field(default_factory=dict)

    def engine_started(self) -> None:
        self.starts.inc()

    def clock(self, labels: Labels = NO_LABELS) -> Clock:
        """A clock for the events of one generation."""
        if (metrics := self._by_labels.get(labels)) is None:
            metrics = self._by_labels[labels] = self.requests(labels)
        return Clock(self, metrics)

    def set(self, now: ModelNow) -> None:
        """Sets the current values."""
        engine = now.engine
        self.running, self.queued = engine.get("requests", 0), engine.get("queued", 0)
        self.up.set(now.is_ready)
        self.memory.set(now.memory)
        self.usage.set(now.kv_cache_usage)
        for name, gauge in self.gauges.items():
            gauge.set(engine.get(name, math.nan))
        counted = self._counted or dict.fromkeys(COUNTS, 0)
        for name, (counted_as, divisor, _) in COUNTS.items():
            before, after = counted[name], int(engine.get(counted_as, counted[name]))
            self.counts[name].inc((after - before if after >= before else after) / divisor)
            counted[name] = after
        self._counted = counted


class Clock:
    """Measures one generation: when its phases began, by the monotonic clock; how its sequences ended."""

    def __init__(self, model: ModelMetrics, metrics: RequestMetrics) -> None:
        self.began = time.monotonic()
        self.admitted: float | None = None
        self.first_text: float | None = None
        self._model, self._metrics, self._times = model, metrics, metrics.histograms
        self._last_text = 0.0
        self._ended: dict[str, int] = {}  # sequences by finish_reason
        self._most = 0  # tokens of the longest text

    def take(self, events: list[Event]) -> None:
        """Takes the events of one read, which share one look at the clock."""
        now, has_text = time.monotonic(), False
        for event in events:
            if type(event) is Stream:
                has_text = True
            elif type(event) is Stop:
                self._stop(event)
            elif type(event) is Start and self.admitted is None:
                self.admitted = now
                self._times["queue_seconds"].observe(now - self.began)
        if has_text:
            self._tick(now)
        if isinstance(done := events[-1], Done):
            self._done(done, now)

    def over(self, last: Event | None, n: int) -> None:
        """The generation of n sequences is over; last: its last event."""
        if isinstance(last, Error) and (left := n - sum(self._ended.values())) > 0:
            self._ended["error"] = left
        self._metrics.finished(self._ended)

    @property
    def reasons(self) -> list[str]:
        """The finish_reason of each sequence that has ended, in no order."""
        return [reason for reason, count in self._ended.items() for _ in range(count)]

    def _stop(self, stop: Stop) -> None:
        reason = stop.finish_reason
        self._ended[reason] = self._ended.get(reason, 0) + 1
        self._most = max(self._most, stop.length)

    def _tick(self, now: float) -> None:
        if self.first_text is None:
            self.first_text = now
            self._times["first_token_seconds"].observe(now - self.began)
        else:
            self._times["between_tokens_seconds"].observe(now - self._last_text)
        self._last_text = now

    def _done(self, done: Done, now: float) -> None:
        counts = self._model.generations
        counts["prompt_tokens"].inc(done.prompt_tokens)
        counts["cached_tokens"].inc(done.cached_tokens)
        counts["completion_tokens"].inc(done.completion_tokens)
        counts["prompt_seconds"].inc(done.timings.get("prompt_ms", 0) / 1000)
        counts["decode_seconds"].inc(done.timings.get("decode_ms", 0) / 1000)
        self._model.longest = max(self._model.longest, done.prompt_tokens + self._most)
        if self.admitted is not None:
            self._times["request_seconds"].observe(now - self.began)
            self._times["request_prompt_tokens"].observe(done.prompt_tokens)
            self._times["request_completion_tokens"].observe(done.completion_tokens)
