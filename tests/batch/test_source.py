"""The input of a batch: all of it is checked before anything is sent."""

from __future__ import annotations

import codecs
import io
from itertools import pairwise
from pathlib import Path

from llama_srb.batch.source import MOST_ERRORS, Bounds, Scan, Source, digest_of
from tests.support.batches import as_bytes, line


def scan(data: bytes, bounds: Bounds | None = None, done: tuple[str, ...] = ()) -> Scan:
    return Source(io.BytesIO(data), bounds).scan({*map(digest_of, done)})


def messages(found: Scan) -> list[str]:
    return [str(error) for error in found.errors]


def test_each_line_is_found_at_its_place() -> None:
    lines = [line(f"é{i}", prompt=f"{i % 3}" * 100 + str(i)) for i in range(50)]
    source = Source(io.BytesIO(codecs.BOM_UTF8 + as_bytes(lines).replace(b"\n", b"\r\n\n", 7)))
    found = source.scan()
    assert (found.count, found.errors) == (50, ())
    assert {source.line(place).custom_id for place in found.order} == {f"é{i}" for i in range(50)}
    kinds = [source.line(place).body["prompt"][0] for place in found.order]
    assert len([1 for a, b in pairwise(kinds) if a != b]) == 2, "neighbours begin alike"


def test_lines_that_are_done_are_not_sent_again() -> None:
    found = scan(as_bytes(map(line, "abcd")), done=("b", "c"))
    assert (len(found.order), found.count) == (2, 4)


def test_a_last_line_without_a_line_feed_is_a_line() -> None:
    assert scan(as_bytes([line("a"), line("b")])[:-1]).count == 2


def test_the_fingerprint_is_of_every_byte() -> None:
    data = as_bytes(map(line, "ab"))
    prints = {
        scan(one).fingerprint for one in (data, data + b"\n", data[:-1], data.replace(b"Once", b"once"))
    }
    assert len(prints) == 4


def test_a_duplicate_names_both_lines() -> None:
    found = scan(as_bytes([line("a"), line("b"), line("a")]))
    assert messages(found) == ["line 3: custom_id is 'a', as on line 1; each line must have its own"]
    assert found.errors[0].code == "duplicate_custom_id"


def test_all_errors_are_found_up_to_a_bound() -> None:
    assert len(scan(b"x\n" * 7).errors) == 7
    assert len(scan(b"x\n" * 1000).errors) == MOST_ERRORS


def test_an_empty_file_is_refused() -> None:
    for data in (b"", b"\n\n  \n"):
        assert messages(scan(data)) == ["the file has no lines"]


def test_bounds_of_a_file() -> None:
    lines = [line(str(i)) for i in range(3)]
    bound = "the file has more than 2 lines, which is the most of a batch"
    assert messages(scan(as_bytes(lines), Bounds(lines=2))) == [bound]
    long = as_bytes([line("a"), line("b", prompt="x" * 200)])
    assert messages(scan(long, Bounds(line_bytes=200))) == [
        "line 2: it has more than 200 bytes, which is the most of a line"
    ]
    exact = as_bytes([line("a")])
    assert scan(exact, Bounds(line_bytes=len(exact) - 1)).errors == ()


def test_a_file_without_line_feeds_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "zeros"
    with path.open("wb") as file:
        file.truncate(8 << 30)  # sparse
    with path.open("rb") as file:
        found = Source(file, Bounds(line_bytes=1 << 20)).scan()
    assert messages(found) == ["line 1: it has more than 1048576 bytes, which is the most of a line"]


def test_the_lines_without_an_answer_are_listed() -> None:
    source = Source(io.BytesIO(as_bytes(map(line, "abc"))))
    source.scan()
    assert list(source.remaining({digest_of("b")})) == ["a", "c"]
