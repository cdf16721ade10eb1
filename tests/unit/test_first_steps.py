"""When engines that die in their first step stop the pool from starting another, and what resets that."""

from __future__ import annotations

from signal import Signals

from llama_srb.engine.pool.first_steps import MEANING, TIMES, FirstSteps
from tests.support.rows import each_row

ILL, SEGV, KILL, ABRT = Signals.SIGILL, Signals.SIGSEGV, Signals.SIGKILL, Signals.SIGABRT
WORKED = "worked"  # in place of a signal: the engine had made a step
OTHER = "other"  # an exit code, an end without a request, or a requested end

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


@each_row(("ends", "doubt", "verdict"), ROWS, ids=str)
def test_only_three_ends_by_one_signal_in_a_row_stop_the_starts(
    ends: list[Signals | str], doubt: bool, verdict: Signals | None
) -> None:
    found = after(ends)
    assert found.in_doubt("a file") == doubt
    assert (found.verdict or "").count(verdict.name if verdict else "in a row") == bool(verdict)


def test_the_reason_explains_the_signal_and_gives_advice() -> None:
    for fault, meaning in MEANING.items():
        verdict = after([fault] * TIMES).verdict
        assert verdict is not None
        for said in (fault.name, "3 times", "first step", meaning, "llama-srb doctor", "SIGHUP"):
            assert said in verdict


def test_after_one_made_step_starts_never_stop() -> None:
    found = after([ILL, ILL])
    found.proved()
    for _ in range(5):
        found.ended("a file", ILL, works=False)
    assert (found.in_doubt("a file"), found.verdict) == (False, None)


def test_another_engine_file_is_counted_from_0() -> None:
    found = after([WORKED])
    assert not found.in_doubt("another")
    for _ in range(TIMES - 1):
        found.ended("another", ILL, works=False)
    assert (found.in_doubt("another"), found.in_doubt("a file")) == (True, False)
    found.ended("a third", ILL, works=False)
    assert found.verdict is None
