"""Handlers about the server's state: health, metrics, stats."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

from aiohttp import web

from llama_srb import __version__
from llama_srb.background import begin
from llama_srb.dialects import sglang
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool.terms import OWN
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import CALLER
from llama_srb.http.response_types import ModelStats, Stats, StatsByModel
from llama_srb.models.model_memory import memory_of
from llama_srb.serving.health import HEALTHY, health_of
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.serving.observe.metrics import CONTENT_TYPE
from llama_srb.serving.observe.model_metrics import ModelNow

STATUS_TIMEOUT = 1.0  # seconds; a scrape must not wait for the prefill of a long prompt


class Health:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry, self.metrics_of_all = registry, registry.admission.metrics
        # tasks that ask engines for their status; models may be removed
        self._asking = WeakKeyDictionary[ModelFacts, asyncio.Task[Mapping[str, Any]]]()

    # Health

    async def health(self, http: web.Request) -> web.Response:
        """200 if requests are served at once or after a load; else 503 with the state and the reason."""
        answer = health_of(self.registry)
        return json_response(answer, 200 if answer["status"] == "ok" else 503)

    async def live(self, http: web.Request) -> web.Response:
        """200: the server answers."""
        return json_response(HEALTHY)

    async def ready(self, http: web.Request) -> web.Response:
        """The same as health(), under a name that orchestrators use."""
        return await self.health(http)

    # Metrics

    async def metrics(self, http: web.Request) -> web.Response:
        """All metrics, in Prometheus' form; llama-server's names have sums, with ?model= those of a model."""
        name = http.query.get("model")
        model = self.registry.named(name, http[CALLER]).facts.name if name else None
        await self._measure()
        counts = self.metrics_of_all
        began = str(int(counts.began))  # llama-server's clients find a restart by it
        headers = {"Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": began}
        return web.Response(body=counts.text(model), headers=headers)

    async def engine_loads(self, http: web.Request) -> web.Response:
        """The load of each model's engine, in SGLang's form."""
        now = await self._measure()
        loads = (
            sglang.engine_load(
                rank,
                running=now[one.name].running,
                waiting=now[one.name].waiting,
                used=now[one.name].cells_held,
                cells=now[one.name].cells,
                parallel=one.settings.parallel,
            )
            for rank, one in enumerate(self.registry)
            if one.name in now
        )
        return json_response(sglang.loads(loads, __version__))

    async def stats(self, http: web.Request) -> web.Response:
        """The metrics in JSON, without the histograms."""
        now, counts = await self._measure(), self.metrics_of_all
        first = next(iter(self.registry))
        answer: Stats = {
            "status": first.pool.state,
            **counts.totals(),
            "requests_open": sum(one.open for one in now.values()),
            "engine_memory_bytes": sum(one.memory for one in now.values()),
            "engine": dict(now[first.name].engine) if first.name in now else {},
            "tasks": len(asyncio.all_tasks()),  # of the server: a number that grows shows a leak
        }
        if not self.registry.are_several:
            return json_response(answer)
        by_model = {one.name: self._stats_of(one, now[one.name]) for one in self.registry if one.name in now}
        several: StatsByModel = {**answer, "models": by_model}
        return json_response(several)

    def _stats_of(self, model: ModelFacts, now: ModelNow) -> ModelStats:
        return {
            "status": model.pool.state,
            **self.metrics_of_all.totals_of(model.name),
            "requests_open": now.open,
            "engine_memory_bytes": now.memory,
            "engine": dict(now.engine),
        }

    async def _measure(self) -> dict[str, ModelNow]:
        """Updates the gauges; returns the values of each model, also of those that are being removed."""
        models = self.registry.with_leaving
        statuses = await asyncio.gather(*map(self._status, models))
        now: dict[str, ModelNow] = {}
        for model, status in zip(models, statuses, strict=True):
            one = ModelNow(
                is_ready=model.pool.state == "ready",
                open=model.pool.requests.of_clients,
                memory=sum(map(memory_of, model.pool.engines.pids)),
                engine=status,
                begun=model.pool.requests.sequences(waiting=False),
                not_begun=model.pool.requests.sequences(waiting=True),
            )
            now[model.name] = now[model.name].beside(one) if model.name in now else one
        self.metrics_of_all.set(now, is_draining=self.registry.admission.is_draining)
        return now

    async def _status(self, model: ModelFacts) -> Mapping[str, Any]:
        """The engine's status; {} if the engine does not answer in time. One command serves all callers.

        The engine answers between two steps, so a long step delays it.
        """
        if model.pool.state != "ready" or model.pool.mode != "resident":
            return {}
        task = self._asking.get(model)
        if task is None or task.done():
            task = self._asking[model] = begin(self._ask_status(model), "status")
        done, _ = await asyncio.wait({task}, timeout=STATUS_TIMEOUT)
        return task.result() if done else {}

    async def _ask_status(self, model: ModelFacts) -> Mapping[str, Any]:
        with contextlib.suppress(EngineError):
            return await model.pool.command("status", OWN)
        return {}
