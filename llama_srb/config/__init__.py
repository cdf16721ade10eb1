"""A server's settings: one table, filled from the command line, the environment (LLAMA_SRB_*), a file.

Only this package reads argv and the environment. The command line overrides the environment, which overrides
the file. cli/options.py makes its options, and docs/settings.md its table, from `OPTIONS`.
"""

from __future__ import annotations

from .command import OWNED_FLAGS
from .loading import load
from .options import OPTIONS, Option
from .settings import Settings
from .sources import (
    NOT_SETTINGS,
    arguments,
    environment,
    environment_with,
    split_arguments,
    task_in,
)
from .words import PREFIX, SettingsError, Table

__all__ = [
    "NOT_SETTINGS",
    "OPTIONS",
    "OWNED_FLAGS",
    "PREFIX",
    "Option",
    "Settings",
    "SettingsError",
    "Table",
    "arguments",
    "environment",
    "environment_with",
    "load",
    "split_arguments",
    "task_in",
]
