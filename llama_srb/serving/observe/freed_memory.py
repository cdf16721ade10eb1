"""Returns the memory of large answers to the system: glibc keeps free pages that lie between used ones."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

INTERVAL = 2.0  # seconds between two checks of the process's size
GROWTH = 64 << 20  # bytes by which it must have grown since the last trim


def trimmer() -> Callable[[int], int] | None:
    """malloc_trim(3); None if the C library is not glibc."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # TypeError on Windows
        return None
    return found


def resident_bytes() -> int:
    """The resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def trim_when_grown(interval: float = INTERVAL, growth: int = GROWTH) -> None:
    """Runs for ever, and trims when the process has grown; in a thread, since a gigabyte takes 0.1 s."""
    trim = trimmer()
    if trim is None:
        return
    smallest = resident_bytes()
    while True:
        await asyncio.sleep(interval)
        if resident_bytes() > smallest + growth:
            await asyncio.to_thread(trim, 0)
            smallest = resident_bytes()
        else:
            smallest = min(smallest, resident_bytes())
