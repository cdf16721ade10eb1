"""PDF: bytes → text, page by page."""

from __future__ import annotations

import io
import re

from .bounds import Limits, Unreadable, require

_ENDS = re.compile(r"[.!?:][\"'”’)]*$")  # noqa: RUF001


def read_pdf(body: bytes, _: str, limits: Limits) -> str:
    import pypdf
    from pypdf.errors import FileNotDecryptedError

    try:
        reader = pypdf.PdfReader(io.BytesIO(body), strict=False)
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("it is encrypted with a password")
        pages = reader.pages
        require(len(pages), limits.pages, "pages")
    except FileNotDecryptedError:
        raise Unreadable("it is encrypted with a password") from None
    found: list[str] = []
    size = 0
    for page in pages:
        found.append(_mended(page.extract_text()))
        size += len(found[-1])
        require(size, limits.text, "characters of text")
    return "\n\n".join(found)


def _mended(page: str) -> str:
    """A page's lines joined to paragraphs: a hyphen at a line's end is taken off, a full line goes on."""
    lines = [line.rstrip() for line in page.splitlines()]
    longest = max(map(len, lines), default=0)
    text = ""
    for line in lines:
        if text.endswith("-") and line[:1].islower() and text[-2:-1].isalpha():
            text = text[:-1] + line
        else:
            text += line
        text += " " if len(line) > 0.7 * longest and not _ENDS.search(line) else "\n"
        text = text.removesuffix(" ") if text.endswith("- ") else text
    return text
