"""The server's counts and times, as Prometheus metrics; model_metrics has those of models. Knows no HTTP."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count
from llama_srb.serving.observe import llamacpp_metrics
from llama_srb.serving.observe.loop_watch import LoopWatch
from llama_srb.serving.observe.model_metrics import NOT_SERVED, Families, ModelMetrics, ModelNow
from llama_srb.serving.observe.request_metrics import PREFIX
from llama_srb.serving.observe.vllm_metrics import VllmGauges

CONTENT_TYPE = CONTENT_TYPE_LATEST
STALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)  # seconds


class ModelTotals(TypedDict):
    """The counts since the server's start."""

    prompt_tokens: Count
    cached_tokens: Count
    completion_tokens: Count
    finished_sequences: Count
    key_tokens: Count
    prompt_seconds: float
    decode_seconds: float
    engine_starts: Count
    engine_steps: Count
    engine_step_tokens: Count
    engine_step_seconds: float
    engine_model_seconds: float
    engine_drafts: Count
    engine_draft_grammar_tokens: Count
    engine_draft_grammar_accepted_tokens: Count
    engine_draft_prompt_tokens: Count
    engine_draft_prompt_accepted_tokens: Count
    engine_draft_own_tokens: Count
    engine_draft_own_accepted_tokens: Count
    engine_draft_siblings_tokens: Count
    engine_draft_siblings_accepted_tokens: Count
    engine_draft_earlier_tokens: Count
    engine_draft_earlier_accepted_tokens: Count
    engine_draft_model_tokens: Count
    engine_draft_model_accepted_tokens: Count


class Totals(ModelTotals):
    """The counts of all models together."""

    uptime_seconds: float
    requests: Count


class Metrics:
    """The metrics of one server; each has its own registry, so that one process may run several servers.

    by_model: those of models have a label.
    """

    def __init__(self, *, by_model: bool = False) -> None:
        self.registry = CollectorRegistry()
        self.began = time.time()
        self.by_model = by_model
        labels, registry = ["path", "dialect", "status"], self.registry
        about = "Requests that have ended."
        self._requests = Counter(f"{PREFIX}_requests", about, labels, registry=registry)
        about = "Requests that are running or queued."
        self._running = Gauge(f"{PREFIX}_requests_open", about, registry=registry)
        about = "1 while a drain refuses new requests."
        self._draining = Gauge(f"{PREFIX}_draining", about, registry=registry)
        about = "By how much the event loop was late for a timer, while requests were open."
        stalls = Histogram(f"{PREFIX}_loop_stall_seconds", about, buckets=STALLS, registry=registry)
        self.loop = LoopWatch(stalls.observe)
        self._families = Families(registry, by_model=by_model)
        self._vllm = VllmGauges(registry)
        self._served: set[str] = set()
        self._models: dict[str, ModelMetrics] = {}
        if not by_model:
            self._models[""] = self._families.of("")

    def of(self, model: str) -> ModelMetrics:
        """The metrics of a model."""
        name = model if self.by_model else ""
        if name not in self._models:
            self._models[name] = self._families.of(name)
        return self._models[name]

    # Updates

    def answered(self, path: str, dialect: str, status: str) -> None:
        """Counts a request that has ended; path is the route's, with the names of its parameters."""
        self._requests.labels(path, dialect, status).inc()

    def set(self, models: Mapping[str, ModelNow], *, is_draining: bool = False) -> None:
        """Sets the current values of all models. Those that were removed keep their counts."""
        self._draining.set(is_draining)
        self._running.set(sum(now.open for now in models.values()))
        for name, now in models.items():
            self.of(name).set(now)
            self._vllm.set(name, now)
        for name in self._served - models.keys():
            self._vllm.remove(name)
        self._served = {*models}
        if self.by_model:
            for name in self._models.keys() - models.keys():
                self._models[name].set(NOT_SERVED)

    # Output

    def text(self, model: str | None = None) -> bytes:
        """All metrics in Prometheus' text format; some of them under llama-server's names, too.

        Those are the sums over all models, or are of one model.
        """
        counted = list(self._models.values()) if model is None else [self.of(model)]
        counts = {
            **(self.totals() if model is None else self.totals_of(model)),
            "requests_running": sum(one.running for one in counted),
            "requests_queued": sum(one.queued for one in counted),
            "longest": max((one.longest for one in counted), default=0),
        }
        return generate_latest(self.registry) + "\n".join([*llamacpp_metrics.lines(counts), ""]).encode()

    def totals(self) -> Totals:
        """The counts as an object; a count with labels is summed over them."""
        uptime = round(time.time() - self.began, 3)
        return cast(Totals, {"uptime_seconds": uptime, **self._sums({})})

    def totals_of(self, model: str) -> ModelTotals:
        """The counts of one model."""
        return cast(ModelTotals, self._sums({"model": model} if self.by_model else {}))

    def _sums(self, labels: Mapping[str, str]) -> Mapping[str, Any]:
        """The counts by name, of the samples that have these labels."""
        found: dict[str, Any] = {}
        for family in self.registry.collect():
            if family.type != "counter":
                continue
            of_all = [sample for sample in family.samples if sample.name.endswith("_total")]
            values = [sample.value for sample in of_all if labels.items() <= sample.labels.items()]
            name, total = family.name.removeprefix(PREFIX + "_"), sum(values)
            if not labels or name in ModelTotals.__annotations__:
                found[name] = round(total, 3) if name.endswith("_seconds") else int(total)
        return found
