"""The models of a server, and which of them serves a request: found in one way for all handlers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from aiohttp import web

from llama_srb.config import Settings
from llama_srb.dialects import openllm
from llama_srb.dialects.common.reply import ModelState, ServerInfo
from llama_srb.dialects.openai import Origin
from llama_srb.engine.exchange import Exchange
from llama_srb.http.auth.caller import CALLER, Caller
from llama_srb.http.handlers.bodies import Bodies, name_in, path_of, with_adapter, without_stalling
from llama_srb.http.handlers.facts import ModelFacts, embedder_of, judge_of
from llama_srb.http.middleware import DIALECT_OF, Handler
from llama_srb.http.observe.traces import NO_TRACES
from llama_srb.http.reservations import Admission, Reservation
from llama_srb.memory.filters import Filter
from llama_srb.memory.records import Found
from llama_srb.models.names import Choice, Names
from llama_srb.models.residency import Residency
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.rank_by import RankBy
from llama_srb.request.values import RequestError
from llama_srb.tasks import Task, Tasks, applied, pins_of
from llama_srb.tasks.presets import Preset

FIELDS: Mapping[str, tuple[str, ...]] = {"ollama": ("model", "name")}  # by dialect: those that name a model
MERGED = {"openllm": openllm.merged}  # by dialect: whose fields stand in an object of the body
NO_SUCH: Mapping[str, str] = {"ollama": "model '{}' not found"}  # what a dialect's clients look for
NO_SUCH_MODEL = "there is no model {} here"
HELD: web.RequestKey[contextlib.ExitStack] = web.RequestKey("held", contextlib.ExitStack)
"""What a request holds until it is over."""
INFILL = ("suffix", "input_prefix", "input_suffix")  # fields that need the model's infill tokens


class Recalling(Protocol):
    """Memories, as tasks see them."""

    def require(self, name: str, caller: Caller, /) -> None: ...

    async def recall(
        self, name: str, text: str, k: int, caller: Caller, filter: Filter = ..., prompts: int = ..., /
    ) -> list[Found]: ...

    def store(self, name: str, text: str, caller: Caller, /) -> None: ...

    def use(self) -> contextlib.AbstractContextManager[object]: ...


@dataclass(frozen=True, slots=True)
class Chosen:
    """The model that serves a request of a caller.

    body: the request's, with the adapter that its `model` names. name: the model's name in the answer.
    task: the one that the request names.
    """

    admission: Admission
    facts: ModelFacts
    caller: Caller
    body: Mapping[str, Any]
    name: str
    adapter: int | None = None
    task: Task | None = None
    warnings: tuple[str, ...] = ()
    agent: str = ""
    memories: Recalling | None = None  # that its task may recall from
    embedders: Callable[[], Iterable[ModelFacts]] = tuple  # the models that the caller may use

    @property
    def defaults(self) -> Defaults:
        """The defaults of request fields; requests that are made with them have the warnings."""
        defaults = self.facts.defaults(self.caller)
        defaults = defaults if self.task is None else self.task.over(defaults)
        return dataclasses.replace(defaults, warnings=self.warnings) if self.warnings else defaults

    @property
    def origin(self) -> Origin:
        return Origin(self.name, int(time.time()), self.facts.fingerprint)

    @property
    def info(self) -> ServerInfo:
        return self.facts.info(self.defaults, self.name, self.agent)

    def reserve(self, count: int = 1, *, yields: bool = False) -> Reservation:
        return self.admission.reserve(
            self.caller, self.facts.served, count, yields=yields, on_begun=self._store_prompt
        )

    def _store_prompt(self, request: CompletionRequest) -> None:
        """Begins to store the client's text, if its task says so: now the request was not refused."""
        if request.to_store is not None and self.memories is not None:
            self.memories.store(*request.to_store, self.caller)

    def hold_memories(self, held: contextlib.ExitStack) -> None:
        """The memories that its task recalls from stay open until `held` is closed."""
        if self.memories is not None:
            held.enter_context(self.memories.use())

    def checked(self, request: CompletionRequest) -> CompletionRequest:
        """The request, if what it continues is of this model, and a model computes what ranks it."""
        self.facts.require_what_continue_needs(request)
        if request.continue_ is not None:
            self.admission.ids.require(request.continue_.id, self.facts.name)
        if request.rank_by is not None and request.rank_by.needs_vectors:
            self.embedder(request.rank_by)
        if request.rank_by is not None and request.rank_by.name == "judge":
            self.judge(request.rank_by)
        return request

    def embedder(self, by: RankBy) -> ServedModel:
        """The loaded model that computes the vectors of a ranking; RequestError."""
        return embedder_of(self.embedders(), by)

    def judge(self, by: RankBy) -> ServedModel:
        """The loaded model that judges texts, by default that which writes them; RequestError."""
        return self.facts.served if by.model is None else judge_of(self.embedders(), by)

    async def with_task(self, request: CompletionRequest, *, is_beginning: bool = False) -> CompletionRequest:
        """The request with the texts of the task around its prompt. is_beginning: it is to be continued."""
        if self.task is None:
            return request
        size = request.prompt_length
        return await without_stalling(
            size, applied, self.task, request, self.defaults, is_beginning=is_beginning
        )

    def answered_as(self, dialect: str) -> Chosen:
        """The same, whose answer has another dialect than its path."""
        return dataclasses.replace(self, caller=self.caller.answered_as(dialect))

    def without_task(self) -> Chosen:
        """RequestError if a task was named: it has rules for texts that are generated, not for scores."""
        if self.task is not None:
            message = f"{self.name} is a task; texts are scored by a model: name {self.facts.name}"
            raise RequestError(message, param="model")
        return self

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
        tasks: Tasks,
    ) -> None:
        self.settings, self.admission, self.bodies = settings, admission, Bodies()
        self.residency = residency
        self.is_starting = False  # models are being loaded before the server is ready
        self.presets = presets
        self.configured = tasks
        self.memories: Recalling | None = None  # are set before requests come
        self.traces = NO_TRACES  # may be replaced before requests come
        self.names = Names[ModelFacts](())
        self._leaving: tuple[ModelFacts, ...] = ()  # were removed, and may have requests
        for one in served:
            self.prepare(one, settings, tasks)
        self.replace(settings, served)

    def prepare(self, model: ServedModel, settings: Settings, tasks: Tasks) -> None:
        """A new model: each start of an engine is counted, and each engine pins the preludes of its tasks.

        settings: of the server that will serve it.
        """
        model.pool.engines.on_start = self.admission.metrics.of(model.name).engine_started
        model.pool.pins.set(pins_of(model.settings, settings, tasks))

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
                facts.info(chosen.defaults, state=self.state_of(facts)), leaves=_leaves(self.residency, facts)
            )
            adapters = (dataclasses.replace(one, model=name, parent=one.model) for name in facts.adapters)
            listed += [one, *adapters]
        for task, facts in self.tasks(chosen.caller):
            one = facts.info(chosen.defaults, state=self.state_of(facts))
            listed.append(dataclasses.replace(one, model=task.name, parent=one.model, is_task=True))
        return dataclasses.replace(chosen.info, models=tuple(listed))

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
        await in_use(http[HELD], chosen)
        return dataclasses.replace(chosen, agent=http.headers.get("User-Agent", ""))

    def chosen(
        self, body: Mapping[str, Any], caller: Caller, dialect: str = "", query: str | None = None
    ) -> Chosen:
        """The model that a body names; RequestError if the name is unknown, or not one of the caller's."""
        body = MERGED[dialect](dict(body)) if dialect in MERGED else body
        named = name_in(body, FIELDS.get(dialect, ("model",)))
        asked, is_ollama = named or query, dialect == "ollama"
        name = asked if not asked or _is_name(self, asked) or not is_ollama else asked.split(":")[0]
        if not name and not self.allowed(caller) and (own := list(self.tasks(caller))):
            name = own[0][0].name  # the key may use only tasks
        if name and name in self.configured.names:
            return self.of_task(name, body, caller, asked or "")
        choice = self.names.choose(
            name,
            allowed_to(caller),
            is_known=is_ollama and bool(named) and not self.are_several,  # its clients expect an error
            what=NO_SUCH.get(dialect, NO_SUCH_MODEL),
            also=self.configured.names,
        )
        shown = asked if asked and name == choice.name else choice.name
        return _chosen(self, choice, caller, with_adapter(body, choice.adapter), shown)

    def of_task(
        self,
        name: str,
        body: Mapping[str, Any],
        caller: Caller,
        shown: str = "",
        before: Chosen | None = None,
    ) -> Chosen:
        """The model of a task; RequestError if there is no such task, or the body has what it locks.

        before: an earlier request, whose task and memories are taken, whatever a reload has changed.
        """
        tasks, memories = self.configured, self.memories
        if before is not None and before.task is not None:
            tasks, memories = Tasks([before.task]), before.memories
        task = tasks.require(name, None if caller.grant is None else caller.grant.tasks)
        choice = self._model_of(task, caller)
        chosen = _chosen(self, choice, caller, with_adapter(body, choice.adapter), shown or name)
        return _with_task(chosen, task, body, memories)

    def of_draft(self, task: Task, body: Mapping[str, Any], caller: Caller) -> Chosen:
        """The model of a task that is not configured: the caller must be allowed its model and its memory."""
        choice = self.names.choose(task.model, allowed_to(caller), is_known=task.model is not None)
        if task.recall is not None and self.memories is not None:
            self.memories.require(task.recall.memory, caller)
        chosen = _chosen(self, choice, caller, with_adapter(body, choice.adapter), task.name)
        return _with_task(chosen, task, body, self.memories)

    def _model_of(self, task: Task, caller: Caller) -> Choice[ModelFacts]:
        """A key that names tasks may use them whatever their models; others must be allowed the model."""
        is_named = caller.grant is not None and caller.grant.tasks is not None
        allowed = None if is_named else allowed_to(caller)
        return self.names.choose(task.model, allowed, is_known=task.model is not None)

    def tasks(self, caller: Caller) -> Iterator[tuple[Task, ModelFacts]]:
        """The tasks that a caller may use, and their models."""
        for task in self.configured:
            with contextlib.suppress(RequestError):
                self.configured.require(task.name, None if caller.grant is None else caller.grant.tasks)
                yield task, self._model_of(task, caller).model

    def named(self, name: str, caller: Caller) -> Chosen:
        """The model of this name, or of the task of this name, without a default."""
        if name in self.configured.names:
            return self.of_task(name, {}, caller)
        also = self.configured.names
        choice = self.names.choose(name, allowed_to(caller), is_known=True, also=also)
        return _chosen(self, choice, caller, {}, choice.name)

    def allowed(self, caller: Caller) -> tuple[ModelFacts, ...]:
        """The models that a caller may use, in order."""
        return self.names.allowed(allowed_to(caller))

    # Running requests

    def generation(self, id: str, caller: Caller) -> tuple[ModelFacts, Exchange] | None:
        """The running generation of this id and its model, which the caller must be allowed to use."""
        for facts in self.with_leaving:
            if (generation := facts.pool.requests.generation(id)) is not None:
                if all(facts is not model for _, model in self.tasks(caller)):
                    Names((facts,)).choose(facts.name, allowed_to(caller))
                return facts, generation
        return None

    def cancel(self, id: str, index: int | None = None) -> bool:
        """Ends a request or one sequence of it; False if no model has a request of this id."""
        return any(facts.pool.requests.cancel(id, index) for facts in self.with_leaving)


async def in_use(held: contextlib.ExitStack, chosen: Chosen) -> Chosen:
    """The model is in use until `held` is closed, and so are the memories of its task.

    It was loaded once when this returns, if the request needs its infill tokens.
    """
    chosen.facts.served.begin_use()
    held.callback(chosen.facts.served.end_use)
    chosen.hold_memories(held)
    if not chosen.facts.is_known and any(chosen.body.get(name) for name in INFILL):
        with chosen.reserve() as reservation:
            await chosen.facts.known(reservation.command)
    return chosen


@web.middleware
async def uses_model(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A model that is removed stays until each request that has chosen it is over."""
    with contextlib.ExitStack() as held:
        request[HELD] = held
        return await handler(request)


def _leaves(residency: Residency, facts: ModelFacts) -> float | None:
    """When the model will be unloaded if no request comes, in seconds since 1970."""
    at = residency.leaves_at(facts.served)
    return None if at is None else time.time() + at - asyncio.get_running_loop().time()


def _chosen(
    registry: Registry, choice: Choice[ModelFacts], caller: Caller, body: Mapping[str, Any], name: str
) -> Chosen:
    made = Chosen(
        registry.admission, choice.model, caller, body, name, choice.adapter, warnings=choice.warnings
    )
    return dataclasses.replace(made, embedders=partial(registry.allowed, caller))


def allowed_to(caller: Caller) -> tuple[str, ...] | None:
    """The names of the models that a caller may use; None: all."""
    return caller.grant.models if caller.grant is not None else None


def _with_task(chosen: Chosen, task: Task, body: Mapping[str, Any], memories: Recalling | None) -> Chosen:
    """The same for a task; RequestError if the body has what it locks."""
    task.check(body)
    if infill := [field for field in INFILL if body.get(field)]:
        message = f"{infill[0]} is for a model; the task {task.name} has texts of its own around a prompt"
        raise RequestError(message, param=infill[0])
    return dataclasses.replace(chosen, task=task, memories=memories if task.recall is not None else None)


def _is_name(registry: Registry, name: str) -> bool:
    """Ollama's names end with a colon and a tag, which names here may lack."""
    return registry.names.find(name) is not None or name in registry.configured.names
