"""Handlers about the server: health, metrics, models, presets, request fields; and the studio's files."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from aiohttp import web

from llama_srb import __version__, studio
from llama_srb.background import begin
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool import Pool
from llama_srb.engine.pool.terms import OWN
from llama_srb.http.answers import (
    Adapter,
    Adapters,
    EmbeddingFacts,
    FieldRow,
    Fields,
    Healthy,
    Model,
    ModelMeta,
    Models,
    Presets,
    Stats,
    Unhealthy,
)
from llama_srb.http.auth.caller import CALLER
from llama_srb.http.handlers.facts import ServerFacts
from llama_srb.http.middleware import json_response
from llama_srb.http.observe.metrics import CONTENT_TYPE, Metrics
from llama_srb.models.memory import memory_of
from llama_srb.request.aliases import CONVERTED
from llama_srb.request.fields import request_table, samplers_table
from llama_srb.request.parse import Defaults

STATUS_TIMEOUT = 1.0  # seconds; a scrape must not wait for the prefill of a long prompt
HEALTHY: Healthy = {"status": "ok"}


def described(defaults: Defaults) -> dict[str, Any]:
    """Makes the OpenAPI document; its modules are imported here, so that start-up is short."""
    from llama_srb.http.openapi import document

    return document(defaults, __version__)


def with_defaults(rows: list[dict[str, Any]], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of fields with these defaults in place of llama.cpp's."""
    return [row | {"default": defaults.get(row["name"], row["default"])} for row in rows]


class Info:
    """Handlers of routes.py."""

    def __init__(self, facts: ServerFacts, pool: Pool, counts: Metrics) -> None:
        self.facts, self.pool, self.counts = facts, pool, counts
        self._status_task: asyncio.Task[Mapping[str, Any]] | None = None  # asks the engine
        self._pages = studio.files()

    async def health(self, http: web.Request) -> web.Response:
        """200 if requests are served at once; else 503 with the state, and for `failed` the reason."""
        state = self.pool.state
        if state == "ready":
            return json_response(HEALTHY)
        answer: Unhealthy = {"status": state, "progress": round(self.pool.progress, 3)}
        if state == "failed" and self.pool.failure is not None:
            answer["error"] = self.pool.failure
        return json_response(answer, 503)

    async def live(self, http: web.Request) -> web.Response:
        """200: the server answers."""
        return json_response(HEALTHY)

    async def ready(self, http: web.Request) -> web.Response:
        """The same as health(), under a name that orchestrators use."""
        return await self.health(http)

    async def metrics(self, http: web.Request) -> web.Response:
        """All metrics, in Prometheus' form."""
        await self._measure()
        began = str(int(self.counts.began))  # llama-server's clients find a restart by it
        headers = {"Content-Type": CONTENT_TYPE, "Process-Start-Time-Unix": began}
        return web.Response(body=self.counts.text(), headers=headers)

    async def stats(self, http: web.Request) -> web.Response:
        """The metrics in JSON, without the histograms."""
        engine, memory = await self._measure()
        answer: Stats = {
            "status": self.pool.state,
            **self.counts.totals(),
            "requests_open": len(self.pool.requests),
            "engine_memory_bytes": memory,
            "engine": dict(engine),
            "tasks": len(asyncio.all_tasks()),  # of the server: a number that grows shows a leak
        }
        return json_response(answer)

    async def _measure(self) -> tuple[Mapping[str, Any], int]:
        """Updates the gauges; returns the engine's status and the memory of all engines in bytes."""
        pool, open, resident = self.pool, len(self.pool.requests), self.pool.mode == "resident"
        engine = await self._status() if pool.state == "ready" and resident else {}
        memory = sum(map(memory_of, pool.engines.pids))
        self.counts.set_state(ready=pool.state == "ready", open=open, memory=memory, engine=engine)
        return engine, memory

    async def _status(self) -> Mapping[str, Any]:
        """The engine's status; {} if the engine does not answer in time. One command serves all callers.

        The engine answers between two steps, so a long step delays it.
        """
        if self._status_task is None or self._status_task.done():
            self._status_task = begin(self._ask_status(), "status")
        done, _ = await asyncio.wait({self._status_task}, timeout=STATUS_TIMEOUT)
        return done.pop().result() if done else {}

    async def _ask_status(self) -> Mapping[str, Any]:
        with contextlib.suppress(EngineError):
            return await self.pool.command("status", OWN)
        return {}

    async def models(self, http: web.Request) -> web.Response:
        """The model as OpenAI's list; `meta` is from the model's file, its n_ctx from the engine."""
        answer: Models = {"object": "list", "data": [self._model()]}
        return json_response(answer)

    def _model(self) -> Model:
        model, ready = self.facts.model, self.pool.ready
        meta: ModelMeta = {
            "name": model.name,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "quantisation": model.quantisation,
            "context": model.context,
            "size_bytes": model.size_bytes,
            "n_ctx": ready.n_ctx if ready else None,
        }
        if ready and ready.embedding:
            meta["embedding"] = cast(EmbeddingFacts, ready.embedding)
        created = int(os.stat(model.path).st_mtime) if model.path.exists() else 0
        return {
            "id": self.facts.name,
            "aliases": sorted(self.facts.settings.alias),
            "tags": sorted(self.facts.settings.tags),
            "object": "model",
            "created": created,
            "owned_by": "llama-srb",
            "meta": meta,
        }

    async def adapters(self, http: web.Request) -> web.Response:
        """The LoRA adapters as a list in OpenAI's form."""
        answer: Adapters = {"object": "list", "data": self._adapters()}
        return json_response(answer)

    async def lora_adapters(self, http: web.Request) -> web.Response:
        """The LoRA adapters as llama-server lists them."""
        return json_response(self._adapters())

    def _adapters(self) -> list[Adapter]:
        loaded = self.pool.ready.adapters if self.pool.ready else ()
        return [
            {"id": one["id"], "name": Path(one["path"]).stem, "path": one["path"], "scale": one["scale"]}
            for one in loaded
        ]

    async def model_named(self, http: web.Request) -> web.Response:
        """One model of that list."""
        self.facts.require_model(http.match_info["name"])
        return json_response(self._model())

    async def presets(self, http: web.Request) -> web.Response:
        """The presets that requests may name."""
        presets = self.facts.presets.values()
        answer: Presets = {
            "object": "list",
            "data": [{"name": p.name, "about": p.about, "fields": dict(p.fields)} for p in presets],
        }
        return json_response(answer)

    async def samplers(self, http: web.Request) -> web.Response:
        """All request fields, and the fields of other servers with what each is converted to."""
        defaults = self.facts.defaults(http[CALLER]).operator
        answer: Fields = {
            "samplers": cast(list[FieldRow], with_defaults(samplers_table(), defaults)),
            "request": cast(list[FieldRow], with_defaults(request_table(), defaults)),
            "converted": dict(CONVERTED),
        }
        return json_response(answer)

    async def openapi(self, http: web.Request) -> web.Response:
        """The API as an OpenAPI document."""
        answer = await asyncio.to_thread(described, self.facts.defaults(http[CALLER]))
        return json_response(answer)

    async def studio(self, http: web.Request) -> web.Response:
        """A file of the studio; `/` is its page."""
        page = self._pages.get(http.match_info.get("file", "index.html"))
        if page is None or not self.facts.settings.studio:
            raise web.HTTPNotFound
        headers = {**studio.HEADERS, "ETag": f'"{page.etag}"'}
        if any(tag.value in (page.etag, "*") for tag in http.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.data, content_type=page.content_type, charset="utf-8", headers=headers)
