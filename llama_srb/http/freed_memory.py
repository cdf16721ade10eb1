"""Returns memory of large answers to the system: glibc keeps freed pages that lie between pieces in use."""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from pathlib import Path

INTERVAL = 2.0  # seconds between two looks at the process's size
GROWTH = 64 << 20  # bytes by which it must have grown since the last trim


def trimmer() -> Callable[[int], int] | None:
    """malloc_trim(3); None where the C library has none, which is everywhere but on Linux with glibc."""
    try:
        found: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # the last one is Windows'
        return None
    return found


def resident_bytes() -> int:
    """Of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def trim_when_grown(interval: float = INTERVAL, growth: int = GROWTH) -> None:
    """For ever, whenever the process has grown; in a thread, since a gigabyte takes about 0.1 s."""
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
