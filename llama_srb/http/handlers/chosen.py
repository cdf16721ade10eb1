"""The models of a server, and which of them serves a request: found in one way for all handlers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from llama_srb.config import Settings
from llama_srb.dialects.common.reply import ModelState, ServerInfo
from llama_srb.dialects.openai import Origin
from llama_srb.engine.exchange import Exchange
from llama_srb.http.auth.caller import CALLER, Caller
from llama_srb.http.handlers.bodies import Bodies, path_of
from llama_srb.http.handlers.facts import ModelFacts
from llama_srb.http.middleware import DIALECT_OF, Handler
from llama_srb.http.reservations import Admission, Reservation
from llama_srb.models.names import Choice, Names
from llama_srb.models.residency import Residency
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.presets import Preset
from llama_srb.request.values import RequestError, wrong

FIELDS: Mapping[str, tuple[str, ...]] = {"ollama": ("model", "name")}  # by dialect: those that name a model
NO_SUCH: Mapping[str, str] = {"ollama": "model '{}' not found"}  # what a dialect's clients look for
NO_SUCH_MODEL = "there is no model {} here"
USED: web.RequestKey[ServedModel] = web.RequestKey("used", ServedModel)  # until the request is over
INFILL = ("suffix", "input_prefix", "input_suffix")  # fields that need the model's infill tokens


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model that serves a request of a caller.

    body: the request's, with the adapter that its `model` names. name: the model's name in the answer.
    """

    admission: Admission
    facts: ModelFacts
    caller: Caller
    body: Mapping[str, Any]
    name: str
    adapter: int | None = None
    warnings: tuple[str, ...] = ()
    agent: str = ""

    @property
    def defaults(self) -> Defaults:
        """The defaults of request fields; requests that are made with them have the warnings."""
        defaults = self.facts.defaults(self.caller)
        return dataclasses.replace(defaults, warnings=self.warnings) if self.warnings else defaults

    @property
    def origin(self) -> Origin:
        return Origin(self.name, int(time.time()), self.facts.fingerprint)

    @property
    def info(self) -> ServerInfo:
        return self.facts.info(self.defaults, self.name, self.agent)

    def reserve(self, count: int = 1, *, yields: bool = False) -> Reservation:
        return self.admission.reserve(self.caller, self.facts.served, count, yields=yields)

    def checked(self, request: CompletionRequest) -> CompletionRequest:
        """The request, if what it continues is of this model."""
        self.facts.require_what_continue_needs(request)
        if request.continue_ is not None:
            self.admission.ids.require(request.continue_.id, self.facts.name)
        return request

    def without_adapter(self) -> Chosen:
        """RequestError if an adapter was named: vectors are made without adapters."""
        if self.adapter is not None:
            message = f"{self.name} is an adapter; vectors are made without one: name {self.facts.name}"
            raise RequestError(message, param="model")
        return self


class Registry:
    """The models of a server. A reload replaces them."""

    def __init__(
        self,
        settings: Settings,
        admission: Admission,
        served: Sequence[ServedModel],
        presets: Mapping[str, Preset],
        residency: Residency,
    ) -> None:
        self.settings, self.admission, self.bodies = settings, admission, Bodies()
        self.residency = residency
        self.is_starting = False  # models are being loaded before the server is ready
        self.presets = presets
        self.names = Names[ModelFacts](())
        self._leaving: tuple[ModelFacts, ...] = ()  # were removed, and may have requests
        for one in served:
            self.count_starts(one)
        self.replace(settings, served)

    def count_starts(self, model: ServedModel) -> None:
        """Counts each start of an engine of a new model."""
        model.pool.engines.on_start = self.admission.metrics.of(model.name).engine_started

    def replace(self, settings: Settings, served: Sequence[ServedModel]) -> None:
        """Takes the models of new settings; those that were here before keep their facts."""
        self.settings = settings
        before = {facts.served: facts for facts in self}
        removed = (facts for one, facts in before.items() if one not in served)
        self._leaving = (*self._leaving, *removed)
        self.names = Names(
            [before.get(one) or ModelFacts(one, self.presets) for one in served],
            default=settings.default_model,
            answers_all=not settings.models,
            strict=settings.strict,
        )

    def forget(self, model: ServedModel) -> None:
        """A model that was removed has no requests any more."""
        self._leaving = tuple(facts for facts in self._leaving if facts.served is not model)

    @property
    def with_leaving(self) -> tuple[ModelFacts, ...]:
        """The models, and after them those that were removed and may have requests."""
        return (*self, *self._leaving)

    def __iter__(self) -> Iterator[ModelFacts]:
        return iter(self.names.models)

    def state_of(self, facts: ModelFacts) -> ModelState:
        return self.residency.state_of(facts.served)

    def with_all(self, chosen: Chosen) -> ServerInfo:
        """What clients may read of a model, and of all models and adapters that the caller may use."""
        listed: list[ServerInfo] = []
        for facts in self.allowed(chosen.caller):
            one = dataclasses.replace(
                facts.info(chosen.defaults, state=self.state_of(facts)), leaves=self._leaves(facts)
            )
            adapters = (dataclasses.replace(one, model=name, parent=one.model) for name in facts.adapters)
            listed += [one, *adapters]
        return dataclasses.replace(chosen.info, models=tuple(listed))

    def _leaves(self, facts: ModelFacts) -> float | None:
        """When the model will be unloaded if no request comes, in seconds since 1970."""
        at = self.residency.leaves_at(facts.served)
        return None if at is None else time.time() + at - asyncio.get_running_loop().time()

    @property
    def are_several(self) -> bool:
        """Whether models have names of their own: then answers and metrics tell them apart."""
        return bool(self.settings.models)

    def take_presets(self, presets: Mapping[str, Preset]) -> None:
        """Replaces the presets that requests may name."""
        self.presets = presets
        for facts in self:
            facts.take_presets(presets)

    # The model of a request

    async def of(self, http: web.Request) -> Chosen:
        """The model that a request names in its body or its query, else the default; with its body."""
        body = await self.bodies.read(http) if http.method == "POST" else {}
        dialect = DIALECT_OF.get(path_of(http), "")
        chosen = self.chosen(body, http[CALLER], dialect, http.query.get("model"))
        if USED not in http:
            chosen.facts.served.begin_use()
            http[USED] = chosen.facts.served
        await _know_infill(chosen)
        return dataclasses.replace(chosen, agent=http.headers.get("User-Agent", ""))

    @contextlib.asynccontextmanager
    async def used(self, body: Mapping[str, Any], caller: Caller) -> AsyncIterator[Chosen]:
        """As of(), for a body that came in another way; the model is in use during the block."""
        chosen = self.chosen(body, caller)
        chosen.facts.served.begin_use()
        try:
            await _know_infill(chosen)
            yield chosen
        finally:
            chosen.facts.served.end_use()

    def chosen(
        self, body: Mapping[str, Any], caller: Caller, dialect: str = "", query: str | None = None
    ) -> Chosen:
        """The model that a body names; RequestError if the name is unknown, or not one of the caller's."""
        named = _name_in(body, FIELDS.get(dialect, ("model",)))
        asked, is_ollama = named or query, dialect == "ollama"
        name = self._without_tag(asked) if asked and is_ollama else asked
        choice = self.names.choose(
            name,
            allowed_to(caller),
            is_known=is_ollama and bool(named) and not self.are_several,  # its clients expect an error
            what=NO_SUCH.get(dialect, NO_SUCH_MODEL),
        )
        shown = asked if asked and name == choice.name else choice.name
        return self._chosen(choice, caller, _with_adapter(body, choice.adapter), shown)

    def named(self, name: str, caller: Caller) -> Chosen:
        """The model of this name, without a default."""
        choice = self.names.choose(name, allowed_to(caller), is_known=True)
        return self._chosen(choice, caller, {}, choice.name)

    def _chosen(
        self, choice: Choice[ModelFacts], caller: Caller, body: Mapping[str, Any], name: str
    ) -> Chosen:
        return Chosen(self.admission, choice.model, caller, body, name, choice.adapter, choice.warnings)

    def _without_tag(self, name: str) -> str:
        """Ollama's names end with a colon and a tag, which names here may lack."""
        return name if self.names.find(name) else name.split(":")[0]

    def allowed(self, caller: Caller) -> tuple[ModelFacts, ...]:
        """The models that a caller may use, in order."""
        return self.names.allowed(allowed_to(caller))

    # Running requests

    def generation(self, id: str, caller: Caller) -> tuple[ModelFacts, Exchange] | None:
        """The running generation of this id and its model, which the caller must be allowed to use."""
        for facts in self.with_leaving:
            if (generation := facts.pool.requests.generation(id)) is not None:
                Names((facts,)).choose(facts.name, allowed_to(caller))
                return facts, generation
        return None

    def cancel(self, id: str, index: int | None = None) -> bool:
        """Ends a request or one sequence of it; False if no model has a request of this id."""
        return any(facts.pool.requests.cancel(id, index) for facts in self.with_leaving)


@web.middleware
async def uses_model(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A model that is removed stays until each request that has chosen it is over."""
    try:
        return await handler(request)
    finally:
        if (served := request.get(USED)) is not None:
            served.end_use()


async def _know_infill(chosen: Chosen) -> None:
    """Waits until the model was loaded once, if the request needs its infill tokens."""
    if not chosen.facts.is_known and any(chosen.body.get(name) for name in INFILL):
        with chosen.reserve() as reservation:
            await chosen.facts.known(reservation.command)


def allowed_to(caller: Caller) -> tuple[str, ...] | None:
    """The names of the models that a caller may use; None: all."""
    return caller.grant.models if caller.grant is not None else None


def _name_in(body: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    for field in fields:
        if (name := body.get(field)) is None:
            continue
        if not isinstance(name, str):
            raise wrong(field, name, "a text")
        return name
    return None


def _with_adapter(body: Mapping[str, Any], adapter: int | None) -> Mapping[str, Any]:
    """The body with this adapter at scale 1, beside those that it names itself."""
    if adapter is None:
        return body
    others = body.get("lora") or []
    if not isinstance(others, list):
        return body  # its reader refuses it
    if any(isinstance(one, dict) and one.get("id") == adapter for one in others):
        return body
    return {**body, "lora": [{"id": adapter, "scale": 1.0}, *others]}
