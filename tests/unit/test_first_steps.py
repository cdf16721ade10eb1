"""After which ends of engines there is doubt, after which a verdict, and what takes both back."""

from __future__ import annotations

from signal import Signals

import pytest

from llama_srb.engine.pool.first_steps import MEANING, TIMES, FirstSteps

ILL, SEGV, KILL, ABRT = Signals.SIGILL, Signals.SIGSEGV, Signals.SIGKILL, Signals.SIGABRT
WORKED = "worked"  # in place of a signal: it had made a step
OTHER = "other"  # an exit code, an end without work, an end that was wanted

ROWS = [
    ([ILL], False, None),
    ([ILL, ILL], True, None),
    ([ILL, ILL, ILL], False, ILL),
    ([SEGV, SEGV, SEGV], False, SEGV),
    ([ILL, SEGV, ILL], False, None),
    ([ILL, SEGV, SEGV], True, None),
    ([ILL, ILL, OTHER, ILL], False, None),
    ([ILL, ILL, KILL, ILL], False, None),
    ([KILL] * 5, False, None),
    ([ABRT] * 5, False, None),
    ([WORKED, ILL, ILL, ILL], False, None),
    ([ILL, ILL, WORKED, ILL, ILL, ILL], False, None),
]


def after(ends: list[Signals | str], program: object = "a file") -> FirstSteps:
    found = FirstSteps()
    for end in ends:
        found.ended(program, end if isinstance(end, Signals) else None, works=end == WORKED)
    return found


@pytest.mark.parametrize(("ends", "doubt", "verdict"), ROWS, ids=str)
def test_ends_in_a_row(ends: list[Signals | str], doubt: bool, verdict: Signals | None) -> None:
    found = after(ends)
    assert found.in_doubt("a file") == doubt
    assert (found.verdict or "").count(verdict.name if verdict else "in a row") == bool(verdict)


def test_a_verdict_says_what_it_means_and_what_to_do() -> None:
    for fault, meaning in MEANING.items():
        verdict = after([fault] * TIMES).verdict
        assert verdict is not None
        for said in (fault.name, "3 times", "first step", meaning, "llama-srb doctor", "SIGHUP"):
            assert said in verdict


def test_an_engine_that_proves_itself_is_never_judged_again() -> None:
    found = after([ILL, ILL])
    found.proved()
    for _ in range(5):
        found.ended("a file", ILL, works=False)
    assert (found.in_doubt("a file"), found.verdict) == (False, None)


def test_another_file_is_judged_anew() -> None:
    found = after([WORKED])
    assert not found.in_doubt("another")
    for _ in range(TIMES - 1):
        found.ended("another", ILL, works=False)
    assert (found.in_doubt("another"), found.in_doubt("a file")) == (True, False)
    found.ended("a third", ILL, works=False)
    assert found.verdict is None
