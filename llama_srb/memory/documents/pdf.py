"""PDF: bytes → text, page by page. Lines that are the titles of its bookmarks are headings."""

from __future__ import annotations

import io
import re
from collections import defaultdict
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any

from .bounds import Limits, Unreadable, require
from .texts import heading_line

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
    size, titles = 0, _titles(reader)
    for number, page in enumerate(pages):
        found.append(_mended(page.extract_text(), titles[number]))
        size += len(found[-1])
        require(size, limits.text, "characters of text")
    return "\n\n".join(found)


def _titles(reader: Any) -> defaultdict[int, dict[str, int]]:
    """The levels of the bookmarks by their titles, of each page; none if they are broken."""
    found, left = defaultdict[int, dict[str, int]](dict), list[tuple[Any, int]]()
    with suppress(Exception):  # a parser raises anything; the text is readable without them
        left.append((reader.outline, 1))
    for entries, level in left:  # and those that are appended meanwhile
        for one in entries:
            if isinstance(one, list):
                left.append((one, level + 1))
            else:
                with suppress(Exception):
                    found[reader.get_destination_page_number(one)][_title(str(one.title))] = level
    return found


def _title(line: str) -> str:
    """What a bookmark and the line on its page share: letters and digits, without a number before."""
    signs = "".join(filter(str.isalnum, line.casefold()))
    return signs.lstrip("0123456789") or signs


def _mended(page: str, titles: MutableMapping[str, int]) -> str:
    """A page's lines joined to paragraphs: a hyphen at a line's end is taken off, a full line goes on.

    titles: with the level of each, which the first such line has as a heading.
    """
    lines = [line.rstrip() for line in page.splitlines()]
    longest = max(map(len, lines), default=0)
    text = ""
    for line in lines:
        if titles and line and (level := titles.pop(_title(line), 0)):
            text = f"{text.rstrip()}\n\n{heading_line(level, line)}\n\n"
            continue
        if text.endswith("-") and line[:1].islower() and text[-2:-1].isalpha():
            text = text[:-1] + line
        else:
            text += line
        text += " " if len(line) > 0.7 * longest and not _ENDS.search(line) else "\n"
        text = text.removesuffix(" ") if text.endswith("- ") else text
    return text
