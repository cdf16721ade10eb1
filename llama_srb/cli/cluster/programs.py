"""Processes that are started, watched, started again when they end, and ended. Knows not what they do."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import DEVNULL
from typing import TextIO, TypeAlias

from llama_srb import config
from llama_srb.cli import say

__all__ = ["NotStarted", "Process", "Program", "kept", "prints_address", "stopped"]

Ready: TypeAlias = Callable[[Process], Awaitable[bool]]
"""Waits until a process is ready; False if it ends before, NotStarted if it takes too long."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds before a process that has ended is started again


class NotStarted(Exception):
    """A process is not ready; its own last lines on stderr say why."""


@dataclass(slots=True)
class Program:
    """One process at a time of a command, whose stderr is ours.

    stdout: where it prints. secrets: variables for it, which other users of the machine cannot read, as they
    can its command line.
    """

    name: str
    command: Sequence[str]
    ready: Ready
    stdout: int | TextIO = PIPE
    secrets: Mapping[str, str] = field(default_factory=dict)
    _process: Process | None = field(default=None, init=False)

    async def start(self) -> None:
        """Starts it, and waits until it is ready; NotStarted."""
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command,
            stdin=DEVNULL,
            stdout=self.stdout,
            env=config.environment_with(self.secrets),
            start_new_session=True,  # ^C is for this process, which ends the others in their order
        )
        if not await self.ready(process):
            raise NotStarted(f"{self.name} did not start (exit code {await process.wait()})")

    async def keep(self) -> None:
        """Starts it again whenever it ends, after a pause that grows while it does not start."""
        pause = FIRST_PAUSE
        while True:
            assert self._process is not None
            code = await self._process.wait()
            say(f"{self.name} ended (exit code {code}); it is started again in {pause:g} s")
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            with contextlib.suppress(NotStarted):
                await self.start()
                pause = FIRST_PAUSE

    async def stop(self) -> None:
        """Ends it and waits for its end; at once if this is cancelled."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        try:
            process.send_signal(signal.SIGTERM)
            await process.wait()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise


async def prints_address(process: Process) -> bool:
    """Ready: it prints a line with its address, and nothing after it."""
    assert process.stdout is not None
    return bool(await process.stdout.readline())


async def kept(programs: Sequence[Program]) -> None:
    """Keeps all of them running until it is cancelled."""
    async with asyncio.TaskGroup() as group:
        for program in programs:
            group.create_task(program.keep())


async def stopped(programs: Sequence[Program]) -> None:
    """Ends all of them side by side; at once if this is cancelled."""
    await asyncio.gather(*(program.stop() for program in programs))
