"""Faults of the prefix cache's folder, its files or its disk cost time, but no request fails."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real.test_fingerprint import hashing_blocked, kv_files
from tests.real.test_prefix import n_computed, words
from tests.real.test_store import PROMPT, Shelf, age, story, wait_for_files
from tests.support.disks import small_disk
from tests.support.lines import LIMIT
from tests.support.paced import Paced

OTHER = words(2, 200)
IS_ROOT = os.geteuid() == 0


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    shelf = Shelf(tmp_path)
    shelf.folder.mkdir()
    return shelf


@pytest.fixture(scope="module")
def whole_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shelf = Shelf(tmp_path_factory.mktemp("whole"))
    shelf.ask()
    return shelf.file


# Foreign entries of the folder


def make_socket(path: Path) -> None:
    with contextlib.chdir(path.parent), socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)  # relative: a socket's path has at most 108 bytes


def make_full_folder(path: Path) -> None:
    path.mkdir()
    (path / "file").write_text("x")


THINGS: dict[str, Callable[[Path], object]] = {
    "a FIFO": os.mkfifo,
    "a socket": make_socket,
    "a folder": Path.mkdir,
    "a folder with a file": make_full_folder,
    "a link to a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to a terminal": lambda path: path.symlink_to("/dev/tty"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to a folder": lambda path: path.symlink_to("."),
}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_an_entry_that_is_no_file_is_ignored(
    shelf: Shelf, whole_file: Path, make: Callable[[Path], object]
) -> None:
    """Under its own name, under the name of the prompt's file, and under that file's temporary name."""
    with shelf.engine() as engine:
        for name in ("thing.kv", whole_file.name, f"{whole_file.name}.{engine.pid}"):
            make(shelf.folder / name)
        answer = engine.generate(**story())
        assert answer.lengths == [12, 12]
        assert answer.start["cached_tokens"] == 0
        log = engine.finish()
    assert 1 <= log.count("prefix cache") <= 4, log
    assert (shelf.folder / "thing.kv").lstat()
    answer, _ = shelf.ask()
    assert n_computed(answer) == 1 or (shelf.folder / whole_file.name).is_dir()


def test_a_link_is_not_followed(shelf: Shelf, whole_file: Path, tmp_path: Path) -> None:
    """Neither to read nor to write: its target is outside of the folder."""
    precious = tmp_path / "precious"
    precious.write_text("a letter")
    with shelf.engine() as engine:
        for name in ("link.kv", f"{whole_file.name}.{engine.pid}"):
            (shelf.folder / name).symlink_to(precious)
        engine.generate(**story())
        engine.finish()
    assert precious.read_text() == "a letter"
    assert n_computed(shelf.ask()[0]) == 1


def test_a_name_with_a_newline_is_one_line_in_the_log(shelf: Shelf) -> None:
    (shelf.folder / "a\nllama-batched: prefix cache: all is lost\x1b[2J\udcff.kv").write_text("no prefix")
    answer, log = shelf.ask()
    (line,) = log
    assert answer.start["cached_tokens"] == 0
    assert line.endswith("not a prefix of this version")
    assert line.isascii()
    assert line.isprintable()


def test_files_that_are_not_ours_to_remove_stay(shelf: Shelf) -> None:
    """Only prefixes are removed to keep the folder within its size."""
    strange = ["letter.txt", "notes.kv.txt", "old.kv", "my.kv.backup"]
    for name in strange:
        (shelf.folder / name).write_bytes(b"x" * 100_000)
    age(shelf)
    shelf.ask("--prefix-cache-size", "1")
    assert sorted(path.name for path in shelf.folder.iterdir() if path.name in strange) == sorted(strange)


@pytest.mark.skipif(not IS_ROOT, reason="only root may give a file to somebody else")
def test_a_file_of_another_user_is_not_read(shelf: Shelf) -> None:
    shelf.ask()
    os.chown(shelf.file, 12345, -1)
    answer, log = shelf.ask()
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)
    assert n_computed(shelf.ask()[0]) == 1, "one of our own is in its place now"


def test_half_written_files_of_ended_processes_are_removed(shelf: Shelf, whole_file: Path) -> None:
    for pid in (11111, 22222):
        (shelf.folder / f"{whole_file.name}.{pid}").write_bytes(b"x" * 1000)
    hour_ago = time.time() - 3600
    os.utime(shelf.folder / f"{whole_file.name}.11111", (hour_ago, hour_ago))
    shelf.ask()
    assert [path.name for path in kv_files(shelf)] == [whole_file.name, f"{whole_file.name}.22222"]


# Faults of the folder


def test_a_folder_that_was_deleted_is_made_again(shelf: Shelf) -> None:
    with shelf.engine() as engine:
        engine.generate(**story())
        wait_for_files(engine, shelf, 1)
        shutil.rmtree(shelf.folder)
        engine.generate(**story(OTHER))
        wait_for_files(engine, shelf, 1)
        assert "prefix cache" not in engine.finish()
    assert oct(shelf.folder.stat().st_mode & 0o777) == "0o700"
    assert n_computed(shelf.ask(prompt=OTHER)[0]) == 1


def test_a_file_in_the_place_of_the_folder_is_a_line_in_the_log(shelf: Shelf) -> None:
    with shelf.engine() as engine:
        shutil.rmtree(shelf.folder)
        shelf.folder.write_text("a file")
        for seed in range(3, 6):
            assert engine.generate(**story(words(seed, 200))).lengths == [12, 12]
        log = engine.finish()
    assert 1 <= log.count("prefix cache") <= 2
    assert shelf.folder.read_text() == "a file"


@pytest.mark.skipif(IS_ROOT, reason="root may read and write everything")
@pytest.mark.parametrize("mode", [0o500, 0o300, 0o000], ids=["no writing", "no listing", "nothing"])
def test_a_folder_that_may_not_be_used_is_a_line_in_the_log(shelf: Shelf, mode: int) -> None:
    shelf.ask()
    with shelf.engine() as engine:
        shelf.folder.chmod(mode)
        for prompt in (PROMPT, OTHER, words(3, 200)):
            assert engine.generate(**story(prompt)).lengths == [12, 12]
        log = engine.finish()
        shelf.folder.chmod(0o700)
    assert log.count("prefix cache") <= 3
    assert n_computed(shelf.ask()[0]) == 1


def test_a_deleted_file_loses_its_entry_and_is_written_again(shelf: Shelf) -> None:
    """An evicted prefix is written again, since its file is missing."""
    with shelf.engine("-c", "512", "--cache-ram", "0") as engine:
        engine.generate(**story())
        wait_for_files(engine, shelf, 1)
        shelf.file.unlink()
        engine.generate(**story("Once", n=1))  # looks at the folder; what it sees is known to the next one
        for seed in (5, 6):  # evict it
            engine.generate(**story(words(seed, 200)))
        wait_for_files(engine, shelf, 3)
        assert n_computed(engine.generate(**story())) <= 1
        engine.finish()


# Faults of the disk


@pytest.fixture
def narrow(shelf: Shelf) -> Iterator[Shelf]:
    """A file system that holds three prompts."""
    with small_disk(shelf.folder, "3m"):
        yield shelf


def test_on_a_full_disk_the_least_recently_used_prefix_is_removed(narrow: Shelf) -> None:
    prompts = [words(seed, 200) for seed in range(1, 6)]
    (narrow.folder / "letter.txt").write_text("not ours")
    for prompt in prompts:
        assert narrow.ask(prompt=prompt)[1] == []
        age(narrow)
    assert 2 <= len(kv_files(narrow)) <= 3
    assert n_computed(narrow.ask(prompt=prompts[-1])[0]) == 1
    assert narrow.ask(prompt=prompts[0])[0].start["cached_tokens"] < 10
    assert (narrow.folder / "letter.txt").exists()


def test_a_limit_of_files_sizes_is_a_line_in_the_log(shelf: Shelf) -> None:
    """Under ulimit -f (LimitFSIZE) the system by default kills a process that writes a larger file."""
    shelf.ask(prompt=OTHER)
    with shelf.engine() as engine:
        resource.prlimit(engine.pid, resource.RLIMIT_FSIZE, (100_000, 100_000))
        for prompt in (PROMPT, words(3, 200)):
            assert engine.generate(**story(prompt)).lengths == [12, 12]
        log = engine.finish()
    assert log.count("prefix cache") == 1, "the same fault is told once"
    assert len(kv_files(shelf)) == 1, "the one that is there does no harm"
    assert n_computed(shelf.ask(prompt=OTHER)[0]) == 1


# The disk's thread


def read_bytes(engine: Paced) -> dict[str, int]:
    """The bytes that each thread of the engine has read from files, by the thread's name."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{engine.pid}/task").iterdir():
        name = (task / "comm").read_text().strip()
        n = int((task / "io").read_text().split()[1])
        found[name] = found.get(name, 0) + n
    return found


def test_files_are_read_and_checked_by_a_thread_of_their_own(shelf: Shelf) -> None:
    shelf.ask()
    size = shelf.file.stat().st_size
    with shelf.engine() as engine:
        engine.generate(**story("Once"))
        before = read_bytes(engine)
        assert n_computed(engine.generate(**story())) == 1
        after = read_bytes(engine)
        engine.finish()
    grown = {name: n - before[name] for name, n in after.items() if n - before[name] > size // 2}
    assert [*grown] == ["prefix-cache"]
    assert size <= grown["prefix-cache"] <= size + 4096 + size // 2


def test_prefixes_that_wait_to_be_written_are_bounded(shelf: Shelf) -> None:
    """In number, as short prompts show."""
    n = 90
    with hashing_blocked(shelf) as release, shelf.engine("--cache-cells", "0", "--cache-ram", "0") as engine:
        for seed in range(n):
            engine.generate(**story(words(seed, 75), n=1, max_tokens=1, min_tokens=1))
        release()
        log = engine.finish()
    assert 60 <= len(kv_files(shelf)) <= 64
    assert log.count("prefix cache") == 1


def test_prefixes_that_wait_to_be_written_are_bounded_in_bytes(shelf: Shelf) -> None:
    with hashing_blocked(shelf) as release, shelf.engine("--cache-cells", "0", "--cache-ram", "0") as engine:
        for seed in range(22):  # snapshots of 4 MB each
            engine.generate(**story(words(seed, 900), n=1, max_tokens=1, min_tokens=1))
        release()
        engine.finish()
    n_bytes = sum(file.stat().st_size for file in kv_files(shelf))
    assert 50_000_000 < n_bytes <= 64 << 20


def test_a_process_that_ends_does_not_wait_for_a_disk_that_hangs(shelf: Shelf) -> None:
    with hashing_blocked(shelf), shelf.engine() as engine:
        engine.generate(**story())
        begin = time.monotonic()
        log = engine.finish()
        assert time.monotonic() - begin < LIMIT / 4
    assert kv_files(shelf) == []
    assert "1 prefixes are not written" in log


def test_a_request_does_not_wait_for_a_disk_that_hangs(shelf: Shelf) -> None:
    """It may wait during the first second only, in which most models are hashed."""
    with hashing_blocked(shelf), shelf.engine() as engine:
        engine.generate(**story())
        begin = time.monotonic()
        for seed in range(10):
            engine.generate(**story(words(seed, 100), n=1))
        assert time.monotonic() - begin < LIMIT / 12
