"""Documents become text: which kinds there are, and the subprocess with limits in which they are read."""

from __future__ import annotations

import asyncio
import difflib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from contextlib import suppress
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import BinaryIO

from llama_srb.request.values import RequestError, shown

from ..records import MAX_TEXT, MemoryUnusable

KINDS = {  # by media type
    "text/plain": "text",
    "text/markdown": "text",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/epub+zip": "epub",
}
SUFFIXES = {  # media types by the end of a file's name
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".epub": "application/epub+zip",
}
_CHILD = (sys.executable, "-P", "-m", "llama_srb.memory.documents.child")
_KILLED_FOR_TIME = (-signal.SIGXCPU, -signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class DocumentLimits:
    """Bounds for reading one document. body, unpacked, text, memory: bytes; entries: files in an archive."""

    body: int = 64 << 20
    unpacked: int = 256 << 20
    text: int = MAX_TEXT
    pages: int = 5_000
    entries: int = 10_000
    memory: int = 1 << 30  # address space of the subprocess, which takes about 100 MB of it itself
    seconds: float = 60.0


DEFAULT_LIMITS = DocumentLimits()


def type_of(name: str) -> str:
    """The media type that the end of a name says; empty if it says none."""
    return SUFFIXES.get("." + name.lower().rpartition(".")[2], "")


async def text_of(body: bytes, content_type: str, limits: DocumentLimits = DEFAULT_LIMITS) -> str:
    """As text_in(), for a body in memory."""
    kind_of(content_type)
    require_size(len(body), limits)
    with TemporaryFile() as file:
        file.write(body)
        return await text_in(file, content_type, limits)


async def text_in(file: BinaryIO, content_type: str, limits: DocumentLimits = DEFAULT_LIMITS) -> str:
    """The text of a document; RequestError says what is wrong with it. content_type: as in HTTP's header.

    file: a file of the system, which is read from its beginning.
    """
    kind, charset = kind_of(content_type)
    require_size(file.seek(0, 2), limits)
    file.seek(0)
    head = json.dumps({"kind": kind, "charset": charset, "limits": asdict(limits)})
    code, answer = await _run(head, file, limits)
    line, _, text = answer.partition(b"\n")
    if code != 0 or not line:
        raise _wrong(_death(code, limits))
    result: dict[str, str] = json.loads(line)
    if "install" in result:
        raise MemoryUnusable(result["install"])
    if "error" in result:
        raise _wrong(result["error"])
    return text.decode()


def require_size(size: int, limits: DocumentLimits) -> None:
    """RequestError (413) if a document of this size in bytes is too large."""
    if size > limits.body:
        raise RequestError(f"the document has {size:,} bytes; it must have at most {limits.body:,}",
                           param="body", status=413)  # fmt: skip


def kind_of(content_type: str) -> tuple[str, str]:
    """A reader's name and the charset (it may be empty) of a Content-Type; RequestError (415)."""
    media, *parameters = (part.strip() for part in content_type.split(";"))
    charset = next((one[8:].strip("\"' ") for one in parameters if one.lower().startswith("charset=")), "")
    if (kind := KINDS.get(media.lower())) is None:
        near = difflib.get_close_matches(media.lower()[:100], KINDS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RequestError(f"Content-Type is {shown(media)}; it must be one of {', '.join(KINDS)}{hint}",
                           param="Content-Type", status=415)  # fmt: skip
    return kind, charset


def _wrong(reason: str) -> RequestError:
    return RequestError(f"the document cannot be read: {reason}", param="body")


def _death(code: int | None, limits: DocumentLimits) -> str:
    """Why the subprocess has ended without an answer. code: None if it was ended after its time."""
    if code is None or code in _KILLED_FOR_TIME:
        return f"reading it takes more than {limits.seconds:g} seconds"
    cause = f"signal {-code}" if code < 0 else f"exit status {code}"
    return f"its reader ended by {cause}, perhaps for lack of memory ({limits.memory >> 20} MiB)"


async def _run(head: str, file: BinaryIO, limits: DocumentLimits) -> tuple[int | None, bytes]:
    """The exit status (None after its time) and the answer of a subprocess, which has ended afterwards."""
    process = await asyncio.create_subprocess_exec(
        *_CHILD, head, stdin=file, stdout=PIPE, stderr=DEVNULL, start_new_session=True, env={}
    )
    try:
        async with asyncio.timeout(limits.seconds):
            answer, _ = await process.communicate()
        return process.returncode, answer
    except TimeoutError:
        return None, b""
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
