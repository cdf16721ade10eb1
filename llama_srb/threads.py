"""The threads of asyncio.to_thread() in a server: fair between clients; the end waits a second for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

from llama_srb.turns import Turns

P = ParamSpec("P")
T = TypeVar("T")

THREADS, OF_A_CLIENT = 8, 2
GRACE = 1.0  # seconds for what still works at the end

client: ContextVar[str] = ContextVar("client", default="")
"""The client for whom the current task works, by whose name its work waits; empty: the server itself."""


class _Work(NamedTuple):
    future: Future[Any]
    call: Callable[[], Any]


class FairThreads(ThreadPoolExecutor):
    """The default executor of an event loop: `loop.set_default_executor(FairThreads())`.

    A client has at most `of_a_client` threads, so that its slow work keeps nobody else waiting.
    """

    def __init__(self, threads: int = THREADS, of_a_client: int = OF_A_CLIENT) -> None:
        super().__init__(threads)  # whose own threads are not used: a process waits for them when it ends
        self._most, self._turns = threads, Turns[_Work](threads, of_a_client)
        self._changed = threading.Condition()
        self._count, self._is_over = 0, False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Called where `client` says for whom; the result as of ThreadPoolExecutor."""
        future: Future[T] = Future()
        with self._changed:
            if self._is_over:
                raise RuntimeError("the threads have ended")
            self._turns.wait(client.get(), _Work(future, lambda: fn(*args, **kwargs)))
            n_waiting = sum(map(len, self._turns.waiting.values()))
            if self._count < min(self._most, self._turns.working.total() + n_waiting):
                self._count += 1
                threading.Thread(target=self._run, name="worker", daemon=True).start()
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing more is begun; what works gets GRACE seconds."""
        with self._changed:
            self._is_over = True
            for waiting in self._turns.waiting.values():
                for work in waiting:
                    work.future.cancel()
            self._changed.notify_all()
            end = time.monotonic() + GRACE * wait
            while self._turns.working.total() and (left := end - time.monotonic()) > 0:
                self._changed.wait(left)

    def _run(self) -> None:
        while (found := self._take()) is not None:
            whose, work = found
            if work.future.set_running_or_notify_cancel():
                try:
                    result = work.call()
                except BaseException as error:
                    work.future.set_exception(error)
                else:
                    work.future.set_result(result)
                    del result
            del found, work
            with self._changed:
                self._turns.end(whose)
                self._changed.notify_all()

    def _take(self) -> tuple[str, _Work] | None:
        with self._changed:
            while not self._is_over:
                if (found := self._turns.begin()) is not None:
                    return found
                self._changed.wait()
        return None
