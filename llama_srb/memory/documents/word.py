"""Word files (.docx): the text that a reader sees.

Insertions are in it, deletions are not, and moved text stands where it went. Elements are found by their
names without namespaces, since Word has two for each, "transitional" and "strict" (ISO/IEC 29500).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .archives import Archive, child, local, resolved, row_of, value
from .bounds import Limits, Unreadable
from .texts import heading_line

_LEFT_OUT = frozenset((
    "del", "moveFrom", "pPr", "rPr", "tblPr", "tblGrid", "tblPrEx", "trPr", "tcPr", "sdtPr", "sdtEndPr",
    "rubyPr", "rt", "instrText", "delText",
))  # fmt: skip
_SIGNS = {
    "tab": "\t",
    "ptab": "\t",
    "br": "\n",
    "cr": "\n",
    "noBreakHyphen": "\u2011",
    "softHyphen": "\u00ad",
}
_NOTES = {"footnoteReference": "footnotes", "endnoteReference": "endnotes"}
_OFF = {"0", "false", "off", "none"}
_BODY = 0  # the level of what is no heading
_HEADING = re.compile(r"heading ?([1-9])", re.IGNORECASE)  # the name of a style in each language


def read_docx(body: bytes, _: str, limits: Limits) -> str:
    archive = Archive(body, limits)
    name = _related(archive, "").get("officeDocument", "word/document.xml")
    parts = _related(archive, name)
    notes = {
        kind: {value(note, "id"): note for note in archive.needed_xml(parts[kind])}
        for kind in _NOTES.values() if kind in parts
    }  # fmt: skip
    reader = _Reader(notes, _levels(archive.xml(parts["styles"]) if "styles" in parts else None))
    main = child(archive.needed_xml(name), "body")
    if main is None:
        raise Unreadable(f"{name[:100]} has no body")
    return "\n".join((*reader.lines(main), *reader.notes()))


def _related(archive: Archive, part: str) -> dict[str, str]:
    """The parts that a part is related to, by the last word of the relation's type; "": the whole file."""
    folder, slash, name = part.rpartition("/")
    root = archive.xml(f"{folder}{slash}_rels/{name}.rels")
    return {
        (one.get("Type") or "").rpartition("/")[2]: resolved(part, one.get("Target") or "")
        for one in (() if root is None else root)
        if isinstance(one.tag, str) and one.get("TargetMode") != "External"
    }


def _levels(styles: Any) -> dict[str, int]:
    """The levels of headings by the ids of their styles; a style may have that of the one it is based on."""
    found, based_on = dict[str, int](), dict[str, str]()
    for style in () if styles is None else styles:
        id = value(style, "styleId") or ""
        if (level := _level(style)) is not None:
            found[id] = level
        elif base := value(child(style, "basedOn"), "val"):
            based_on[id] = base
    for id in based_on:
        path = list[str]()
        while id in based_on and id not in found:
            found[id] = _BODY  # where a circle ends
            path.append(id)
            id = based_on[id]
        found |= dict.fromkeys(path, found.get(id, _BODY))
    return found


def _level(style: Any) -> int | None:
    """What a style, or a paragraph, says itself."""
    if (outline := value(child(style, "pPr", "outlineLvl"), "val")) is not None:
        return int(outline) + 1 if outline in set("012345678") else _BODY
    named = _HEADING.fullmatch(value(child(style, "name"), "val") or "")
    return int(named[1]) if named else None


class _Reader:
    """notes: by the part that has them, the elements by their ids. levels: of headings, by their styles."""

    def __init__(self, notes: dict[str, dict[str | None, Any]], levels: dict[str, int]) -> None:
        self._notes, self._levels = notes, levels
        self._is_apart = False  # in a table or a note, where no line is a heading
        self._called: list[Any] = []
        self._fields: list[bool] = []  # for each field that is open, whether its result has begun
        self._open = ""  # text of paragraphs whose end is deleted

    def lines(self, main: Any) -> Iterator[str]:
        """The text of the body: an empty line behind each paragraph and each table."""
        for block in main:
            for paragraph in self._block(block):
                yield paragraph
                if local(block) != "tbl":
                    yield ""
            if local(block) == "tbl":
                yield ""
        yield self._open

    def notes(self) -> Iterator[str]:
        """The notes in the order in which they are called, each in one line."""
        self._is_apart = True
        for number, note in enumerate(self._called, 1):
            yield f"[{number}] " + " ".join(" ".join(self._block(note)).split())

    def _block(self, node: Any) -> Iterator[str]:
        """The paragraphs of what holds paragraphs: a body, a content control, what was inserted."""
        match local(node):
            case name if name in _LEFT_OUT:
                return
            case "p":
                yield from self._paragraph(node)
            case "tr":
                yield from self._row(node)
            case "fldChar":
                self._field(node)
            case _:
                for one in _alternatives(node):
                    yield from self._block(one)

    def _row(self, row: Any) -> Iterator[str]:
        if child(row, "trPr", "del") is not None:
            return
        was_apart, self._is_apart = self._is_apart, True
        cells = [
            list(self._block(cell)) for cell in _cells(row)
            if (merge := child(cell, "tcPr", "vMerge")) is None or value(merge, "val") == "restart"
        ]  # fmt: skip
        self._is_apart = was_apart
        yield from row_of(cells)

    def _paragraph(self, node: Any) -> Iterator[str]:
        said: list[str] = []
        boxes: list[Any] = []
        self._inline(node, said, boxes)
        self._open += "".join(said)
        mark = child(node, "pPr", "rPr")
        if child(mark, "del") is None and child(mark, "moveFrom") is None:
            text, self._open = self._open, ""
            level = _BODY if self._is_apart else self._level(node)
            yield heading_line(level, text) if level else text
        for box in boxes:
            yield from self._block(box)

    def _level(self, paragraph: Any) -> int:
        if (own := _level(paragraph)) is not None:
            return own
        id = value(child(paragraph, "pPr", "pStyle"), "val") or ""
        named = _HEADING.fullmatch(id)  # a style that the file does not describe
        return self._levels.get(id, int(named[1]) if named else _BODY)

    def _inline(self, node: Any, said: list[str], boxes: list[Any]) -> None:
        for one in _alternatives(node):
            name = local(one)
            if name in _LEFT_OUT or (name == "r" and _is_hidden(one)):
                continue
            if name == "fldChar":
                self._field(one)
            elif name == "txbxContent":
                boxes.append(one)
            elif text := self._sign(one, name):
                if False not in self._fields:
                    said.append(text)
            else:
                self._inline(one, said, boxes)

    def _sign(self, node: Any, name: str) -> str:
        """What an element without elements is in the text; "" if it is none of these."""
        if name == "t":
            return node.text or ""
        if name == "sym":
            code = int(value(node, "char") or "fffd", 16)
            return chr(code) if code < 0xD800 or 0xE000 <= code <= 0xFFFF else "\ufffd"
        note = self._notes.get(_NOTES.get(name, ""), {}).get(value(node, "id"))
        if note is not None and False not in self._fields:
            self._called.append(note)
            return f"[{len(self._called)}]"
        return _SIGNS.get(name, "")

    def _field(self, node: Any) -> None:
        """Of a field its result is text, not its code; a field may stand in another's code."""
        match value(node, "fldCharType"):
            case "begin":
                self._fields.append(False)
            case "separate" if self._fields:
                self._fields[-1] = True
            case "end" if self._fields:
                self._fields.pop()


def _alternatives(node: Any) -> list[Any]:
    """An element's children; where it has the same for newer and for older programs, the first with text."""
    children = list(node)
    if local(node) != "AlternateContent" or not children:
        return children
    return list(
        next((one for one in children if any(local(each) in ("p", "t") for each in one.iter())), children[0])
    )


def _cells(node: Any) -> Iterator[Any]:
    """The cells of a row, also in content controls, but not those of tables within its cells."""
    for one in node:
        if local(one) == "tc":
            yield one
        elif local(one) not in _LEFT_OUT:
            yield from _cells(one)


def _is_hidden(run: Any) -> bool:
    hidden = child(run, "rPr", "vanish")
    return hidden is not None and (value(hidden, "val") or "1") not in _OFF
