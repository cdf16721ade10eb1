"""The settings of an engine process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How engine processes are started and ended; all times in seconds."""

    command: tuple[str, ...]  # the whole argv, program included
    model_name: str = ""
    environment: Mapping[str, str] | None = None  # None: the environment of this process
    load_timeout: float | None = None  # None by default: loading from a network disk may take many minutes
    step_timeout: float | None = None  # longest decode step; an engine that takes longer hangs and is killed
    stop_grace: float = 2.0  # after end of file, and again after SIGTERM: longer than a chunk of prefill
    restart_delay: float = 0.5  # before the first restart after a crash: the GPU frees memory in this time
    restart_delay_max: float = 30.0  # the delay doubles with each crash up to this
    stable_after: float = 60.0  # an engine that was ready this long resets the delay
    adapters: tuple[str, ...] = ()  # names of the command's adapters, by id
    warm_up: tuple[
        tuple[str, Mapping[str, Any]], ...
    ] = ()  # commands before its first request: op, arguments
