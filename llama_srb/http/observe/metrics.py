"""What the server counts and measures of itself; pure of HTTP. Names are Prometheus', times in seconds.

Times are those of this process: from a request's arrival to the event's, without the way to the client.
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
from llama_srb.engine.events import Done, Event, Stream

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "llama_srb"
FIRST = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
BETWEEN = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)

# fmt: off
GAUGES = {  # of the engine's status
    "cells": "Cells of the KV cache.",
    "cells_used": "Cells that hold something.",
    "cells_idle": "Cells of prompts and continuations that nobody uses now.",
    "cells_shared": "Cells that would be used besides if nothing were shared.",
    "requests": "Requests that the engine runs.",
    "queued": "Requests that wait in the engine.",
    "sequences": "Sequences that share each decode step.",
    "sequences_waiting": "Sequences that wait for a place.",
}
COUNTS = {  # its name in the engine's status, how many there are one here; each process begins anew
    "steps": ("steps", 1, "Decode steps."),
    "step_tokens": ("step_tokens", 1, "Tokens in them; by steps it is the size of a batch."),
    "step_seconds": ("step_us", 1e6, "Time in them."),
    "model_seconds": ("model_us", 1e6, "Of this, in the model; the rest is draws, events and bookkeeping."),
}
# fmt: on


@dataclass(frozen=True, slots=True)
class GenerationMetrics:
    """What the events of all generations are counted in."""

    prompt_tokens: Counter
    cached_tokens: Counter
    completion_tokens: Counter
    first_token_seconds: Histogram
    between_tokens_seconds: Histogram


class Totals(TypedDict):
    """What was counted since the server began."""

    uptime_seconds: float
    requests: Count
    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    engine_starts: Count
    engine_steps: Count
    engine_step_tokens: Count
    engine_step_seconds: float
    engine_model_seconds: float


class Metrics:
    """One server's; each has a registry of its own, so that several may live in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.began = time.time()
        self._requests = self._counter(
            "requests", "Requests, when they are over.", ["path", "dialect", "status"]
        )
        self._generations = GenerationMetrics(
            self._counter("prompt_tokens", "Tokens of prompts."),
            self._counter("cached_tokens", "Those of them that were in the cache."),
            self._counter("completion_tokens", "Tokens that were generated."),
            self._histogram("first_token_seconds", "From arrival to the first text.", FIRST),
            self._histogram("between_tokens_seconds", "Between texts of a request.", BETWEEN),
        )
        self._starts = self._counter("engine_starts", "Engine processes that were started.")
        self._running = self._gauge("requests_open", "Requests that are here, running or waiting.")
        self._memory = self._gauge("engine_memory_bytes", "Resident memory of all engine processes.")
        self._up = self._gauge("engine_ready", "1 when requests are served at once.")
        self._counts = {name: self._counter("engine_" + name, text) for name, (_, _, text) in COUNTS.items()}
        self._counted = dict.fromkeys(COUNTS, 0)  # of the process that was asked last
        self._of_engine = {name: self._gauge("engine_" + name, text) for name, text in GAUGES.items()}

    def _counter(self, name: str, about: str, labels: list[str] | None = None) -> Counter:
        return Counter(f"{PREFIX}_{name}", about, labels or [], registry=self.registry)

    def _gauge(self, name: str, about: str) -> Gauge:
        return Gauge(f"{PREFIX}_{name}", about, registry=self.registry)

    def _histogram(self, name: str, about: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"{PREFIX}_{name}", about, buckets=buckets, registry=self.registry)

    # What happens

    def answered(self, path: str, dialect: str, status: str) -> None:
        """A request is over; the path is a route's, with its parameters' names."""
        self._requests.labels(path, dialect, status).inc()

    def engine_started(self) -> None:
        self._starts.inc()

    def clock(self) -> Clock:
        """For one generation's events."""
        return Clock(self._generations)

    # What it shows

    def set_state(self, *, ready: bool, open: int, memory: int, engine: Mapping[str, Any]) -> None:
        """What is so at this moment; the engine's status is empty when it cannot be asked."""
        self._up.set(ready)
        self._running.set(open)
        self._memory.set(memory)
        for name, gauge in self._of_engine.items():
            gauge.set(engine.get(name, float("nan")))
        for name, (told, one, _) in COUNTS.items():
            before, now = self._counted[name], int(engine.get(told, self._counted[name]))
            self._counts[name].inc((now - before if now >= before else now) / one)
            self._counted[name] = now

    def text(self) -> bytes:
        """All of it, in Prometheus' form."""
        return generate_latest(self.registry)

    def totals(self) -> Totals:
        """The counts as an object; what has labels by these."""
        found: dict[str, Any] = {"uptime_seconds": round(time.time() - self.began, 3)}
        for family in self.registry.collect():
            if family.type == "counter":
                name = family.name.removeprefix(PREFIX + "_")
                total = sum(s.value for s in family.samples if s.name.endswith("_total"))
                found[name] = round(total, 3) if name.endswith("_seconds") else int(total)
        return cast(Totals, found)


class Clock:
    """Takes one generation's events as they come."""

    def __init__(self, metrics: GenerationMetrics) -> None:
        self._metrics = metrics
        self._began = time.monotonic()
        self._last: float | None = None  # when text came

    def take(self, events: list[Event]) -> None:
        if any(type(event) is Stream for event in events):
            self._tick(time.monotonic())
        if isinstance(done := events[-1], Done):
            self._metrics.prompt_tokens.inc(done.prompt_tokens)
            self._metrics.cached_tokens.inc(done.cached_tokens)
            self._metrics.completion_tokens.inc(done.completion_tokens)

    def _tick(self, now: float) -> None:
        if self._last is None:
            self._metrics.first_token_seconds.observe(now - self._began)
        else:
            self._metrics.between_tokens_seconds.observe(now - self._last)
        self._last = now


def memory_of(pid: int) -> int:
    """Resident bytes of a process; 0 where that cannot be known (not Linux, or it is gone)."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line.split() for line in status if line.startswith("VmRSS:")]
    except OSError:
        return 0
    return int(lines[0][1]) << 10 if lines else 0
