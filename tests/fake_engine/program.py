"""The loop of the program: poll, commands, a step, one write."""

from __future__ import annotations

import os
import resource
import select
import signal
import sys
import time
from argparse import Namespace
from typing import Any

from .adapters import Adapters
from .commands import Commands
from .faults import Faults
from .fields import N_CTX
from .flags import read_flags
from .output import Output
from .scheduler import Scheduler


class Program:
    def __init__(self, flags: Namespace) -> None:
        self.flags = flags
        self.output = Output(flags.journal)
        self.faults = Faults(flags, self.output)
        self.scheduler = Scheduler(flags, self.output, self.faults)
        self.adapters = Adapters.of(flags)
        self.commands = Commands(self.output, self.scheduler, self.adapters, flags.overlook)
        self.pending = b""
        self.input_open = True

    def run(self) -> None:
        self.load()
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(1, 0)  # POLLERR: the reader has closed stdout
        while self.input_open or self.scheduler.requests or self.flags.ignore_eof:
            busy = bool(self.scheduler.requests)
            for descriptor, event in poll.poll(1000 * self.flags.token_delay if busy else None):
                if descriptor == 1:
                    os._exit(0)
                if event:
                    self.read(poll)
            self.scheduler.step()
            self.output.write()

    def load(self) -> None:
        self.output.note("loading")
        self.output.log("loading")
        for percent in (0, 50):
            self.output.event("loading", progress=percent / 100)
            self.output.write()
            time.sleep(self.flags.load_seconds / 2)
        self.faults.while_loading()
        model = {"name": "fake", "n_params": 3_000_000}
        embedding = {"only": False, "pooling": "mean", "max_tokens": N_CTX}
        embedding["dimensions"] = self.flags.dimensions
        gpu = {"name": "GPU0", "model": self.flags.gpu_bytes, "context": 0, "compute": 0}
        self.output.event("ready", protocol=self.flags.protocol, model=model, n_ctx=N_CTX,
                          n_ctx_sequence=N_CTX, max_sequences=self.flags.parallel, backend=self.flags.backend,
                          adapters=self.adapters.loaded, cpu="native", commit="fake",
                          embedding=embedding, devices=[gpu] if self.flags.gpu_bytes else [])  # fmt: skip
        self.output.note("ready")
        self.output.write()

    def read(self, poll: Any) -> None:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            self.input_open = False
            poll.unregister(0)
        *lines, self.pending = (self.pending + chunk).split(b"\n")
        for line in lines:
            self.commands.read(line)


def main() -> None:
    flags = read_flags(sys.argv[1:])
    if flags.self_test:
        print("self-test: 96 products on CPU (fake); one request of 8 sequences")
        return
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # no core files: tests kill it on purpose
    if flags.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Program(flags).run()
