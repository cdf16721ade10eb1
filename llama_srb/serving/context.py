"""The context of a request: who asks, which model and task answer, with which defaults."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openai import Origin
from llama_srb.memory.filters import Filter
from llama_srb.memory.records import Found
from llama_srb.models.served import ServedModel
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import Defaults
from llama_srb.request.rank_by import RankBy
from llama_srb.request.values import RequestError, SearchBy
from llama_srb.serving.admission import Admission, Reservation
from llama_srb.serving.bodies import without_stalling
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.model_facts import ModelFacts, embedder_of, judge_of, ranker_of
from llama_srb.tasks import Task, applied


class Recalling(Protocol):
    """Memories, as tasks see them."""

    def require(self, name: str, caller: Caller, /) -> None: ...

    async def recall(
        self, name: str, text: str, k: int, caller: Caller, filter: Filter = ..., prompts: int = ...,
        by: SearchBy | None = ..., around: int = ..., /,
    ) -> list[Found]: ...  # fmt: skip

    def store(self, name: str, text: str, caller: Caller, /) -> None: ...

    def use(self) -> contextlib.AbstractContextManager[object]: ...


INFILL = ("suffix", "input_prefix", "input_suffix")  # fields that need the model's infill tokens


@dataclass(frozen=True, slots=True)
class RequestContext:
    """Who asks, and the model and task that answer. The model registry makes it; changes make copies.

    body: the request's, with the adapter that its `model` names. name: the model's name in the answer.
    defaults: of the request's fields. task: the one that the request names.
    """

    admission: Admission
    facts: ModelFacts
    caller: Caller
    body: Mapping[str, Any]
    name: str
    defaults: Defaults
    adapter: int | None = None
    task: Task | None = None
    warnings: tuple[str, ...] = ()
    agent: str = ""
    memories: Recalling | None = None  # that its task may recall from
    models: Callable[[], Iterable[ModelFacts]] = tuple  # the models that the caller may use

    @property
    def origin(self) -> Origin:
        return Origin(self.name, int(time.time()), self.facts.fingerprint)

    @property
    def info(self) -> ServerInfo:
        return self.facts.info(self.defaults, self.name, self.agent)

    def reserve(self, count: int = 1, *, yields: bool = False, dialect: str = "") -> Reservation:
        """dialect: of the answer, if it is another one than the path's."""
        stores = self.memories is not None
        return self.admission.reserve(
            self.caller,
            self.facts.served,
            count,
            yields=yields,
            on_begun=self._store_prompt if stores else None,
            dialect=dialect,
        )

    def _store_prompt(self, request: CompletionRequest) -> None:
        """Begins to store the client's text, if its task says so: now the request was not refused."""
        if request.to_store is not None and self.memories is not None:
            self.memories.store(*request.to_store, self.caller)

    async def use(self, held: contextlib.ExitStack) -> None:
        """The model is in use until `held` is closed, and so are the memories of its task.

        It was loaded once when this returns, if the request needs its infill tokens.
        """
        self.facts.served.begin_use()
        held.callback(self.facts.served.end_use)
        if self.memories is not None:
            held.enter_context(self.memories.use())
        if any(self.body.get(name) for name in INFILL) and not self.facts.is_known:
            with self.reserve() as reservation:
                await self.facts.known(reservation.command)

    def check(self, request: CompletionRequest) -> None:
        """RequestError unless what it continues is of this model, and a model computes what ranks it."""
        if request.continue_ is not None:
            self.facts.require_what_continue_needs()
            self.admission.ids.require(request.continue_.id, self.facts.name)
        if request.rank_by is not None and request.rank_by.needs_vectors:
            self.embedder(request.rank_by)
        if request.rank_by is not None and request.rank_by.name == "judge":
            self.judge(request.rank_by)
        if request.rank_by is not None and request.rank_by.name == "reward":
            self.ranker(request.rank_by)

    def ranker(self, by: RankBy) -> ServedModel:
        """The loaded model that ranks texts for `reward`; RequestError."""
        return ranker_of(self.models(), by)

    def embedder(self, by: RankBy) -> ServedModel:
        """The loaded model that computes the vectors of a ranking; RequestError."""
        return embedder_of(self.models(), by)

    def judge(self, by: RankBy) -> ServedModel:
        """The loaded model that judges texts, by default that which writes them; RequestError."""
        return self.facts.served if by.model is None else judge_of(self.models(), by)

    async def with_task(self, request: CompletionRequest, *, is_beginning: bool = False) -> CompletionRequest:
        """The request with the texts of the task around its prompt. is_beginning: it is to be continued."""
        if self.task is None:
            return request
        size = request.prompt_length
        return await without_stalling(
            size, applied, self.task, request, self.defaults, is_beginning=is_beginning
        )

    def warned(self, warning: str) -> RequestContext:
        """The same, whose request has one warning more."""
        warnings = (*self.warnings, warning)
        defaults = dataclasses.replace(self.defaults, warnings=warnings)
        return dataclasses.replace(self, warnings=warnings, defaults=defaults)

    def refusing_task(self) -> RequestContext:
        """RequestError if a task was named: it has rules for texts that are generated, not for scores."""
        if self.task is not None:
            message = f"{self.name} is a task; texts are scored by a model: name {self.facts.name}"
            raise RequestError(message, param="model")
        return self

    def refusing_adapter(self) -> RequestContext:
        """RequestError if an adapter was named: vectors are made without adapters."""
        if self.adapter is not None:
            message = f"{self.name} is an adapter; vectors are made without one: name {self.facts.name}"
            raise RequestError(message, param="model")
        return self
