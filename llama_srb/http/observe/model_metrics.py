"""The counts and times of one model, as Prometheus metrics; times are in seconds. Knows no HTTP.

Times are measured in this process, from a request's arrival to an event's arrival, without the network.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from llama_srb.engine.events import Done, Event, Stop, Stream

PREFIX = "llama_srb"
FIRST_TOKEN = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
BETWEEN_TOKENS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

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
    "queued": "Requests in the engine's queue.",
    "sequences": "Sequences that share each decode step.",
    "sequences_waiting": "Sequences that wait to be scheduled.",
}
COUNTS = {  # name in the engine's status, divisor, help text; a new process counts from 0
    "steps": ("steps", 1, "Decode steps."),
    "step_tokens": ("step_tokens", 1, "Tokens in decode steps; divided by the steps: the batch size."),
    "step_seconds": ("step_us", 1e6, "Time in decode steps."),
    "model_seconds": ("model_us", 1e6, "Part of it in the model; the rest is sampling, events, bookkeeping."),
}
# fmt: on

Metric = TypeVar("Metric", Counter, Gauge, Histogram)


@dataclass(frozen=True, slots=True)
class ModelNow:
    """The current values of a model.

    open: its requests that run or wait. memory: bytes. engine: its status; empty if no engine can be asked.
    """

    is_ready: bool
    open: int
    memory: int
    engine: Mapping[str, Any]

    def beside(self, old: ModelNow) -> ModelNow:
        """The values of both. old: a model with this name that is being removed."""
        return replace(self, open=self.open + old.open, memory=self.memory + old.memory)


class Families:
    """The metrics that each model has; with several models they have the label `model`."""

    def __init__(self, registry: CollectorRegistry, *, by_model: bool) -> None:
        self._registry, self._labels = registry, ("model",) if by_model else ()
        self._generations = {name: self._counter(name, text) for name, text in GENERATIONS.items()}
        self._first = self._histogram("first_token_seconds", "From arrival to the first text.", FIRST_TOKEN)
        about = "Between texts of a request."
        self._between = self._histogram("between_tokens_seconds", about, BETWEEN_TOKENS)
        self._starts = self._counter("engine_starts", "Engine processes that were started.")
        self._memory = self._gauge("engine_memory_bytes", "Resident memory of all engine processes.")
        self._up = self._gauge("engine_ready", "1 when requests are served at once.")
        self._counts = {name: self._counter("engine_" + name, text) for name, (_, _, text) in COUNTS.items()}
        self._gauges = {name: self._gauge("engine_" + name, text) for name, text in GAUGES.items()}

    def _counter(self, name: str, about: str) -> Counter:
        return Counter(f"{PREFIX}_{name}", about, self._labels, registry=self._registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", about, self._labels, registry=self._registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", about, self._labels, buckets=buckets, registry=self._registry)

    def of(self, model: str) -> ModelMetrics:
        """The metrics of one model."""

        def one(metric: Metric) -> Metric:
            return metric.labels(model) if self._labels else metric

        return ModelMetrics(
            {name: one(count) for name, count in self._generations.items()},
            one(self._first),
            one(self._between),
            one(self._starts),
            one(self._memory),
            one(self._up),
            {name: one(count) for name, count in self._counts.items()},
            {name: one(gauge) for name, gauge in self._gauges.items()},
        )


NOT_SERVED = ModelNow(is_ready=False, open=0, memory=0, engine={})


@dataclass(slots=True)
class ModelMetrics:
    """The metrics of one model. longest: most tokens that one sequence had at its end, with its prompt."""

    generations: Mapping[str, Counter]
    first_token_seconds: Histogram
    between_tokens_seconds: Histogram
    starts: Counter
    memory: Gauge
    up: Gauge
    counts: Mapping[str, Counter]
    gauges: Mapping[str, Gauge]
    longest: int = 0
    running: int = 0  # requests, in the last status of an engine
    queued: int = 0
    _counted: dict[str, int] | None = None  # the counts in the last status

    def engine_started(self) -> None:
        self.starts.inc()

    def clock(self) -> Clock:
        """A clock for the events of one generation."""
        return Clock(self)

    def set(self, now: ModelNow) -> None:
        """Sets the current values."""
        engine = now.engine
        self.running, self.queued = engine.get("requests", 0), engine.get("queued", 0)
        self.up.set(now.is_ready)
        self.memory.set(now.memory)
        for name, gauge in self.gauges.items():
            gauge.set(engine.get(name, float("nan")))
        counted = self._counted or dict.fromkeys(COUNTS, 0)
        for name, (field, divisor, _) in COUNTS.items():
            before, after = counted[name], int(engine.get(field, counted[name]))
            self.counts[name].inc((after - before if after >= before else after) / divisor)
            counted[name] = after
        self._counted = counted


class Clock:
    """Measures the times and counts the tokens of one generation."""

    def __init__(self, metrics: ModelMetrics) -> None:
        self._metrics = metrics
        self._began = time.monotonic()
        self._last: float | None = None  # time of the last text
        self._most = 0  # tokens of the longest text

    def take(self, events: list[Event]) -> None:
        if any(type(event) is Stream for event in events):
            self._tick(time.monotonic())
        for event in events:
            if type(event) is Stop:
                self._most = max(self._most, event.length)
        if isinstance(done := events[-1], Done):
            counts = self._metrics.generations
            counts["prompt_tokens"].inc(done.prompt_tokens)
            counts["cached_tokens"].inc(done.cached_tokens)
            counts["completion_tokens"].inc(done.completion_tokens)
            counts["prompt_seconds"].inc(done.timings.get("prompt_ms", 0) / 1000)
            counts["decode_seconds"].inc(done.timings.get("decode_ms", 0) / 1000)
            self._metrics.longest = max(self._metrics.longest, done.prompt_tokens + self._most)

    def _tick(self, now: float) -> None:
        if self._last is None:
            self._metrics.first_token_seconds.observe(now - self._began)
        else:
            self._metrics.between_tokens_seconds.observe(now - self._last)
        self._last = now
