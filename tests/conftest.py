"""Fixtures of all tests: the fake engine, its settings, its journal. No test may leave a process behind."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from llama_srb.engine.settings import EngineSettings
from tests.support.places import FAKE_ENGINE
from tests.support.processes import children
from tests.support.waiting import PATIENCE

pytest_plugins = ["tests.support.skips"]

LoopFactory = Callable[[], asyncio.AbstractEventLoop]
LONG = {"test_soak.py", "test_build.py", "test_sharing.py"}
ON_BOTH_LOOPS = {"test_engine.py", "test_pool.py"}  # each loop starts and watches processes in its own way


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory]:
    """Async tests of processes run on both loops, the others on asyncio's."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    return loops | ({"uvloop": uvloop.new_event_loop} if item.path.name in ON_BOTH_LOOPS else {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Runs the journeys first, then files of a minute or two: other workers would wait for their end."""
    items.sort(key=lambda item: (item.path.parent.name != "journeys", item.path.name not in LONG))


def pytest_collection() -> None:
    """What is collected is no garbage: to search it for some takes a fifth of the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    """What has been collected stays until the end: later searches for garbage leave it out."""
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """Fails a test whose child processes do not end with it."""
    before = children()
    yield
    deadline = time.monotonic() + PATIENCE
    while (left := children() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"processes left behind: {left}"


@pytest.fixture
def fake_engine() -> Callable[..., tuple[str, ...]]:
    """Makes the fake engine's argv from a test's flags: fake_engine("--die-after", 3)."""
    return lambda *flags: (*FAKE_ENGINE, *map(str, flags))


@pytest.fixture
def settings(fake_engine: Callable[..., tuple[str, ...]]) -> Callable[..., EngineSettings]:
    """Makes EngineSettings of a fake engine with these flags, and with delays short enough for a test."""

    def make(*flags: object, **fields: Any) -> EngineSettings:
        quick: dict[str, Any] = {"stop_grace": 0.5, "restart_delay": 0.05, "restart_delay_max": 0.4}
        return EngineSettings(fake_engine(*flags), "fake", **quick | fields)

    return make


class Journal:
    """The file in which a test's fake engines record what they do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def flags(self) -> tuple[str, str]:
        return ("--journal", str(self.path))

    def entries(self, what: str) -> list[dict[str, Any]]:
        lines = self.path.read_text().splitlines() if self.path.exists() else []
        return [entry for entry in map(json.loads, lines) if entry["what"].startswith(what)]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")
