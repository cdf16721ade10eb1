"""What one engine is started with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How engine processes are started and ended; all times in seconds."""

    command: tuple[str, ...]  # the whole argv, program included
    model_name: str = ""
    environment: Mapping[str, str] | None = None  # none: this process's own
    load_timeout: float | None = None  # none: a large model on a network disk may take many minutes
    step_timeout: float | None = None  # of one decode step: then the engine hangs, and is ended
    stop_grace: float = 2.0  # after end of file, and again after SIGTERM: more than one chunk of prefill
    restart_delay: float = 0.5  # first pause after a crash: long enough for the GPU to give its memory back
    restart_delay_max: float = 30.0  # the pause doubles up to this: soon enough once the cause is gone
    stable_after: float = 60.0  # ready for this long, an engine had no lasting fault: pauses begin anew
