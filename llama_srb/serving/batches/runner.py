"""Runs the batches of a server. Each has a task from its creation to its end, also after a restart.

    validating ──> in_progress ──> finalizing ──> completed
        │               ├── its time is over ──> expired      the lines that are left
        │               ├── cancelling ────────> cancelled    are in the file of errors
        └── failed <────┘ its key has ended, or there is no room for its answers

A batch that waits for others is validating. Each row is saved before the next step begins; on a full disk
the batch waits until it can be saved.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from llama_srb.background import begin, in_thread
from llama_srb.batch.files import opened
from llama_srb.batch.output import Output, OutputError
from llama_srb.batch.records import Batch, FoundError, Status, StoredFile, new_id
from llama_srb.batch.room import NoRoom
from llama_srb.batch.run import BatchStopped, Counts, KeyRefused, Run
from llama_srb.batch.servers import Server
from llama_srb.batch.source import Bounds, Source
from llama_srb.batch.store import Store
from llama_srb.config import Settings
from llama_srb.request.values import RequestError
from llama_srb.serving.keys.api_keys import Grant, Token
from llama_srb.serving.keys.internal_callers import HEADER, Owner

log = logging.getLogger("llama_srb.batches")  # this name is documented

AT_ONCE = 4  # batches whose lines are sent at the same time, one of each owner
MOST_LINES = 50_000  # of a batch: OpenAI's limit
SWEEP = 60.0  # seconds between two searches for expired files
RETRY = 10.0  # seconds until a batch that could not be saved is saved again
KEPT = 30 * 86400  # seconds that a batch is listed after its end


@dataclass(frozen=True, slots=True)
class Ending:
    """How a batch ends. code, message: of the lines that are left; empty: none is left, or none was valid."""

    status: Status
    code: str = ""
    message: str = ""
    errors: tuple[FoundError, ...] = ()


COMPLETED = Ending("completed")
CANCELLED = Ending("cancelled", "batch_cancelled", "the batch was cancelled before this line had an answer")
EXPIRED = Ending(
    "expired", "batch_expired", "the batch's completion_window ended before this line had an answer"
)


@dataclass(slots=True)
class _Job:
    """A batch that is not over. ending: how it ends, once that is known."""

    batch: Batch
    counts: Counts = field(default_factory=lambda: Counts(0))
    ending: Ending | None = None
    task: asyncio.Task[None] | None = None

    @property
    def now(self) -> Batch:
        counts = self.counts
        done = counts.done - counts.failed
        return replace(self.batch, total=counts.total, completed=done, failed=counts.failed)

    def end(self, ending: Ending) -> bool:
        """Ends it before its lines are done; False if it ends already."""
        if self.ending is not None or self.batch.status == "finalizing" or self.task is None:
            return False
        self.ending = ending
        return self.task.cancel()


class Worker:
    """The batches of a store, for an `async with` block.

    socket: the Unix socket by which lines are sent. window: the sequences that a batch has at once.
    grant_of: what an owner's key grants now; None: no key is needed; RequestError.
    """

    def __init__(
        self,
        store: Store,
        socket: str,
        window: int,
        settings: Settings,
        grant_of: Callable[[Owner], Grant | None],
    ) -> None:
        self._store, self._socket, self._window, self._grant_of = store, socket, window, grant_of
        self._line_bytes, self._url = settings.max_body, f"http://localhost{settings.api_prefix}"
        self._jobs: dict[str, _Job] = {}
        self._places = asyncio.Semaphore(AT_ONCE)
        self._turns = WeakValueDictionary[str, asyncio.Lock]()  # by owner
        self._sweeping: asyncio.Task[None]

    async def __aenter__(self) -> Worker:
        for batch in await self._store.open_batches():
            self.add(batch)
        self._sweeping = begin(self._sweep(), "expired files")
        return self

    async def __aexit__(self, *_: object) -> None:
        tasks = {job.task for job in self._jobs.values() if job.task is not None} | {self._sweeping}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    def add(self, batch: Batch) -> None:
        """Begins a batch whose row is saved, or goes on with it."""
        job = self._jobs[batch.id] = _Job(batch)
        self._store.room.begin(batch.id, sum(map(_size_of, self._outputs(batch).values())))
        job.task = begin(self._supervise(job), f"batch {batch.id}")
        if batch.status == "cancelling":
            job.ending = CANCELLED

    def now(self, batch: Batch) -> Batch:
        """The batch with its counts of this moment."""
        job = self._jobs.get(batch.id)
        return batch if job is None else job.now

    def owner(self, id: str) -> Owner | None:
        """The owner of a batch that runs."""
        job = self._jobs.get(id)
        return None if job is None else owner_of(job.batch)

    async def cancel(self, batch: Batch) -> Batch | None:
        """Cancels a batch; None if it is over. One that is finalizing is completed all the same."""
        job = self._jobs.get(batch.id)
        if job is None:
            return None
        if job.end(CANCELLED):
            job.batch = _in_status(job.batch, "cancelling")
            await self._store.save(job.batch)
        return job.now

    # The life of a batch

    async def _supervise(self, job: _Job) -> None:
        try:
            await self._live(job)
        except Exception:
            log.exception("the batch %s: a fault of ours", job.batch.id)
            fault = FoundError("internal_error", "internal error; the server's log has more")
            await self._set(job, "failed", errors=(fault,))
        finally:
            del self._jobs[job.batch.id]

    async def _live(self, job: _Job) -> None:
        timer = asyncio.get_running_loop().call_later(
            max(0.0, job.batch.expires_at - time.time()), job.end, EXPIRED
        )
        try:
            job.ending = ending = job.ending or await self._answer(job)
        except asyncio.CancelledError:
            if job.ending is None or job.task is None:
                raise  # the server stops
            job.task.uncancel()
            ending = job.ending
        finally:
            timer.cancel()
        if ending.code:
            job.counts = await in_thread(lambda: self._close(job.batch, ending))
        await self._finish(job, ending)

    async def _answer(self, job: _Job) -> Ending:
        """Sends the lines when it is the batch's turn."""
        batch = job.batch
        turn = self._turns.setdefault(batch.owner, asyncio.Lock())
        try:
            async with turn, self._places, AsyncExitStack() as stack:
                source, output = self._open(batch, stack)
                await in_thread(output.read)
                scan = await in_thread(lambda: source.scan(output.done))
                if scan.errors:
                    found = (FoundError(one.code, one.message, one.number, one.param) for one in scan.errors)
                    return Ending("failed", errors=tuple(found))
                output.begin(scan.fingerprint)
                job.counts = Counts(scan.count, len(output.done), output.failed)
                if batch.status == "validating":
                    await self._set(job, "in_progress")
                server = await stack.enter_async_context(self._server(batch))
                run = Run(source, scan.order, output, [server], job.counts, patience=None, in_threads=True)
                try:
                    await run.run()
                except NoRoom as error:
                    await in_thread(output.sync)
                    return Ending("failed", errors=(FoundError("no_room", str(error)),))
                await self._set(job, "finalizing")
                await in_thread(output.sync)
                return COMPLETED
        except KeyRefused as error:
            return _failed("invalid_api_key", error.reason)
        except RequestError as error:
            return _failed("invalid_api_key", error.message)
        except (BatchStopped, OutputError) as error:
            return _failed("batch_stopped", str(error))
        except OSError as error:
            log.error("the batch %s cannot go on: %s", batch.id, error)
            return _failed("batch_stopped", f"its files cannot be used: {error.strerror}")

    def _server(self, batch: Batch) -> Server:
        grant = self._grant_of(owner_of(batch))
        most = self._window if grant is None or grant.concurrent is None else grant.concurrent
        window = min(self._window, most)
        return Server(self._url, {HEADER: batch.id}, path=self._socket, window=window)

    def _open(self, batch: Batch, stack: ExitStack | AsyncExitStack) -> tuple[Source, Output]:
        path = self._store.output(batch)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file = stack.enter_context(opened(self._store.upload(batch.input_file_id)))
        bounds = Bounds(self._line_bytes, MOST_LINES, batch.endpoint)
        grow = partial(self._store.room.grow, batch.id)
        return Source(file, bounds), stack.enter_context(Output(path, on_growth=grow))

    def _outputs(self, batch: Batch) -> dict[str, Path]:
        """The outputs of a batch by their kind."""
        output = self._store.output(batch)
        return {"output": output, "error": output.with_name(output.name + ".errors.jsonl")}

    def _close(self, batch: Batch, ending: Ending) -> Counts:
        """Writes errors for lines without an answer, as far as there is room; none for an invalid input."""
        counts = Counts(0)
        with contextlib.suppress(OSError, OutputError, NoRoom), ExitStack() as stack:
            source, output = self._open(batch, stack)
            output.read()
            scan = source.scan(output.done)
            if scan.errors:
                return counts
            counts = Counts(scan.count, len(output.done), output.failed)
            output.begin(scan.fingerprint)
            error = {"code": ending.code, "message": ending.message}
            try:
                for custom_id in source.remaining(output.done):
                    output.write(custom_id, error=error, failed=True)
            finally:
                counts = Counts(scan.count, len(output.done), output.failed)
            output.sync()
        return counts

    async def _finish(self, job: _Job, ending: Ending) -> None:
        """Adds the outputs to the files, and saves how the batch has ended."""
        paths = self._outputs(job.batch)
        made = {kind: file for kind, path in paths.items() if (file := self._made(job.batch, kind, path))}
        if not made:
            folder = paths["output"].parent
            await in_thread(lambda: shutil.rmtree(folder, ignore_errors=True))
        job.batch = job.now
        ids: dict[str, Any] = {f"{kind}_file_id": file.id for kind, file in made.items()}
        await self._set(job, ending.status, *made.values(), errors=ending.errors, **ids)

    def _made(self, batch: Batch, kind: str, path: Path) -> StoredFile | None:
        """An output as a file of the batch's owner; None if it has no lines."""
        if not (size := _size_of(path)):
            return None
        now, name = int(time.time()), f"{batch.id}_{kind}.jsonl"
        relative, until = self._store.relative(path), now + batch.keep
        return StoredFile(new_id("file-"), batch.owner, name, size, "batch_output", now, until, relative)

    async def _set(self, job: _Job, status: Status, *outputs: StoredFile, **changes: Any) -> None:
        """Saves a batch in another status, as soon as that is possible. Its end is seen with its outputs."""
        batch = _in_status(job.batch, status, **changes)
        if batch.is_open:
            job.batch = batch
        while True:
            try:
                await self._store.save(batch, *outputs)
                break
            except sqlite3.Error as error:  # a full disk
                log.error("the batch %s cannot be saved: %s; tried again in %g s", batch.id, error, RETRY)
            await asyncio.sleep(RETRY)
        job.batch = batch
        log.info("batch %s is %s: %d of %d lines", batch.id, status, job.counts.done, job.counts.total)

    async def _sweep(self) -> None:
        """Runs for ever, and removes files that have expired, and rows of batches that ended long ago."""
        while True:
            try:
                now = int(time.time())
                for file in await self._store.expired(now):
                    await self._store.remove_file(file)
                await self._store.forget_batches(now - KEPT)
            except Exception:  # a full disk, which this may end
                log.exception("expired files: tried again in %d s", SWEEP)
            await asyncio.sleep(SWEEP)


def _in_status(batch: Batch, status: Status, **changes: Any) -> Batch:
    return replace(batch, status=status, times={**batch.times, status: int(time.time())}, **changes)


def _size_of(path: Path) -> int:
    """The bytes of an output; 0 if it is not there."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def owner_of(batch: Batch) -> Owner:
    return Owner(batch.owner, None if batch.token is None else Token.model_validate(batch.token))


def _failed(code: str, message: str) -> Ending:
    return Ending("failed", code, message, (FoundError(code, message),))
