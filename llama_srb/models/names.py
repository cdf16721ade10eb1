"""Which model a request means: names, aliases, names of adapters; the default; the nearest name. Pure."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from llama_srb.request.values import RequestError

NOT_FOUND, NOT_ALLOWED = "model_not_found", "model_not_allowed"
MAX_SHOWN = 100  # characters of a client's name in a message
MAX_LISTED = 8  # names in a message
MAX_IDS = 20_000  # of requests; more than engines remember the tokens of


class Named(Protocol):
    """A model. names: the first is its own name in answers. adapters: ids by name."""

    @property
    def names(self) -> tuple[str, ...]: ...

    @property
    def adapters(self) -> Mapping[str, int]: ...


M = TypeVar("M", bound=Named)


@dataclass(frozen=True, slots=True)
class Choice(Generic[M]):
    """The model that serves a request. name: in the answer. adapter: the id of the named one."""

    model: M
    name: str
    adapter: int | None = None
    warnings: tuple[str, ...] = ()


class Names(Generic[M]):
    """The models of a server in the order of its file.

    default: the name of the model for requests that name none, and for unknown names. answers_all: a model
    answers for unknown names without a warning, as on a server of one model. Neither acts with strict.
    """

    def __init__(
        self,
        models: Sequence[M],
        *,
        default: str | None = None,
        answers_all: bool = False,
        strict: bool = False,
    ) -> None:
        self.models, self.default = tuple(models), default
        self._answers_all, self._strict = answers_all, strict

    def allowed(self, names: Collection[str] | None) -> tuple[M, ...]:
        """The models that have one of these names; None allows all."""
        if names is None:
            return self.models
        return tuple(model for model in self.models if not set(names).isdisjoint(model.names))

    def find(self, name: str) -> Choice[M] | None:
        """The model, or the adapter, with this name."""
        for model in self.models:
            if name in model.names:
                return Choice(model, name)
        for model in self.models:
            if name in model.adapters:
                return Choice(model, name, model.adapters[name])
        return None

    def choose(
        self,
        name: str | None,
        allowed: Collection[str] | None = None,
        *,
        is_known: bool = False,
        what: str = "there is no model {} here",
        also: Collection[str] = (),
    ) -> Choice[M]:
        """The model that serves a request; RequestError 404 for an unknown name, 403 for one not allowed.

        name: empty or None if the request names no model. allowed: the names that the caller may use; None:
        all. is_known: the name must be a known one. what: the beginning of the message of an unknown name.
        also: names of something else, which the name may be meant for.
        """
        usable = self.allowed(allowed)
        found = self.find(name) if name else None
        if found is not None and found.model in usable:
            return found
        if not usable or found is not None:
            raise _not_allowed(name, allowed)
        named = self.find(self.default) if self.default else None
        choice = (
            named if named is not None and named.model in usable else Choice(usable[0], usable[0].names[0])
        )
        if not name:
            return choice
        if is_known or self._strict or not (self._answers_all or named):
            message = what.format(name[:MAX_SHOWN]) + _hint(name, usable, also)
            raise RequestError(message, param="model", status=404, code=NOT_FOUND)
        if self._answers_all:
            return choice
        warning = f"model is {name[:MAX_SHOWN]!r}, which is not here; {choice.name} answers (--default-model)"
        return dataclasses.replace(choice, warnings=(warning,))


def _not_allowed(name: str | None, allowed: Collection[str] | None) -> RequestError:
    may = "the models " + _listed(allowed) if allowed else "no model"
    other = f", not {name[:MAX_SHOWN]}" if name else ", none of which is here"
    if name and allowed and name in allowed:
        other = f"; {name[:MAX_SHOWN]} is not the name of a model"
    return RequestError(f"this key may use {may}{other}", param="model", status=403, code=NOT_ALLOWED)


def _hint(name: str, models: Sequence[Named], also: Collection[str]) -> str:
    """The nearest known name; if no name is near, those of all models."""
    names = [known for model in models for known in (*model.names, *model.adapters)] + [*also]
    known = {name.lower(): name for name in names}
    if len(models) + len(also) > 1 and (
        near := difflib.get_close_matches(name[:MAX_SHOWN].lower(), known, 1)
    ):
        return f"; did you mean {known[near[0]]}?"
    return ", only " + _listed([model.names[0] for model in models])


def _listed(names: Collection[str]) -> str:
    rest = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(list(names)[:MAX_LISTED]) + rest


class RequestIds:
    """Which model has served a request; remembers the last MAX_IDS requests."""

    def __init__(self) -> None:
        self._models: dict[str, str] = {}  # by the request's id, the newest last

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def add(self, id: str, model: str) -> None:
        self._models[id] = model
        if len(self._models) > MAX_IDS:
            del self._models[next(iter(self._models))]

    def require(self, id: str, model: str) -> None:
        """RequestError if another model has served this request."""
        other = self._models.get(id, model)
        if other != model:
            message = f"continue.id is {id}, a request of the model {other}; this one is for {model}"
            raise RequestError(message, param="continue")
