"""Fingerprints of models: two models that differ anywhere share no prefix, in cells, memory or on disk."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_prefix import n_computed, words
from tests.real.test_store import PROMPT, ROOMY, Shelf, story
from tests.support.lines import Lines
from tests.support.models import write_adapter, write_model
from tests.support.paced import Paced
from tests.support.places import STORYTELLER

MANY = 200  # bytes of weights that are changed


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def change_the_middle(path: Path, n: int = MANY) -> None:
    """Changes weights far from both ends of the file, but neither its size nor its times."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(before.st_size // 2)
        data = file.read(n)
        file.seek(before.st_size // 2)
        file.write(bytes(byte ^ 0x55 for byte in data))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def copied(path: Path, source: Path = STORYTELLER) -> Path:
    """Makes a copy that is an hour old: hashes are remembered only of files that were not written lately."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, path)
    hour_ago = path.stat().st_mtime - 3600
    os.utime(path, (hour_ago, hour_ago))
    return path


# Models


def test_a_model_that_differs_only_in_the_middle_shares_nothing(shelf: Shelf, tmp_path: Path) -> None:
    one, other = copied(tmp_path / "one.gguf"), copied(tmp_path / "other.gguf")
    change_the_middle(other)
    shelf.ask(model=one)
    answer, log = shelf.ask(model=other)
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)
    assert "of another model or other settings" in log[0]
    assert [n_computed(shelf.ask(model=model)[0]) for model in (one, other)] == [1, 1]  # both are cached now


def write_split_model(folder: Path) -> list[Path]:
    folder.mkdir()
    write_model(folder / "model.gguf", "llama", split_max_tensors=10)
    return sorted(folder.glob("model-*-of-*.gguf"))


def test_a_split_model_whose_second_part_differs_shares_nothing(shelf: Shelf, tmp_path: Path) -> None:
    one, other = write_split_model(tmp_path / "one"), write_split_model(tmp_path / "other")
    assert len(one) > 1
    change_the_middle(other[1])
    assert one[0].read_bytes() == other[0].read_bytes()
    shelf.ask(model=one[0])
    answer, log = shelf.ask(model=other[0])
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)
    again, log = shelf.ask(model=one[0])
    assert n_computed(again) == 1


def test_the_same_weights_under_another_name_are_the_same_model(shelf: Shelf, tmp_path: Path) -> None:
    shelf.ask(model=copied(tmp_path / "one.gguf"))
    answer, log = shelf.ask(model=copied(tmp_path / "elsewhere" / "other.gguf"))
    assert (n_computed(answer), log) == (1, [])


SETTINGS: dict[str, tuple[str, ...]] = {
    "scaling of rope": ("--rope-scaling", "yarn", "--yarn-orig-ctx", "256"),
    "a small scale of rope": ("--rope-freq-scale", "0.99999999"),
    "a number of the file": ("--override-kv", "llama.attention.layer_norm_rms_epsilon=float:0.01"),
}


@pytest.mark.parametrize("flags", SETTINGS.values(), ids=SETTINGS)
def test_settings_that_change_what_cells_hold_share_nothing(shelf: Shelf, flags: tuple[str, ...]) -> None:
    shelf.ask()
    answer, log = shelf.ask(*flags)
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)


# A file's hash is remembered


def hash_lines(shelf: Shelf) -> list[str]:
    return (shelf.folder / "fingerprints").read_text().splitlines()


def test_a_file_is_hashed_once(shelf: Shelf, tmp_path: Path) -> None:
    """A second process does not read the file: it misses changed weights with the same size and times."""
    model = copied(tmp_path / "model.gguf")
    for _ in range(2):
        shelf.ask(model=model)
        assert len(hash_lines(shelf)) == 1
    change_the_middle(model, n=1)
    assert n_computed(shelf.ask(model=model)[0]) == 1
    later = model.stat().st_mtime_ns + 1
    os.utime(model, ns=(later, later))  # one nanosecond
    answer, log = shelf.ask(model=model)
    assert (answer.start["cached_tokens"], len(log)) == (0, 1)
    assert len(hash_lines(shelf)) == 2


def test_a_file_that_was_written_a_moment_ago_is_hashed_again(shelf: Shelf, tmp_path: Path) -> None:
    """It may change again within the same tick of the file system's clock."""
    model = tmp_path / "model.gguf"
    write_model(model, "llama")
    shelf.ask(model=model)
    assert hash_lines(shelf) == []


SPOILED: dict[str, Callable[[Path], object]] = {
    "rubbish": lambda path: path.write_bytes(os.urandom(5000)),
    "one digit changed": lambda path: path.write_bytes(spoil(path.read_bytes(), -30)),
    "half a line": lambda path: path.write_bytes(path.read_bytes()[:50]),
    "too long": lambda path: path.write_bytes(b"0123456789abcde\n" * 100_000),
    "a FIFO": lambda path: (path.unlink(), os.mkfifo(path)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "a link": lambda path: (path.rename(path.with_suffix(".old")), path.symlink_to(path.with_suffix(".old"))),
}


def spoil(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] = ord("1") if changed[place] == ord("0") else ord("0")
    return bytes(changed)


@pytest.mark.parametrize("change", SPOILED.values(), ids=SPOILED)
def test_a_damaged_list_of_hashes_costs_time_only(
    shelf: Shelf, tmp_path: Path, change: Callable[[Path], object]
) -> None:
    model = copied(tmp_path / "model.gguf")
    shelf.ask(model=model)
    change(shelf.folder / "fingerprints")
    answer, _ = shelf.ask(model=model)
    assert n_computed(answer) == 1


# While the file is hashed


@contextmanager
def hashing_blocked(shelf: Shelf) -> Iterator[Callable[[], None]]:
    """Holds the lock under which one process at a time hashes a model; yields the function that frees it."""
    shelf.folder.mkdir(exist_ok=True)
    with (shelf.folder / "fingerprints").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield lambda: fcntl.flock(file, fcntl.LOCK_UN)


def kv_files(shelf: Shelf) -> list[Path]:
    return sorted(shelf.folder.glob("*.kv*"))


def test_until_the_model_is_hashed_nothing_is_restored_or_written(shelf: Shelf, tmp_path: Path) -> None:
    model = tmp_path / "model.gguf"
    write_model(model, "llama")  # written now, so that its hash is not remembered
    shelf.ask(model=model)
    (first,) = kv_files(shelf)
    other = words(2, 200)
    with hashing_blocked(shelf) as release, shelf.engine(model=model) as engine:
        for prompt in (PROMPT, other):
            assert engine.generate(**story(prompt)).start["cached_tokens"] <= 2
        assert kv_files(shelf) == [first]
        release()
        engine.finish()  # prefixes that waited for the hash are written now
    assert len(kv_files(shelf)) == 2
    assert [n_computed(shelf.ask(prompt=prompt, model=model)[0]) for prompt in (PROMPT, other)] == [1, 1]


def test_a_model_that_is_replaced_while_it_is_loaded_shares_nothing(shelf: Shelf, tmp_path: Path) -> None:
    model = copied(tmp_path / "model.gguf")
    shelf.ask(model=model)
    with hashing_blocked(shelf) as release:
        (shelf.folder / "fingerprints").write_text("")
        with shelf.engine(model=model) as engine:
            copied(tmp_path / "new.gguf").replace(model)
            assert engine.generate(**story()).start["cached_tokens"] == 0
            release()
            log = engine.finish()
    assert "were replaced while they were loaded" in log
    assert len(kv_files(shelf)) == 1


def test_without_a_prefix_cache_no_file_is_hashed(tmp_path: Path) -> None:
    with Paced(tmp_path / "log", *ROOMY) as engine:
        threads = [path.read_text().strip() for path in Path(f"/proc/{engine.pid}/task").glob("*/comm")]
    assert "prefix-cache" not in threads


# Adapters


BIG = 1200  # the rank of an adapter of 4 MB: more than both ends of a MiB


@pytest.fixture(scope="module")
def adapters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and two adapters that differ only in the middle."""
    folder = tmp_path_factory.mktemp("adapters")
    write_model(folder / "model.gguf", "llama")
    write_adapter(folder / "0.gguf", "llama", 0, rank=BIG)
    shutil.copy(folder / "0.gguf", folder / "1.gguf")
    change_the_middle(folder / "1.gguf")
    return folder


def cached_with(engine: Lines, id: int, **fields: Any) -> int:
    request = {"prompt": PROMPT, "lora": [{"id": id, "scale": 0.001}], "n": 1, "max_tokens": 4} | fields
    cached: int = engine.generate(**request).start["cached_tokens"]
    return cached


@pytest.mark.parametrize("on_disk", [False, True], ids=["in cells", "on disk"])
def test_adapters_that_differ_only_in_the_middle_share_nothing(
    adapters: Path, shelf: Shelf, tmp_path: Path, on_disk: bool
) -> None:
    model = adapters / "model.gguf"
    both = ("--lora", f"{adapters / '0.gguf'},{adapters / '1.gguf'}")
    folder = ("--prefix-cache", str(shelf.folder)) if on_disk else ()
    with Paced(tmp_path / "a", *ROOMY, *both, *folder, model=model) as engine:
        assert [cached_with(engine, id) for id in (0, 1)] == [0, 0]
        assert [cached_with(engine, id) > 100 for id in (0, 1)] == [True, True]
        engine.finish()
    for name in ("0", "1") if on_disk else ():
        alone = ("--lora", str(adapters / f"{name}.gguf"))
        with Paced(tmp_path / name, *ROOMY, *alone, *folder, model=model) as engine:
            assert cached_with(engine, 0) > 100, "it is the same adapter, whatever its number"
    if on_disk:
        shutil.copy(adapters / "0.gguf", tmp_path / "2.gguf")
        change_the_middle(tmp_path / "2.gguf", n=1)
        with Paced(
            tmp_path / "c", *ROOMY, "--lora", str(tmp_path / "2.gguf"), *folder, model=model
        ) as engine:
            assert cached_with(engine, 0) == 0
