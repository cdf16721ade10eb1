"""The sources of settings: the command line, the environment (LLAMA_SRB_*), a TOML file."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .options import PATHS
from .rows import Rows
from .words import PREFIX, SettingsError, refuse_unknown, setting_name

NOT_SETTINGS = frozenset({"LLAMA_SRB_CONFIG", "LLAMA_SRB_CACHE", "LLAMA_SRB_PYTHON"})  # build.sh reads two

_SECRET = re.compile(rf"{PREFIX}|.*PASSW(OR)?D|(.*_)?(TOKEN|SECRET|CREDENTIAL|KEY)S?(_.*)?$", re.IGNORECASE)


def child_environment() -> dict[str, str]:
    """The environment of a child process: without this server's settings and variables with secret names."""
    return {name: value for name, value in os.environ.items() if not _SECRET.match(name)}


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a server with only these settings; None is absent. SettingsError: unknown name."""
    refuse_unknown(settings, Rows.model_fields, "")
    given = {name: value for name, value in settings.items() if value is not None}
    return child_environment() | {PREFIX + name.upper(): _as_text(name, one) for name, one in given.items()}


def _as_text(name: str, value: object) -> str:
    """A setting's value as the text of a variable."""
    if isinstance(value, Mapping):
        return ",".join(f"{k}={v}" for k, v in value.items()) if name == "adapters" else json.dumps(value)
    if isinstance(value, list | tuple):
        return (shlex.join if name == "engine_args" else ",".join)(map(str, value))
    return str(value)


def arguments() -> list[str]:
    """This process's command line, without the program's name."""
    return sys.argv[1:]


def split_arguments(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The server's arguments and, after the first `--`, the engine's; None if there is no `--`."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def from_file(file: str | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        with open(file, "rb") as opened:
            found: dict[str, object] = tomllib.load(opened)
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(f"{file} is not TOML: {error}") from None
    refuse_unknown(found, Rows.model_fields, f" in {file}")
    return {
        key: _beside(file, value) if setting_name(key) in PATHS else value for key, value in found.items()
    }


def _beside(file: str, value: object) -> object:
    """Resolves a relative path in a file: it is relative to the file's folder."""
    if isinstance(value, list):
        return [_beside(file, one) for one in value]
    if isinstance(value, dict):
        return {name: _beside(file, one) for name, one in value.items()}
    is_path = isinstance(value, str) and not value.startswith("hf:")
    return Path(file).resolve().parent / Path(str(value)).expanduser() if is_path else value


def from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found = {
        key: value for key, value in environ.items() if key.startswith(PREFIX) and key not in NOT_SETTINGS
    }
    refuse_unknown(found, [PREFIX + name.upper() for name in Rows.model_fields], " in the environment")
    return {key: value for key, value in found.items() if value}
