"""The rows and contents of files and batches: what expires, what is removed, what is left after a crash."""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from llama_srb.batch.database import StoreError
from llama_srb.batch.records import Batch, FoundError, StoredFile, new_id
from llama_srb.batch.room import NoRoom
from llama_srb.batch.store import Store, UnknownId

NOW = int(time.time())


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with Store(tmp_path / "files") as store:
        yield store


async def stored(
    store: Store, owner: str = "ann", seconds: int = 3600, content: bytes = b"x\n"
) -> StoredFile:
    id = new_id("file-")
    store.upload(id).write_bytes(content)
    file = StoredFile(id, owner, "in.jsonl", len(content), "batch", NOW, NOW + seconds, f"uploads/{id}")
    await store.add_file(file)
    return file


def batch_of(file: StoredFile, owner: str = "ann") -> Batch:
    return Batch(new_id("batch_"), owner, None, "/v1/completions", file.id, "24h", NOW, NOW + 86400, 3600)


def found(folder: Path, pattern: str) -> list[Path]:
    return sorted(folder.glob(pattern))


async def listed(store: Store, owner: str = "ann") -> list[StoredFile]:
    return await store.files(owner, purpose=None, after=None, limit=9, newest_first=False)


async def test_a_file_that_has_expired_is_not_seen_and_then_removed(store: Store) -> None:
    old, new = await stored(store, seconds=-1), await stored(store)
    assert await listed(store) == [new]
    assert await store.file(old.id, "ann") is None
    assert await store.expired(NOW) == [old]
    assert await store.remove_file(old) is None
    assert (store.content(old).exists(), store.content(new).exists()) == (False, True)


async def test_the_input_of_an_open_batch_stays(store: Store) -> None:
    file = await stored(store, seconds=-1)
    batch = batch_of(file)
    await store.save(batch)
    assert await store.expired(NOW) == []
    assert await store.remove_file(file) == batch.id
    assert store.content(file).exists()
    await store.save(replace(batch, status="completed", times={"completed": NOW}))
    assert await store.expired(NOW) == [file]
    assert await store.remove_file(file) is None


async def test_a_batch_is_saved_as_it_is(store: Store) -> None:
    file = await stored(store)
    errors = (FoundError("a", "b", 7, "c"), FoundError("d", "e"))
    batch = replace(
        batch_of(file), errors=errors, metadata={"é": "x"}, times={"failed": NOW}, status="failed",
        token={"name": "ann"}, total=5,
    )  # fmt: skip
    await store.save(batch)
    assert await store.batch(batch.id, "ann") == batch
    assert await store.batch(batch.id, "bob") is None
    assert await store.open_batches() == []


async def test_batches_that_ended_long_ago_are_forgotten(store: Store) -> None:
    old, new, still = [batch_of(await stored(store)) for _ in range(3)]
    await store.save(replace(old, status="completed", times={"completed": NOW - 10}))
    await store.save(replace(new, status="completed", times={"completed": NOW}))
    await store.save(still)
    await store.forget_batches(NOW - 5)
    assert [one.id for one in await store.batches("ann", after=None, limit=9)] == [still.id, new.id]


async def test_the_folder_of_a_batch_goes_with_its_last_output(store: Store) -> None:
    batch = batch_of(await stored(store))
    out = store.output(batch)
    errors = out.with_name(out.name + ".errors.jsonl")
    out.parent.mkdir()
    files = []
    for path in (out, errors):
        path.write_text("x\n")
        id = new_id("file-")
        files.append(StoredFile(id, "ann", "x", 2, "batch_output", NOW, NOW + 9, store.relative(path)))
    out.with_name(out.name + ".state").write_text("{}")
    await store.save(replace(batch, status="completed"), *files)
    await store.remove_file(files[0])
    assert errors.exists()
    await store.remove_file(files[1])
    assert not out.parent.exists()


async def test_an_unknown_id_begins_no_page(store: Store) -> None:
    theirs = await stored(store, "bob")
    for id in (theirs.id, "none"):
        with pytest.raises(UnknownId):
            await store.files("ann", purpose=None, after=id, limit=9, newest_first=True)


async def test_the_bytes_are_of_all_and_the_count_is_the_owners(tmp_path: Path) -> None:
    async with Store(tmp_path) as store:
        await stored(store, content=b"x" * 10)
        gone = await stored(store, content=b"x" * 7)
        await stored(store, "bob", content=b"x" * 5)
        await store.remove_file(gone)
        assert (store.room.used, await store.count("files", "ann")) == (15, 1)
    async with Store(tmp_path) as store:
        assert store.room.used == 15


async def test_the_output_of_an_open_batch_is_counted_once(tmp_path: Path) -> None:
    async with Store(tmp_path, most=100) as store:
        batch = batch_of(await stored(store, content=b"x" * 10))
        await store.save(batch)
        store.room.begin(batch.id, 20)
        store.room.grow(batch.id, 30)
        assert store.room.used == 60
        with pytest.raises(NoRoom, match=r"have 60 bytes, and may have 100 \(--files-size\); .* of 41\. "):
            store.room.grow(batch.id, 41)
        output = StoredFile(
            new_id("file-"), "ann", "x", 50, "batch_output", NOW, NOW + 9, "batches/x/out.jsonl"
        )
        await store.save(replace(batch, status="completed"), output)
        assert store.room.used == 60


async def test_what_the_database_has_named_is_removed_at_the_next_start(tmp_path: Path) -> None:
    folder = tmp_path / "files"
    async with Store(folder) as store:
        file, gone = await stored(store), await stored(store)
        batch, ended, noted = batch_of(file), *(replace(batch_of(file), status="cancelled") for _ in range(2))
        for one in (batch, ended, noted):
            await store.save(one)
            store.output(one).parent.mkdir()
            store.output(one).write_text("x")
        note = store.output(noted).with_name("notes")
        note.write_text("of another program")
        cut = store.uploading("file-cut")  # the process is killed in the block
        (await cut.__aenter__()).write_text("half")
        store.content(gone).unlink()
        store.content(gone).mkdir()  # a disk that fails for a time
        await store.remove_file(gone)
        store.content(gone).rmdir()
        store.content(gone).write_text("x")
    async with Store(folder):
        assert [one.name for one in (folder / "uploads").iterdir()] == [file.id]
        assert {one.name for one in (folder / "batches").iterdir()} == {batch.id, noted.id}
        assert list(note.parent.iterdir()) == [note]


async def test_an_upload_that_fails_leaves_nothing(store: Store) -> None:
    with contextlib.suppress(ValueError):
        async with store.uploading("file-a") as path:
            path.write_text("x")
            raise ValueError
    assert not path.exists()
    async with store.uploading("file-b") as path:
        path.write_text("x")
        await store.add_file(StoredFile("file-b", "ann", "x", 1, "batch", NOW, NOW + 9, "uploads/file-b"))
    assert path.exists()


async def test_files_that_the_database_does_not_know_stay_and_are_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the database is lost, where an older one is put in its place, or where others keep files."""
    async with Store(tmp_path) as store:
        file, batch = await stored(store), batch_of(await stored(store))
        await store.save(batch)
        store.output(batch).parent.mkdir()
        store.output(batch).write_text("x")
    (tmp_path / "uploads" / "a letter").write_text("not ours")
    before = found(tmp_path, "*/**/*")
    for path in found(tmp_path, "batches.db*"):
        path.unlink()
    async with Store(tmp_path):
        assert found(tmp_path, "*/**/*") == before
    (line,) = caplog.messages
    assert f"--files-dir {tmp_path}: 4 files or folders are not in its database, and stay: " in line
    assert f"uploads/{file.id}" in line


async def test_only_the_owner_of_the_process_reads_the_database(tmp_path: Path) -> None:
    async with Store(tmp_path) as store:
        await stored(store)
        modes = {path.name: path.stat().st_mode & 0o777 for path in found(tmp_path, "batches.db*")}
    assert modes == dict.fromkeys(("batches.db", "batches.db-wal", "batches.db-shm"), 0o600)


async def test_a_later_format_is_refused(tmp_path: Path) -> None:
    async with Store(tmp_path):
        pass
    with sqlite3.connect(tmp_path / "batches.db") as db:
        db.execute("PRAGMA user_version = 2")
    db.close()
    with pytest.raises(StoreError, match="has the format 2; this version reads 1"):
        async with Store(tmp_path):
            pass
