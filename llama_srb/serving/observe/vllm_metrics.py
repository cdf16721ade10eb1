"""The gauges under vLLM's names that gateways and autoscalers read, who cannot add NaN: they never have it.

vLLM makes n requests of one with n, so here each sequence counts.
"""

from __future__ import annotations

import math

from prometheus_client import CollectorRegistry, Gauge

from llama_srb.serving.observe.model_metrics import ModelNow

GAUGES = {
    "num_requests_running": "Sequences that share each decode step.",
    "num_requests_waiting": "Sequences that wait to be scheduled, also of queued requests; none that yield.",
    "kv_cache_usage_perc": "Share of the KV cache that nothing can evict, 0 to 1.",
}


class VllmGauges:
    """The gauges of all models. A value that no engine tells stays as it was."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._gauges = {
            name: Gauge(f"vllm:{name}", about, ["model_name"], registry=registry)
            for name, about in GAUGES.items()
        }

    def set(self, model: str, now: ModelNow) -> None:
        """Sets the current values of a model."""
        for name, value in zip(GAUGES, (now.running, now.waiting, now.kv_cache_usage), strict=True):
            gauge = self._gauges[name].labels(model)
            if not math.isnan(value):
                gauge.set(value)

    def remove(self, model: str) -> None:
        """The model is not served any more."""
        for gauge in self._gauges.values():
            gauge.remove(model)
