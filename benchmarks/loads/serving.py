"""A server of this checkout, for the loads."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


@contextlib.asynccontextmanager
async def serving(**settings: object) -> AsyncIterator[tuple[str, Process]]:
    """Runs ./api.py on a free port with these settings and no other ones; its address and its process."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
    given = {"port": 0, "log_level": "warning", **settings}
    flags = [part for name, value in given.items() for part in (f"--{name.replace('_', '-')}", str(value))]
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "api.py"), *flags, stdout=asyncio.subprocess.PIPE, env=ours
    )
    try:
        assert process.stdout is not None
        yield (await process.stdout.readline()).decode().split()[0], process
    finally:
        process.terminate()
        await process.wait()
