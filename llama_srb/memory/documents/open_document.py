"""OpenDocument texts (.odt): the text that a reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .archives import Archive, child, local, row_of, value
from .bounds import Limits, Unreadable

_LEFT_OUT = frozenset((
    "tracked-changes", "annotation", "annotation-end", "covered-table-cell", "sequence-decls",
    "variable-decls", "user-field-decls", "forms", "ruby-text", "note-citation", "table-column", "desc",
    "title",
))  # fmt: skip
_SPACES = 1000  # in a row, at most


def read_odt(body: bytes, _: str, limits: Limits) -> str:
    archive = Archive(body, limits)
    manifest = archive.xml("META-INF/manifest.xml")
    if manifest is not None and manifest.find(".//{*}encryption-data") is not None:
        raise Unreadable("it is encrypted with a password")
    text = child(archive.needed_xml("content.xml"), "body", "text")
    if text is None:
        raise Unreadable("content.xml has no text: it is another document of OpenDocument")
    notes: list[Any] = []
    lines = list(_lines(text, notes))
    for number, note in enumerate(notes, 1):  # a note may call another one
        said = " ".join(" ".join(_block(child(note, "note-body"), notes)).split())
        lines.append(f"[{number}] {said}")
    return "\n".join(lines)


def _lines(text: Any, notes: list[Any]) -> Iterator[str]:
    """An empty line stands behind each paragraph, list and table."""
    for block in text:
        is_loose = local(block) in ("p", "h", "section")
        for paragraph in _block(block, notes):
            yield paragraph
            if is_loose:
                yield ""
        if not is_loose:
            yield ""


def _block(node: Any, notes: list[Any]) -> Iterator[str]:
    """The paragraphs of what holds paragraphs: a text, a section, a list, a table."""
    name = local(node)
    if name in _LEFT_OUT:
        return
    if name in ("p", "h"):
        yield from _paragraph(node, notes)
    elif name == "table-row":
        yield from row_of([list(_block(cell, notes)) for cell in node if local(cell) == "table-cell"])
    else:
        for one in node:
            yield from _block(one, notes)


def _paragraph(node: Any, notes: list[Any]) -> Iterator[str]:
    """Blanks that follow each other are one, but for those that have elements of their own."""
    boxes: list[Any] = []
    text = ""
    for part, is_sign in _inline(node, notes, boxes):
        said = part if is_sign else re.sub(r"[ \t\n\r]+", " ", part)
        text += said[1:] if not is_sign and said[:1] == " " and text[-1:] in ("", " ", "\n", "\t") else said
    yield text.rstrip(" ")
    for box in boxes:
        yield from _block(box, notes)


def _inline(node: Any, notes: list[Any], boxes: list[Any]) -> Iterator[tuple[str, bool]]:
    """The texts of a paragraph, and whether each is a sign of its own."""
    yield node.text or "", False
    for one in node:
        match local(one):
            case "" | "line-break" | "tab" | "s" as name:
                count = value(one, "c") or "1" if name == "s" else "1"
                signs = {"": "", "line-break": "\n", "tab": "\t"}
                yield signs.get(name, " " * min(_SPACES, int(count) if count.isdecimal() else 1)), True
            case "text-box":
                boxes.append(one)
            case "note":
                notes.append(one)
                yield f"[{len(notes)}]", True
            case name if name not in _LEFT_OUT:
                yield from _inline(one, notes, boxes)
        yield one.tail or "", False
