"""Archives (ZIP) of documents: their files within bounds, and XML without entities."""

from __future__ import annotations

import io
import posixpath
import urllib.parse
import zipfile
from collections.abc import Iterator
from typing import Any

from .bounds import Limits, Unreadable, require

_PIECE = 1 << 20  # bytes unpacked at once
_ENTITY = tuple("<!ENTITY".encode(encoding) for encoding in ("ascii", "utf-16-le", "utf-16-be"))


class Archive:
    """An archive whose files were all unpacked once, to count what they really have."""

    def __init__(self, body: bytes, limits: Limits) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(body))
        except zipfile.BadZipFile as error:
            raise Unreadable(f"it is no ZIP archive ({error})") from None
        entries = self._zip.infolist()
        require(len(entries), limits.entries, "files in its archive")
        require(sum(entry.file_size for entry in entries), limits.unpacked, "bytes when it is unpacked")
        size = 0
        for entry in entries:
            if entry.flag_bits & 1:
                raise Unreadable(f"{entry.filename[:60]!r} in its archive is encrypted")
            for part in self._parts(entry):
                size += len(part)
                require(size, limits.unpacked, "bytes when it is unpacked")
        self._names = {entry.filename.lower(): entry for entry in entries}
        self._names |= {entry.filename: entry for entry in entries}

    def _parts(self, entry: zipfile.ZipInfo) -> Iterator[bytes]:
        with self._zip.open(entry) as opened:
            while part := opened.read(_PIECE):
                yield part

    def read(self, name: str) -> bytes | None:
        """A file, also if its name has letters of another case; None if it is not there."""
        entry = self._names.get(name) or self._names.get(name.lower())
        if entry is None:
            return None
        data = b"".join(self._parts(entry))
        if any(word in data for word in _ENTITY):
            raise Unreadable(f"{entry.filename[:60]!r} in its archive declares XML entities")
        return data

    def xml(self, name: str) -> Any:
        """The root of an XML file; None if it is not there."""
        from lxml import etree

        if (data := self.read(name)) is None:
            return None
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            return etree.fromstring(data, parser)
        except etree.XMLSyntaxError as error:
            raise Unreadable(f"{name[:100]} is no valid XML ({error})") from None

    def needed_xml(self, name: str) -> Any:
        """As xml(); Unreadable if it is not there."""
        if (root := self.xml(name)) is None:
            raise Unreadable(f"its archive has no {name[:100]}")
        return root


def resolved(base: str, target: str) -> str:
    """The name of a file that another one refers to; what stands behind its # is a place in it."""
    path = urllib.parse.unquote(target.partition("#")[0])
    if path.startswith("/"):
        return posixpath.normpath(path).lstrip("/")
    return posixpath.normpath(posixpath.join(posixpath.dirname(base), path))


def local(node: Any) -> str:
    """An element's name without its namespace; "" for comments and the like."""
    return str(node.tag).rpartition("}")[2] if isinstance(node.tag, str) else ""


def value(node: Any, name: str) -> str | None:
    """An attribute by its name without the namespace; None if it, or the element, is not there."""
    found = (
        (said for key, said in node.attrib.items() if key.rpartition("}")[2] == name)
        if node is not None
        else ()
    )
    return next((str(said) for said in found), None)


def child(node: Any, *names: str) -> Any:
    """The first child of this name, its first child of the next name, and so on; None if one is missing."""
    for name in names:
        node = next((one for one in node if local(one) == name), None) if node is not None else None
    return node


def row_of(cells: list[list[str]]) -> list[str]:
    """A row of a table, of its cells' paragraphs: one line, unless a cell has several paragraphs."""
    if any(len(cell) > 1 for cell in cells):
        return [paragraph for cell in cells for paragraph in cell]
    return [" | ".join(cell[0] if cell else "" for cell in cells)]
