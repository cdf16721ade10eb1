"""Engines that die in their first step, each by the same fault of the CPU: when to start no more of them.

Pure: it knows signals and what a program's file is compared by, no process and no time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from signal import Signals
from typing import Any

from llama_srb import bundled

TIMES = 3  # the last of them with requests of the server's own

_WHAT_TO_DO = f"{bundled.remedy()}, or `llama-srb doctor`"

# What the CPU reports of a program, what it means here, and what to do. All other signals come from outside
# (SIGKILL: no memory is left) or, as SIGABRT, from the engine, which says why: another program may have the
# GPU's memory for a while.
MEANING: Mapping[Signals, str] = {
    Signals.SIGILL: "it was built for another CPU, or one of its products is broken on this one: "
    + _WHAT_TO_DO,
    Signals.SIGSEGV: "it has a fault, or its build or the model's file is damaged: " + _WHAT_TO_DO,
    Signals.SIGBUS: "the model's file was cut short or cannot be read: replace it, or run `llama-srb doctor`",
    Signals.SIGFPE: "it has a fault, or the model's file is damaged: " + _WHAT_TO_DO,
}

PROMPT = list(range(1, 33))  # ids that every vocabulary has


def proof(*, only_embeds: bool) -> list[tuple[str, Mapping[str, Any]]]:
    """Harmless commands whose steps have many, eight and one columns, as those of clients have."""
    if only_embeds:
        return [("embed", {"input": [PROMPT]})]
    short = {"tokens": PROMPT, "max_tokens": 2, "min_tokens": 2, "cache": False}
    return [("generate", {**short, "n": n}) for n in (8, 1)]


@dataclass(slots=True)
class FirstSteps:
    """How the last engines of one program and one model ended, as long as none of them has made a step.

    A client's request may be what kills them, so that alone is no reason to stop: after all but one of TIMES
    such ends the next engine is in doubt, and gets requests of the server's own first (proof). If it dies of
    these as well, there is a verdict. If it lives, or has made any step, it works, and no later end of an
    engine of this program counts.
    """

    program: object = None  # what tells its file from another one, which is judged anew
    works: bool = False
    faults: list[Signals] = field(default_factory=list)  # of the last ends; all are the same

    def ended(self, program: object, number: int | None, *, works: bool) -> None:
        """An engine's end: the signal, if one ended it in its first step; whether it had made a step."""
        if program != self.program:
            self.program, self.works, self.faults = program, False, []
        self.works = self.works or works
        fault = next((one for one in MEANING if one == number), None)
        same = [one for one in self.faults if one == fault]
        self.faults = [] if fault is None or self.works else [*same, fault]

    def proved(self) -> None:
        """An engine in doubt has lived through the proof."""
        self.works, self.faults = True, []

    def in_doubt(self, program: object) -> bool:
        """Whether an engine of this program must prove itself before clients get it."""
        return program == self.program and len(self.faults) == TIMES - 1

    @property
    def verdict(self) -> str | None:
        """Why no engine is to be started again, and what to do; None while there is no reason."""
        if len(self.faults) < TIMES:
            return None
        fault = self.faults[-1]
        return (
            f"the engine died {TIMES} times in a row with {fault.name} in its first step and is not started "
            f"again: {MEANING[fault]}; then SIGHUP or a restart of the server tries again"
        )
