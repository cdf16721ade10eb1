"""One llama-batched process: it is spawned, gets commands, has its events routed, is watched and stopped.

Only this module of engine/ handles subprocesses. It does not decide when a process starts or stops (pool/),
nor does it know what commands and events mean to a client (dialects/). When the process has ended, each of
its exchanges is told (Exchange.lost): a running one ends with an error, a waiting one begins anew with the
next engine, which pool/resident starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, TypeAlias

from llama_srb import bundled
from llama_srb.background import begin
from llama_srb.engine import rpc
from llama_srb.engine.codec import PROTOCOL, Lines, ProtocolError
from llama_srb.engine.events import Loading, Ready
from llama_srb.engine.exchange import EngineError, EngineUnavailable, Exchange
from llama_srb.engine.router import Router
from llama_srb.engine.settings import EngineSettings
from llama_srb.engine.stderr import ErrorOutput
from llama_srb.engine.watchdog import Watchdog

log = logging.getLogger("llama_srb.engine")  # this name is documented
wire = logging.getLogger("llama_srb.wire")  # all prompts and texts; --log-prompts shows them
READ_SIZE = 256 << 10  # bytes; asyncio's default of 64 KiB would split the events of a large decode step
LOG_GRACE = 1.0  # seconds to read stderr after the exit: a child that inherited the pipe may keep it open
EngineState: TypeAlias = Literal["stopped", "loading", "ready", "draining"]


class Engine:
    """One process, from spawn to reaping; `async with` starts it and always ends it.

    |           | loading                   | ready                 | draining | stopped     |
    |-----------|---------------------------|-----------------------|----------|-------------|
    | loaded()  | waits: Ready, EngineError | Ready                 | Ready    | EngineError |
    | submit(x) | sent, read once loaded    | sent                  | x fails  | x fails     |
    | ended()   | waits                     | waits                 | waits    | returns     |
    | stop()    | SIGTERM, SIGKILL          | EOF, SIGTERM, SIGKILL | the same | nothing     |

    One task, `_watch`, reads stdout, reaps the process and ends its open requests.
    """

    def __init__(self, settings: EngineSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        self.ready: Ready | None = None
        self.progress = 0.0
        self.pid = 0  # until it is spawned
        self.program = _file_identity(settings.command[0])  # equal for engines of the same file
        self.first_step_signal: int | None = None  # the signal that ended it in its first step
        self._on_change = on_change
        self._errors = ErrorOutput()
        self._fault = self._details = ""  # why it was killed, for clients; more about it, only for the log
        self._lost = ""  # the RPC servers that did not answer when it ended, in words
        self._lines = 0  # sent so far
        self._draining = False
        self._ending = False  # the process has ended, and it is not known yet why
        self._loaded = asyncio.Event()  # also set when the process ends before it has loaded
        self._ended = asyncio.Event()

    # Life

    @property
    def state(self) -> EngineState:
        if self._ended.is_set():
            return "stopped"
        if self._draining or self._ending or self._fault:
            return "draining"
        return "loading" if self.ready is None else "ready"

    async def __aenter__(self) -> Self:
        self._process = await _spawn(self.settings)
        self.pid = self._process.pid
        self._router = Router(self.pid, self._load, lambda status: self._watchdog.answered(status))
        self._watchdog = Watchdog(self._router, self.send, self._fail)
        log.info("engine %d: loading %s", self.pid, self.settings.model_name)
        self._task = begin(self._watch(), f"engine {self.pid}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def loaded(self) -> Ready:
        """Waits until the engine accepts requests; EngineError if it ends first or exceeds load_timeout."""
        try:
            async with asyncio.timeout(self.settings.load_timeout):
                await self._loaded.wait()
        except TimeoutError:
            raise EngineError(f"the engine is not ready after {self.settings.load_timeout} s") from None
        if self.ready is None:
            raise EngineError(self.cause_with_log)  # no request was sent, so the log quotes none
        return self.ready

    @property
    def busy(self) -> bool:
        """Whether it has open requests."""
        return len(self._router) > 0

    @property
    def stepped(self) -> bool:
        """Whether an event has shown that it made a decode step."""
        return self._router.stepped

    async def ended(self) -> None:
        """Waits until the process is reaped and its last request has ended."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Ends the process: end of file, then SIGTERM, then SIGKILL. It is dead even if this is cancelled."""
        self._draining = True
        try:
            # An engine that loads does not read stdin and has no requests to finish.
            if self.ready is not None:
                _stdin(self._process).close()
                if await self._ends_in_time():
                    return
            self.kill(signal.SIGTERM)
            await self._ends_in_time()
        finally:
            self.kill()
            await asyncio.wait({self._task})

    async def _ends_in_time(self) -> bool:
        await asyncio.wait({self._task}, timeout=self.settings.stop_grace)
        return self._task.done()

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Signals the process group at once; `_watch` sees the end and reaps the process."""
        if self.pid and not self._ended.is_set():
            _signal_group(self.pid, number)

    @property
    def cause_of_end(self) -> str:
        """Why the engine has ended: its fault, or how it exited. Quotes nothing that it wrote."""
        code = self._process.returncode
        if self._fault:
            return f"the engine was ended: {self._fault}"
        if code is None:
            return "the engine is running"
        how = f"exit code {code}" if code >= 0 else f"signal {_signal_name(-code)}"
        when = "loading" if self.ready is None else "running"
        return f"the engine ended while {when}: {how}" + (f"; {self._lost}" if self._lost else "")

    @property
    def cause_with_log(self) -> str:
        """The cause with its last lines on stderr. Only for the operator: they may be about any request."""
        if self._fault or self._process.returncode is None:
            return self.cause_of_end + self._details
        return f"{self.cause_of_end}; its last lines: {self._errors.tail}"

    # Commands

    def submit(self, exchange: Exchange) -> None:
        """Sends a command whose events will go to the exchange."""
        if self.state in ("draining", "stopped"):
            exchange.fail("engine_died", "the engine is stopping")
            return
        self._router.add(exchange)
        exchange.sent(self, self.send(exchange.line))

    def send(self, line: bytes) -> int:
        """Writes a line without waiting and returns its number, from 1 on.

        There is no drain(): a cancel must not wait for the pipe, and the number of open requests bounds the
        buffer. A broken pipe is ignored: `_watch` sees the end of the process and ends every exchange.
        """
        wire.debug("engine %d << %r", self.pid, line)
        stdin = _stdin(self._process)
        if not stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):  # uvloop raises RuntimeError for a closed pipe
                stdin.write(line)
        self._lines += 1
        return self._lines

    # Events

    async def _watch(self) -> None:
        """Reads stdout to its end, reaps the process, and ends the exchanges that are still open."""
        assert self._process.stderr is not None
        read = self._errors.read(self._process.stderr, self.pid, READ_SIZE)
        stderr = begin(read, f"engine {self.pid} stderr")
        guard = begin(self._watchdog.watch(self.settings.step_timeout), f"engine {self.pid} watchdog")
        try:
            await self._read_events()
            await _reap(self._process, self.settings.stop_grace)
            if not self._draining:
                self._ending = True
                self._lost = await rpc.lost(self.settings.command, self._process.returncode)
        finally:
            self.kill()  # still needed if this task was cancelled because the event loop is closing
            guard.cancel()
            await asyncio.wait({stderr, guard}, timeout=LOG_GRACE)
            stderr.cancel()
            self._on_process_end()

    async def _read_events(self) -> None:
        """Routes the events of stdout, all lines of one read at once, until end of file.

        After a fault it reads on without parsing, because only end of file shows that the process has ended.
        """
        lines, stdout = Lines(), self._process.stdout
        assert stdout is not None
        while chunk := await stdout.read(READ_SIZE):
            if not self._fault:
                try:
                    self._router.route(lines.feed(chunk))
                except ProtocolError as error:
                    self._fail(f"it wrote {error}", error.shown)

    def _load(self, event: Loading | Ready) -> None:
        if isinstance(event, Loading):
            self.progress = event.progress
        elif event.protocol != PROTOCOL:
            self._fail(
                f"it speaks protocol {event.protocol}, this server speaks {PROTOCOL}: {bundled.remedy()}"
            )
        else:
            self.progress, self.ready = 1.0, event
            self._loaded.set()
            log.info("engine %d: ready, %d tokens, %s", self.pid, event.n_ctx, event.where)
        self._on_change()

    def _fail(self, fault: str, details: str = "") -> None:
        """Kills an engine that is faulty; its later output is ignored.

        Its requests end at once with the fault, because a process that hangs in a driver may take seconds to
        die of SIGKILL. The details go to the log only.
        """
        self._fault, self._details = fault, f": {details}" if details else ""
        log.error("engine %d: %s", self.pid, fault + self._details)
        self.kill()
        self._router.lose_all(self.cause_of_end)
        self._on_change()

    # End

    def _on_process_end(self) -> None:
        code = self._process.returncode
        as_told = self._draining and code == 0
        why = "the engine has ended, as it was told" if as_told else self.cause_with_log
        log.log(logging.INFO if self._draining else logging.ERROR, "engine %d: %s", self.pid, why)
        _stdin(self._process).close()
        was_stopped = bool(self._fault) or self._draining  # by this server
        if not was_stopped and self.ready is not None and not self.stepped and self.busy and code is not None:
            self.first_step_signal = -code if code < 0 else None
        self._ended.set()
        self._loaded.set()
        self._router.lose_all(self.cause_of_end)
        self._on_change()


async def _spawn(settings: EngineSettings) -> asyncio.subprocess.Process:
    """Spawns the process; EngineUnavailable if it cannot be run. If cancelled, it leaves no process."""
    spawn = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *settings.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=READ_SIZE,
            env=settings.environment,
            start_new_session=True,  # its own process group, so that ^C on the terminal reaches only us
        )
    )
    try:
        return await asyncio.shield(spawn)
    except asyncio.CancelledError:  # the process may exist already: it must end before this returns
        ending = begin(_end_spawned(spawn), "end of a process whose spawn was cancelled")
        while not ending.done():
            with contextlib.suppress(asyncio.CancelledError):  # a second cancel must not leave it alive
                await asyncio.wait({ending})
        raise
    except OSError as error:
        problem = f"cannot run {settings.command[0]}: {error.strerror}"
        raise EngineUnavailable(f"{problem}: {bundled.remedy()}") from None


async def _end_spawned(spawn: asyncio.Future[asyncio.subprocess.Process]) -> None:
    with contextlib.suppress(OSError):
        process = await spawn
        _signal_group(process.pid, signal.SIGKILL)
        _stdin(process).close()
        await process.wait()


async def _reap(process: asyncio.subprocess.Process, grace: float) -> None:
    """Reaps an engine whose stdout has ended. It may exit by itself, for its exit code, before SIGKILL."""
    wait = asyncio.ensure_future(process.wait())
    done, _ = await asyncio.wait({wait}, timeout=grace)
    if not done:
        _signal_group(process.pid, signal.SIGKILL)
    await wait


def _signal_group(pid: int, number: signal.Signals) -> None:
    """Signals the process group, which may have members after its leader has died."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _file_identity(program: str) -> tuple[int, ...]:
    """Device, inode, size and time of change of a program's file; empty if there is none."""
    try:
        found = os.stat(shutil.which(program) or program)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _signal_name(number: int) -> str:
    """A signal's name, for SIGILL with what to do. Real-time signals have no name: their number."""
    if number == signal.SIGILL:
        return f"SIGILL: it was built for another CPU; {bundled.remedy()}"
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, str(number))


def _stdin(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
