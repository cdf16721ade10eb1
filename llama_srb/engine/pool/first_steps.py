"""Decides when engines that die in their first step, each by the same signal, are no longer restarted.

Pure: it gets signals and the identity of the program's file, and knows neither processes nor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from signal import Signals
from typing import Any

from llama_srb import bundled

TIMES = 3  # the last of these engines gets test requests of the server's own

_WHAT_TO_DO = f"{bundled.remedy()}, or `llama-srb doctor`"

# The signals that a CPU raises for a faulty program: what they mean here, and what to do. Other signals do
# not count: they come from outside (SIGKILL: no memory is left) or, as SIGABRT, from the engine itself, which
# says why. Such a reason may pass, for example when another program frees the GPU's memory.
MEANING: Mapping[Signals, str] = {
    Signals.SIGILL: "it was built for another CPU, or its code for this CPU is broken: " + _WHAT_TO_DO,
    Signals.SIGSEGV: "it has a fault, or its build or the model's file is damaged: " + _WHAT_TO_DO,
    Signals.SIGBUS: "the model's file was cut short or cannot be read: replace it, or run `llama-srb doctor`",
    Signals.SIGFPE: "it has a fault, or the model's file is damaged: " + _WHAT_TO_DO,
}

PROMPT = list(range(1, 33))  # token ids that every vocabulary has


def proof(*, only_embeds: bool) -> list[tuple[str, Mapping[str, Any]]]:
    """The test requests: steps of many, of eight and of one token, the shapes that clients' requests have."""
    if only_embeds:
        return [("embed", {"input": [PROMPT]})]
    short = {"tokens": PROMPT, "max_tokens": 2, "min_tokens": 2, "cache": False}
    return [("generate", {**short, "n": n}) for n in (8, 1)]


@dataclass(slots=True)
class FirstSteps:
    """How the last engines of one program and one model ended, as long as none of them has made a step.

    A client's request may have killed them, which is no reason to give up. So after TIMES - 1 such ends the
    next engine is in doubt: it gets the server's test requests first (proof). If it dies of them by the same
    signal, there is a verdict. If it survives, or any engine makes a step, the program works, and later ends
    no longer count.
    """

    program: object = None  # the identity of its file; another file starts afresh
    works: bool = False
    faults: list[Signals] = field(default_factory=list)  # the signals of the last ends, all equal

    def ended(self, program: object, number: int | None, *, works: bool) -> None:
        """Counts an engine's end.

        number: the signal that ended it in its first step, if one did; works: whether it had made a step.
        """
        if program != self.program:
            self.program, self.works, self.faults = program, False, []
        self.works = self.works or works
        fault = next((one for one in MEANING if one == number), None)
        same = [one for one in self.faults if one == fault]
        self.faults = [] if fault is None or self.works else [*same, fault]

    def proved(self) -> None:
        """An engine in doubt has survived the test requests."""
        self.works, self.faults = True, []

    def in_doubt(self, program: object) -> bool:
        """Whether an engine of this program gets the test requests before it serves clients."""
        return program == self.program and len(self.faults) == TIMES - 1

    @property
    def verdict(self) -> str | None:
        """Why engines are no longer started, and what to do; None while they are."""
        if len(self.faults) < TIMES:
            return None
        fault = self.faults[-1]
        return (
            f"the engine died {TIMES} times in a row with {fault.name} in its first step and is not started "
            f"again: {MEANING[fault]}; then SIGHUP or a restart of the server tries again"
        )
