"""The files that a batch is read from and written to: lines of JSON, or Parquet with the same columns.

Parquet needs the extra llama-srb[parquet]. Such an input is read as lines from a temporary file. Such an
output is made when the batch is over, of the lines in OUT.jsonl, which a batch that goes on reads again.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryFile
from types import ModuleType
from typing import Any, BinaryIO, cast

import orjson

PARQUET = ".parquet"
ROWS = 1000  # at once in memory
INSTALL = "pip install 'llama-srb[parquet]'"
INPUT = ("custom_id", "method", "url", "body")
TEXTS = ("id", "custom_id", "request_id", "body", "error")  # columns of an output; status_code is a number


class FileError(Exception):
    """A file cannot be used; the message is one line that says what to do."""


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """A file of lines, which may be made of a Parquet file; FileError."""
    try:
        if path.suffix != PARQUET:
            with path.open("rb") as file:
                yield file
            return
        with TemporaryFile() as made:
            _read_parquet(path, cast(BinaryIO, made))
            yield cast(BinaryIO, made)
    except (FileNotFoundError, IsADirectoryError, PermissionError) as error:
        if error.filename != str(path):
            raise
        raise FileError(f"cannot read {path}: {error.strerror}") from None


def lines_of(output: Path) -> Path:
    """The file to which the lines of an output are written; FileError."""
    if output.suffix != PARQUET:
        return output
    _pyarrow()
    return output.with_name(output.name + ".jsonl")


def finish(output: Path) -> None:
    """Makes a Parquet file of the lines, if the output is one."""
    if output.suffix == PARQUET:
        _write_parquet(lines_of(output), output)


def _pyarrow() -> tuple[ModuleType, ModuleType]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError as error:
        raise FileError(f"Parquet needs the package {error.name}: {INSTALL}") from None
    return pyarrow, pyarrow.parquet


def _read_parquet(path: Path, to: BinaryIO) -> None:
    arrow, parquet = _pyarrow()
    with path.open("rb") as file:
        try:
            table = parquet.ParquetFile(file)
            if missing := [name for name in INPUT if name not in table.schema_arrow.names]:
                names = ", ".join(INPUT)
                raise FileError(f"{path} has no column {missing[0]}; the columns {names} are needed")
            for batch in table.iter_batches(ROWS, columns=list(INPUT)):
                to.writelines(map(_line, batch.to_pylist()))
        except arrow.ArrowException as error:
            raise FileError(f"{path} cannot be read as Parquet: {error}") from None


def _line(row: dict[str, Any]) -> bytes:
    """A row as a line. Its body may be a text of JSON, or a struct, whose nulls are absent fields."""
    body = row["body"]
    if isinstance(body, str):
        with contextlib.suppress(orjson.JSONDecodeError):  # else the error names the line and its body
            body = orjson.loads(body)
    elif isinstance(body, dict):
        body = {name: value for name, value in body.items() if value is not None}
    return orjson.dumps({**row, "body": body}, default=str, option=orjson.OPT_APPEND_NEWLINE)


def _write_parquet(lines: Path, path: Path) -> None:
    arrow, parquet = _pyarrow()
    fields = [(name, arrow.string()) for name in TEXTS]
    schema = arrow.schema([*fields[:2], ("status_code", arrow.int32()), *fields[2:]])
    new = path.with_name(path.name + ".new")
    with lines.open("rb") as file, parquet.ParquetWriter(new, schema) as writer:
        while rows := list(map(_row, islice(file, ROWS))):
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    os.replace(new, path)


def _row(line: bytes) -> dict[str, object]:
    found = orjson.loads(line)
    response = found["response"] or {}
    texts = {
        name: _json(value) for name, value in (("body", response.get("body")), ("error", found["error"]))
    }
    return {"id": found["id"], "custom_id": found["custom_id"], "status_code": response.get("status_code"),
            "request_id": response.get("request_id"), **texts}  # fmt: skip


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()
