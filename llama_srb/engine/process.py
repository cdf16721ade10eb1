"""One llama-batched process: spawn it, send commands, route events to their requests, cancel, watch, stop.

The only module that knows subprocesses. It does not know why a process lives as long as it does (pool.py) nor
what commands and events mean to a client (dialects/).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections import defaultdict, deque
from collections.abc import Callable
from types import TracebackType
from typing import Literal, Self, TypeAlias

from llama_srb import bundled
from llama_srb.background import begin
from llama_srb.engine.codec import PROTOCOL, Lines, ProtocolError, parse
from llama_srb.engine.commands import encode
from llama_srb.engine.events import Accepted, Error, Event, Loading, Ready, Result, Stream, shows_step
from llama_srb.engine.exchange import CLOSING, NOT_TAKEN, EngineError, EngineUnavailable, Exchange
from llama_srb.engine.settings import EngineSettings

log = logging.getLogger("llama_srb.engine")  # as operators know it
wire = logging.getLogger("llama_srb.wire")  # all prompts and texts; --log-prompts shows them
READ_SIZE = 256 << 10  # bytes of one read; asyncio's 64 KiB would cut a large decode step in two
LOG_LINES_KEPT = 40  # of stderr: llama.cpp says in about ten why it cannot load
LOG_LINES_SHOWN = 5  # of those, in an error message
LOG_LINE_LIMIT = 16 << 10  # bytes of one line of stderr that are kept
OWN_WORDS = "llama-batched: "  # of stderr: a full disk, say; all else is llama.cpp's
LOG_GRACE = 1.0  # seconds for the rest of stderr after the exit: its child might have inherited the pipe
LOOKS = 4  # of the watchdog in one step_timeout; in the middle of them it asks, and an answer needs a step
WATCHDOG = "watchdog"  # the id of its question: no request's, those are random
CLOSING_NAMES = frozenset(event.__name__.lower() for event in CLOSING)
EngineState: TypeAlias = Literal["stopped", "loading", "ready", "draining"]


class Engine:
    """One process, from spawn to reaping; `async with` starts it, and ends it whatever happens.

    |           | loading                   | ready                 | draining | stopped     |
    |-----------|---------------------------|-----------------------|----------|-------------|
    | loaded()  | waits: Ready, EngineError | Ready                 | Ready    | EngineError |
    | submit(x) | sent, read once loaded    | sent                  | x fails  | x fails     |
    | ended()   | waits                     | waits                 | waits    | returns     |
    | stop()    | SIGTERM, SIGKILL          | EOF, SIGTERM, SIGKILL | the same | nothing     |

    One task, `_watch`, reads stdout, reaps the process and ends what it still owed.
    """

    def __init__(self, settings: EngineSettings, on_change: Callable[[], None] = lambda: None) -> None:
        self.settings = settings
        self.ready: Ready | None = None
        self.progress = 0.0
        self.pid = 0  # until it is spawned
        self.program = _file(settings.command[0])  # tells whether another engine is of the same file
        self.stepped = False  # it has told of something that it computed
        self.first_step_signal: int | None = None  # that ended it: it had work, and had told of no step
        self._on_change = on_change
        self._exchanges: dict[str, Exchange] = {}
        self._log_lines: deque[str] = deque(maxlen=LOG_LINES_KEPT)
        self._fault = self._details = ""  # what it did wrong; what only the operator may know of that
        self._heard = False  # from it, since the watchdog looked last
        self._steps: object = None  # that it had made when the watchdog asked last
        self._lines = 0  # that were sent
        self._asked = 0  # the line of the watchdog's question; 0: it waits for no answer
        self._draining = False
        self._loaded = asyncio.Event()  # or it never will be
        self._ended = asyncio.Event()

    # Life

    @property
    def state(self) -> EngineState:
        if self._ended.is_set():
            return "stopped"
        if self._draining or self._fault:
            return "draining"
        return "loading" if self.ready is None else "ready"

    async def __aenter__(self) -> Self:
        command = self.settings.command
        spawn = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=READ_SIZE,
                env=self.settings.environment,
                start_new_session=True,  # a group of its own: a ^C on the terminal is for us to handle
            )
        )
        try:
            self._process = await asyncio.shield(spawn)
        except asyncio.CancelledError:  # the process may be there already: it ends before this does
            with contextlib.suppress(OSError):
                self._process = await spawn
                self.pid = self._process.pid
                self.kill()
                _stdin(self._process).close()
                await self._process.wait()
            raise
        except OSError as error:
            raise EngineUnavailable(
                f"cannot run {command[0]}: {error.strerror}: {bundled.remedy()}"
            ) from None
        self.pid = self._process.pid
        log.info("engine %d: loading %s", self.pid, self.settings.model_name)
        self._task = begin(self._watch(), f"engine {self.pid}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def loaded(self) -> Ready:
        """Waits until the engine takes requests; EngineError when it ends first or takes too long."""
        try:
            async with asyncio.timeout(self.settings.load_timeout):
                await self._loaded.wait()
        except TimeoutError:
            raise EngineError(f"the engine is not ready after {self.settings.load_timeout} s") from None
        if self.ready is None:
            raise EngineError(self.obituary)  # it knew of no request yet
        return self.ready

    @property
    def busy(self) -> bool:
        """Whether it owes an answer to anyone."""
        return bool(self._exchanges)

    async def ended(self) -> None:
        """Waits until the process is reaped and its last request has ended."""
        await self._ended.wait()

    async def stop(self) -> None:
        """Ends the process as gently as it allows; when this returns or raises, the process is dead."""
        self._draining = True
        try:
            # While it loads it reads no stdin, and there is nothing to finish.
            if self.ready is not None:
                _stdin(self._process).close()
                if await self._ends_in_time():
                    return
            self._signal(signal.SIGTERM)
            await self._ends_in_time()
        finally:
            self.kill()
            await asyncio.wait({self._task})

    async def _ends_in_time(self) -> bool:
        await asyncio.wait({self._task}, timeout=self.settings.stop_grace)
        return self._task.done()

    def kill(self) -> None:
        """SIGKILL, now; stop() and _watch do the rest."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """To the whole process group, which lives on when only its leader has died."""
        if self.pid and not self._ended.is_set():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    @property
    def cause_of_end(self) -> str:
        """Why the engine is gone: what it did wrong, or how it exited. Nothing that it said."""
        code = self._process.returncode
        if self._fault:
            return f"the engine was ended: {self._fault}"
        if code is None:
            return "the engine is running"
        how = f"exit code {code}" if code >= 0 else f"signal {_signal(-code)}"
        return f"the engine ended while {'loading' if self.ready is None else 'running'}: {how}"

    @property
    def obituary(self) -> str:
        """The same with what it said last: for the operator, as this may be about anybody's request."""
        if self._fault or self._process.returncode is None:
            return self.cause_of_end + self._details
        said = " | ".join(list(self._log_lines)[-LOG_LINES_SHOWN:]) or "nothing"
        return f"{self.cause_of_end}; its last lines: {said}"

    # Commands

    def submit(self, exchange: Exchange) -> None:
        """Sends a command whose events will go to the exchange."""
        if self.state in ("draining", "stopped"):
            exchange.fail("engine_died", "the engine is stopping")
            return
        self._exchanges[exchange.id] = exchange
        exchange.sent(self, self.send(exchange.line))

    def send(self, line: bytes) -> int:
        """Writes a line, in order and without waiting: what the pipe does not take at once is kept in memory.

        Its number among all, from 1 on.

        There is no drain(): a cancel must not wait behind it, what piles up is bounded by the open requests.
        A pipe that broke is no news here: _watch is about to tell every exchange.
        """
        wire.debug("engine %d << %r", self.pid, line)
        stdin = _stdin(self._process)
        if not stdin.is_closing():
            with contextlib.suppress(OSError, RuntimeError):  # the latter is uvloop's for a closed pipe
                stdin.write(line)
        self._lines += 1
        return self._lines

    # Events

    async def _watch(self) -> None:
        """Reads until stdout ends, reaps, and ends every exchange that is left."""
        stderr = begin(self._keep_log(), f"engine {self.pid} stderr")
        guard = begin(self._guard(), f"engine {self.pid} watchdog")
        try:
            await self._read_events()
            await self._reap()
        finally:
            self.kill()  # only when this task was cancelled: the loop is being torn down
            guard.cancel()
            await asyncio.wait({stderr, guard}, timeout=LOG_GRACE)
            stderr.cancel()
            self._bury()

    async def _guard(self) -> None:
        """Condemns an engine that makes no step although it has requests.

        In looks and not in seconds: if this process itself stood still, what came is read before the next.
        """
        silent, limit = 0, self.settings.step_timeout
        while limit is not None:
            await asyncio.sleep(limit / LOOKS)
            silent = 0 if self._heard or not self._exchanges else silent + 1
            self._heard = False
            owes = any(exchange.is_unanswered for exchange in self._exchanges.values())
            if self._asked == 0 and (silent >= LOOKS // 2 or owes):
                self._asked = self.send(
                    encode("status", WATCHDOG)
                )  # a long text that is scored tells nothing
            if silent == LOOKS:
                requests = f"{len(self._exchanges)} request{'s' * (len(self._exchanges) > 1)}"
                return self._condemn(f"no step in {limit:g} s while it had {requests} (--step-timeout)")
        return None

    async def _read_events(self) -> None:
        """Takes all that a read brings at once; reads on after a fault, for the exit shows as end of file."""
        lines, stdout = Lines(), self._process.stdout
        assert stdout is not None
        while chunk := await stdout.read(READ_SIZE):
            if not self._fault:
                try:
                    self._route(lines.feed(chunk))
                except ProtocolError as error:
                    self._condemn(f"it wrote {error}", error.shown)

    def _route(self, lines: list[bytes]) -> None:
        """Groups events by request, so that a decode step is one list and one wake-up for each."""
        groups: defaultdict[str, list[Event]] = defaultdict(list)
        debug = log.isEnabledFor(logging.DEBUG)
        try:
            for line in lines:
                if debug:
                    wire.debug("engine %d >> %r", self.pid, line)
                try:
                    event = parse(line)
                except ProtocolError as error:
                    self._fail_one(error, groups)
                    continue
                if type(event) is Stream:  # nearly all are
                    groups[event.id].append(event)
                elif isinstance(event, (Loading, Ready)):
                    self._load(event)
                elif isinstance(event, Accepted):
                    self._acknowledge(event)
                elif type(event) is Error and self._is_of_another_line(event):
                    self._refuse(event)
                elif event is not None:
                    groups[event.id].append(event)
                    if isinstance(event, CLOSING):
                        self._finish(event.id, groups.pop(event.id))
        finally:
            self._heard = self._heard or bool(groups)
            for id, events in groups.items():
                self._look_for_step(events)
                if (exchange := self._exchanges.get(id)) is not None:
                    exchange.deliver(events)

    def _acknowledge(self, event: Accepted) -> None:
        if (exchange := self._exchanges.get(event.id)) is not None:
            exchange.acknowledge(event.line)

    def _is_of_another_line(self, error: Error) -> bool:
        """Whether it ends a command that is not the one which began its request, or no request's."""
        exchange = self._exchanges.get(error.id)
        return error.line is not None and (exchange is None or exchange.line_number != error.line)

    def _refuse(self, error: Error) -> None:
        """An extend's wait is over; nobody waits for the end of a cancel."""
        if not any(exchange.refuse(error) for exchange in self._exchanges.values()):
            log.warning("engine %d: line %d: %s: %s", self.pid, error.line, error.code, error.message)

    def _fail_one(self, fault: ProtocolError, groups: dict[str, list[Event]]) -> None:
        """A line that cannot be read ends the request that it is about; if it is about none, the engine."""
        exchange = self._exchanges.get(fault.id)
        if exchange is None:
            raise fault
        log.error("engine %d: it wrote %s: %s", self.pid, fault, fault.shown)
        if (before := groups.pop(exchange.id, None)) is not None:
            exchange.deliver(before)
        exchange.fail(
            "engine_error", "the engine wrote a line that cannot be read; the server's log has more"
        )
        if fault.event in CLOSING_NAMES:  # else its done is still to come
            del self._exchanges[exchange.id]

    def _load(self, event: Loading | Ready) -> None:
        if isinstance(event, Loading):
            self.progress = event.progress
        elif event.protocol != PROTOCOL:
            self._condemn(
                f"it speaks protocol {event.protocol}, this server speaks {PROTOCOL}: {bundled.remedy()}"
            )
        else:
            self.progress, self.ready = 1.0, event
            self._loaded.set()
            where = event.backend + (f" ({event.cpu})" if event.cpu else "")
            log.info("engine %d: ready, %d tokens, %s", self.pid, event.n_ctx, where)
        self._on_change()

    def _finish(self, id: str, events: list[Event]) -> None:
        """The closing event: forget the id, so that no later line can reach anyone."""
        self._look_for_step(events)
        exchange = self._exchanges.pop(id, None)
        if isinstance(events[-1], Result) and id == WATCHDOG:
            self._hear(events[-1])
        elif exchange is not None:
            self._heard = True
            exchange.deliver(events)
        elif isinstance(events[-1], Error):
            log.warning("engine %d: %s: %s", self.pid, events[-1].code, events[-1].message)

    def _look_for_step(self, events: list[Event]) -> None:
        self.stepped = self.stepped or any(map(shows_step, events))

    def _hear(self, status: Result) -> None:
        """An answer alone is no sign of life: the loop may turn and decode nothing.

        Commands are read in order: what was sent before the question, and is not acknowledged, is lost.
        """
        steps = status.data.get("steps"), status.data.get("commands")
        self._heard, self._steps = steps != self._steps, steps
        asked, self._asked = self._asked, 0
        for exchange in [one for one in self._exchanges.values() if one.is_overlooked(asked)]:
            log.error("engine %d: it has not taken request %s", self.pid, exchange.id)
            del self._exchanges[exchange.id]
            exchange.fail("engine_error", NOT_TAKEN)

    def _condemn(self, fault: str, details: str = "") -> None:
        """The engine cannot be trusted any more: nothing that it still writes counts.

        Its requests don't wait for its end: a process that hangs in a driver may take SIGKILL late. They are
        told the fault, the log the details.
        """
        self._fault, self._details = fault, f": {details}" if details else ""
        log.error("engine %d: %s", self.pid, fault + self._details)
        self.kill()
        self._lose()
        self._on_change()

    async def _keep_log(self) -> None:
        """Empties stderr, for a full pipe would block the engine; keeps its last lines."""
        stderr, rest = self._process.stderr, b""
        assert stderr is not None
        while chunk := await stderr.read(READ_SIZE):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._keep_log_line(line)
            rest = rest[-LOG_LINE_LIMIT:]
        if rest:
            self._keep_log_line(rest)

    def _keep_log_line(self, line: bytes) -> None:
        text = line[:LOG_LINE_LIMIT].decode(errors="replace").rstrip()
        if text:
            self._log_lines.append(text)
            level = logging.WARNING if text.startswith(OWN_WORDS) else logging.DEBUG
            log.log(level, "engine %d says: %s", self.pid, text)

    # End

    async def _reap(self) -> None:
        """An engine without stdout is of no use: it gets a moment to exit by itself, for its exit code."""
        wait = asyncio.ensure_future(self._process.wait())
        done, _ = await asyncio.wait({wait}, timeout=self.settings.stop_grace)
        if not done:
            self.kill()
        await wait

    def _bury(self) -> None:
        as_told = self._draining and self._process.returncode == 0
        said = "the engine has ended, as it was told" if as_told else self.obituary
        log.log(logging.INFO if self._draining else logging.ERROR, "engine %d: %s", self.pid, said)
        _stdin(self._process).close()
        self.first_step_signal = self._signal_in_first_step()
        self._ended.set()
        self._loaded.set()
        self._lose()
        self._on_change()

    def _signal_in_first_step(self) -> int | None:
        """None for any other end, and for one that was our will."""
        code, ours = self._process.returncode, bool(self._fault) or self._draining
        if ours or self.ready is None or self.stepped or not self.busy or code is None or code >= 0:
            return None
        return -code

    def _lose(self) -> None:
        """Nothing more can come: whoever waits is told."""
        exchanges, self._exchanges = self._exchanges, {}
        for exchange in exchanges.values():
            exchange.lost(self.cause_of_end)


def _file(program: str) -> tuple[int, ...]:
    """What differs when a program is replaced by another build; empty when it is not there."""
    try:
        found = os.stat(shutil.which(program) or program)
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _signal(number: int) -> str:
    """Its name, and what to do where the signal alone says that; real-time signals have no name."""
    if number == signal.SIGILL:
        return f"SIGILL: it was built for another CPU; {bundled.remedy()}"
    known = {one.value: one.name for one in signal.Signals}
    return known.get(number, str(number))


def _stdin(process: asyncio.subprocess.Process) -> asyncio.StreamWriter:
    assert process.stdin is not None
    return process.stdin
