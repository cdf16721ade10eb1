"""The hashes in `system_fingerprint`: what changes them, and what they do not read."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from llama_srb.models import fingerprint, gguf_header
from tests.support.models import write_model
from tests.support.places import STORYTELLER

TIB = 1 << 40


def hash_of(path: Path) -> str:
    return fingerprint.of_model(gguf_header.read(path))


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copy2(STORYTELLER, tmp_path / "copy.gguf"))


def rename_in_the_header(path: Path) -> None:
    before = path.stat()
    data = path.read_bytes()
    assert data.count(b"Storyteller") == 1
    path.write_bytes(data.replace(b"Storyteller", b"Otherteller"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def lengthen(path: Path) -> None:
    before = path.stat()
    with path.open("ab") as file:
        file.write(b"\0")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def touch(path: Path) -> None:
    before = path.stat()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize("change", [rename_in_the_header, lengthen, touch])
def test_header_size_and_time_change_a_models_hash(copy: Path, change: Callable[[Path], None]) -> None:
    before = hash_of(copy)
    assert before == hash_of(STORYTELLER), "its folder and its name do not count"
    change(copy)
    assert hash_of(copy) != before


def test_weights_are_not_read(copy: Path) -> None:
    """A file of a tebibyte, which nobody hashes in the time of a test."""
    os.truncate(copy, TIB)
    before = hash_of(copy)
    with copy.open("r+b") as file:
        file.seek(TIB // 2)
        file.write(b"other")
    os.utime(copy, ns=(0, 0))
    assert hash_of(copy) != before, "its time"
    os.utime(copy, ns=(0, 0))
    assert len(hash_of(copy)) == 8


def test_each_part_of_a_split_model_counts(tmp_path: Path) -> None:
    write_model(tmp_path / "split.gguf", "llama", split_max_tensors=8)
    first, *others = sorted(tmp_path.glob("split-*.gguf"))
    assert fingerprint.parts_of(first) == [first, *others]
    assert len(others) >= 2
    before = hash_of(first)
    touch(others[-1])
    assert hash_of(first) != before
    others[-1].unlink()
    assert len(hash_of(first)) == 8, "the engine says what is missing"


def test_ids_names_and_sizes_change_the_adapters_hash(tmp_path: Path) -> None:
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    one.write_bytes(b"1234")
    other.write_bytes(b"1234")
    rows = [{"id": 0, "path": str(one), "scale": 1.0}, {"id": 1, "path": str(other), "scale": 1.0}]
    swapped = [rows[0] | {"path": str(other)}, rows[1] | {"path": str(one)}]
    before = fingerprint.of_adapters(rows)
    hashes = {before, *map(fingerprint.of_adapters, ([], rows[:1], swapped, [rows[0] | {"id": 1}]))}
    other.write_bytes(b"12345")
    assert len(hashes | {fingerprint.of_adapters(rows)}) == 6
    other.write_bytes(b"4321")
    assert fingerprint.of_adapters(rows) == before
