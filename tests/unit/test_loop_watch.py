"""How long the event loop stands still: what is measured, what is logged, when it looks."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from llama_srb.serving.observe import loop_watch
from llama_srb.serving.observe.loop_watch import LOGGED, LoopWatch


def stand_still(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_stall_is_measured_and_logged_with_the_open_routes(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []
    watch = LoopWatch(seen.append)
    with caplog.at_level(logging.WARNING, logger=loop_watch.__name__):
        with watch.during("POST /a"), watch.during("GET /b"):
            stand_still(LOGGED + 0.01)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert len(seen) == 1
    assert seen[0] > LOGGED
    (line,) = caplog.messages
    assert line.endswith("during GET /b, POST /a")


async def test_it_looks_only_while_requests_are_open() -> None:
    seen: list[float] = []
    watch = LoopWatch(seen.append)
    with watch.during("POST /a"):
        while len(seen) < 3:  # noqa: ASYNC110 (looks are what is counted)
            await asyncio.sleep(0.001)
    while watch.is_looking:  # noqa: ASYNC110
        await asyncio.sleep(0.001)
    n_looks = len(seen)
    await asyncio.sleep(2 * loop_watch.PERIOD)
    assert len(seen) == n_looks


async def test_many_routes_are_named_in_part(caplog: pytest.LogCaptureFixture) -> None:
    watch = LoopWatch(lambda late: None)
    with caplog.at_level(logging.WARNING, logger=loop_watch.__name__):
        for i in range(7):
            with watch.during(f"POST /{i}"):
                pass
        stand_still(LOGGED + 0.01)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
    assert caplog.messages[0].endswith("during POST /0, POST /1, POST /2, POST /3 and 3 more routes")
