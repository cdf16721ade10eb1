"""A table of cases as one test, which runs every row and reports all that fail.

An item of pytest costs milliseconds in each worker, so thousands of rows as items are minutes of every run.
`pytest.mark.parametrize` stays for rows that need a process, a server or a fixture of their own.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

Test = Callable[..., Any]
Row = tuple[str, dict[str, Any]]  # its name, and the test's arguments
Ids = Iterable[str] | Callable[[Any], Any] | None
WIDEST = 80  # characters of a row's name


class Failures:
    """What the rows of one table raise."""

    def __init__(self) -> None:
        self.rows: list[str] = []
        self.errors: list[BaseException] = []

    @contextmanager
    def of(self, row: str) -> Iterator[None]:
        """Keeps what the block raises. A skip counts as a failure: it would hide the rows behind it."""
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:
            error.add_note(f"in row {row}")
            self.rows.append(row)
            self.errors.append(error)

    def report(self, n_rows: int) -> None:
        if self.errors:
            names = ", ".join(self.rows)
            raise BaseExceptionGroup(f"{len(self.rows)} of {n_rows} rows failed: {names}", self.errors)


def each_row(
    names: str | Sequence[str],
    rows: Iterable[Any] | Callable[[], Iterable[Any]],
    ids: Ids = None,
) -> Callable[[Test], Any]:
    """Takes the arguments of `pytest.mark.parametrize`. A test with `tmp_path` gets a folder for each row.

    Rows that are costly to make are a function's, which runs with the test: all workers collect all files.
    """
    columns = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    single = isinstance(names, str) and len(columns) == 1
    made = None if callable(rows) else _table(columns, single, rows, ids)

    def all_rows() -> list[Row]:
        return _table(columns, single, rows(), ids) if callable(rows) else made or []

    def decorated(test: Test) -> Any:
        @functools.wraps(test)
        def checked(**fixtures: Any) -> None:
            table, failures = all_rows(), Failures()
            for number, (name, row) in enumerate(table):
                with failures.of(name):
                    test(**_own(fixtures, number), **row)
            failures.report(len(table))

        @functools.wraps(test)
        async def checked_later(**fixtures: Any) -> None:
            table, failures = all_rows(), Failures()
            for number, (name, row) in enumerate(table):
                with failures.of(name):
                    await test(**_own(fixtures, number), **row)
            failures.report(len(table))

        table_test: Any = checked_later if inspect.iscoroutinefunction(test) else checked
        asked = inspect.signature(test)
        left = [parameter for name, parameter in asked.parameters.items() if name not in columns]
        table_test.__signature__ = asked.replace(parameters=left)
        return table_test

    return decorated


def _table(columns: list[str], single: bool, rows: Iterable[Any], ids: Ids) -> list[Row]:
    table = list(_rows(columns, single, list(rows), ids))
    if not table:
        raise ValueError(f"the table of {', '.join(columns)} has no row, so the test would test nothing")
    return table


def _rows(columns: list[str], single: bool, rows: list[Any], ids: Ids) -> Iterator[Row]:
    given = list(ids) if ids is not None and not callable(ids) else None
    if given is not None and len(given) != len(rows):
        raise ValueError(f"{len(given)} ids for {len(rows)} rows")
    for number, row in enumerate(rows):
        named = given[number] if given else None
        if hasattr(row, "marks"):  # pytest.param
            if row.marks:
                raise ValueError(f"row {number} has marks: that is for parametrize")
            named, row = row.id, row.values[0] if single else row.values
        values = [row] if single else list(row)
        if len(values) != len(columns):
            raise ValueError(f"row {number} has {len(values)} values for {len(columns)} columns: {row!r}")
        name = named or "-".join(
            str((ids(value) if callable(ids) else None) or _short(value)) for value in values
        )
        yield name, dict(zip(columns, values, strict=True))


def _short(value: Any) -> str:
    return str(getattr(value, "__name__", None) or repr(value)[:WIDEST])


def _own(fixtures: dict[str, Any], number: int) -> dict[str, Any]:
    """The fixtures, with a new folder in the place of tmp_path."""
    if "tmp_path" not in fixtures:
        return fixtures
    folder = fixtures["tmp_path"] / f"row{number}"
    folder.mkdir()
    return fixtures | {"tmp_path": folder}
