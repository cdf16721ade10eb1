"""From a flag's value, as llama.cpp writes it, to that of a setting or a request field, or ValueError."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

MOST_GUESSES = 16  # of the field `draft`
DRAFTERS = ("draft-simple", "ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
MAX_KEEP_ALIVE = "3600"  # seconds: the longest that --keep-alive takes
LEAST_BYTES = 1 << 16  # fewer are meant as MiB
_ESCAPE = re.compile(r"""\\(?:x([0-9a-fA-F]{2})|([nrt'"\\]))""")
_PLAIN = {"n": "\n", "r": "\r", "t": "\t"}


def number(value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ValueError("it must be a number") from None


def whole(value: str) -> int:
    try:
        return int(value)
    except ValueError:
        raise ValueError("it must be a whole number") from None


def names(value: str) -> list[str]:
    """Samplers, with semicolons or > between them."""
    return re.split("[;>]", value)


def drafter(value: str) -> bool:
    """Whether any of llama-server's kinds guesses; commas are between them."""
    kinds = set(value.split(","))
    if not kinds <= {"none", *DRAFTERS}:
        raise ValueError(f"it must be none, or of {', '.join(DRAFTERS)}; the first with --spec-draft-model")
    return kinds != {"none"}


def guesses(value: str) -> int:
    """At most so many in a step: of more than are possible as many as are."""
    if (number := whole(value)) < 0:
        raise ValueError("it must be 0 or more")
    return min(number, MOST_GUESSES)


def of_both(before: bool | int, now: bool | int) -> bool | int:
    """Of a drafter (whether there is one) and a bound of guesses, in any order: no drafter, or the bound."""
    if type(now) is int:
        return before if before is False else now
    return before if now and type(before) is int else now


def bias(value: str) -> list[Any]:
    """TOKEN_ID+BIAS or TOKEN_ID-BIAS."""
    match = re.fullmatch(r"\s*(\d+)([+-])(.+)", value)
    if match is None:
        raise ValueError("it must be a token id, + or -, and a number")
    amount = match[2] + match[3]
    return [int(match[1]), False if amount == "-inf" else number(amount)]


def unescaped(value: str) -> str:
    r"""A text with \n, \r, \t, \', \", \\ and \x41."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _PLAIN.get(m[2], m[2]), value)


def file_text(value: str) -> str:
    try:
        return Path(value).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read it: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("the file is not UTF-8") from None


def mebibytes(value: str) -> str:
    if whole(value) < 0:
        raise ValueError("host memory has a bound here: name it, in MiB")
    return f"{value}M"


def bytes_not_mib(value: str) -> str:
    """Our own --cache-ram: a plain number counts bytes, where llama-server counts MiB."""
    if value.isdecimal() and 0 < int(value) < LEAST_BYTES:
        raise ValueError(f"that is {value} bytes here; llama-server counts MiB: write {value}M")
    return value


def ping_seconds(value: str) -> str:
    """-1 is never, which is at most once an hour here."""
    return MAX_KEEP_ALIVE if whole(value) < 0 else value
