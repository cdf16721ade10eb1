"""Facts for all handlers: settings, model, presets, and checks against them. A reload changes them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

from llama_srb import __version__
from llama_srb.config import Settings
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openai import Origin
from llama_srb.engine.exchange import CommandRefused, Exchange
from llama_srb.engine.pool import Pool
from llama_srb.engine.pool.terms import OWN
from llama_srb.http.auth.caller import Caller
from llama_srb.models import fingerprint
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.parse import Defaults, canonical
from llama_srb.request.presets import Preset
from llama_srb.request.values import RequestError, wrong

NO_TOOLS = "tools is not used: the model's chat template knows no tools"
CHAT_WITH_A_TOOL: dict[str, Any] = {
    "messages": [{"role": "user", "content": "?"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}],
}


class ServerFacts:
    """The facts of one server."""

    def __init__(
        self, settings: Settings, pool: Pool, model: ModelInfo, presets: Mapping[str, Preset]
    ) -> None:
        self.settings, self._pool = settings, pool
        self._began, self._chat_template = time.monotonic(), settings.chat_template
        self.verbose = settings.verbose
        self.take_model(model)
        self.take_presets(presets)

    def take_model(self, model: ModelInfo) -> None:
        """Replaces the model that the engines load."""
        self.model, self._model_hash = model, fingerprint.of_model(model)
        self._knows_tools: bool | None = None  # whether its chat template does; None: not asked yet

    def take_presets(self, presets: Mapping[str, Preset]) -> None:
        """Replaces the presets that requests may name."""
        settings, fields = self.settings, {name: preset.fields for name, preset in presets.items()}
        self.presets = presets
        self._defaults = Defaults(
            n=settings.n,
            max_n=settings.max_n,
            strict=settings.strict,
            presets=fields,
            operator=canonical(settings.field_defaults),
        )

    def defaults(self, caller: Caller) -> Defaults:
        """The defaults of request fields; n is at most the max_n of the caller's key."""
        grant, defaults = caller.grant, self._defaults
        if grant is None or grant.max_n is None:
            return defaults
        return dataclasses.replace(defaults, n=min(defaults.n, grant.max_n))

    @property
    def infill(self) -> Mapping[str, str]:
        """The model's control tokens for infill (text between two texts); empty until an engine is ready."""
        return self._pool.ready.model.get("infill", {}) if self._pool.ready else {}

    @property
    def context(self) -> int:
        """The context of one sequence, in tokens."""
        ready = self._pool.ready
        return (ready.n_ctx_sequence if ready else 0) or self.model.context or 0

    def origin(self, model: str | None) -> Origin:
        """What an answer in OpenAI's form says about where it is from; model: the name that was asked for."""
        return Origin(self.named_model(model), int(time.time()), self.fingerprint)

    def fingerprint(self) -> str:
        """`system_fingerprint`: commit, model and adapters; they are known once an engine is ready."""
        ready = self._pool.ready  # None if the request was cancelled before
        commit, adapters = (ready.commit, ready.adapters) if ready else ("", ())
        return f"b{commit}-{self._model_hash}-{fingerprint.of_adapters(adapters)}"

    def named_model(self, name: str | None) -> str:
        """The model's name in answers. Many tools send another name, which is an error only with --strict."""
        if name is not None and self.settings.strict:
            self.require_model(name)
        return name if name is not None and self.is_model(name) else self.name

    @property
    def name(self) -> str:
        """The model's name in answers."""
        return self.settings.model_names[0]

    def is_model(self, name: str) -> bool:
        return name in (*self.settings.model_names, self.model.name)

    def require_model(self, name: str) -> None:
        if not self.is_model(name):
            message = f"there is no model {name[:100]} here, only {self.name}"
            raise RequestError(message, param="model", status=404)

    def require_what_keeps_prefixes(self, request: CompletionRequest) -> None:
        if request.continue_ is not None:
            message = "continue has no prefix to compute; send the text as the prompt"
            raise RequestError(message, param="continue")
        if self.settings.engine_mode == "per-request" and self.settings.prefix_cache is None:
            message = "nothing is kept between requests in the mode per-request without --prefix-cache"
            raise RequestError(message, status=409)

    def require_what_continue_needs(self, request: CompletionRequest) -> CompletionRequest:
        if request.continue_ is not None and self.settings.engine_mode == "per-request":
            message = (
                "continue needs --engine-mode resident; in the mode per-request send the text as the prompt"
            )
            raise RequestError(message, param="continue")
        return request

    async def with_known_tools(self, request: CompletionRequest) -> CompletionRequest:
        """Without tools, and with a warning, if the model's template knows none and no call is required."""
        if request.tools is None or request.tool_choice in ("none", "required") or await self._has_tools():
            return request
        warnings = (*request.warnings, NO_TOOLS)
        return request.model_copy(update={"tools": None, "tool_choice": None, "warnings": warnings})

    async def known_tools(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The same for the arguments of an engine's command, which has no warnings."""
        may_lack = "tools" in arguments and arguments.get("tool_choice", "auto") == "auto"
        if not may_lack or await self._has_tools():
            return arguments
        return {name: value for name, value in arguments.items() if name not in ("tools", "tool_choice")}

    async def _has_tools(self) -> bool:
        """Whether the model's chat template knows tools. Only the engine can tell: it runs the template."""
        if self._knows_tools is None:
            try:
                await self._pool.command("template", OWN, **CHAT_WITH_A_TOOL)
                self._knows_tools = True
            except CommandRefused as refusal:
                if refusal.error.param != "tools":
                    return True  # another fault, which the request itself will show
                self._knows_tools = False
        return self._knows_tools

    def require_room(self, generation: Exchange, extension: Extension) -> None:
        n, max_n, fork = generation.n, self.settings.max_n, extension.fork
        if n + extension.add > max_n:
            raise wrong("add", extension.add, f"at most {max_n - n}: there are {n}, and --max-n is {max_n}")
        if fork is not None and fork.index >= n:
            raise wrong("fork.index", fork.index, f"between 0 and {n - 1}")

    def info(self, caller: Caller, agent: str = "") -> ServerInfo:
        model, path = self.model, self.model.path
        return ServerInfo(
            model=self.name,
            path=str(path),
            names=frozenset((*self.settings.model_names, model.name)),
            architecture=model.architecture,
            parameters=model.parameters,
            quantisation=model.quantisation,
            size_bytes=model.size_bytes,
            modified=path.stat().st_mtime if path.exists() else 0.0,
            context=self.context,
            parallel=self.settings.parallel,
            agent=agent,
            chat_template=self._chat_template or str(model.metadata.get("tokenizer.chat_template", "")),
            slots=self.settings.slots,
            cpu=self._pool.ready.cpu if self._pool.ready else "",
            infill=self.infill,
            special_tokens=model.special_tokens,
            version=__version__,
            now=time.time(),
            uptime=time.monotonic() - self._began,
            defaults=self.defaults(caller),
        )
