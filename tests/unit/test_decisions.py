"""Which models are loaded, unloaded and held: tables of moments, and random histories with their laws."""

from __future__ import annotations

import itertools
import random
from dataclasses import dataclass, field, replace
from typing import Any

from llama_srb.models.decisions import IDLE, Action, Limits, View, decide, has_room, next_check
from tests.support.long import amount
from tests.support.rows import each_row

NOW = 100.0
ONE, TWO = Limits(most=1, wait=10), Limits(most=2, wait=10)


def a(key: int, state: Any = "unloaded", **fields: Any) -> View:
    """A model of 4 bytes, which was loaded and used long ago if it is loaded."""
    return View(key, state, **{"memory": 4, "need": 4, "least": 4, **fields})


def wants(key: int, since: float, **fields: Any) -> View:
    return a(key, waiting=1, wanted_since=since, **fields)


def busy(key: int, loaded_at: float = 0.0, last_used: float = NOW, **fields: Any) -> View:
    return a(key, "loaded", running=1, loaded_at=loaded_at, last_used=last_used, **fields)


# name: models, limits, actions
MOMENTS: dict[str, tuple[list[View], Limits, list[str]]] = {
    "nothing": ([], Limits(), []),
    "nothing is wanted": ([a(0), a(1, "loaded")], ONE, []),
    "a model without limits": ([wants(0, 99), busy(1)], Limits(), ["load 0"]),
    "all that fit, at once": ([wants(0, 99), wants(1, 98), wants(2, 97)], TWO, ["load 2", "load 1"]),
    "by memory": ([wants(0, 98), wants(1, 99)], Limits(memory=7), ["load 0"]),
    "the one that loads counts": ([wants(0, 98), a(1, "loading")], ONE, []),
    "the one that leaves counts": ([wants(0, 98), a(1, "leaving")], ONE, []),
    "an idle one leaves": ([wants(0, 99), a(1, "loaded")], ONE, ["unload 1"]),
    "the least recently used leaves": (
        [wants(0, 99), a(1, "loaded", last_used=60), a(2, "loaded", last_used=50)], TWO, ["unload 2"]),
    "a load counts as use": (
        [wants(0, 99), a(1, "loaded", last_used=60), a(2, "loaded", last_used=50, loaded_at=70)],
        TWO, ["unload 1"]),
    "as many as it takes": (
        [wants(0, 99, need=8), *(a(key, "loaded", last_used=key) for key in (1, 2, 3))],
        Limits(memory=12), ["unload 1", "unload 2"]),
    "none that is not needed": (
        [wants(0, 99, need=9), a(1, "loaded", memory=1, last_used=1),
         a(2, "loaded", memory=9, last_used=2)], Limits(memory=10), ["unload 2"]),
    "one that was just used stays for a moment": (
        [wants(0, 99), a(1, "loaded", last_used=NOW - 0.1)], ONE, []),
    "one with waiting requests is not idle": ([wants(0, 99), a(1, "loaded", waiting=1)], ONE, []),
    "a busy one stays": ([wants(0, NOW - 9), busy(1)], ONE, []),
    "a busy one is held after the wait": ([wants(0, NOW - 10), busy(1)], ONE, ["hold 1"]),
    "not if it was loaded later": ([wants(0, NOW - 50), busy(1, loaded_at=NOW - 9)], ONE, []),
    "the least recently used is held": (
        [wants(0, NOW - 10), busy(1, last_used=99), busy(2, last_used=98)], TWO, ["hold 2"]),
    "rather one that was loaded long ago": (
        [wants(0, NOW - 10), busy(1, last_used=99), busy(2, loaded_at=NOW - 1, last_used=98)],
        TWO, ["hold 1"]),
    "rather an idle one": (
        [wants(0, NOW - 50), busy(1, last_used=90), a(2, "loaded", last_used=95)], TWO, ["unload 2"]),
    "a held one stays held": ([wants(0, NOW - 11), busy(1, held=True)], ONE, []),
    "a held one leaves when it has finished": (
        [wants(0, NOW - 11), a(1, "loaded", held=True, waiting=3, last_used=NOW)], ONE, ["unload 1"]),
    "a held one stays the victim": (
        [wants(0, NOW - 11), busy(1, held=True, last_used=99), busy(2, last_used=98)], TWO, []),
    "a hold stays for a later request of the same model": ([wants(0, NOW - 1), busy(1, held=True)], ONE, []),
    "and it leaves for that": (
        [wants(0, NOW - 1), a(1, "loaded", held=True, waiting=3, last_used=NOW)], ONE, ["unload 1"]),
    "a hold ends if nothing is wanted": ([a(0), busy(1, held=True)], ONE, ["release 1"]),
    "a hold ends if there is room": ([wants(0, 50), busy(1, held=True)], TWO, ["load 0", "release 1"]),
    "two are held if it takes two": (
        [wants(0, 50, need=8), busy(1), busy(2)], Limits(memory=8), ["hold 1", "hold 2"]),
    "they leave together": (
        [wants(0, 50, need=8), busy(1, held=True), a(2, "loaded", last_used=1)], Limits(memory=8), []),
    "no later one takes the room": (
        [wants(0, NOW - 5, need=8), wants(1, NOW - 1), busy(2)], Limits(memory=8), []),
    "a later one takes room that is left": (
        [wants(0, NOW - 5, need=6), wants(1, NOW - 1, need=1), busy(2)], Limits(memory=8), ["load 1"]),
    "a later one waits for loads, too": (
        [wants(0, NOW - 5, need=6), wants(1, NOW - 1, need=1), a(2, "loading")], Limits(memory=8), []),
    "not before the pause is over": ([wants(0, 50, retry_at=NOW + 1), wants(1, 60)], ONE, ["load 1"]),
    "a model that is too large": (
        [wants(0, 50, need=9, least=9), wants(1, 60)], Limits(memory=8), ["load 1", "refuse 0"]),
    "a model that once was too large is loaded alone": (
        [wants(0, 50, need=9, least=4), a(1, "loaded")], Limits(memory=8), ["unload 1"]),
    "alone": ([wants(0, 50, need=9, least=4)], Limits(memory=8), ["load 0"]),
    "one that was idle for too long": (
        [a(0, "loaded", unload_after=60, last_used=40), a(1, "loaded", unload_after=60, last_used=41),
         busy(2, unload_after=60, last_used=0)], Limits(), ["unload 0"]),
    "its time begins with its load": ([a(0, "loaded", unload_after=60, loaded_at=41)], Limits(), []),
    "models that have grown": (
        [a(0, "loaded", memory=5, last_used=2), a(1, "loaded", memory=5, last_used=1), busy(2)],
        Limits(memory=12), ["unload 1"]),
    "busy models that have grown": (
        [busy(0, memory=5, last_used=2), busy(1, memory=5, last_used=1), busy(2)],
        Limits(memory=12), ["hold 1"]),
    "not those that were just loaded": (
        [busy(0, memory=5, last_used=2), busy(1, loaded_at=NOW - 9, memory=5, last_used=1), busy(2)],
        Limits(memory=12), ["hold 0"]),
    "one that has grown stays held": (
        [busy(0, memory=5), busy(1, memory=5, last_used=1, held=True), busy(2)], Limits(memory=12), []),
    "and leaves when it has finished": (
        [busy(0, memory=5), a(1, "loaded", memory=5, held=True, waiting=3), busy(2)],
        Limits(memory=12), ["unload 1"]),
    "more than a new limit allows": (
        [a(0, "loaded", last_used=2), a(1, "loaded", last_used=1), busy(2)], TWO, ["unload 1"]),
    "a new limit waits for running requests": ([busy(0), busy(1)], ONE, ["hold 0"]),
    "a model that has grown alone": ([a(0, "loaded", memory=50)], Limits(memory=12), []),
    "a failed one takes no room and is not tried": (
        [a(0, "failed", waiting=1, wanted_since=1), wants(1, 99)], ONE, ["load 1"]),
}  # fmt: skip


def said(actions: list[Action]) -> list[str]:
    return [f"{action.kind} {action.key}" for action in actions]


@each_row(("views", "limits", "expected"), MOMENTS.values(), ids=MOMENTS)
def test_a_moment(views: list[View], limits: Limits, expected: list[str]) -> None:
    assert sorted(said(decide(views, limits, NOW))) == sorted(expected)


CHECKS: dict[str, tuple[list[View], Limits, float | None]] = {
    "nothing": ([a(0), a(1, "loaded")], ONE, None),
    "the wait": ([wants(0, NOW - 4), busy(1)], ONE, NOW + 6),
    "the model's own time": ([wants(0, NOW - 40), busy(1, loaded_at=NOW - 7)], ONE, NOW + 3),
    "idle": ([wants(0, NOW - 4), a(1, "loaded", last_used=NOW - 0.25)], ONE, NOW - 0.25 + IDLE),
    "idle, with more than a new limit allows": (
        [busy(0), a(1, "loaded", last_used=NOW - 0.25)],
        ONE,
        NOW - 0.25 + IDLE,
    ),
    "the pause": ([wants(0, NOW - 4, retry_at=NOW + 2)], ONE, NOW + 2),
    "unload_after": ([a(0, "loaded", last_used=NOW - 4, unload_after=60)], ONE, NOW + 56),
    "with requests, never": ([busy(0, unload_after=60)], ONE, None),
}


@each_row(("views", "limits", "expected"), CHECKS.values(), ids=CHECKS)
def test_the_next_check(views: list[View], limits: Limits, expected: float | None) -> None:
    assert next_check(views, limits, NOW) == expected


ROOM: list[tuple[list[View], Limits, int, bool]] = [
    ([], ONE, 4, True),
    ([a(0), a(1, "failed")], ONE, 4, True),
    ([a(0, "loaded")], ONE, 4, False),
    ([a(0, "loaded")], TWO, 4, True),
    ([a(0, "leaving")], ONE, 4, False),
    ([a(0, "loaded")], Limits(memory=8), 4, True),
    ([a(0, "loaded")], Limits(memory=8), 5, False),
    ([a(0, "loaded")], Limits(), 1 << 60, True),
]


@each_row(("views", "limits", "need", "expected"), ROOM)
def test_room_beside_loaded_models(views: list[View], limits: Limits, need: int, expected: bool) -> None:
    assert has_room(views, limits, need) == expected


# Random histories


@dataclass
class Model:
    """A model in a simulation; ready_at: the end of its load or unload."""

    key: int
    size: int
    view: View
    ready_at: float = 0.0
    waiting: list[float] = field(default_factory=list)  # when the requests came
    running: list[float] = field(default_factory=list)  # when they end
    loads: int = 0


class Simulation:
    """Models with random clients; each action of decide() is carried out, and checked."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        sizes = [self.random.randint(1, 6) for _ in range(self.random.randint(2, 5))]
        self.limits = Limits(
            memory=self.random.choice([None, max(sizes), sum(sizes) - 1]),
            most=self.random.choice([None, 1, 2]),
            wait=self.random.choice([2.0, 5.0]),
        )
        self.models = [
            Model(i, size, View(i, "unloaded", need=size, least=size)) for i, size in enumerate(sizes)
        ]
        self.now = 1.0
        self.longest_wait = 0.0

    def run(self, seconds: float, *, arrivals: bool) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            if arrivals and self.random.random() < 0.5:
                self.random.choice(self.models).waiting.append(self.now)
            for model in self.models:
                self._proceed(model)
            for _ in range(5):
                views = [model.view for model in self.models]
                actions = decide(views, self.limits, self.now)
                if not actions:
                    break
                for action in actions:
                    self._act(action)
            else:
                raise AssertionError(f"it never rests: {actions}")

    def _proceed(self, model: Model) -> None:
        view = model.view
        model.running = [at for at in model.running if at > self.now]
        if view.state == "loading" and model.ready_at <= self.now:
            view = replace(view, state="loaded", loaded_at=self.now)
        if view.state == "leaving" and model.ready_at <= self.now:
            view = replace(view, state="unloaded")
        if self.random.random() < 0.01 and model.waiting:
            model.waiting.pop()  # its client has left
        if view.state == "loaded" and not view.held:
            for came in model.waiting:
                self.longest_wait = max(self.longest_wait, self.now - came)
                model.running.append(self.now + self.random.uniform(0.1, 3))
            model.waiting = []
        ran = bool(model.running) or view.running > 0
        model.view = replace(
            view, running=len(model.running), waiting=len(model.waiting),
            wanted_since=min(model.waiting, default=None), last_used=self.now if ran else view.last_used,
            memory=model.size if view.takes_room else 0,
        )  # fmt: skip

    def _act(self, action: Action) -> None:
        model = self.models[action.key]
        view = model.view
        match action.kind:
            case "load":
                assert view.state == "unloaded"
                model.loads += 1
                model.ready_at = self.now + 0.5
                model.view = replace(view, state="loading", memory=model.size)
                self._within_limits()
            case "unload":
                assert view.state == "loaded"
                assert not model.running, "it has running requests"
                model.ready_at = self.now + 0.2
                model.view = replace(view, state="leaving", held=False)
            case "hold":
                assert (view.state, view.held) == ("loaded", False)
                assert self.now - view.loaded_at >= self.limits.wait
                model.view = replace(view, held=True)
            case "release":
                assert view.held
                model.view = replace(view, held=False)
            case "refuse":
                raise AssertionError("each fits alone")

    def _within_limits(self) -> None:
        present = [model for model in self.models if model.view.takes_room]
        assert self.limits.most is None or len(present) <= self.limits.most
        assert self.limits.memory is None or sum(one.size for one in present) <= self.limits.memory


@each_row("seed", range(amount(15, 120)))
def test_random_histories(seed: int) -> None:
    """No action is against its law, the limits hold, each request begins, and in bounded time."""
    simulation = Simulation(seed)
    simulation.run(80, arrivals=True)
    simulation.run(60 + 20 * len(simulation.models), arrivals=False)
    assert not any(model.waiting or model.running for model in simulation.models), "a request never began"
    assert not any(model.view.held for model in simulation.models)
    n, limits = len(simulation.models), simulation.limits
    assert simulation.longest_wait < n * (2 * limits.wait + 4)


def test_two_busy_models_alternate_at_the_pace_of_the_wait() -> None:
    simulation = Simulation(0)
    simulation.limits = Limits(most=1, wait=5)
    simulation.models = [Model(i, 1, View(i, "unloaded", need=1, least=1)) for i in range(2)]
    for model in itertools.chain.from_iterable(simulation.models for _ in range(1000)):
        model.waiting.append(simulation.now)
        simulation.run(0.1, arrivals=False)
    loads = [model.loads for model in simulation.models]
    assert min(loads) >= 10, "one of them starves"
    assert sum(loads) <= 2 + 200 / 5
