"""Handlers of TabbyAPI's sampler overrides, and of its templates, which there are none of."""

from __future__ import annotations

import logging

from aiohttp import web

from llama_srb.dialects import tabby
from llama_srb.dialects.common.fields import text_of
from llama_srb.http.context_of import context_of
from llama_srb.http.middleware import json_response
from llama_srb.http.request_keys import BODY, CALLER
from llama_srb.request.parse import read_overrides
from llama_srb.request.values import RequestError
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_facts import ModelFacts, Switched
from llama_srb.serving.model_registry import ModelRegistry

log = logging.getLogger(__name__)


class OverrideRoutes:
    """Handlers of foreign.py."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry

    async def list_overrides(self, http: web.Request) -> web.Response:
        """What holds for all clients of a model."""
        facts = (await context_of(http, self.registry)).facts
        answer = tabby.listed(facts.switched.preset, facts.held, facts.presets)
        return json_response(answer)

    async def switch_overrides(self, http: web.Request) -> web.Response:
        """Sets them, in place of those that were set so before."""
        body = await self.registry.bodies.read(http[BODY])
        fields = {name: preset.fields for name, preset in self.registry.presets.items()}
        preset, given = tabby.switched_of(body, fields)
        switched = Switched(preset, read_overrides(given))
        for facts in self._meant(text_of(body, "model", ""), http[CALLER]):
            facts.switch(switched)
            log.info("overrides of %s: %s", facts.name, preset or ", ".join(given))
        return json_response(None)

    async def unload_overrides(self, http: web.Request) -> web.Response:
        """Unsets them; those of the settings stay."""
        body = await self.registry.bodies.read(http[BODY], may_be_empty=True)
        for facts in self._meant(text_of(body, "model", ""), http[CALLER]):
            facts.switch(Switched())
            log.info("overrides of %s: none", facts.name)
        return json_response(None)

    def _meant(self, name: str, caller: Caller) -> tuple[ModelFacts, ...]:
        """The model of this name, or all that the caller may use; RequestError."""
        if not name:
            return self.registry.allowed(caller)
        context = self.registry.named(name, caller)
        if context.adapter is not None or context.task is not None:
            message = f"model is {name}, which is no model; overrides are those of a model: name "
            raise RequestError(message + context.facts.name, param="model")
        return (context.facts,)

    async def no_templates(self, http: web.Request) -> web.Response:
        """TabbyAPI lists and switches templates; here that is the operator's setting."""
        if http.method == "POST":
            await self.registry.bodies.read(http[BODY], may_be_empty=True)
        raise RequestError(tabby.NO_TEMPLATES, status=501)
