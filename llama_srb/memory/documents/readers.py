"""Readers of text, HTML, PDF, DOCX and EPUB: bytes → text, within bounds. They run in a subprocess.

Libraries are imported by `load`, before the process gives up opening files.
"""

from __future__ import annotations

import codecs
import importlib
import io
import pkgutil
import posixpath
import re
import urllib.parse
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..records import INSTALL

__all__ = ["INSTALL", "READERS", "Limits", "Unreadable", "require"]

CHARSETS = frozenset((
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "cp866", "cp874", "mac-roman",
    "mac-cyrillic", "koi8-r", "koi8-u", "gbk", "gb18030", "gb2312", "big5", "big5hkscs", "shift_jis", "cp932",
    "euc_jp", "iso2022_jp", "euc_kr", "cp949",
    *(f"cp{number}" for number in range(1250, 1259)),
    *(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
))  # fmt: skip
"""Python's names of the web's (https://encoding.spec.whatwg.org). Others, as punycode, may take minutes."""
MAX_DEPTH = 400  # levels of elements
_ENDS = re.compile(r"[.!?:][\"'”’)]*$")  # noqa: RUF001
_PIECE = 1 << 20  # bytes unpacked at once
_ENTITY = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}encoding\s*=\s*["']([\w-]{1,40})""")


class Unreadable(Exception):
    """A document cannot be read; the message says why, with value and bound."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one document, as in DocumentLimits."""

    body: int
    unpacked: int
    text: int
    pages: int
    entries: int
    memory: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads one kind. modules, packages: imported before, packages with all their modules.

    without_text: what an error adds if there is no text.
    """

    read: Callable[[bytes, str, Limits], str]
    modules: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    without_text: str = ""

    def load(self) -> None:
        for name in self.modules:
            importlib.import_module(name)
        for name in self.packages:
            for part in pkgutil.walk_packages(importlib.import_module(name).__path__, f"{name}."):
                with suppress(ImportError):  # parts for packages that are not needed
                    importlib.import_module(part.name)


def require(value: int, most: int, unit: str) -> None:
    if value > most:
        raise Unreadable(f"it has {value:,} {unit}; it must have at most {most:,}")


# ----------------------------------------------------------------------------------------------------
# Text
# ----------------------------------------------------------------------------------------------------


def read_text(body: bytes, charset: str, _: Limits) -> str:
    if body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) and not charset:
        charset = "utf-16"
    return _decoded(body, charset or "utf-8-sig")


def _decoded(body: bytes, charset: str) -> str:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError, OSError):  # its codec would be read from a file
        name = ""
    if name not in CHARSETS:
        raise Unreadable(f"its charset is {charset[:40]!r}; it must be one that the web uses, as utf-8, "
                         "utf-16, iso-8859-1, windows-1252 or shift_jis")  # fmt: skip
    try:
        return body.decode(name)
    except UnicodeDecodeError as error:
        name = charset.removesuffix("-sig")
        raise Unreadable(
            f"it is not {name[:40]} at byte {error.start}; name its charset in Content-Type"
        ) from None


# ----------------------------------------------------------------------------------------------------
# HTML
# ----------------------------------------------------------------------------------------------------

HIDDEN = {
    "script",
    "style",
    "template",
    "noscript",
    "head",
    "svg",
    "math",
    "iframe",
    "object",
    "select",
    "nav",
}
BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre",
    "section", "table", "tr", "ul",
}  # fmt: skip
CELLS = {"td", "th"}
PARAGRAPHS = BLOCKS - {"li", "tr", "dt", "dd", "div"}


def read_html(body: bytes, charset: str, limits: Limits) -> str:
    declared = _CHARSET.search(body[:4096]) or _XML_ENCODING.search(body[:200])
    if not charset and body.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        charset = "utf-16"
    charset = charset or (declared[1].decode() if declared else "")
    return html_text(_decoded(body, charset) if charset else _guessed(body), limits)


def _guessed(body: bytes) -> str:
    """UTF-8, or else Windows-1252, as in browsers."""
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        return body.decode("cp1252", errors="replace")


def html_text(text: str, limits: Limits) -> str:
    """The visible text of a page: a line for each block, an empty line between paragraphs."""
    from lxml import etree, html

    text = re.sub(r"^\s*<\?xml[^>]*\?>", "", text)
    parser = html.HTMLParser(encoding="utf-8", no_network=True, huge_tree=True, remove_comments=True,
                             remove_pis=True)  # fmt: skip
    data = text.encode(errors="ignore")
    if not data.strip():
        return ""
    events = etree.iterwalk(html.document_fromstring(data, parser=parser), events=("start", "end"))
    return _laid_out(events, limits)


def _laid_out(events: Any, limits: Limits) -> str:
    pieces: list[str] = []
    counts = dict.fromkeys(("depth", "hidden", "as it is"), 0)
    size = 0
    for event, node in events:
        is_start = event == "start"
        _count(counts, node.tag, 1 if is_start else -1)
        require(counts["depth"], MAX_DEPTH, "levels of elements")
        pieces.append(_space(node.tag, is_start))
        said = (node.text if is_start else node.tail) or ""
        if not counts["hidden"]:
            size += len(said)
            require(size, limits.text, "characters of text")
            pieces.append(said if counts["as it is"] else re.sub(r"\s+", " ", said))
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"(?<! ) *\n ?(?! )", "\n", "".join(pieces))).strip()


def _count(counts: dict[str, int], tag: str, step: int) -> None:
    counts["depth"] += step
    counts["hidden"] += step * (tag in HIDDEN)
    counts["as it is"] += step * (tag == "pre")


def _space(tag: str, is_start: bool) -> str:
    """What an element's begin or end is in a text."""
    if tag in BLOCKS or (tag == "br" and is_start):
        return "\n\n" if tag in PARAGRAPHS else "\n"
    return " | " if tag in CELLS and not is_start else ""


# ----------------------------------------------------------------------------------------------------
# PDF
# ----------------------------------------------------------------------------------------------------


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


# ----------------------------------------------------------------------------------------------------
# Archives
# ----------------------------------------------------------------------------------------------------


def unpacked(body: bytes, limits: Limits) -> dict[str, bytes]:
    """The XML and HTML files of an archive. All files are unpacked once, to count what they really have."""
    try:
        archive = zipfile.ZipFile(io.BytesIO(body))
    except zipfile.BadZipFile as error:
        raise Unreadable(f"it is no ZIP archive ({error})") from None
    entries = archive.infolist()
    require(len(entries), limits.entries, "files in its archive")
    require(sum(entry.file_size for entry in entries), limits.unpacked, "bytes when it is unpacked")
    found: dict[str, bytes] = {}
    size = 0
    for entry in entries:
        if entry.flag_bits & 1:
            raise Unreadable(f"{entry.filename[:60]!r} in its archive is encrypted")
        parts = []
        for part in _parts(archive, entry):
            size += len(part)
            require(size, limits.unpacked, "bytes when it is unpacked")
            parts.append(part)
        if entry.filename.lower().endswith((".xml", ".rels", ".opf", ".xhtml", ".html", ".htm", ".ncx")):
            found[entry.filename] = data = b"".join(parts)
            if any(word in data for word in _ENTITY):
                raise Unreadable(f"{entry.filename[:60]!r} in its archive declares XML entities")
    return found


def _parts(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Iterator[bytes]:
    with archive.open(entry) as opened:
        while part := opened.read(_PIECE):
            yield part


def read_docx(body: bytes, _: str, limits: Limits) -> str:
    from docx import Document
    from docx.table import Table

    unpacked(body, limits)
    found: list[str] = []
    for part in Document(io.BytesIO(body)).iter_inner_content():
        if isinstance(part, Table):
            found += (" | ".join(cell.text for cell in row.cells) for row in part.rows)
            found.append("")
        else:
            found.append(part.text + "\n")
    return "\n".join(found)


def read_epub(body: bytes, _: str, limits: Limits) -> str:
    files = unpacked(body, limits)
    package = _root_file(files)
    tree = _xml(files, package)
    folder = posixpath.dirname(package)
    hrefs = {item.get("id"): item.get("href") or "" for item in tree.iterfind(".//{*}manifest/{*}item")}
    spine = [hrefs.get(item.get("idref"), "") for item in tree.iterfind(".//{*}spine/{*}itemref")]
    require(len(spine), limits.pages, "chapters")
    names = [posixpath.normpath(posixpath.join(folder, urllib.parse.unquote(href))) for href in spine if href]
    if not names:
        raise Unreadable("its spine names no chapter")
    found: list[str] = []
    size = 0
    for name in dict.fromkeys(names):
        if name not in files:
            continue  # a picture, or a file that is not there: readers show the other chapters, too
        found.append(read_html(files[name], "", limits))
        size += len(found[-1])
        require(size, limits.text, "characters of text")
    return "\n\n".join(found)


def _root_file(files: dict[str, bytes]) -> str:
    found = _xml(files, "META-INF/container.xml").find(".//{*}rootfile")
    if found is None or not found.get("full-path"):
        raise Unreadable("META-INF/container.xml names no package")
    return str(found.get("full-path"))


def _xml(files: dict[str, bytes], name: str) -> Any:
    from lxml import etree

    if name not in files:
        raise Unreadable(f"its archive has no {name[:100]}")
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
    try:
        return etree.fromstring(files[name], parser)
    except etree.XMLSyntaxError as error:
        raise Unreadable(f"{name[:100]} is no valid XML ({error})") from None


_LXML = ("lxml.etree", "lxml.html")
READERS = {
    "text": Reader(read_text),
    "html": Reader(read_html, _LXML),
    "pdf": Reader(read_pdf, (), ("pypdf",), ": scanned pages need text recognition (OCR)"),
    "docx": Reader(read_docx, _LXML, ("docx",)),
    "epub": Reader(read_epub, _LXML),
}
