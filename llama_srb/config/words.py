"""The names of settings as people write them, and the error for a wrong setting."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

PREFIX = "LLAMA_SRB_"


class SettingsError(Exception):
    """A setting is wrong; the message is one line with the setting's name as the operator wrote it."""


def setting_name(written: str) -> str:
    """The name of the setting for a key of a file or a variable."""
    return written.removeprefix(PREFIX).lower().replace("-", "_")


def shown_name(written: str, is_option: bool) -> str:
    return "--" + written.replace("_", "-") if is_option else written


def refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in found:
        if key not in known and setting_name(key) not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise SettingsError(f"{key}{where} is not a setting{hint}")
