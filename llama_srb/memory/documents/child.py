"""The subprocess that reads one document: it gives up what it could do harm with, then reads and cuts it.

Its argument is JSON: kind, charset, limits, how texts become chunks, the descriptor of the document's file,
whether it is source code (null: its lines say it). Output: a line of JSON with the error, or with the size of
the text, which follows, and whether that is source code. Then come lines of JSON:
texts, whose numbers of tokens are the next line of its input, or chunks (start, end, tokens). At the end
comes null. A short text is cut by the process that has asked.
"""

from __future__ import annotations

import codecs
import importlib
import json
import logging
import os
import resource
import sys
import warnings
from contextlib import suppress
from typing import Any

from ..chunks import SHORT, Made, chunked, cleaned, following
from ..records import Chunking
from ..source_code import looks_like_source
from . import readers

NICE = 5  # generation goes on beside it, and it still gets a third of a busy core
FOR_PARSERS = ("utf-32", "cp437", "raw-unicode-escape", "charmap")  # codecs that files inside documents have


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
    os.nice(NICE)
    warnings.simplefilter("ignore")
    logging.disable()
    asked = json.loads(sys.argv[1])
    with os.fdopen(asked["file"], "rb") as file:
        body = file.read()
    fault, text = read(asked, body)
    if fault:
        say(fault)
        return
    data, is_source = text.encode(), asked["is_source"]
    if is_source is None:
        is_source = looks_like_source(text)
    say({"size": len(data), "is_source": is_source})
    sys.stdout.buffer.write(data)
    sys.stdout.buffer.flush()
    if len(text) > SHORT:
        cut(text, Chunking(**asked["chunking"]), is_source=is_source)


def cut(text: str, chunking: Chunking, *, is_source: bool) -> None:
    """Says the chunks of a text, and asks for what they need."""
    steps = chunked(text, chunking, is_source=is_source)
    step = next(steps, None)
    while step is not None:
        counts: list[int] = []
        if isinstance(step, Made):
            say([number for one in step.chunks for number in (one.start, one.end, one.tokens)])
        else:
            say(step.texts)
            counts = json.loads(sys.stdin.buffer.readline())
        step = following(steps, counts)
    say(None)


def say(value: object) -> None:
    sys.stdout.buffer.write(json.dumps(value, ensure_ascii=False).encode() + b"\n")
    sys.stdout.buffer.flush()


def read(asked: dict[str, Any], body: bytes) -> tuple[dict[str, str], str]:
    """What is wrong with the document, or the text that is kept."""
    limits = readers.Limits(**asked["limits"])
    reader = readers.READERS[asked["kind"]]
    for name in (*readers.CHARSETS, *FOR_PARSERS):  # later no file can be opened, not even that of a codec
        codecs.lookup(name)
    try:
        reader.load()
        if asked["kind"] != "text" or len(body) > SHORT:
            importlib.import_module("semchunk")
    except ImportError as error:
        return {"install": f"documents of this kind need {error.name}: {readers.INSTALL}"}, ""
    lock_down(limits.memory, limits.seconds)
    try:
        text = reader.read(body, asked["charset"], limits).encode(errors="ignore").decode()
        if asked["kind"] != "text":
            text = readers.marked(text)
        readers.require(len(text.encode()), limits.text, "bytes of text")
        text = cleaned(text)
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
