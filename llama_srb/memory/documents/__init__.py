"""Documents become text and chunks: which kinds there are, and the subprocess with limits that does it.

The subprocess is ended when its client leaves, when its time is over, and when the server stops.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from codecs import getincrementaldecoder
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO, Protocol

from llama_srb.request.values import RequestError, shown

from ..chunks import SHORT, Chunks, CountTokens, chunks_of, cleaned
from ..records import MAX_TEXT, Chunk, Chunking, MemoryUnusable
from ..slots import Slots
from ..source_code import looks_like_source

PLAIN = "text/plain"
SOURCES = {  # media types of source code
    "text/x-source": (".c", ".cfg", ".conf", ".cpp", ".go", ".h", ".ini", ".java", ".jl", ".js", ".pl",
                      ".ps1", ".r", ".rb", ".rs", ".sql", ".tf", ".ts"),
    "text/x-python": (".py",),
    "application/x-sh": (".sh", ".bash"),
    "application/toml": (".toml",),
    "application/yaml": (".yaml", ".yml"),
    "text/x-sh": (), "text/x-shellscript": (), "application/x-yaml": (), "text/yaml": (),
}  # fmt: skip
KINDS = {  # by media type
    "text/plain": "text",
    "text/markdown": "text",
    "text/html": "html",
    "application/xhtml+xml": "html",
    "application/pdf": "pdf",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.oasis.opendocument.text": "odt",
    "application/rtf": "rtf",
    "text/rtf": "rtf",
    "application/epub+zip": "epub",
    **dict.fromkeys(SOURCES, "text"),
}
SUFFIXES = {  # media types by the end of a file's name
    ".txt": "text/plain",
    ".md": "text/markdown",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "application/xhtml+xml",
    ".pdf": "application/pdf",
    ".docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    ".odt": "application/vnd.oasis.opendocument.text",
    ".rtf": "application/rtf",
    ".epub": "application/epub+zip",
    **{suffix: media for media, suffixes in SOURCES.items() for suffix in suffixes},
}
READERS, READERS_OF_A_CLIENT = 4, 2  # subprocesses at the same time; each may take a core and 1 GiB
MAX_LINE = 8 << 20  # bytes of one line: texts of one count, at most 6 for each character
PIECE = 1 << 20  # bytes of a text that are read at once
_CHILD = (sys.executable, "-P", "-m", "llama_srb.memory.documents.child")
_ENVIRONMENT = {"PYTHONPATH": str(Path(__file__).resolve().parents[3])}  # the same code as this process has
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


def more_exact(content_type: str, name: str) -> str:
    """What a document is: if it is said to be plain text its name may say source code, or Markdown."""
    media, *parameters = content_type.split(";")
    named = type_of(name)
    if media.strip().lower() != PLAIN or KINDS.get(named) != "text":
        return content_type
    return ";".join((named, *parameters))


def said_source(content_type: str) -> bool | None:
    """Whether a document is source code; None: its lines must say it."""
    media = content_type.partition(";")[0].strip().lower()
    return None if media == PLAIN else media in SOURCES


class Reading(Protocol):
    """A cleaned text that becomes chunks. It is closed when they are made, or when nobody wants them."""

    @property
    def text(self) -> str: ...

    @property
    def is_source(self) -> bool:
        """Whether it is source code, in which no comment is a heading."""

    async def chunks(self, count_tokens: CountTokens) -> Sequence[Chunk]: ...

    async def close(self) -> None: ...


class Documents:
    """Reads documents in subprocesses, a few at a time, in slots that are fair between clients."""

    def __init__(self, limits: DocumentLimits = DEFAULT_LIMITS) -> None:
        self.limits = limits
        self._slots = Slots(READERS, READERS_OF_A_CLIENT)

    @contextlib.asynccontextmanager
    async def reading(
        self, file: BinaryIO, content_type: str, chunking: Chunking, client: str = ""
    ) -> AsyncIterator[Reading]:
        """A document that was read; RequestError says what is wrong with it, MemoryUnusable what is missing.

        file: one of the system, which is read from its beginning. content_type: as in HTTP's header.
        """
        kind, charset = kind_of(content_type)
        require_size(size := file.seek(0, 2), self.limits)
        file.seek(0)
        is_short = kind == "text" and size <= min(SHORT, self.limits.text)
        if is_short and (text := _short(file.read(), charset)) is not None:
            yield CleanText(text, chunking, said_source(content_type))
            return
        file.seek(0)
        asked = {"kind": kind, "charset": charset, "limits": asdict(self.limits),
                 "is_source": said_source(content_type),
                 "chunking": asdict(chunking), "file": file.fileno()}  # fmt: skip
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self._slots.slot(client))
            process = await stack.enter_async_context(_started(json.dumps(asked), file))
            found = _Read(process, self.limits, chunking, stack)
            await found.read()
            yield found

    @contextlib.asynccontextmanager
    async def reading_body(
        self, body: bytes, content_type: str, chunking: Chunking, client: str = ""
    ) -> AsyncIterator[Reading]:
        """As reading(), for a body in memory."""
        kind_of(content_type)
        require_size(len(body), self.limits)
        with TemporaryFile() as file:
            file.write(body)
            file.flush()
            async with self.reading(file, content_type, chunking, client) as found:
                yield found


class CleanText:
    """A cleaned text that this process cuts. It must be SHORT where other clients wait.

    is_source: None: its lines say it.
    """

    def __init__(self, text: str, chunking: Chunking, is_source: bool | None) -> None:
        self.text, self._chunking = text, chunking
        self.is_source = looks_like_source(text) if is_source is None else is_source

    async def chunks(self, count_tokens: CountTokens) -> Sequence[Chunk]:
        return await chunks_of(self.text, self._chunking, count_tokens, is_source=self.is_source)

    async def close(self) -> None:
        pass


class _Read:
    """What a subprocess has read. stack: ends the subprocess and frees its slot."""

    def __init__(
        self, process: Process, limits: DocumentLimits, chunking: Chunking, stack: contextlib.AsyncExitStack
    ) -> None:
        self._process, self._limits, self._chunking, self._stack = process, limits, chunking, stack
        self.text, self.is_source = "", False

    async def read(self) -> None:
        head = await self._said()
        if "install" in head:
            raise MemoryUnusable(head["install"])
        if "error" in head:
            raise _wrong(head["error"])
        self.is_source = head["is_source"]
        decoder, parts, left = getincrementaldecoder("utf-8")(), list[str](), head["size"]
        while left:  # in pieces: the event loop goes on between them
            data = await self._in_time(_out(self._process).readexactly(min(left, PIECE)))
            left -= len(data)
            parts.append(decoder.decode(data))
        self.text = "".join(parts)

    async def chunks(self, count_tokens: CountTokens) -> Sequence[Chunk]:
        """RequestError if it takes too long, apart from the counting."""
        made = Chunks()
        while len(self.text) > SHORT and (said := await self._said()) is not None:
            if isinstance(said[0], str):
                self._answer(await count_tokens(said))
            else:
                made.extend(said)
                await asyncio.sleep(0)  # many lines may have come
        await self.close()
        return made or await chunks_of(self.text, self._chunking, count_tokens, is_source=self.is_source)

    async def close(self) -> None:
        await self._stack.aclose()

    def _answer(self, counts: Sequence[int]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(counts)).encode() + b"\n")

    async def _said(self) -> Any:
        """The subprocess's next line; RequestError if it has ended without one."""
        if not (line := await self._in_time(_out(self._process).readline())):
            raise _wrong(_death(await self._process.wait(), self._limits))
        return json.loads(line)

    async def _in_time(self, work: Awaitable[bytes]) -> bytes:
        try:
            return await asyncio.wait_for(work, self._limits.seconds)
        except TimeoutError:
            raise _wrong(_death(None, self._limits)) from None
        except asyncio.IncompleteReadError:
            raise _wrong(_death(await self._process.wait(), self._limits)) from None


def _short(body: bytes, charset: str) -> str | None:
    """The cleaned text of a few KiB in UTF-8, which need no subprocess; None: it says what is wrong."""
    with suppress(UnicodeDecodeError):
        if charset.lower() in ("", "utf-8") and (text := cleaned(body.decode("utf-8-sig"))).strip():
            return text
    return None


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


def _out(process: Process) -> asyncio.StreamReader:
    assert process.stdout is not None
    return process.stdout


@contextlib.asynccontextmanager
async def _started(asked: str, file: BinaryIO) -> AsyncIterator[Process]:
    """A subprocess that reads the file; it has ended behind the block."""
    process = await asyncio.create_subprocess_exec(
        *_CHILD, asked, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, start_new_session=True, env=_ENVIRONMENT,
        pass_fds=[file.fileno()], limit=MAX_LINE,
    )  # fmt: skip
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            process.kill()
    await process.wait()
