"""The engine's command line, which is made of the settings, and flags that only the server may give."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from llama_srb import flags
from llama_srb.flags import FlagError
from llama_srb.flags.flag_actions import Ours

from .rows import Rows
from .words import SettingsError, nearest

# Engine flags that only the server may give.
_ENGINE_ONLY = {
    flag: flag
    for flag in (
        "--cache-cells",
        "--prefix-cache",
        "--prefix-cache-size",
        "--packed-weights",
        "--logits-processor",
        "--logits-processor-timeout",
    )
}
_ENGINE_ONLY["--adapter"] = "--adapters"
OWNED_FLAGS = _ENGINE_ONLY | {
    name: flag.action.instead
    for name, flag in flags.BY_NAME.items()
    if isinstance(flag.action, Ours) and not flag.action.after
}


def of(rows: Rows) -> tuple[str, ...]:
    """The argv of an engine with these settings."""
    given = {
        "-m": rows.model,
        "--lora": ",".join(map(str, rows.lora)) or None,
        "--lora-scaled": ",".join(f"{path}:0" for path in rows.adapters.values()) or None,
        "-np": rows.parallel,
        "-c": rows.ctx,
        "--cache-cells": rows.cache_cells,
        "--cache-ram": rows.cache_ram,
        "--prefix-cache": rows.prefix_cache,
        "--prefix-cache-size": rows.prefix_cache_size if rows.prefix_cache else None,
        "--packed-weights": rows.packed_weights,
        "--pooling": "rank" if rows.rerank else None,
    }
    pairs = ((flag, str(value)) for flag, value in given.items() if value is not None)
    given_words = flags.sort(rows.engine_args).engine
    processor = _processor(rows.logits_processor, rows.logits_processor_timeout)
    return (str(rows.engine), *(word for pair in pairs for word in pair), *processor, *given_words)


def _processor(name: str | None, seconds: float) -> tuple[str, ...]:
    """The program that runs MODULE:FUNCTION, a flag for each of its words.

    It finds what this process finds, and what lies in the folder in which it is started.
    """
    if name is None:
        return ()
    places = list(dict.fromkeys([str(Path.cwd()), *(str(Path(place).absolute()) for place in sys.path)]))
    program = (
        f"import sys; sys.path[:] = {places!r}; from llama_srb.engine import logits_processor; "
        "logits_processor.main(sys.argv[1])"
    )
    words = (sys.executable, "-c", program, name)
    flagged = (word for part in words for word in ("--logits-processor", part))
    return (*flagged, "--logits-processor-timeout", str(seconds))


def check(rows: Rows) -> None:
    """SettingsError if a flag of engine_args is the server's, or is wrong."""
    for argument in rows.engine_args:
        if (instead := _ENGINE_ONLY.get(argument.partition("=")[0].replace("_", "-"))) is not None:
            raise SettingsError(f"{argument} after -- is a setting of the server; use {instead}")
    if rows.logits_processor is not None and find_spec("numpy") is None:
        raise SettingsError(
            "logits_processor needs NumPy, which is not installed: pip install 'llama-srb[processor]'"
        )
    try:
        flags.check_servers(rows.engine_args)
        flags.chat_template(flags.sort(rows.engine_args).passed)
    except FlagError as error:
        raise SettingsError(str(error)) from None


def check_needs(rows: Rows) -> None:
    """SettingsError if a flag of engine_args needs another one. rows: those of an engine that may run."""
    try:
        flags.check_needs(rows.engine_args)
    except FlagError as error:
        raise SettingsError(str(error)) from None


def check_known(words: Sequence[str]) -> None:
    """SettingsError if a word is no flag of llama.cpp: a model that is loaded later would fail by it."""
    if (word := flags.unknown(words)) is not None:
        raise SettingsError(f"{word} is no flag of llama.cpp{nearest(word, flags.BY_NAME)}")
