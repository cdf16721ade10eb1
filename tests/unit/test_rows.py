"""A table as one test: each row runs, all failing ones are named."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.rows import each_row
from tests.support.waiting import PATIENCE


def outcome(test: Callable[..., Any], **fixtures: Any) -> BaseExceptionGroup[BaseException] | None:
    """What a table raises, also one that is awaited."""
    try:
        made = test(**fixtures)
        if inspect.isawaitable(made):
            asyncio.run(asyncio.wait_for(made, PATIENCE))
    except BaseExceptionGroup as group:
        return group
    return None


def is_even(number: int) -> None:
    assert number % 2 == 0, number


async def is_even_later(number: int) -> None:
    await asyncio.sleep(0)
    assert number % 2 == 0, number


TESTS = (is_even, is_even_later)


def test_every_failing_row_is_named_and_the_others_run() -> None:
    for test in TESTS:
        assert outcome(each_row("number", [2, 4])(test)) is None
        group = outcome(each_row("number", [1, 2, 3], ids=["one", "two", "three"])(test))
        assert group is not None
        assert group.message == "2 of 3 rows failed: one, three"
        assert [error.__notes__[-1] for error in group.exceptions] == ["in row one", "in row three"]
        assert [str(error).split("\n")[0] for error in group.exceptions] == ["1", "3"]


def test_a_row_that_does_not_raise_or_is_skipped_has_failed() -> None:
    @each_row("kind", ["raises", "skip", "exit"])
    def test(kind: str) -> None:
        if kind == "skip":
            pytest.skip("no browser")
        with pytest.raises(ValueError, match="never"):
            assert kind

    group = outcome(test)
    assert group is not None
    assert len(group.exceptions) == 3


def test_an_interrupt_ends_the_table() -> None:
    @each_row("number", [1, 2])
    def test(number: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        test()


def test_the_names_of_the_rows() -> None:
    def names(columns: Any, rows: Any, **ids: Any) -> str:
        def test(**values: Any) -> None:
            raise AssertionError

        group = outcome(each_row(columns, rows, **ids)(test))
        assert group is not None
        return group.message.partition(": ")[2]

    assert names("a", ["x", len]) == "'x', len"
    assert names("a, b", [(1, 2)]) == names(("a", "b"), [[1, 2]]) == "1-2"
    assert names("a", {"first": 1}.values(), ids={"first": 1}) == "first"
    assert names("a", [pytest.param(1, id="first")]) == "first"
    assert names("a", ["x" * 100], ids=lambda value: value[:2]) == "xx"
    assert names(["a"], [(1,)]) == "1"


def test_a_table_may_stand_in_another_one() -> None:
    seen = []

    @each_row("a", [1, 2])
    @each_row("b", [3, 4])
    def test(a: int, b: int) -> None:
        seen.append((a, b))
        assert (a, b) != (2, 3)

    group = outcome(test)
    assert seen == [(1, 3), (1, 4), (2, 3), (2, 4)]
    assert group is not None
    assert group.message == "1 of 2 rows failed: 2"


def test_rows_that_are_costly_are_made_when_the_test_runs() -> None:
    made = []

    @each_row("number", lambda: made.append(1) or [1, 2])  # type: ignore[func-returns-value]
    def test(number: int) -> None:
        assert number == 1

    assert made == []
    group = outcome(test)
    assert group is not None
    assert (made, group.message) == ([1], "1 of 2 rows failed: 2")


def test_a_row_has_a_folder_of_its_own(tmp_path: Path) -> None:
    folders = []

    @each_row("a", [1, 2])
    def test(a: int, tmp_path: Path) -> None:
        folders.append(tmp_path)
        assert list(tmp_path.iterdir()) == []

    assert outcome(test, tmp_path=tmp_path) is None
    assert len(set(folders)) == 2
    assert list(inspect.signature(test).parameters) == ["tmp_path"]


WRONG: list[tuple[Callable[[], Any], str]] = [
    (lambda: each_row("a", []), "has no row"),
    (lambda: each_row("a, b", [(1, 2), (3,)]), "row 1 has 1 values for 2 columns"),
    (lambda: each_row("a", [1, 2], ids=["x"]), "1 ids for 2 rows"),
    (lambda: each_row("a", [pytest.param(1, marks=pytest.mark.skip)]), "row 0 has marks"),
]


def test_a_wrong_table_is_refused_when_it_is_read() -> None:
    for make, reason in WRONG:
        with pytest.raises(ValueError, match=reason):
            make()
