"""What the server says of itself: health, counts, the model, its fields; and the studio's files."""

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
from llama_srb.http.observe.metrics import CONTENT_TYPE, Metrics, memory_of
from llama_srb.request.aliases import CONVERTED
from llama_srb.request.fields import request_table, samplers_table
from llama_srb.request.parse import Defaults

STATUS_PATIENCE = 1.0  # seconds; a scrape must not wait for a long prompt
HEALTHY: Healthy = {"status": "ok"}


def described(defaults: Defaults) -> dict[str, Any]:
    """The OpenAPI document; nothing of it is imported or made before, so that start-up is short."""
    from llama_srb.http.openapi import document

    return document(defaults, __version__)


class Info:
    """Handlers of routes.py's rows."""

    def __init__(self, facts: ServerFacts, pool: Pool, counts: Metrics) -> None:
        self.facts, self.pool, self.counts = facts, pool, counts
        self._asked: asyncio.Task[Mapping[str, Any]] | None = None  # for the engine's status
        self._pages = studio.files()

    async def health(self, http: web.Request) -> web.Response:
        """200 when requests are served at once, 503 with the state otherwise; of failed also the reason."""
        state = self.pool.state
        if state == "ready":
            return json_response(HEALTHY)
        answer: Unhealthy = {"status": state, "progress": round(self.pool.progress, 3)}
        if state == "failed" and self.pool.failure is not None:
            answer["error"] = self.pool.failure
        return json_response(answer, 503)

    async def live(self, http: web.Request) -> web.Response:
        """It answers, so it is."""
        return json_response(HEALTHY)

    async def ready(self, http: web.Request) -> web.Response:
        """As health(), under the name that orchestrators like."""
        return await self.health(http)

    async def metrics(self, http: web.Request) -> web.Response:
        """Everything that is counted, for Prometheus."""
        await self._look()
        return web.Response(body=self.counts.text(), headers={"Content-Type": CONTENT_TYPE})

    async def stats(self, http: web.Request) -> web.Response:
        """The same for people and scripts, without the histograms."""
        engine, memory = await self._look()
        answer: Stats = {
            "status": self.pool.state,
            **self.counts.totals(),
            "requests_open": len(self.pool.requests),
            "engine_memory_bytes": memory,
            "engine": dict(engine),
            "tasks": len(asyncio.all_tasks()),  # it must not grow
        }
        return json_response(answer)

    async def _look(self) -> tuple[Mapping[str, Any], int]:
        """The engine's status and the memory of all."""
        pool, open, asks = self.pool, len(self.pool.requests), self.pool.mode == "resident"
        engine = await self._status() if pool.state == "ready" and asks else {}
        memory = sum(map(memory_of, pool.engines.pids))
        self.counts.set_state(ready=pool.state == "ready", open=open, memory=memory, engine=engine)
        return engine, memory

    async def _status(self) -> Mapping[str, Any]:
        """Asked once for all who wait for it; a busy engine answers between two steps, or too late."""
        if self._asked is None or self._asked.done():
            self._asked = begin(self._ask_status(), "status")
        done, _ = await asyncio.wait({self._asked}, timeout=STATUS_PATIENCE)
        return done.pop().result() if done else {}

    async def _ask_status(self) -> Mapping[str, Any]:
        with contextlib.suppress(EngineError):
            return await self.pool.command("status", OWN)
        return {}

    async def models(self, http: web.Request) -> web.Response:
        """The model in OpenAI's list; meta is what the file says of itself, n_ctx what the engine gave it."""
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
            "id": model.path.stem,
            "object": "model",
            "created": created,
            "owned_by": "llama-srb",
            "meta": meta,
        }

    async def adapters(self, http: web.Request) -> web.Response:
        """The adapters that requests may name, in OpenAI's form of a list."""
        answer: Adapters = {"object": "list", "data": self._adapters()}
        return json_response(answer)

    async def lora_adapters(self, http: web.Request) -> web.Response:
        """The same as llama-server lists them."""
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
        """What a request may name as its preset."""
        presets = self.facts.presets.values()
        answer: Presets = {
            "object": "list",
            "data": [{"name": p.name, "about": p.about, "fields": dict(p.fields)} for p in presets],
        }
        return json_response(answer)

    async def samplers(self, http: web.Request) -> web.Response:
        """Every request field, and what those of other servers become."""
        answer: Fields = {
            "samplers": cast(list[FieldRow], samplers_table()),
            "request": cast(list[FieldRow], request_table()),
            "converted": dict(CONVERTED),
        }
        return json_response(answer)

    async def openapi(self, http: web.Request) -> web.Response:
        """The whole API as an OpenAPI document."""
        answer = await asyncio.to_thread(described, self.facts.defaults(http[CALLER]))
        return json_response(answer)

    async def studio(self, http: web.Request) -> web.Response:
        """A file of the studio; / is its page."""
        page = self._pages.get(http.match_info.get("file", "index.html"))
        if page is None:
            raise web.HTTPNotFound
        headers = {**studio.HEADERS, "ETag": f'"{page.etag}"'}
        if any(tag.value in (page.etag, "*") for tag in http.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.data, content_type=page.content_type, charset="utf-8", headers=headers)
