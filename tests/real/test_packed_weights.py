"""Packed weights come from a file at the second start; one that does not fit is written anew."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reference.models import write_packable
from tests.support.lines import LIMIT
from tests.support.paced import Paced
from tests.support.places import BINARY

HUGE_PAGE = 2 << 20
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LONG_AGO = time.time() - 3600  # a file that has just changed may change again within the same tick


class Packed:
    """A model and the folder for its packed weights."""

    def __init__(self, folder: Path) -> None:
        self.model = folder / "m.gguf"
        self.folder = folder / "packed"
        write_packable(self.model)
        os.utime(self.model, (LONG_AGO, LONG_AGO))

    @property
    def files(self) -> list[Path]:
        return sorted(self.folder.glob("*"))

    @property
    def file(self) -> Path:
        [file] = self.files
        assert file.suffix == ".packed"
        return file

    def engine(self) -> Paced:
        flags = ("-t", "1", "--packed-weights", str(self.folder))
        return Paced(self.model.with_name("log"), *flags, model=self.model)

    def ask(self) -> tuple[list[str], bool]:
        """The texts of an engine that has just started, and whether it has mapped a file of the folder."""
        with self.engine() as engine:
            mapped = bool(mapped_bytes(engine, self.folder))
            texts = ask(engine)
            engine.finish()  # what is written to disk, too
            return texts, mapped


def ask(engine: Paced) -> list[str]:
    return engine.generate(prompt="Once upon a time", n=4, max_tokens=12, sampling={"seed": 5}).texts


def mapped_bytes(engine: Paced, path: Path) -> int:
    """How much a process has mapped of a file, or of the files of a folder."""
    lines = Path(f"/proc/{engine.pid}/maps").read_text().splitlines()
    spans = [line.split()[0].split("-") for line in lines if str(path) in line]
    return sum(int(end, 16) - int(begin, 16) for begin, end in spans)


@pytest.fixture
def packed(tmp_path: Path) -> Packed:
    return Packed(tmp_path)


def test_the_second_start_maps_what_the_first_has_written(packed: Packed) -> None:
    first, mapped = packed.ask()
    assert not mapped
    written = packed.file.stat()
    assert written.st_mode & 0o777 == 0o600
    assert packed.ask() == (first, True)
    assert packed.file.stat() == written or packed.file.stat().st_mtime_ns == written.st_mtime_ns


@pytest.mark.skipif(not THP.exists() or "[never]" in THP.read_text(), reason="no huge pages here")
def test_mapped_weights_are_copied_into_huge_pages_where_they_are(packed: Packed) -> None:
    wanted, _ = packed.ask()
    with packed.engine() as engine:
        deadline = time.monotonic() + LIMIT
        while mapped_bytes(engine, packed.folder) >= HUGE_PAGE:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert ask(engine) == wanted
        with packed.engine() as second:  # shares the file
            assert ask(second) == wanted
            time.sleep(0.5)
            assert mapped_bytes(second, packed.folder) > HUGE_PAGE
        packed.file.unlink()
        assert ask(engine) == wanted


def test_weights_that_were_packed_are_not_mapped_as_they_stand_in_the_model(packed: Packed) -> None:
    with packed.engine() as engine:
        assert 0 < mapped_bytes(engine, packed.model) < packed.model.stat().st_size / 2
        assert len(ask(engine)) == 4


def test_another_model_at_the_same_path_gets_a_file_of_its_own_and_the_first_one_goes(packed: Packed) -> None:
    packed.ask()
    before = packed.file
    os.utime(packed.model, (LONG_AGO + 10, LONG_AGO + 10))
    assert not packed.ask()[1]
    assert packed.file != before
    assert packed.ask()[1]


def test_a_model_that_has_just_changed_is_not_stored(packed: Packed) -> None:
    os.utime(packed.model)
    packed.ask()
    assert packed.files == []


def shorten(file: Path) -> None:
    os.truncate(file, file.stat().st_size - 1)


def rename_layout(file: Path) -> None:
    """The name of the first tensor's packed form, as a build with other forms would have written it."""
    data = bytearray(file.read_bytes())
    at = data.index(b"tensor_traits")
    data[at : at + 6] = b"foreig"
    file.write_bytes(data)


def link(file: Path) -> None:
    there = file.with_name("there")
    file.rename(there)
    file.symlink_to(there)


FAULTS: dict[str, Callable[[Path], object]] = {
    "it is short": shorten,
    "it is empty": lambda file: os.truncate(file, 0),
    "it is something else": lambda file: file.write_bytes(os.urandom(file.stat().st_size)),
    "one tensor has another form": rename_layout,
    "it is a link": link,
    "others may write it": lambda file: file.chmod(0o666),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_file_that_does_not_fit_is_replaced(packed: Packed, fault: str) -> None:
    wanted, _ = packed.ask()
    whole, file = packed.file.read_bytes(), packed.file
    FAULTS[fault](file)
    assert packed.ask()[0] == wanted
    assert (file.read_bytes(), file.is_symlink()) == (whole, False)
    assert packed.ask() == (wanted, True)


def test_what_a_killed_engine_has_left_is_used_up(packed: Packed) -> None:
    packed.ask()
    file = packed.file
    file.rename(f"{file}.part")
    packed.ask()
    assert packed.file == file


@pytest.mark.parametrize("what", ["a full disk", "a folder that is a file"])
def test_what_cannot_be_written_is_a_line_and_no_more(packed: Packed, what: str) -> None:
    limit = 100_000 if what == "a full disk" else "unlimited"
    if what != "a full disk":
        packed.folder.write_text("x")
    done = subprocess.run(
        ["prlimit", f"--fsize={limit}", BINARY, "-m", packed.model, "--packed-weights", packed.folder],
        input=b'{"op":"generate","id":"1","prompt":"Once","max_tokens":2}\n',
        capture_output=True,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    assert b'"event":"done"' in done.stdout
    wrong = rf"llama-batched: the packed weights cannot be written to {packed.folder}/\S+\.packed \(.+\)"
    assert re.search(wrong, done.stderr.decode())
    assert packed.folder.is_file() or packed.files == []
