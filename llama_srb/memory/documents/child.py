"""The subprocess that reads one document: it gives up what it could do harm with, then reads and answers.

Its argument is JSON (kind, charset, limits), its input the document. Output: a line of JSON with the error,
if there is one, then the text.
"""

from __future__ import annotations

import codecs
import json
import logging
import resource
import sys
import warnings
from contextlib import suppress
from typing import Any

from . import readers

# The codecs that documents ask for; later no file can be opened, not even that of a codec.
CODECS = (
    "ascii", "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252",
    "cp1251", "cp1250", "cp437", "mac-roman", "iso8859-2", "iso8859-15", "koi8-r", "gb18030", "gbk", "big5",
    "shift-jis", "euc-jp", "euc-kr", "raw-unicode-escape", "charmap",
)  # fmt: skip


def lock_down(memory: int, seconds: float) -> None:
    """Limits of this process: no file and no socket can be opened, no process started, nothing written."""
    limits = {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: max(1, round(seconds)),
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
        resource.RLIMIT_NOFILE: 0,
    }
    for limit, bound in limits.items():
        with suppress(ValueError, OSError):  # some systems lack one, macOS that of memory
            resource.setrlimit(limit, (bound, bound))


def main() -> None:
    warnings.simplefilter("ignore")
    logging.disable()
    result, text = read(json.loads(sys.argv[1]), sys.stdin.buffer.read())
    data = text.encode(errors="ignore")
    sys.stdout.buffer.write(json.dumps(result).encode() + b"\n" + data)
    sys.stdout.buffer.flush()


def read(asked: dict[str, Any], body: bytes) -> tuple[dict[str, str], str]:
    """The result's head and the text."""
    limits = readers.Limits(**asked["limits"])
    reader = readers.READERS[asked["kind"]]
    for name in (*CODECS, *filter(None, [asked["charset"]])):
        with suppress(LookupError, ValueError):
            codecs.lookup(name)
    try:
        reader.load()
    except ImportError as error:
        return {"install": f"documents of this kind need {error.name}: {readers.INSTALL}"}, ""
    lock_down(limits.memory, limits.seconds)
    try:
        text = reader.read(body, asked["charset"], limits)
        readers.require(len(text.encode(errors="ignore")), limits.text, "bytes of text")
        if not text.strip():
            raise readers.Unreadable("it has no text" + reader.without_text)
    except readers.Unreadable as error:
        return {"error": str(error)}, ""
    except MemoryError:
        return {"error": f"reading it takes more than {limits.memory >> 20} MiB of memory"}, ""
    except Exception as error:  # parsers raise anything for what they do not expect
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        return {"error": f"it is no valid {asked['kind']} ({reason[:200]})"}, ""
    return {}, text


if __name__ == "__main__":
    main()
