"""Documents are read outside of the event loop, in fair slots, by subprocesses that can be ended."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_srb.memory.documents import READERS, READERS_OF_A_CLIENT, Documents
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import Chunking, FileStore, MemorySettings
from llama_srb.memory.slots import Slots
from llama_srb.turns import Turns
from tests.support.documents import PDF, pdf
from tests.support.memory import WordModel
from tests.support.processes import children
from tests.support.waiting import until

LONGEST = 0.05  # seconds of CPU of a step of the event loop, on a machine that counts to COUNTED in a second
COUNTED = 20_000_000
SLOW = pdf([], [b"BT /F1 12 Tf " + b"(x) Tj " * 1_000_000 + b"ET"])


def bound() -> float:
    """LONGEST on this machine."""
    begun, count = time.thread_time(), 0
    while count < COUNTED // 10:
        count += 1
    return LONGEST * max(1.0, 10 * (time.thread_time() - begun))


@contextlib.contextmanager
def measured(patched: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The seconds of CPU of each step of the event loop during the block."""
    steps, run = list[float](), asyncio.Handle._run  # noqa: SLF001 (asyncio has no other hook)

    def timed(handle: asyncio.Handle) -> None:
        begun = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - begun)

    with patched.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        yield steps


def test_who_comes_during_a_turn_is_before_the_rest_of_its_client() -> None:
    turns = Turns[int](1, 1)
    for i in range(3):
        turns.wait("many", i)
    order = list[str]()
    while (begun := turns.begin()) is not None:
        order.append(begun[0])
        if len(order) == 1:
            turns.wait("new", 0)
        turns.end(begun[0])
    assert order == ["many", "new", "many", "many"]


class ServedModel(WordModel):
    """Lets the loop run with each call, as an engine does."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        await asyncio.sleep(0)
        return [[1.0] * self.width for _ in texts]

    async def count_tokens(self, texts: Sequence[str]) -> list[int]:
        await asyncio.sleep(0)
        return await super().count_tokens(texts)


@pytest.mark.parametrize("text", ["a\n", "It rains, it pours. ", "🙂 "])
async def test_a_large_document_leaves_the_event_loop_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    settings = MemorySettings("tales", "words", FileStore(tmp_path / "tales.db"))
    memory = await Memory.open(settings, ServedModel(8).model)
    size = 1 << 20
    body = (text * (size // len(text))).encode()
    with measured(monkeypatch) as steps:
        stored = await memory.put_body("x", body, "text/plain")
    assert stored.chunks > 100
    await memory.close()
    assert max(steps) < bound(), (max(steps), bound())


async def test_no_client_waits_for_the_documents_of_another() -> None:
    documents, before = Documents(), children()

    async def read(client: str, body: bytes, kind: str) -> str:
        async with documents.reading_body(body, kind, Chunking(), client) as found:
            return found.text

    slow = [asyncio.create_task(read("alice", SLOW, PDF)) for _ in range(READERS)]
    try:
        await until(lambda: len(children() - before) == READERS_OF_A_CLIENT)
        assert await read("bob", b"One line.", "text/plain") == "One line."
        assert [one.done() for one in slow] == [False] * READERS
        assert len(children() - before) == READERS_OF_A_CLIENT
    finally:
        for one in slow:
            one.cancel()
        await asyncio.wait(slow)
    assert children() == before, "a client that leaves ends its readers"


async def test_slots_go_to_the_client_with_the_least_work_then_to_the_one_without_a_turn_for_longest() -> (
    None
):
    slots, order, leaves = Slots(2, 1), list[str](), dict[str, asyncio.Event]()

    async def work(name: str) -> None:
        leaves[name] = asyncio.Event()
        async with slots.slot(name[0]):
            order.append(name)
            await leaves[name].wait()

    names = ["a1", "a2", "a3", "b1", "b2", "c1"]
    tasks = {name: asyncio.create_task(work(name)) for name in names}
    await asyncio.sleep(0)
    for name, begun in (("a1", "c1"), ("b1", "a2"), ("c1", "b2"), ("a2", "a3")):
        leaves[name].set()
        await tasks[name]
        await until(lambda begun=begun: order[-1] == begun)  # type: ignore[misc]
    tasks["b2"].cancel()
    leaves["a3"].set()
    await asyncio.wait(tasks.values())
    async with slots.slot("d"), slots.slot("e"):
        pass
    assert order == ["a1", "b1", "c1", "a2", "b2", "a3"]


async def test_a_memory_reads_and_writes_for_the_clients_in_turn(tmp_path: Path) -> None:
    settings = MemorySettings("tales", "words", FileStore(tmp_path / "tales.db"))
    memory = await Memory.open(settings, ServedModel(8).model)
    for name in "abcdefgh":
        await memory.put(name, f"It rains on {name}.")
    for work in (Memory.get, Memory.search, Memory.delete):
        order = list[str]()

        async def one(client: str, id: str, work: Any = work, order: list[str] = order) -> None:
            assert await work(memory.of(client), id)
            order.append(client)

        await asyncio.gather(*(one("alice", id) for id in "abcdef"), one("bob", "g"))
        assert order.index("bob") <= 2, (work, order)  # behind at most two
        await memory.put("g", "It rains on g.")
    await memory.close()
