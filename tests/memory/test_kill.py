"""A process that puts documents is killed: the finished ones are there, the cut one wholly or not at all."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from pathlib import Path

from llama_srb.memory.one_memory import Memory
from tests.memory.ingesting import settings_of, text_of
from tests.support.memory import WordModel
from tests.support.places import ROOT

KILLS = 20
SENTENCES = 400  # of a document; each is a chunk


async def killed(path: Path, first: int, delay: float) -> tuple[list[int], list[int]]:
    """Lets a process put documents, and kills it after the first and `delay` seconds.

    The finished documents, and the finished versions of the document that is replaced.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.memory.ingesting", str(path), str(first), cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(60):
        begun = await process.stdout.readline()
        await asyncio.sleep(delay)
        process.kill()
        lines = (begun + await process.stdout.read()).decode().split()
        assert await process.wait() == -signal.SIGKILL
    put, replaced = ([int(line[1:]) for line in lines if line[0] == kind] for kind in "dr")
    return put, replaced


async def check(memory: Memory, finished: list[int], replaced: int) -> list[int]:
    """The finished documents are whole; one more may be there, whole, too. Returns all that are there."""
    listed = {one.id: one for one in await memory.documents(limit=1000)}
    numbers = sorted(int(id[1:]) for id in listed if id != "replaced")
    assert numbers in (finished, [*finished, finished[-1] + 1])
    assert all(listed[f"d{number}"].chunks == SENTENCES for number in numbers)
    for number in numbers[-2:]:
        document = await memory.get(f"d{number}")
        assert document is not None
        assert document.text == text_of(number)
        some = await memory.search(f"Document {number} has the sentence 7 of number {number}.", 1000)
        assert any(one.document == f"d{number}" for one in some)
    document = await memory.get("replaced")
    if replaced >= 0:
        assert document is not None
        assert document.chunks == SENTENCES + 1
        version = int(document.text.split()[1])
        assert version >= replaced
        assert document.text == f"{text_of(version)} It replaces."
    return numbers


async def test_a_kill_in_mid_ingest_leaves_documents_whole_or_absent(tmp_path: Path) -> None:
    path, drawn = tmp_path / "memory.db", random.Random(7)
    finished: list[int] = []
    last_replaced = -1
    for _ in range(KILLS):
        put, replaced = await killed(path, finished[-1] + 1 if finished else 0, drawn.uniform(0, 0.12))
        last_replaced = max([last_replaced, *replaced])
        memory = await Memory.open(settings_of(path), WordModel(64).model)
        try:
            finished = await check(memory, finished + put, last_replaced)
        finally:
            await memory.close()
