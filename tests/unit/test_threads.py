"""Threads are shared fairly between clients, and nobody waits for them at the end."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from llama_srb import threads
from llama_srb.threads import FairThreads
from tests.support.waiting import PATIENCE, until


async def work_for(name: str, work: object) -> None:
    threads.client.set(name)
    await asyncio.to_thread(work)  # type: ignore[arg-type]


async def test_a_client_with_slow_work_keeps_no_other_one_waiting() -> None:
    asyncio.get_running_loop().set_default_executor(FairThreads(3, 2))
    may_end, order = threading.Event(), list[str]()
    slow = [asyncio.create_task(work_for("alice", lambda: may_end.wait(PATIENCE))) for _ in range(20)]
    await asyncio.wait_for(work_for("bob", lambda: order.append("bob")), PATIENCE)
    assert (order, [one.done() for one in slow]) == (["bob"], [False] * 20)
    may_end.set()
    await asyncio.gather(*slow)


async def test_free_threads_go_to_the_client_with_the_fewest() -> None:
    asyncio.get_running_loop().set_default_executor(FairThreads(1, 1))
    begun, may_end, order = threading.Event(), threading.Event(), list[str]()
    first = asyncio.create_task(work_for("a", lambda: (begun.set(), may_end.wait(PATIENCE))))
    await until(begun.is_set)
    rest = [asyncio.create_task(work_for(name, lambda name=name: order.append(name))) for name in "aaabbc"]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, *rest)
    assert order == ["b", "c", "a", "b", "a", "a"]  # a has just had a turn


def test_the_end_waits_a_moment_and_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "GRACE", 0.1)
    pool, begun, never = FairThreads(1, 1), threading.Event(), threading.Event()
    running = pool.submit(lambda: (begun.set(), never.wait(30)))
    waiting = pool.submit(lambda: None)
    assert begun.wait(10)
    since = time.monotonic()
    pool.shutdown()
    assert time.monotonic() - since < 5
    assert (running.done(), waiting.cancelled()) == (False, True)
    with pytest.raises(RuntimeError):
        pool.submit(lambda: None)
    never.set()


def test_an_error_is_the_callers() -> None:
    pool = FairThreads(1, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(lambda: 1 / 0).result(10)
    pool.shutdown()
