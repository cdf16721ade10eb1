"""The facts of one model for handlers: settings, file, presets, and checks. A reload changes them."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from llama_srb import __version__
from llama_srb.config import Settings
from llama_srb.dialects.common.reply import ModelState, ServerInfo
from llama_srb.engine.exchange import Exchange
from llama_srb.models import fingerprint
from llama_srb.models.gguf_header import ModelInfo
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest, Extension
from llama_srb.request.overrides import NO_OVERRIDES, Overrides
from llama_srb.request.parse import Defaults, canonical, read_overrides, refuse_locked
from llama_srb.request.rank_by import RankBy
from llama_srb.request.story.meaning import Vectors
from llama_srb.request.story.ruler import Counts
from llama_srb.request.truncate import Command
from llama_srb.request.values import INT32_MAX, RequestError, shown, wrong
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.template_tools import TemplateTools
from llama_srb.tasks import Task, pin_of
from llama_srb.tasks.presets import Preset

RANKS = "rank"  # the pooling of a model that ranks


@dataclasses.dataclass(frozen=True, slots=True)
class Switched:
    """What an admin has set for all clients while the server runs, until it is unset or the server ends.

    preset: the name of the preset that they are.
    """

    preset: str | None = None
    overrides: Overrides = NO_OVERRIDES


class ModelFacts:
    """The facts of one model, of one or several that a server has."""

    def __init__(self, served: ServedModel, presets: Mapping[str, Preset]) -> None:
        self.served, self.pool, self.presets = served, served.pool, presets
        self._began = time.monotonic()
        self.switched = Switched()
        self.ahead: dict[
            str, tuple[int, asyncio.Task[None]]
        ] = {}  # prompts for a pause, by client; their hash
        self.take_model(served.info)
        self.take_settings(served.settings)

    def take_settings(self, settings: Settings) -> None:
        """Replaces the settings by others that the same engines serve."""
        self.served.settings = self.settings = settings
        self.verbose = settings.verbose
        self._take_names()
        self.take_presets(self.presets)

    def take_model(self, model: ModelInfo) -> None:
        """Replaces the model that the engines load."""
        self.served.info = self.model = model
        self._model_hash = fingerprint.of_model(model)
        self._take_names()
        self.tools = TemplateTools()
        self.counts, self.vectors = Counts(), Vectors()

    def _take_names(self) -> None:
        """Clients may ask for it by these names; on a server of one model also by that in its file."""
        own, settings = self.served.settings.model_names, self.served.settings
        self.names: tuple[str, ...] = own if settings.name else (*own, self.served.info.name)

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
            overrides=read_overrides(settings.override),
        )
        self.switch(self.switched)

    def switch(self, to: Switched) -> None:
        """Takes overrides besides those of the settings, of which what is forced stays."""
        self.switched = to
        overrides = self._defaults.overrides.over(to.overrides).at_most(self.settings.max_n)
        operator = {**self._defaults.operator, **overrides.defaults}
        self._held = dataclasses.replace(self._defaults, overrides=overrides, operator=operator)

    @property
    def held(self) -> Overrides:
        """What holds for all clients, by the settings and by an admin."""
        return self._held.overrides

    def defaults(self, caller: Caller) -> Defaults:
        """The defaults of request fields; n is at most the max_n of the caller's key."""
        grant, defaults = caller.grant, self._held
        if grant is None or grant.max_n is None:
            return defaults
        n, overrides = min(defaults.n, grant.max_n), defaults.overrides.at_most(grant.max_n)
        return dataclasses.replace(defaults, n=n, most_n=grant.max_n, overrides=overrides)

    @property
    def name(self) -> str:
        """The model's own name."""
        return self.names[0]

    @property
    def adapters(self) -> Mapping[str, int]:
        """The ids of the adapters that have names, which are valid as `model`."""
        first = len(self.settings.lora)  # those of --lora have their files' names, which are no model's
        return {name: id for name, id in self.pool.adapters.given.items() if id >= first}

    @property
    def failure(self) -> str:
        """Why it cannot be loaded, or was not the last time; empty if nothing failed."""
        refusal = self.pool.refusal
        return refusal.reason if refusal is not None else self.pool.failure or ""

    @property
    def is_known(self) -> bool:
        """Whether an engine has loaded it: infill tokens and the context are known only then."""
        return self.pool.ready is not None

    async def known(self, command: Command) -> None:
        """Waits until it was loaded once."""
        if not self.is_known:
            await command("tokenize", text="")

    @property
    def infill(self) -> Mapping[str, str]:
        """The model's control tokens for infill (text between two texts); empty until an engine is ready."""
        return self.pool.ready.model.get("infill", {}) if self.pool.ready else {}

    @property
    def context(self) -> int:
        """The context of one sequence, in tokens; before the first load that of the header, at most --ctx."""
        ready = self.pool.ready
        if ready is not None and ready.n_ctx_sequence:
            return ready.n_ctx_sequence
        return min(self.model.context or 0, self.settings.ctx or INT32_MAX)

    def room(self, task: Task | None = None) -> int:
        """Tokens that a prompt and its answer may have together: fewer than the context beside pins.

        task: the prompt begins with its prelude.
        """
        ready, begins = self.pool.ready, None if task is None else pin_of(task, self.settings)
        return self.context if ready is None else self.pool.pins.room(self.context, ready.n_ctx, begins)

    def fingerprint(self) -> str:
        """`system_fingerprint`: commit, model and adapters; they are known once an engine is ready."""
        ready = self.pool.ready  # None if the request was cancelled before
        loaded = ({"id": one.id, "path": one.path} for one in self.pool.adapters.loaded)
        adapters = fingerprint.of_adapters(loaded)
        return f"b{ready.commit if ready else ''}-{self._model_hash}-{adapters}"

    @property
    def longest(self) -> int:
        """The most tokens of a text that gets a vector, as far as it is known."""
        ready = self.pool.ready
        return INT32_MAX if ready is None else int(ready.embedding.get("max_tokens", INT32_MAX))

    @property
    def makes_vectors(self) -> bool:
        """Whether its engine makes vectors of texts: not if it ranks."""
        return bool(self.embedding) and self.embedding.get("pooling") != RANKS

    @property
    def embedding(self) -> Mapping[str, Any]:
        """What its engine says of embeddings; empty: it computes none, or is not loaded."""
        ready = self.pool.ready
        return {} if ready is None or self.pool.state != "ready" else ready.embedding

    @property
    def chat_template(self) -> str:
        """The value of --chat-template, else the model's own template; empty: there is none."""
        return self.settings.chat_template or str(self.model.metadata.get("tokenizer.chat_template", ""))

    async def longest_embedded(self, command: Command) -> int:
        """The most tokens of a text that gets a vector."""
        await self.known(command)
        return self.longest

    def require_what_keeps_prefixes(self, request: CompletionRequest) -> None:
        if request.continue_ is not None:
            message = "continue has no prefix to compute; send the text as the prompt"
            raise RequestError(message, param="continue")
        if self.settings.engine_mode == "per-request" and self.settings.prefix_cache is None:
            message = "nothing is kept between requests in the mode per-request without --prefix-cache"
            raise RequestError(message, status=409)

    def require_what_continue_needs(self) -> None:
        if self.settings.engine_mode == "per-request":
            message = (
                "continue needs --engine-mode resident; in the mode per-request send the text as the prompt"
            )
            raise RequestError(message, param="continue")

    def require_room(self, generation: Exchange, extension: Extension) -> None:
        n, max_n, fork = generation.n, self.settings.max_n, extension.fork
        given = {"n": extension.add, "max_tokens": extension.max_tokens is not None}
        refuse_locked([name for name, value in given.items() if value], generation.locked)
        if n + extension.add > max_n:
            raise wrong("add", extension.add, f"at most {max_n - n}: there are {n}, and --max-n is {max_n}")
        if fork is not None and fork.index >= n:
            raise wrong("fork.index", fork.index, f"between 0 and {n - 1}")

    def info(
        self, defaults: Defaults, asked: str = "", agent: str = "", state: ModelState = "loaded"
    ) -> ServerInfo:
        """What clients may read of it. asked: its name in the answer, if that is not its own."""
        model, path = self.model, self.model.path
        return ServerInfo(
            model=self.name,
            asked=asked,
            state=state,
            path=str(path),
            architecture=model.architecture,
            parameters=model.parameters,
            quantisation=model.quantisation,
            size_bytes=model.size_bytes,
            modified=_modified(path),
            context=self.context,
            parallel=self.settings.parallel,
            agent=agent,
            chat_template=self.chat_template,
            slots=self.settings.slots,
            only_embeds=bool(self.pool.ready and self.pool.ready.embedding.get("only")),
            cpu=self.pool.ready.cpu if self.pool.ready else "",
            devices=self.pool.ready.devices if self.pool.ready else (),
            layers=self.pool.ready.layers if self.pool.ready else 0,
            gpu_layers=self.pool.ready.gpu_layers if self.pool.ready else 0,
            drafts=self.pool.ready.drafts if self.pool.ready else "none",
            infill=self.infill,
            special_tokens=model.special_tokens,
            version=__version__,
            now=time.time(),
            uptime=time.monotonic() - self._began,
            defaults=defaults,
        )


def _modified(path: Path) -> float:
    """When a file was changed, in seconds since 1970; 0 if it is gone."""
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def judge_of(models: Iterable[ModelFacts], by: RankBy) -> ServedModel:
    """The loaded model among these that judges texts; RequestError."""
    able = [one for one in models if one.pool.ready is not None and not one.pool.ready.embedding.get("only")]
    for one in able:
        if by.model in one.names:
            return one.served
    names = ", ".join(one.name for one in able) or "none"
    message = f"rank_by.judge.model is {shown(by.model)}; it must be a loaded model that generates texts, of "
    raise RequestError(f"{message}which you may use: {names}", param="rank_by.judge.model")


def ranker_of(models: Iterable[ModelFacts], by: RankBy) -> ServedModel:
    """The loaded model among these that ranks documents; RequestError."""
    able = [one for one in models if one.embedding.get("pooling") == RANKS]
    for one in able:
        if by.model in one.names:
            return one.served
    names = ", ".join(one.name for one in able) or "none"
    message = (
        f"rank_by.reward.model is {shown(by.model)}; it must be a loaded model that ranks documents, of "
    )
    raise RequestError(f"{message}which you may use: {names}", param="rank_by.reward.model")


def lore_embedder_of(models: Iterable[ModelFacts]) -> ModelFacts:
    """The first loaded model among these that is made for embeddings, for a story's lore; RequestError."""
    for one in models:
        if one.makes_vectors and one.embedding.get("only"):
            return one
    message = "story.lore has entries with meaning, but no embedding model is loaded that you may use: "
    raise RequestError(f"{message}load one, or give keys instead", param="story.lore")


def embedder_of(models: Iterable[ModelFacts], by: RankBy) -> ServedModel:
    """The loaded model among these that computes the vectors of a ranking; RequestError.

    It is the one that by.model names, else the only one that is made for embeddings.
    """
    embed = [one for one in models if one.makes_vectors]
    if by.model is None:
        found = [one for one in embed if one.embedding.get("only")]
    else:
        found = [one for one in embed if by.model in one.names]
    if len(found) == 1:
        return found[0].served
    names = ", ".join(one.name for one in found or embed) or "none"
    if found:
        message = f"rank_by.{by.name}.by is embeddings, and several models compute them: name one of {names}"
    elif by.model is None:
        message = f"rank_by.{by.name}.by is embeddings, but no embedding model is loaded"
        message += f"; by model you may name one of {names}" if embed else "; load one, or take overlap"
    else:
        message = f"rank_by.{by.name}.model is {shown(by.model)}; it must be a loaded model that computes "
        message += f"embeddings, of which you may use: {names}"
    raise RequestError(message, param=f"rank_by.{by.name}.{'by' if by.model is None else 'model'}")
