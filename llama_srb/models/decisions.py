"""Which models are loaded, unloaded and held next: a pure function of the state of all models, `decide`.

Models that are not loaded and have waiting requests are served in the order of their oldest request. If there
is no room, the least recently used models without requests leave. If these do not suffice and that request
has waited long enough, loaded models are held: their running requests finish, and then they leave. No model
takes room for which an older request waits. A model with running requests is never unloaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

IDLE = 0.3  # seconds without a request: a client that asks one request after the other keeps its model

ViewState: TypeAlias = Literal["unloaded", "loading", "loaded", "leaving", "failed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """memory: bytes of all loaded models together. most: their number. None: no limit.

    wait: seconds that a model's requests wait at most while others keep the room.
    """

    memory: int | None = None
    most: int | None = None
    wait: float = 10.0


@dataclass(frozen=True, slots=True)
class View:
    """One model as it is now. Times are in seconds of the event loop's clock.

    wanted_since: when the oldest waiting request came, or when the operator asked for a load. memory: bytes
    that count while it is loading, loaded or leaving. need: bytes that a load takes. least: the bytes without
    which it cannot be loaded at all. retry_at: after a failed load, when it may be tried again.
    """

    key: int
    state: ViewState
    wanted_since: float | None = None
    running: int = 0
    waiting: int = 0
    held: bool = False
    last_used: float = 0.0
    loaded_at: float = 0.0
    memory: int = 0
    need: int = 0
    least: int = 0
    unload_after: float | None = None
    retry_at: float = 0.0

    @property
    def is_wanted(self) -> bool:
        return self.state == "unloaded" and self.wanted_since is not None

    @property
    def idle_since(self) -> float:
        """Since when it is idle, if it is; infinity if it has requests."""
        return math.inf if self.running or self.waiting else max(self.last_used, self.loaded_at)

    @property
    def takes_room(self) -> bool:
        return self.state in ("loading", "loaded", "leaving")


ActionKind: TypeAlias = Literal["load", "unload", "hold", "release", "refuse"]


@dataclass(frozen=True, slots=True)
class Action:
    """refuse: the model can never be loaded within the limits."""

    kind: ActionKind
    key: int


@dataclass(slots=True)
class _Room:
    """Memory and number of models that are in use."""

    limits: Limits
    memory: int
    count: int

    @classmethod
    def of(cls, limits: Limits, views: Iterable[View]) -> _Room:
        found = [view for view in views if view.takes_room]
        return cls(limits, sum(view.memory for view in found), len(found))

    def need_of(self, view: View) -> int:
        """Memory of its load. A model that once took more than the limit may be loaded alone."""
        return view.need if self.limits.memory is None else min(view.need, self.limits.memory)

    def fits(self, view: View, without: Iterable[View] = ()) -> bool:
        """Whether a load fits, once the models `without` have left."""
        left = list(without)
        memory = self.memory - sum(one.memory for one in left) + self.need_of(view)
        count = self.count - len(left) + 1
        return (self.limits.memory is None or memory <= self.limits.memory) and (
            self.limits.most is None or count <= self.limits.most
        )

    @property
    def is_exceeded(self) -> bool:
        """Whether the models are above a limit: they have grown, or the limit is a new one."""
        memory, most = self.limits.memory, self.limits.most
        return (memory is not None and self.memory > memory) or (most is not None and self.count > most)

    def add(self, view: View) -> None:
        self.memory += self.need_of(view)
        self.count += 1

    def remove(self, views: Iterable[View]) -> None:
        for view in views:
            self.memory -= view.memory
            self.count -= 1


class _Decision:
    """The decision of one moment. `now` is the room as it is, `soon` as it is when leaving ones have left."""

    def __init__(self, views: Sequence[View], limits: Limits, at: float) -> None:
        self.limits, self.at = limits, at
        self.actions: list[Action] = []
        self._now = _Room.of(limits, views)
        self._soon = _Room.of(limits, (view for view in views if view.state != "leaving"))
        self._loaded = [view for view in views if view.state == "loaded"]  # without those that are to leave
        self._held: set[int] = set()

    def run(self, views: Sequence[View]) -> list[Action]:
        self._expire()
        self._trim()
        wanted = [view for view in views if view.is_wanted]
        for view in wanted:
            if self.limits.memory is not None and view.least > self.limits.memory:
                self._act("refuse", view)
        refused = {action.key for action in self.actions if action.kind == "refuse"}
        self._serve([one for one in wanted if one.key not in refused and one.retry_at <= self.at])
        for view in self._loaded:
            if view.held and view.key not in self._held:
                self._act("release", view)
        return self.actions

    def _act(self, kind: ActionKind, view: View) -> None:
        self.actions.append(Action(kind, view.key))

    def _unload(self, views: Iterable[View]) -> None:
        for view in views:
            self._act("unload", view)
            self._loaded.remove(view)
            self._soon.remove([view])

    def _expire(self) -> None:
        """Models that were idle for too long leave."""
        self._unload([
            view for view in self._loaded
            if view.unload_after is not None and view.idle_since + view.unload_after <= self.at
        ])  # fmt: skip

    def _trim(self) -> None:
        """Models that are above a limit together: an idle one leaves, or a busy one is held."""
        while self._soon.is_exceeded:
            order = sorted(self._loaded, key=lambda one: (not self._is_idle(one), *self._order(one)))
            may_leave = [one for one in order if self._may_be_held(one)]
            if not may_leave or self._soon.count < 2:
                return
            (one, *_) = may_leave
            if one.running:
                self._hold(one)
                self._soon.remove([one])
                self._loaded.remove(one)
            else:
                self._unload([one])

    def _is_idle(self, view: View) -> bool:
        """Whether it may leave for another model at once. A held one does when it has finished."""
        return view.idle_since + IDLE <= self.at

    def _serve(self, wanted: Sequence[View]) -> None:
        """Loads the wanted models that fit, the one with the oldest request first, and makes room."""
        for view in sorted(wanted, key=lambda one: (one.wanted_since or 0.0, one.key)):
            if not self._soon.fits(view):
                leaving = self._leaving_for(view)
                if leaving is None:
                    return  # it waits for loads, and the later ones wait for it
                self._make_room(view, leaving)
            elif self._now.fits(view):
                self._act("load", view)
                self._now.add(view)
            self._soon.add(view)

    def _leaving_for(self, view: View) -> list[View] | None:
        """The models to leave for a wanted one; None if all loaded ones together have not its room.

        Those that may leave at once come first, then those that may be held now, then the others.
        """
        groups = (self._is_idle, self._may_be_held, lambda one: True)
        order = sorted(self._loaded, key=self._order)
        found: list[View] = []
        for may_leave in groups:
            found += [one for one in order if one not in found and may_leave(one)]
            if self._soon.fits(view, found):
                return self._fewest(view, found)
        return None

    def _fewest(self, view: View, order: Sequence[View]) -> list[View]:
        """The first of them that have the room, without those that are not needed for it."""
        chosen: list[View] = []
        for one in order:
            if not self._soon.fits(view, chosen):
                chosen.append(one)
        for one in reversed(chosen[:]):
            rest = [other for other in chosen if other is not one]
            chosen = rest if self._soon.fits(view, rest) else chosen
        return chosen

    def _may_be_held(self, view: View) -> bool:
        """Whether it was loaded long enough, or is idle: how often models are loaded is bounded by this."""
        return view.held or self._is_idle(view) or view.loaded_at + self.limits.wait <= self.at

    @staticmethod
    def _order(view: View) -> tuple[bool, float, int]:
        """Held ones first, then the least recently used."""
        return not view.held, max(view.last_used, view.loaded_at), view.key

    def _make_room(self, view: View, leaving: Sequence[View]) -> None:
        """Unloads or holds models, if it is time; reserves their room for the wanted one in any case."""
        assert view.wanted_since is not None
        waited = view.wanted_since + self.limits.wait <= self.at or any(one.held for one in leaving)
        if all(self._is_idle(one) for one in leaving):
            self._unload(leaving)
            return
        if waited and all(self._may_be_held(one) for one in leaving):
            if not any(one.running for one in leaving):
                self._unload(leaving)
                return
            for one in leaving:
                if not self._is_idle(one):
                    self._hold(one)
        self._soon.remove(leaving)
        self._loaded = [one for one in self._loaded if one not in leaving]

    def _hold(self, view: View) -> None:
        self._held.add(view.key)
        if not view.held:
            self._act("hold", view)


def decide(views: Sequence[View], limits: Limits, now: float) -> list[Action]:
    """What to do now."""
    return _Decision(views, limits, now).run(views)


def has_room(views: Iterable[View], limits: Limits, need: int) -> bool:
    """Whether a model that needs so many bytes can be loaded beside those that take room."""
    return _Room.of(limits, views).fits(View(-1, "unloaded", need=need))


def next_check(views: Sequence[View], limits: Limits, now: float) -> float | None:
    """When to decide again if nothing changes before; None: never."""
    return min((time for time in _times(views, limits) if now < time < math.inf), default=None)


def _times(views: Sequence[View], limits: Limits) -> Iterator[float]:
    exceeded = _Room.of(limits, views).is_exceeded
    may_leave = limits.memory is not None or exceeded or any(view.is_wanted for view in views)
    for view in views:
        if view.is_wanted and view.wanted_since is not None:
            yield from (view.retry_at, view.wanted_since + limits.wait)
        elif view.state == "loaded":
            yield from (view.loaded_at + limits.wait, view.idle_since + IDLE) if may_leave else ()
            yield view.idle_since + (math.inf if view.unload_after is None else view.unload_after)
