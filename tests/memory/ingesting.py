"""Puts documents until it is killed, and prints the finished ones: -m tests.memory.ingesting FILE FIRST"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import Chunking, FileStore, MemorySettings
from tests.support.memory import WordModel


def text_of(number: int) -> str:
    return " ".join(f"Document {number} has the sentence {i} of number {number}." for i in range(400))


def settings_of(path: Path) -> MemorySettings:
    return MemorySettings("killed", "words", FileStore(path), Chunking(9, 0))


async def main() -> None:
    memory = await Memory.open(settings_of(Path(sys.argv[1])), WordModel(64).model)
    for number in range(int(sys.argv[2]), 10**6):
        await memory.put(f"d{number}", text_of(number))
        print(f"d{number}", flush=True)
        await memory.put("replaced", text_of(number) + " It replaces.")
        print(f"r{number}", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
