"""Handlers that load and unload adapters while the server runs."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from aiohttp import web

from llama_srb.config import names
from llama_srb.dialects import adapter_requests as adapters
from llama_srb.dialects import tabby
from llama_srb.dialects.common.response_types import warned
from llama_srb.engine.exchange import CommandRefused
from llama_srb.engine.pool.pool_adapters import NameTaken
from llama_srb.http.context_of import context_of
from llama_srb.http.middleware import json_response
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.context import RequestContext
from llama_srb.serving.model_registry import ModelRegistry

REFUSED = "invalid_request"  # the engine's code for a file that is no adapter of its model


class AdapterRoutes:
    """Handlers of routes.py."""

    def __init__(self, registry: ModelRegistry) -> None:
        self.registry = registry

    async def load_lora_adapter(self, http: web.Request) -> web.Response:
        """Loads an adapter from the folder for adapters of the model that the body names."""
        context = await context_of(http, self.registry)
        wanted = adapters.load_of(context.body)
        self._require_usable(wanted.name, context)
        path = await asyncio.to_thread(_inside, context.facts.settings.adapters_dir, wanted.path)
        try:
            await context.facts.pool.adapters.load(wanted.name, path, replaces=wanted.in_place)
        except NameTaken:
            raise adapters.already_loaded(wanted.name) from None
        except CommandRefused as refusal:
            if refusal.error.code != REFUSED:
                raise
            raise RequestError(str(refusal), param="lora_path") from None
        return web.Response(text=adapters.added(wanted.name))

    async def unload_lora_adapter(self, http: web.Request) -> web.Response:
        """Unloads an adapter; requests that have it keep it."""
        context = await context_of(http, self.registry)
        name = adapters.unload_of(context.body)
        try:
            await context.facts.pool.adapters.unload(name)
        except KeyError:
            raise adapters.not_found(name) from None
        return web.Response(text=adapters.removed(name))

    async def tabby_load_lora_adapter(self, http: web.Request) -> web.Response:
        """Loads adapters for all requests that name none; TabbyAPI's answer says which it has loaded."""
        context = await context_of(http, self.registry)
        success: list[str] = []
        failure: dict[str, str] = {}
        for wanted in tabby.loras_of(context.body):
            try:
                await self._switch_on(wanted, context)
                success.append(wanted.name)
            except (CommandRefused, RequestError) as error:
                if isinstance(error, RequestError) and error.status == 403:
                    raise
                failure[wanted.name] = str(error)
        why = tuple(f"{name} is not loaded: {reason}" for name, reason in failure.items())
        answer: tabby.LorasLoaded = {"success": success, "failure": [*failure], **warned(why)}
        return json_response(answer)

    async def _switch_on(self, wanted: tabby.LoraToLoad, context: RequestContext) -> None:
        self._require_usable(wanted.name, context)
        adapters = context.facts.pool.adapters
        folder, known = context.facts.settings.adapters_dir, adapters.ids.get(wanted.name)
        paths = [Path(one.path) for one in adapters.loaded if one.id == known]
        path = paths[0] if paths else await asyncio.to_thread(_named, folder, wanted.name)
        await adapters.load(wanted.name, path, scale=wanted.scale, replaces=True)

    async def tabby_unload_lora_adapter(self, http: web.Request) -> web.Response:
        """Unloads what the handler above has loaded; adapters of the settings are off again."""
        context = await context_of(http, self.registry, may_be_empty=True)
        adapters, settings = context.facts.pool.adapters, context.facts.settings
        for one in adapters.switched_on:
            if one.name in settings.adapters:
                await adapters.load(one.name, Path(one.path), replaces=True)
            else:
                with contextlib.suppress(KeyError):  # another request has unloaded it
                    await adapters.unload(one.name)
        return json_response(None)

    def _require_usable(self, name: str, context: RequestContext) -> None:
        """RequestError if a table could not have the name, or if it means something else."""
        if (why := names.fault(name)) is not None:
            raise RequestError(f"lora_name is {name!r}: {why}", param="lora_name")
        found = self.registry.names.find(name)
        if found is not None and (found.adapter is None or found.model is not context.facts):
            what = "a model" if found.adapter is None else f"an adapter of {found.model.name}"
            raise RequestError(f"lora_name is {name}, which is the name of {what}", param="lora_name")


def _named(folder: Path | None, name: str) -> Path:
    """The adapter of this name in the folder, with or without .gguf; RequestError."""
    try:
        return _inside(folder, name)
    except RequestError as error:
        if error.status == 403:
            raise
        return _inside(folder, f"{name}.gguf")


def _inside(folder: Path | None, given: str) -> Path:
    """The file that is meant; RequestError unless it is in the folder after all links were followed."""
    if folder is None:
        message = "adapters are loaded only from the folder that --adapters-dir names, which is not set"
        raise RequestError(message, param="lora_path", status=403)
    try:
        root = folder.resolve()
        path = (root / given).resolve()
        is_inside, is_file = path.is_relative_to(root), path.is_file()
    except (OSError, RuntimeError, ValueError):  # too long, a circle of links, a zero byte
        raise wrong("lora_path", given, "the path of a file") from None
    if not is_inside:
        message = f"lora_path is {given}, which is outside of the folder for adapters (--adapters-dir)"
        raise RequestError(message, param="lora_path", status=403)
    if not is_file:
        message = f"lora_path is {given}; there is no such file in the folder for adapters"
        raise RequestError(message, param="lora_path", status=404)
    return path
