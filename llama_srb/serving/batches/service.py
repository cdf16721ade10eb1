"""The files and batches of a server for its callers: each sees only its own."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

from llama_srb.batch.records import Batch, StoredFile, new_id
from llama_srb.batch.room import NoRoom
from llama_srb.batch.store import Store, TooMany, UnknownId
from llama_srb.config import Settings
from llama_srb.request.values import RequestError, wrong
from llama_srb.serving.batches.asked import DAY, KEPT, AskedBatch, Page
from llama_srb.serving.batches.runner import Worker
from llama_srb.serving.keys.access import Access
from llama_srb.serving.keys.api_keys import Token
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.keys.internal_callers import InternalCallers, Owner

WINDOW = 2  # sequences of a batch at once, for each one that the engine generates at once
MOST_FILES, MOST_BATCHES = 10_000, 10_000  # of a caller
MOST_OPEN = 100  # of these batches, those that are not over


class BatchService:
    """`open` it before requests come; it runs batches in the block of `running`."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings, self._access = settings, access
        self._store: Store | None = None
        self._worker: Worker | None = None

    @property
    def store(self) -> Store:
        """The store; RequestError 501 if the server has none."""
        if self._store is None:
            message = "this server keeps no files; start it with --files-dir DIR"
            raise RequestError(message, status=501, code="files_not_configured")
        return self._store

    @property
    def worker(self) -> Worker:
        """What runs batches; RequestError 503 while the server starts or stops."""
        if (worker := self._worker) is None:
            _ = self.store  # 501 goes before 503
            message = "the server is starting or stopping; it takes no batches now"
            raise RequestError(message, status=503, code="unavailable", retry_after=1)
        return worker

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[str | None]:
        """The store is open in the block; yields the path for the Unix socket of lines. StoreError."""
        if self._settings.files_dir is None:
            yield None
            return
        async with Store(self._settings.files_dir, self._settings.files_size) as self._store:
            with tempfile.TemporaryDirectory(prefix="llama-srb-") as folder:  # only this user can open it
                path = str(Path(folder) / "lines")
                self._access.internal = InternalCallers(path, self._owner_of)
                yield path
        self._store = None

    def _owner_of(self, batch: str) -> Owner | None:
        return None if self._worker is None else self._worker.owner(batch)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Batches run in the block, also those of an earlier start."""
        if self._store is None or self._access.internal is None:
            yield
            return
        settings, socket = self._settings, self._access.internal.path
        window = WINDOW * settings.default.parallel
        worker = Worker(self._store, socket, window, settings, self._access.grant_of)
        try:
            async with worker as self._worker:
                yield
        finally:
            self._worker = None

    # Files

    async def require_room(self, caller: Caller, size: int) -> None:
        """RequestError if a file of this size would be too large, or if there is no room for it."""
        self._require_size(size)
        with _within():
            self.store.room.require(size)
            if (count := await self.store.count("files", caller.owner)) >= MOST_FILES:
                raise TooMany("files", count)

    def grow(self, id: str, size: int, more: int) -> None:
        """Counts `more` bytes of an upload, which has `size` with them, before they are written."""
        self._require_size(size)
        with _within():
            self.store.room.grow(id, more)

    async def add_file(self, file: StoredFile) -> None:
        """Adds a file whose bytes are counted and written; RequestError if its owner has the most."""
        with _within():
            await self.store.add_file(file, MOST_FILES)

    def _require_size(self, size: int) -> None:
        if size > self._settings.max_file:
            message = f"the file has {size} bytes or more; it may have {self._settings.max_file} (--max-file)"
            raise RequestError(message, param="file", status=413, code="file_too_large")

    async def file(self, id: str, caller: Caller) -> StoredFile:
        """A file of the caller; RequestError 404."""
        if (found := await self.store.file(id, caller.owner)) is None:
            raise RequestError(
                f"you have no file {id[:100]}", param="file_id", status=404, code="no_such_file"
            )
        return found

    async def files(self, page: Page, caller: Caller) -> list[StoredFile]:
        """A page of the caller's files, and one more if there is one; RequestError."""
        with _known(page):
            return await self.store.files(
                caller.owner, purpose=page.purpose, after=page.after, limit=page.limit + 1,
                newest_first=page.newest_first,
            )  # fmt: skip

    async def delete(self, file: StoredFile) -> None:
        """Removes a file; RequestError 409 if it is in use."""
        if (user := await self.store.remove_file(file)) is not None:
            message = f"the file is the input of {user}, which is not over; cancel that first"
            raise RequestError(message, param="file_id", status=409, code="file_in_use")

    # Batches

    async def create(self, asked: AskedBatch, caller: Caller) -> Batch:
        """A new batch of the caller; RequestError."""
        worker = self.worker
        file = await self.file(asked.input_file_id, caller)
        if file.purpose != "batch":
            message = f"the file has the purpose {file.purpose}; the input of a batch has batch"
            raise RequestError(message, param="input_file_id")
        now, grant = int(time.time()), caller.grant
        batch = Batch(
            id=new_id("batch_"),
            owner=caller.owner,
            token=grant.model_dump(mode="json") if isinstance(grant, Token) else None,
            endpoint=asked.endpoint,
            input_file_id=file.id,
            completion_window=asked.window,
            created_at=now,
            expires_at=now + asked.seconds,
            keep=asked.keep,
            metadata=asked.metadata,
        )
        with _within():
            await self.store.add(batch, MOST_OPEN, MOST_BATCHES)
        worker.add(batch)
        return batch

    async def batch(self, id: str, caller: Caller) -> Batch:
        """A batch of the caller as it is now; RequestError 404."""
        found = await self.store.batch(id, caller.owner)
        if found is None:
            raise RequestError(
                f"you have no batch {id[:100]}", param="batch_id", status=404, code="no_such_batch"
            )
        return self._now(found)

    async def batches(self, page: Page, caller: Caller) -> list[Batch]:
        """A page of the caller's batches, and one more if there is one; RequestError."""
        with _known(page):
            found = await self.store.batches(caller.owner, after=page.after, limit=page.limit + 1)
        return list(map(self._now, found))

    def _now(self, batch: Batch) -> Batch:
        return batch if self._worker is None else self._worker.now(batch)

    async def cancel(self, batch: Batch) -> Batch:
        """Cancels a batch; RequestError 409 if it is over."""
        if (now := await self.worker.cancel(batch)) is None:
            message = f"the batch is {batch.status}; only one that is not over can be cancelled"
            raise RequestError(message, param="batch_id", status=409, code="batch_over")
        return now


@contextlib.contextmanager
def _within() -> Iterator[None]:
    """RequestError for what goes beyond a bound of the store."""
    try:
        yield
    except NoRoom as error:
        message = f"all files here have {error.used} bytes, and may have {error.most} (--files-size); "
        raise RequestError(message + f"no room for {error.size}", status=503, code="no_room") from None
    except TooMany as error:
        raise _too_many(error) from None


def _too_many(error: TooMany) -> RequestError:
    if error.of == "files":
        message = f"you have {error.count} files, which is the most; delete some, or wait until they expire"
        return RequestError(message, status=403, code="too_many_files")
    if error.of == "open_batches":
        message = f"{error.count} batches of yours are not over, which is the most"
        return RequestError(message, status=429, code="too_many_batches", retry_after=60)
    days = KEPT // DAY
    message = f"you have {error.count} batches, which is the most; each is forgotten {days} days after "
    return RequestError(message + "its end", status=403, code="too_many_batches")


@contextlib.contextmanager
def _known(page: Page) -> Iterator[None]:
    try:
        yield
    except UnknownId:
        raise wrong("after", page.after, "the id of one of yours") from None
