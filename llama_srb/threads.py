"""The threads of asyncio.to_thread() in a server: fair between clients; the end waits a second for them."""

from __future__ import annotations

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import ContextVar
from typing import Any, NamedTuple, ParamSpec, TypeVar

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

    A thread takes the work of the client that has the fewest threads, of these the one that has waited
    longest; a client has at most `of_a_client` of them, so that its slow work keeps nobody else waiting.
    """

    def __init__(self, threads: int = THREADS, of_a_client: int = OF_A_CLIENT) -> None:
        super().__init__(threads)  # whose own threads are not used: a process waits for them when it ends
        self._most, self._of_a_client = threads, of_a_client
        self._changed = threading.Condition()
        self._waiting: OrderedDict[str, deque[_Work]] = OrderedDict()
        self._working: Counter[str] = Counter()
        self._count, self._is_over = 0, False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Called where `client` says for whom; the result as of ThreadPoolExecutor."""
        future: Future[T] = Future()
        with self._changed:
            if self._is_over:
                raise RuntimeError("the threads have ended")
            self._waiting.setdefault(client.get(), deque()).append(_Work(future, lambda: fn(*args, **kwargs)))
            n_waiting = sum(map(len, self._waiting.values()))
            if self._count < min(self._most, self._working.total() + n_waiting):
                self._count += 1
                threading.Thread(target=self._run, name="worker", daemon=True).start()
            self._changed.notify()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Nothing more is begun; what works gets GRACE seconds."""
        with self._changed:
            self._is_over = True
            for waiting in self._waiting.values():
                for work in waiting:
                    work.future.cancel()
            self._waiting.clear()
            self._changed.notify_all()
            end = time.monotonic() + GRACE * wait
            while self._working.total() and (left := end - time.monotonic()) > 0:
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
                self._working[whose] -= 1
                self._working += Counter()  # drops clients without work
                self._changed.notify_all()

    def _take(self) -> tuple[str, _Work] | None:
        with self._changed:
            while not self._is_over:
                may = [whose for whose in self._waiting if self._working[whose] < self._of_a_client]
                if may:
                    whose = min(may, key=self._working.__getitem__)
                    work = self._waiting[whose].popleft()
                    if self._waiting[whose]:
                        self._waiting.move_to_end(whose)
                    else:
                        del self._waiting[whose]
                    self._working[whose] += 1
                    return whose, work
                self._changed.wait()
        return None
