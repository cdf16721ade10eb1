"""Prompts that are being stored: a look waits for its own key's alone, and none is lost without a word."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterable
from typing import Any

import pytest

from llama_srb.serving import pending_prompts
from llama_srb.serving.pending_prompts import Named, Pending
from tests.support.waiting import soon


class Stored:
    """Works that note whose prompts they store; those of alice wait for `may`."""

    def __init__(self) -> None:
        self.owners, self.may = Counter[str](), asyncio.Event()

    def work(self, named: Named) -> Coroutine[Any, Any, None]:
        async def store() -> None:
            if named.owner == "alice":
                await self.may.wait()
            self.owners[named.owner] += 1

        return store()


def begin(pending: Pending, stored: Stored, all_named: Iterable[Named]) -> None:
    for named in all_named:
        pending.begin(named, lambda named=named: stored.work(named))  # type: ignore[misc]


async def test_no_key_waits_for_another_that_stores_the_same_prompt_however_often() -> None:
    pending, stored = Pending(), Stored()
    begin(pending, stored, [Named("tales", "alice", "a")] * 50 + [Named("tales", "bob", "a")])
    await soon(pending.wait("tales", "bob"))
    assert stored.owners == {"bob": 1}
    stored.may.set()
    await soon(pending.wait("tales", "alice"))
    assert stored.owners == {"bob": 1, "alice": 1}, "of one key, too, the same prompt is stored once"


async def test_in_a_shared_memory_the_same_prompt_is_stored_by_one_key_after_the_other() -> None:
    pending, stored = Pending(), Stored()
    begin(pending, stored, [Named("tales", owner, "a", shared=True) for owner in ("alice", "alice", "bob")])
    begin(pending, stored, [Named("tales", "bob", "b", shared=True)])
    await asyncio.sleep(0.01)
    assert stored.owners == {"bob": 1}
    stored.may.set()
    await soon(pending.wait("tales", "bob"))
    assert stored.owners == {"bob": 2, "alice": 1}


async def test_a_look_waits_for_all_of_its_key_that_have_begun_before_in_one_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Many requests of a key at once are work in proportion to their number."""
    pending, stored, count, waited = Pending(), Stored(), 100, list[int]()
    wait = asyncio.wait

    def counted(some: Any, **more: Any) -> Any:
        waited.append(len(some))
        return wait(some, **more)

    monkeypatch.setattr(pending_prompts.asyncio, "wait", counted)  # type: ignore[attr-defined]
    looks = []
    for i in range(count):
        begin(pending, stored, [Named("tales", "alice", f"{i}")])
        looks.append(asyncio.create_task(pending.wait("tales", "alice")))
    await asyncio.sleep(0)
    looks[0].cancel()
    later = [asyncio.create_task(pending.wait("tales", "alice")) for _ in range(count)]
    await asyncio.sleep(0)
    stored.may.set()
    await soon(pending.wait_for_all())
    await soon(asyncio.gather(*looks[1:], *later))
    assert stored.owners == {"alice": count}
    assert sum(waited) <= 3 * count


async def test_what_is_not_stored_when_a_server_stops_is_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    pending, stored = Pending(), Stored()
    begin(pending, stored, [Named("tales", "bob", "a"), *(Named("tales", "alice", f"{i}") for i in range(5))])
    begin(pending, stored, [Named("bible", "alice", "a")])
    await soon(pending.wait("tales", "bob"))
    await soon(pending.end())
    begin(pending, stored, [Named("tales", "bob", "late")])
    stored.may.set()
    await soon(pending.wait_for_all())
    assert stored.owners == {"bob": 1}
    assert [record.message for record in caplog.records] == [
        "memory tales: 5 prompts of alice were not stored: the server stops",
        "memory bible: a prompt of alice was not stored: the server stops",
        "memory tales: a prompt of bob was not stored: the server stops",
    ]
