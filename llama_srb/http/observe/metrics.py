"""The server's counts and times, as Prometheus metrics; times are in seconds. Knows no HTTP.

Times are measured in this process, from a request's arrival to an event's arrival, without the network.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import Count
from llama_srb.engine.events import Done, Event, Stop, Stream
from llama_srb.http.observe import llamacpp_metrics

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "llama_srb"
FIRST_TOKEN = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
BETWEEN_TOKENS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

# fmt: off
GAUGES = {  # fields of the engine's status
    "cells": "Cells of the KV cache.",
    "cells_used": "Cells in use.",
    "cells_idle": "Cells of idle prompts and continuations.",
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
NOW = {"requests_running": "requests", "requests_queued": "queued"}  # in the engine's status
# fmt: on


@dataclass(slots=True)
class GenerationMetrics:
    """The metrics that the events of all generations update.

    longest: the most tokens that one sequence had at its end, with its prompt.
    """

    prompt_tokens: Counter
    cached_tokens: Counter
    completion_tokens: Counter
    prompt_seconds: Counter
    decode_seconds: Counter
    first_token_seconds: Histogram
    between_tokens_seconds: Histogram
    longest: int = 0


class Totals(TypedDict):
    """The counts since the server's start."""

    uptime_seconds: float
    requests: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    prompt_seconds: float
    decode_seconds: float
    engine_starts: Count
    engine_steps: Count
    engine_step_tokens: Count
    engine_step_seconds: float
    engine_model_seconds: float


class Metrics:
    """The metrics of one server; each has its own registry, so that one process may run several servers."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.began = time.time()
        self._requests = self._counter("requests", "Requests that have ended.", ["path", "dialect", "status"])
        self._generations = GenerationMetrics(
            self._counter("prompt_tokens", "Tokens of prompts."),
            self._counter("cached_tokens", "Tokens of prompts that were in the prefix cache."),
            self._counter("completion_tokens", "Tokens that were generated."),
            self._counter("prompt_seconds", "From admission to the end of the prompt."),
            self._counter("decode_seconds", "From the end of the prompt to the end of the request."),
            self._histogram("first_token_seconds", "From arrival to the first text.", FIRST_TOKEN),
            self._histogram("between_tokens_seconds", "Between texts of a request.", BETWEEN_TOKENS),
        )
        self._starts = self._counter("engine_starts", "Engine processes that were started.")
        self._running = self._gauge("requests_open", "Requests that are running or queued.")
        self._memory = self._gauge("engine_memory_bytes", "Resident memory of all engine processes.")
        self._up = self._gauge("engine_ready", "1 when requests are served at once.")
        self._counts = {name: self._counter("engine_" + name, text) for name, (_, _, text) in COUNTS.items()}
        self._now: dict[str, int] = dict.fromkeys(NOW, 0)
        self._counted = dict.fromkeys(COUNTS, 0)  # the counts in the last status of an engine
        self._of_engine = {name: self._gauge("engine_" + name, text) for name, text in GAUGES.items()}

    def _counter(self, name: str, about: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"{PREFIX}_{name}", about, labels or [], registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", about, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", about, buckets=buckets, registry=self.registry)

    # Updates

    def answered(self, path: str, dialect: str, status: str) -> None:
        """Counts a request that has ended; path is the route's, with the names of its parameters."""
        self._requests.labels(path, dialect, status).inc()

    def engine_started(self) -> None:
        self._starts.inc()

    def clock(self) -> Clock:
        """A clock for the events of one generation."""
        return Clock(self._generations)

    # Output

    def set_state(self, *, ready: bool, open: int, memory: int, engine: Mapping[str, Any]) -> None:
        """Sets the current values; engine is its status, empty if no engine can be asked."""
        self._now = {name: engine.get(field, 0) for name, field in NOW.items()}
        self._up.set(ready)
        self._running.set(open)
        self._memory.set(memory)
        for name, gauge in self._of_engine.items():
            gauge.set(engine.get(name, float("nan")))
        for name, (field, divisor, _) in COUNTS.items():
            before, now = self._counted[name], int(engine.get(field, self._counted[name]))
            self._counts[name].inc((now - before if now >= before else now) / divisor)
            self._counted[name] = now

    def text(self) -> bytes:
        """All metrics in Prometheus' text format; some of them under llama-server's names, too."""
        counts = {**self.totals(), **self._now, "longest": self._generations.longest}
        return generate_latest(self.registry) + "\n".join([*llamacpp_metrics.lines(counts), ""]).encode()

    def totals(self) -> Totals:
        """The counts as an object; a count with labels is summed over them."""
        found: dict[str, Any] = {"uptime_seconds": round(time.time() - self.began, 3)}
        for family in self.registry.collect():
            if family.type == "counter":
                name = family.name.removeprefix(PREFIX + "_")
                total = sum(s.value for s in family.samples if s.name.endswith("_total"))
                found[name] = round(total, 3) if name.endswith("_seconds") else int(total)
        return cast(Totals, found)


class Clock:
    """Measures the times and counts the tokens of one generation."""

    def __init__(self, metrics: GenerationMetrics) -> None:
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
            self._metrics.prompt_tokens.inc(done.prompt_tokens)
            self._metrics.cached_tokens.inc(done.cached_tokens)
            self._metrics.completion_tokens.inc(done.completion_tokens)
            self._metrics.prompt_seconds.inc(done.timings.get("prompt_ms", 0) / 1000)
            self._metrics.decode_seconds.inc(done.timings.get("decode_ms", 0) / 1000)
            self._metrics.longest = max(self._metrics.longest, done.prompt_tokens + self._most)

    def _tick(self, now: float) -> None:
        if self._last is None:
            self._metrics.first_token_seconds.observe(now - self._began)
        else:
            self._metrics.between_tokens_seconds.observe(now - self._last)
        self._last = now
