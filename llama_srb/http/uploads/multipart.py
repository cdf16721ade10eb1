"""Forms with a file (multipart/form-data), as OpenAI's clients send them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import BodyPartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from llama_srb.request.values import RequestError, wrong

KIND = "multipart/form-data"
PIECE = 64 << 10  # bytes
MAX_PARTS, MAX_FIELD, MAX_NAME = 16, 1024, 255  # parts; bytes of a field; characters of a file's name
OnFile = Callable[[str, AsyncIterator[bytes]], Awaitable[None]]


async def read_form(http: web.Request, on_file: OnFile, seconds: float) -> dict[str, str]:
    """The fields of a form by name. Its file, the part `file`, goes to on_file: name and content.

    seconds: in which each other part must arrive. RequestError.
    """
    if http.content_type != KIND:
        raise wrong("Content-Type", http.content_type, f"{KIND}, with the parts file and purpose")
    fields: dict[str, str] = {}
    try:
        async for part in _parts(http, seconds):
            name = part.name or ""
            if name in fields:
                raise RequestError(f"the form has several parts {name}; it must have one", param=name)
            if name == "file":
                fields[name] = _clean(part.filename or "file")
                await on_file(fields[name], _pieces(part))
            else:
                async with asyncio.timeout(seconds):
                    fields[name] = await _text(name, part)
    except TimeoutError:
        message = f"a part of the form took more than {seconds:g} s (--body-timeout)"
        raise RequestError(message, status=408, code="body_timeout") from None
    except (ValueError, AssertionError, HttpProcessingError, web.RequestPayloadError) as error:
        raise RequestError(f"the form cannot be read: {error}"[:300]) from None
    return fields


async def _parts(http: web.Request, seconds: float) -> AsyncIterator[BodyPartReader]:
    form = await http.multipart()
    for _ in range(MAX_PARTS + 1):
        async with asyncio.timeout(seconds):
            part = await form.next()
        if part is None:
            return
        if not isinstance(part, BodyPartReader):
            raise RequestError("a part of the form has parts of its own; it must be a file or a text")
        yield part
    raise RequestError(f"the form has more than {MAX_PARTS} parts; file and purpose are needed")


async def _pieces(part: BodyPartReader) -> AsyncIterator[bytes]:
    while piece := await part.read_chunk(PIECE):
        yield piece


async def _text(name: str, part: BodyPartReader) -> str:
    data = b""
    async for piece in _pieces(part):
        data += piece
        if len(data) > MAX_FIELD:
            raise RequestError(f"{name[:50]} has more than {MAX_FIELD} bytes", param=name[:50])
    return data.decode(errors="replace")


def _clean(name: str) -> str:
    """A file's name, which a list shows: without lone surrogates and control characters."""
    text = name.encode(errors="replace").decode()[:MAX_NAME]
    return "".join(one if one.isprintable() else "?" for one in text)
