"""Freed memory returns to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from llama_srb.serving.observe.freed_memory import trimmer

GROWN = """
import asyncio
from llama_srb.serving.observe.freed_memory import trim_when_grown, resident_bytes

def used():
    pieces = [bytes(4000) for _ in range(50_000)]
    return pieces[::1000]  # what lies between them is free

async def main():
    task = asyncio.create_task(trim_when_grown(interval=0.01, growth=10 << 20))
    await asyncio.sleep(0)
    before = resident_bytes()
    kept, grown = used(), resident_bytes() - before
    async with asyncio.timeout(50):
        while resident_bytes() - before > grown / 4:
            await asyncio.sleep(0.01)
    task.cancel()
    print(grown >> 20, len(kept))

asyncio.run(main())
"""


@pytest.mark.skipif(trimmer() is None, reason="this C library gives memory back by itself")
def test_memory_of_large_answers_returns_to_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", GROWN], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    grown, kept = map(int, done.stdout.split())
    assert grown > 150
    assert kept == 50
