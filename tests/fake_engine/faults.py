"""Faults on request: the flags say which, and when."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import Namespace
from collections.abc import Iterable
from typing import NoReturn

from .output import Output


class Faults:
    def __init__(self, flags: Namespace, output: Output) -> None:
        self.flags, self.output = flags, output
        self.stalled = False

    def while_loading(self) -> None:
        if self.flags.exit_while_loading is not None:
            self.output.log(self.flags.last_words)
            sys.exit(self.flags.exit_while_loading)
        if self.flags.no_ready:
            self.hang()

    def hang(self) -> NoReturn:
        self.output.note("hanging")
        while True:
            time.sleep(3600)

    def signal_of_step(self, steps: int, prompts: Iterable[str]) -> signal.Signals | None:
        """The signal that ends the process in this step: in its first, or in one with a certain prompt."""
        end = self.end_of_first_step() if steps == 0 else "works"
        if self.flags.poison and any(self.flags.poison in prompt for prompt in prompts):
            end = "SIGSEGV"
        return None if end == "works" else signal.Signals[end]

    def end_of_first_step(self) -> str:
        """How this process, the n-th in the journal, ends its first step."""
        if not self.flags.first_steps:
            return "works"
        with open(self.flags.journal) as journal:
            n = sum('"loading"' in line for line in journal)
        ends = self.flags.first_steps.split(",")
        return str(ends[min(n, len(ends)) - 1])

    def before_step(self) -> None:
        if self.flags.stderr_flood:
            os.write(2, b"fake engine: a line that nobody asked for\n" * 1500)

    def after_stream(self, count: int) -> None:
        """The faults that flags set after the K-th stream event."""
        flags, output = self.flags, self.output
        if count == flags.die_after:
            if flags.half_line:
                output.halve_last()
            output.write()
            os.kill(os.getpid(), signal.SIGKILL)
        if count == flags.bad_line_after:
            output.change_last("}", ',"tokens":[{"logprob":-nan}]}')
        if count == flags.rubbish_after:
            output.line("llama_decode: failed\n")
        if count == flags.hang_after:
            output.write()
            self.hang()
        if count == flags.stall_after:
            self.stalled = True
        if count == flags.exit_after:
            output.log(flags.last_words)
            output.write()
            sys.exit(1)

    def bad_done(self, id: str) -> bool:
        """Writes a done that is invalid JSON, if a flag says so; returns whether it did."""
        if self.flags.bad_done:
            self.output.line(f'{{"event":"done","id":"{id}","count":-nan}}\n')
        return bool(self.flags.bad_done)

    def after_done(self, id: str) -> None:
        if self.flags.late_lines:
            self.output.event("stream", id=id, index=0, text=" too late")
            self.output.event("a_later_protocol's", id=id, index=0)
