"""The models of a server, and which of them serves a request: found in one way for all handlers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from llama_srb.config import Settings
from llama_srb.dialects import openllm
from llama_srb.dialects.common.reply import ModelState, ServerInfo
from llama_srb.engine.exchange import Exchange
from llama_srb.models.names import Choice, Names
from llama_srb.models.residency import Residency
from llama_srb.models.served import ServedModel
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.admission import Admission
from llama_srb.serving.bodies import Bodies
from llama_srb.serving.context import INFILL, Recalling, RequestContext
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.observe.traces import NO_TRACES
from llama_srb.tasks import Task, Tasks, pins_of
from llama_srb.tasks.presets import Preset

FIELDS: Mapping[str, tuple[str, ...]] = {"ollama": ("model", "name")}  # by dialect: those that name a model
MERGED = {"openllm": openllm.merged}  # by dialect: whose fields stand in an object of the body
NO_SUCH: Mapping[str, str] = {"ollama": "model '{}' not found"}  # what a dialect's clients look for
NO_SUCH_MODEL = "there is no model {} here"


class ModelRegistry:
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
        self.memories: Recalling | None = None  # set before requests come, and by a reload
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

    def with_all(self, context: RequestContext) -> ServerInfo:
        """What clients may read of a model, and of all models and adapters that the caller may use."""
        listed: list[ServerInfo] = []
        for facts in self.allowed(context.caller):
            one = dataclasses.replace(
                facts.info(context.defaults, state=self.state_of(facts)), leaves=self._leaves(facts)
            )
            adapters = (dataclasses.replace(one, model=name, parent=one.model) for name in facts.adapters)
            listed += [one, *adapters]
        for task, facts in self.tasks(context.caller):
            one = facts.info(context.defaults, state=self.state_of(facts))
            listed.append(dataclasses.replace(one, model=task.name, parent=one.model, is_task=True))
        return dataclasses.replace(context.info, models=tuple(listed))

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

    def choose(
        self,
        body: Mapping[str, Any],
        caller: Caller,
        dialect: str = "",
        query: str | None = None,
        agent: str = "",
    ) -> RequestContext:
        """The context by the model that a body names; RequestError if it is unknown, or not the caller's.

        dialect: of the path. query: the name in its query, if the body has none. agent: the User-Agent.
        """
        body = MERGED[dialect](dict(body)) if dialect in MERGED else body
        named = _name_in(body, FIELDS.get(dialect, ("model",)))
        asked, is_ollama = named or query, dialect == "ollama"
        name, tasks = asked, self.configured.names
        if asked and is_ollama and self.names.find(asked) is None and asked not in tasks:
            name = asked.split(":")[0]  # Ollama's names end with a colon and a tag, which names here may lack
        if not name and tasks and not self.allowed(caller) and (own := list(self.tasks(caller))):
            name = own[0][0].name  # the key may use only tasks
        if name and name in tasks:
            return self.of_task(name, body, caller, asked or "", agent=agent)
        choice = self.names.choose(
            name,
            allowed_to(caller),
            is_known=is_ollama and bool(named) and not self.are_several,  # its clients expect an error
            what=NO_SUCH.get(dialect, NO_SUCH_MODEL),
            also=tasks,
        )
        shown = asked if asked and name == choice.name else choice.name
        return self._context(choice, caller, body, shown, agent=agent)

    def of_task(
        self,
        name: str,
        body: Mapping[str, Any],
        caller: Caller,
        shown: str = "",
        before: RequestContext | None = None,
        agent: str = "",
    ) -> RequestContext:
        """The context of a request to a task; RequestError if there is none, or the body has what it locks.

        before: an earlier request, whose task and memories are taken, whatever a reload has changed.
        """
        tasks, memories = self.configured, self.memories
        if before is not None and before.task is not None:
            tasks, memories = Tasks([before.task]), before.memories
        task = tasks.require(name, None if caller.grant is None else caller.grant.tasks)
        choice = self._model_of(task, caller)
        return self._context(choice, caller, body, shown or name, task, memories, agent)

    def of_draft(
        self, task: Task, body: Mapping[str, Any], caller: Caller, agent: str = ""
    ) -> RequestContext:
        """The context of a draft, which is not configured: its model and memory must be the caller's."""
        choice = self.names.choose(task.model, allowed_to(caller), is_known=task.model is not None)
        if task.recall is not None and self.memories is not None:
            self.memories.require(task.recall.memory, caller)
        return self._context(choice, caller, body, task.name, task, self.memories, agent)

    def named(self, name: str, caller: Caller) -> RequestContext:
        """The context of this model, or of the task of this name, without a default."""
        if name in self.configured.names:
            return self.of_task(name, {}, caller)
        also = self.configured.names
        choice = self.names.choose(name, allowed_to(caller), is_known=True, also=also)
        return self._context(choice, caller, {}, choice.name)

    def _context(
        self,
        choice: Choice[ModelFacts],
        caller: Caller,
        body: Mapping[str, Any],
        name: str,
        task: Task | None = None,
        memories: Recalling | None = None,
        agent: str = "",
    ) -> RequestContext:
        """name: in the answer. RequestError if the body has what its task locks."""
        if task is not None:
            _refuse_fields_of(task, body)
        defaults = choice.model.defaults(caller)
        if task is not None:
            defaults = task.over(defaults)
        if choice.warnings:
            defaults = dataclasses.replace(defaults, warnings=choice.warnings)
        return RequestContext(
            admission=self.admission,
            facts=choice.model,
            caller=caller,
            body=body if choice.adapter is None else _with_adapter(body, choice.adapter),
            name=name,
            defaults=defaults,
            adapter=choice.adapter,
            task=task,
            warnings=choice.warnings,
            agent=agent,
            memories=memories if task is not None and task.recall is not None else None,
            models=partial(self.allowed, caller),
        )

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


def _with_adapter(body: Mapping[str, Any], adapter: int) -> Mapping[str, Any]:
    """The body with this adapter at scale 1, beside those that it names itself."""
    others = body.get("lora") or []
    if not isinstance(others, list):
        return body  # its reader refuses it
    if any(isinstance(one, dict) and one.get("id") == adapter for one in others):
        return body
    return {**body, "lora": [{"id": adapter, "scale": 1.0}, *others]}


def _name_in(body: Mapping[str, Any], fields: tuple[str, ...]) -> str | None:
    for field in fields:
        if (name := body.get(field)) is None:
            continue
        if not isinstance(name, str):
            raise wrong(field, name, "a text")
        return name
    return None


def allowed_to(caller: Caller) -> tuple[str, ...] | None:
    """The names of the models that a caller may use; None: all."""
    return caller.grant.models if caller.grant is not None else None


def _refuse_fields_of(task: Task, body: Mapping[str, Any]) -> None:
    """RequestError if the body has what the task locks, or what is for a model."""
    task.check(body)
    if infill := [field for field in INFILL if body.get(field)]:
        message = f"{infill[0]} is for a model; the task {task.name} has texts of its own around a prompt"
        raise RequestError(message, param=infill[0])
