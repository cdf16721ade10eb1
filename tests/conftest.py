"""What tests of the process side share: the fake engine's command; and no test may leave a process."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from llama_srb.engine.settings import EngineSettings

ROOT = Path(__file__).resolve().parent.parent
FAKE_ENGINE = (sys.executable, "-I", "-S", str(ROOT / "tests" / "fake_engine"))  # -I -S: starts in 50 ms
STUDIO_SKIPPED = (
    "the studio's tests are skipped: no chromium here, and only as root on Debian they install it"
)
PATIENCE = 30.0  # seconds; a bound for what takes a second or two, on a machine that does other things too


LoopFactory = Callable[[], asyncio.AbstractEventLoop]
ON_BOTH_LOOPS = {"test_engine.py", "test_pool.py"}  # what touches processes: the loops do that differently


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, LoopFactory]:
    """The loops that an async test runs on."""
    loops: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop}
    return loops | ({"uvloop": uvloop.new_event_loop} if item.path.name in ON_BOTH_LOOPS else {})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The soak is one test of minutes: begun last, it would keep the other workers waiting for its end."""
    items.sort(key=lambda item: item.path.name != "test_soak.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if any(STUDIO_SKIPPED in str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(STUDIO_SKIPPED)


def children() -> set[int]:
    """Processes that this one has started and not yet reaped, zombies included."""
    lists = list(Path("/proc/self/task").glob("*/children"))  # 100 times faster than ps, where there is one
    if lists:
        return {int(pid) for path in lists for pid in text_of(path).split()}
    listing = subprocess.Popen(["ps", "-A", "-o", "pid=,ppid="], stdout=subprocess.PIPE, text=True)
    pairs = [tuple(map(int, line.split())) for line in listing.communicate()[0].splitlines()]
    return {pid for pid, parent in pairs if parent == os.getpid() and pid != listing.pid}


def cpu(pid: int) -> float:
    """Seconds of a core that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def text_of(path: Path) -> str:
    """Nothing, where the thread that it tells of has ended."""
    try:
        return path.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


@contextlib.contextmanager
def one_at_a_time(name: str) -> Iterator[None]:
    """Held by one process of the tests on this machine, the others wait."""
    with open(Path(tempfile.gettempdir()) / f"llama-srb-{os.getuid()}-{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    """No test leaves a process behind."""
    before = children()
    yield
    deadline = time.monotonic() + PATIENCE
    while (left := children() - before) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not left, f"processes left behind: {left}"


@pytest.fixture
def fake_engine() -> Callable[..., tuple[str, ...]]:
    """The fake engine's argv with the flags of one test: fake_engine("--die-after", 3)."""
    return lambda *flags: (*FAKE_ENGINE, *map(str, flags))


@pytest.fixture
def settings(fake_engine: Callable[..., tuple[str, ...]]) -> Callable[..., EngineSettings]:
    """EngineSettings of a fake engine with flags, and with pauses that suit a test."""

    def make(*flags: object, **fields: Any) -> EngineSettings:
        quick: dict[str, Any] = {"stop_grace": 0.5, "restart_delay": 0.05, "restart_delay_max": 0.4}
        return EngineSettings(fake_engine(*flags), "fake", **quick | fields)

    return make


class Journal:
    """What the fake engines of a test did, as they wrote it down."""

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


async def until(condition: Callable[[], object]) -> None:
    """Waits for a condition that nothing announces."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 (nothing would set an event)
            await asyncio.sleep(0.005)


async def soon(awaitable: Awaitable[Any]) -> Any:
    """The result of what must not take long."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def collect(generation: AsyncIterator[list[Any]]) -> list[Any]:
    """All events to the end."""
    async with asyncio.timeout(PATIENCE):
        return [event async for events in generation for event in events]


def texts(events: list[Any], n: int) -> list[str]:
    """The text of each sequence."""
    return ["".join(e.text for e in events if hasattr(e, "text") and e.index == i) for i in range(n)]
