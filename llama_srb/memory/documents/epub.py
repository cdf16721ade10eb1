"""EPUB: the chapters in the order of the book, whatever their files are called."""

from __future__ import annotations

import re
import urllib.parse
from typing import Any

from .archives import Archive, local, resolved
from .bounds import Limits, Unreadable, require
from .texts import read_html

_CHAPTER = re.compile(r"\s*(application/xhtml\+xml|text/html|application/html)\s*", re.IGNORECASE)
_FONTS = {"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"}
"""Methods that hide fonts only (https://www.w3.org/TR/epub-33/#sec-font-obfuscation)."""
_CDATA = re.compile(rb"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_EMPTY = re.compile(
    rb"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)([A-Za-z][\w:-]*)(\s[^<>]*?)?/>"
)
"""An element without content in XHTML; HTML knows no such elements but those that are named."""


def read_epub(body: bytes, _: str, limits: Limits) -> str:
    archive = Archive(body, limits)
    _refuse_encrypted(archive)
    package = _package(archive)
    chapters = _chapters(archive.needed_xml(package), package)
    require(len(chapters), limits.pages, "chapters")
    if not chapters:
        raise Unreadable("its spine names no chapter")
    found: list[str] = []
    size = 0
    for name in chapters:
        data = archive.read(name)
        if data is None:
            continue  # readers show the other chapters, too
        page = _CDATA.sub(lambda inner: inner[1].replace(b"&", b"&amp;").replace(b"<", b"&lt;"), data)
        found.append(read_html(_EMPTY.sub(rb"<\1\2></\1>", page), "", limits))
        size += len(found[-1])
        require(size, limits.text, "characters of text")
    return "\n\n".join(found)


def _refuse_encrypted(archive: Archive) -> None:
    """Unreadable if more than fonts is encrypted."""
    root = archive.xml("META-INF/encryption.xml")
    for one in () if root is None else root.iterfind(".//{*}EncryptedData"):
        method = one.find("{*}EncryptionMethod")
        if method is None or method.get("Algorithm") not in _FONTS:
            raise Unreadable("it is encrypted (DRM); only the program of its shop can read it")


def _package(archive: Archive) -> str:
    """The name of the file that says what the book has."""
    found = archive.needed_xml("META-INF/container.xml").find(".//{*}rootfile")
    if found is None or not found.get("full-path"):
        raise Unreadable("META-INF/container.xml names no package")
    return urllib.parse.unquote(str(found.get("full-path")))


def _chapters(package: Any, name: str) -> list[str]:
    """The files of the chapters in their order, each once, also if several parts of it are named."""
    items = {item.get("id"): item for item in package.iter() if local(item) == "item"}
    named = (items.get(one.get("idref")) for one in package.iter() if local(one) == "itemref")
    return list(dict.fromkeys(
        resolved(name, item.get("href") or "") for item in named
        if item is not None and item.get("href") and _CHAPTER.fullmatch(item.get("media-type") or "text/html")
        and "nav" not in (item.get("properties") or "").split()
    ))  # fmt: skip
