"""Handlers about what requests may name: models, adapters, presets, fields; and the studio's files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from typing import Any, cast

from aiohttp import web

from llama_srb import __version__, studio
from llama_srb.dialects.common.infill import can_infill
from llama_srb.http.context_of import context_of
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import API_PREFIX, CALLER, ROUTES
from llama_srb.http.response_types import (
    Adapter,
    Adapters,
    EmbeddingFacts,
    FieldRow,
    Fields,
    Model,
    ModelMeta,
    Models,
    ModelStatus,
    Presets,
)
from llama_srb.http.route import Route
from llama_srb.request.aliases import CONVERTED
from llama_srb.request.fields import request_table, samplers_table
from llama_srb.request.parse import Defaults
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.tasks import Task


def described(routes: tuple[Route, ...], defaults: Defaults, prefix: str = "") -> dict[str, Any]:
    """Makes the OpenAPI document; its modules are imported here, so that start-up is short."""
    from llama_srb.http.openapi import document

    return document(routes, defaults, __version__, prefix)


def with_defaults(rows: list[dict[str, Any]], defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows of fields with these defaults in place of llama.cpp's."""
    return [row | {"default": defaults.get(row["name"], row["default"])} for row in rows]


class Info:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry, *, keeps_stories: bool) -> None:
        self._registry, self._keeps_stories = registry, keeps_stories
        self._pages = studio.files()

    async def models(self, http: web.Request) -> web.Response:
        """The models as OpenAI's list, and their adapters that have names."""
        caller = http[CALLER]
        data = [entry for facts in self._registry.allowed(caller) for entry in self._entries(facts)]
        data += [self._of_task(task, facts) for task, facts in self._registry.tasks(caller)]
        answer: Models = {"object": "list", "data": data}
        return json_response(answer)

    async def model_named(self, http: web.Request) -> web.Response:
        """One entry of that list."""
        context = self._registry.named(http.match_info["name"], http[CALLER])
        if context.task is not None:
            return json_response(self._of_task(context.task, context.facts))
        name = context.facts.name if context.adapter is None else context.name
        return json_response(next(one for one in self._entries(context.facts) if one["id"] == name))

    def entry(self, facts: ModelFacts) -> Model:
        """A model's entry of that list."""
        return self._entries(facts)[0]

    def _entries(self, facts: ModelFacts) -> list[Model]:
        """A model, then its adapters that have names, which name it as their parent."""
        model = self._model(facts)
        paths = {one.id: one.path for one in facts.pool.adapters.loaded}
        own: list[Model] = [
            {**model, "id": name, "aliases": [], "parent": facts.name, "root": paths.get(id)}
            for name, id in facts.adapters.items()
        ]
        return [model, *own]

    def _of_task(self, task: Task, facts: ModelFacts) -> Model:
        """The entry of a task, which is its model's."""
        return {**self._model(facts), "id": task.name, "aliases": [], "parent": facts.name}

    def _model(self, facts: ModelFacts) -> Model:
        """`meta` is from the model's file, its n_ctx from the engine."""
        model, ready = facts.model, facts.pool.ready
        meta: ModelMeta = {
            "name": model.name,
            "architecture": model.architecture,
            "parameters": model.parameters,
            "quantisation": model.quantisation,
            "context": model.context,
            "size_bytes": model.size_bytes,
            "chat_template": bool(facts.chat_template),
            "infill": can_infill(facts.infill),
            "n_ctx": ready.n_ctx if ready else None,
        }
        if ready and ready.embedding:
            meta["embedding"] = cast(EmbeddingFacts, ready.embedding)
        created = int(os.stat(model.path).st_mtime) if model.path.exists() else 0
        return {
            "id": facts.name,
            "aliases": sorted(facts.settings.alias),
            "tags": sorted(facts.settings.tags),
            "object": "model",
            "created": created,
            "owned_by": "llama-srb",
            "status": self._status(facts),
            "size_bytes": model.size_bytes,
            "root": facts.name,
            "max_model_len": facts.context or None,
            "meta": meta,
        }

    def _status(self, facts: ModelFacts) -> ModelStatus:
        """Clients of llama-server look for `failed`."""
        state = self._registry.state_of(facts)
        if state != "failed":
            return {"value": state}
        return {"value": state, "failed": True, "error": facts.failure}

    async def adapters(self, http: web.Request) -> web.Response:
        """The LoRA adapters as a list in OpenAI's form."""
        answer: Adapters = {"object": "list", "data": await self._adapters(http)}
        return json_response(answer)

    async def lora_adapters(self, http: web.Request) -> web.Response:
        """The LoRA adapters as llama-server lists them."""
        return json_response(await self._adapters(http))

    async def _adapters(self, http: web.Request) -> list[Adapter]:
        facts = (await context_of(http, self._registry)).facts
        return [
            {"id": one.id, "name": one.name, "path": one.path, "scale": one.scale}
            for one in facts.pool.adapters.loaded
        ]

    async def presets(self, http: web.Request) -> web.Response:
        """The presets that requests may name."""
        presets = self._registry.presets.values()
        answer: Presets = {
            "object": "list",
            "data": [
                {"name": p.name, "title": p.title, "about": p.about, "fields": dict(p.fields)}
                for p in presets
            ],
        }
        return json_response(answer)

    async def samplers(self, http: web.Request) -> web.Response:
        """All request fields, and the fields of other servers with what each is converted to."""
        held = (await context_of(http, self._registry)).defaults
        defaults = {**held.operator, **held.overrides.forced}
        answer: Fields = {
            "samplers": cast(list[FieldRow], with_defaults(samplers_table(), defaults)),
            "request": cast(list[FieldRow], with_defaults(request_table(), defaults)),
            "converted": dict(CONVERTED),
            "stories": self._keeps_stories,
        }
        return json_response(answer)

    async def openapi(self, http: web.Request) -> web.Response:
        """The API as an OpenAPI document."""
        defaults, app = (await context_of(http, self._registry)).defaults, http.app
        made = await asyncio.to_thread(described, app[ROUTES], defaults, app[API_PREFIX])
        return json_response(made)

    async def studio(self, http: web.Request) -> web.Response:
        """A file of the studio; `/` is its page."""
        page = self._pages.get(http.match_info.get("file", "index.html"))
        if page is None or not self._registry.settings.studio:
            raise web.HTTPNotFound
        headers = {**studio.HEADERS, "ETag": f'"{page.etag}"'}
        if any(tag.value in (page.etag, "*") for tag in http.if_none_match or ()):
            return web.Response(status=304, headers=headers)
        return web.Response(body=page.data, content_type=page.content_type, charset="utf-8", headers=headers)
