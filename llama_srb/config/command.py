"""The engine's command line, which is made of the settings, and flags that only the server may give."""

from __future__ import annotations

from collections.abc import Sequence

from llama_srb import flags
from llama_srb.flags import FlagError
from llama_srb.flags.flag_actions import Ours

from .rows import Rows
from .words import SettingsError, nearest

# Engine flags that only the server may give.
_ENGINE_ONLY = {
    flag: flag for flag in ("--cache-cells", "--prefix-cache", "--prefix-cache-size", "--packed-weights")
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
    }
    pairs = ((flag, str(value)) for flag, value in given.items() if value is not None)
    given_words = flags.sort(rows.engine_args).engine
    return (str(rows.engine), *(word for pair in pairs for word in pair), *given_words)


def check(rows: Rows) -> None:
    """SettingsError if a flag of engine_args is the server's, or is wrong."""
    for argument in rows.engine_args:
        if (instead := _ENGINE_ONLY.get(argument.partition("=")[0].replace("_", "-"))) is not None:
            raise SettingsError(f"{argument} after -- is a setting of the server; use {instead}")
    try:
        flags.check_servers(rows.engine_args)
        flags.chat_template(flags.sort(rows.engine_args).passed)
    except FlagError as error:
        raise SettingsError(str(error)) from None


def check_known(words: Sequence[str]) -> None:
    """SettingsError if a word is no flag of llama.cpp: a model that is loaded later would fail by it."""
    if (word := flags.unknown(words)) is not None:
        raise SettingsError(f"{word} is no flag of llama.cpp{nearest(word, flags.BY_NAME)}")
