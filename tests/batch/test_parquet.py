"""Parquet in and out, by a real server of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from llama_srb.batch import formats
from llama_srb.batch.formats import FileError
from llama_srb.batch.lines import parse
from tests.support.batches import line
from tests.support.bench import Bench


def table(path: Path, rows: list[dict[str, Any]]) -> Path:
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    return path


def as_texts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "body": json.dumps(row["body"])} for row in rows]


def read(path: Path) -> list[dict[str, Any]]:
    with formats.opened(path) as file:
        lines = [parse(one) for one in file.seek(0) or file]
    return [line(one.custom_id, one.endpoint.path, **one.body) for one in lines]


def test_a_body_is_a_struct_or_a_text(tmp_path: Path) -> None:
    rows = [line("a", prompt="x", n=2), line("b", prompt="é", temperature=0.5)]
    assert read(table(tmp_path / "a.parquet", rows)) == rows, "nulls of a struct are absent fields"
    assert read(table(tmp_path / "b.parquet", as_texts(rows))) == rows


def test_what_is_no_parquet_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_text("{}")
    with pytest.raises(FileError, match=r"a\.parquet cannot be read as Parquet: "):
        read(tmp_path / "a.parquet")
    with pytest.raises(FileError, match=r"b\.parquet has no column url; the columns custom_id, method, url"):
        read(table(tmp_path / "b.parquet", [{"custom_id": "a", "method": "POST", "body": "{}"}]))
    with pytest.raises(FileError, match="cannot read"):
        read(tmp_path / "none.parquet")


def test_without_the_package_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(FileError, match=r"needs the package pyarrow: pip install 'llama-srb\[parquet\]'"):
        formats.lines_of(tmp_path / "out.parquet")


def test_a_batch_from_parquet_to_parquet_goes_on_too(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    rows = [line(f"{i}", prompt=f"Once {i}", max_tokens=2) for i in range(2500)]
    table(tmp_path / "in.parquet", as_texts([*rows, line("bad", prompt="x", n=0)]))
    for _ in range(2):
        ended = bench.run("batch", "in.parquet", "out.parquet")
        assert (ended.returncode, "1 of 2501 lines failed" in ended.stderr) == (1, True), ended.stderr
        found = parquet.read_table(tmp_path / "out.parquet")
        assert found.schema.names == ["id", "custom_id", "status_code", "request_id", "body", "error"]
        answers = found.to_pylist()
        assert sorted(int(one["custom_id"]) for one in answers) == list(range(2500))
        assert json.loads(answers[0]["body"])["object"] == "text_completion"
        assert {(one["status_code"], one["error"]) for one in answers} == {(200, None)}
    table(tmp_path / "in.parquet", as_texts(rows))
    assert bench.run("batch", "in.parquet", "out.parquet").returncode == 2, "another input"
