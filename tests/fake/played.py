"""A simulated operating system: a test moves the time and decides what each process does.

The pool, its engines and asyncio's readers are real. Time, processes, pipes, signals and exit codes are
simulated. Everything happens by a call, so a test can put any event between two iterations of the event
loop, and the same calls have the same result. An iteration takes 20 µs; a real process needs milliseconds for
a step, and no test could choose the step after which it dies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections.abc import Callable
from typing import Any

from llama_srb.engine.codec import PROTOCOL

PIDS = itertools.count(1 << 30)  # above every real id, and never reused
MOST_TURNS = 2000  # iterations until the event loop is idle; more are a loop that never becomes idle


class World(asyncio.SelectorEventLoop):
    """An event loop: time() is `now`, turn() is one iteration, subprocess_exec starts simulated processes."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.processes: list[Process] = []
        self.spawns = True  # if False, the program does not exist
        self.faults: list[dict[str, Any]] = []  # exceptions that no task has awaited
        self.set_exception_handler(lambda _, context: self.faults.append(context))

    def time(self) -> float:
        return self.now

    def turn(self) -> None:
        self.call_soon(self.stop)
        self.run_forever()

    @property
    def rests(self) -> bool:
        """Whether the loop is idle: only time or a process can cause a next event."""
        return not self._ready  # type: ignore[attr-defined]

    def rest(self, check: Callable[[], None] = lambda: None) -> None:
        """Runs iterations until the loop is idle."""
        for _ in range(MOST_TURNS):
            if self.rests:
                return
            self.turn()
            check()
        raise AssertionError("the loop never rests")

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.turn()

    async def subprocess_exec(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(0)
        if not self.spawns:
            raise FileNotFoundError(2, "No such file or directory")
        process = Process(self, protocol_factory(), next(PIDS))
        self.processes.append(process)
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:  # as asyncio does
            process.take_signal(signal.SIGKILL)
            process.get_pipe_transport(0).close()
            await process._wait()  # noqa: SLF001 (as asyncio names it)
            raise
        return process, process.protocol

    @property
    def alive(self) -> list[Process]:
        return [process for process in self.processes if process.returncode is None]

    def killpg(self, pid: int, number: int) -> None:
        """Replaces os.killpg."""
        found = [process for process in self.alive if process.pid == pid]
        if not found:
            raise ProcessLookupError
        found[0].take_signal(number)

    def end(self) -> None:
        """Ends the tasks and processes that a failed test has left."""
        for process in self.alive:
            process.end(-signal.SIGKILL)
        for task in asyncio.all_tasks(self):
            task.cancel()
        for _ in range(MOST_TURNS):
            if not asyncio.all_tasks(self):
                break
            self.advance(0.1)
        for process in self.processes:  # a task that was cancelled before its start has closed nothing
            process.get_pipe_transport(0).close()
        self.close()


class Process(asyncio.SubprocessTransport):
    """One engine process and its transport. By itself it only ends when it is told to."""

    def __init__(self, world: World, protocol: Any, pid: int) -> None:
        super().__init__()
        self.world, self.protocol, self.pid = world, protocol, pid
        self.returncode: int | None = None
        self.is_ready = self.hangs = self.eof = False
        self.open: dict[str, dict[str, Any]] = {}  # the commands of its requests, by id
        self.started: set[str] = set()
        self.steps = 0
        self._inbox = b""
        self._waiters: list[asyncio.Future[int]] = []
        self._stdin = _Stdin(self)
        protocol.connection_made(self)

    # asyncio's interface of a transport

    def get_pid(self) -> int:
        return self.pid

    def get_returncode(self) -> int | None:
        return self.returncode

    def get_pipe_transport(self, fd: int) -> Any:
        return self._stdin if fd == 0 else _Output()

    def close(self) -> None:
        pass

    async def _wait(self) -> int:
        if self.returncode is not None:
            return self.returncode
        self._waiters.append(self.world.create_future())
        return await self._waiters[-1]

    # Input: signals and bytes

    def take_signal(self, number: int) -> None:
        if self.returncode is None and (number == signal.SIGKILL or not self.hangs):
            self.end(-number)

    def take(self, data: bytes) -> None:
        self._inbox += data

    def take_eof(self) -> None:
        self.eof = True
        self._end_if_told()

    def _end_if_told(self) -> None:
        if self.eof and not self.hangs and not self.open and self.returncode is None:
            self.end(0)

    # Output and exit

    def say(self, event: str, **fields: Any) -> None:
        self.write(json.dumps({"event": event, **fields}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        if self.returncode is None:
            self.protocol.pipe_data_received(1, data)

    def load(self) -> None:
        self.is_ready = True
        self.say("ready", protocol=PROTOCOL, model={"name": "played"}, n_ctx=512, n_ctx_sequence=512,
                 max_sequences=8, backend="played")  # fmt: skip

    def obey(self, queued: bool = False) -> None:
        """Reads its input, and acts on it."""
        *lines, self._inbox = self._inbox.split(b"\n")
        for command in map(json.loads, lines):
            id = command["id"]
            match command["op"]:
                case "generate":
                    self.open[id] = command
                    if queued:
                        self.say("queued", id=id, position=0)
                case "cancel" if id in self.open:
                    self.finish(id, "cancelled")
                case "status":
                    self.say("result", id=id, steps=self.steps)
        self._end_if_told()

    def lose(self) -> None:
        """Reads its input, and ignores it."""
        self._inbox = b""

    def step(self, id: str) -> None:
        """Writes a token of a request."""
        self._start(id)
        self.steps += 1
        self.say("stream", id=id, index=0, text=" x")

    def finish(self, id: str, reason: str = "length") -> None:
        n = self.open[id]["n"]
        self._start(id)
        del self.open[id]
        for index in range(n):
            self.say("stop", id=id, index=index, length=1, stop=0, finish_reason=reason)
        self.say("done", id=id, count=n, prompt_tokens=1, cached_tokens=0, completion_tokens=n, timings={})
        self._end_if_told()

    def _start(self, id: str) -> None:
        if id not in self.started:
            self.started.add(id)
            n = self.open[id]["n"]
            self.say("start", id=id, count=n, prompt_tokens=1, cached_tokens=0, seed=1)

    def behave(self) -> None:
        """Does everything that a healthy engine would do, unless it hangs."""
        if self.hangs or self.returncode is not None:
            return
        if not self.is_ready:
            self.load()
        self.obey()
        for id in list(self.open):
            self.step(id)
            self.finish(id)

    def end(self, code: int) -> None:
        """Ends with this exit code: both pipes close and the parent is notified, one after another."""
        self.returncode = code
        for tell in (self._lose_output, self._lose_stderr, self._exit):
            self.world.call_soon(tell)

    def _lose_output(self) -> None:
        self.protocol.pipe_connection_lost(1, None)

    def _lose_stderr(self) -> None:
        self.protocol.pipe_connection_lost(2, None)

    def _exit(self) -> None:
        assert self.returncode is not None
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(self.returncode)
        self.protocol.process_exited()


class _Stdin(asyncio.WriteTransport):
    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process, self._closed = process, False

    def write(self, data: Any) -> None:
        self._process.take(bytes(data))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._process.world.call_soon(self._process.take_eof)


class _Output(asyncio.ReadTransport):
    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass
