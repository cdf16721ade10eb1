"""OpenDocument texts (.odt): the text that a reader sees."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from .archives import Archive, child, local, row_of, value
from .bounds import Limits, Unreadable
from .texts import heading_line

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
    content = archive.needed_xml("content.xml")
    text = child(content, "body", "text")
    if text is None:
        raise Unreadable("content.xml has no text: it is another document of OpenDocument")
    reader = _Reader([archive.xml("styles.xml"), content])
    lines = list(reader.lines(text))
    reader.is_apart = True
    for number, note in enumerate(reader.notes, 1):  # a note may call another one
        said = " ".join(" ".join(reader.block(child(note, "note-body"))).split())
        lines.append(f"[{number}] {said}")
    return "\n".join(lines)


class _Reader:
    """Reads a text. notes: those that were found in what is read so far.

    is_apart: a table or a note is read, where no line is a heading.
    """

    def __init__(self, parts: list[Any]) -> None:
        self.notes: list[Any] = []
        self.is_apart = False
        self._styles: dict[str, tuple[str, str]] = {}  # of a name: the style above it, and its display
        for one in (style for part in parts if part is not None for style in part.iter("{*}style")):
            shown = value(child(one, "text-properties"), "display")
            self._styles[value(one, "name") or ""] = (value(one, "parent-style-name") or "", shown or "")

    def lines(self, text: Any) -> Iterator[str]:
        """An empty line stands behind each paragraph, list and table."""
        for block in text:
            is_loose = local(block) in ("p", "h", "section")
            for paragraph in self.block(block):
                yield paragraph
                if is_loose:
                    yield ""
            if not is_loose:
                yield ""

    def block(self, node: Any) -> Iterator[str]:
        """The paragraphs of what holds paragraphs: a text, a section, a list, a table."""
        name = local(node)
        if self._is_left_out(node):
            return
        if name in ("p", "h"):
            yield from self._paragraph(node)
        elif name == "table-row":
            was_apart, self.is_apart = self.is_apart, True
            yield from row_of([list(self.block(cell)) for cell in node if local(cell) == "table-cell"])
            self.is_apart = was_apart
        else:
            for one in node:
                yield from self.block(one)

    def _is_left_out(self, node: Any) -> bool:
        """A part that is no text, or that is hidden: a section, a text under a condition, by a style."""
        name = local(node)
        is_hidden = value(node, "is-hidden") or str(name == "hidden-text").lower()
        if name in _LEFT_OUT or is_hidden == "true" or value(node, "display") == "none":
            return True
        style, seen = value(node, "style-name") or "", set[str]()
        while style in self._styles and style not in seen:
            seen.add(style)
            style, shown = self._styles[style]
            if shown:
                return shown == "none"
        return False

    def _paragraph(self, node: Any) -> Iterator[str]:
        """Blanks that follow each other are one, but for those that have elements of their own."""
        if any(value(one, "is-hidden") == "true" for one in node.iter("{*}hidden-paragraph")):
            return
        boxes: list[Any] = []
        text = ""
        for part, is_sign in self._inline(node, boxes):
            said = part if is_sign else re.sub(r"[ \t\n\r]+", " ", part)
            is_blank = not is_sign and said[:1] == " " and text[-1:] in ("", " ", "\n", "\t")
            text += said[1:] if is_blank else said
        text = text.rstrip(" ")
        level = value(node, "outline-level") or "1" if local(node) == "h" and not self.is_apart else ""
        yield heading_line(int(level), text) if level in set("123456789") else text
        for box in boxes:
            yield from self.block(box)

    def _inline(self, node: Any, boxes: list[Any]) -> Iterator[tuple[str, bool]]:
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
                    self.notes.append(one)
                    yield f"[{len(self.notes)}]", True
                case _ if not self._is_left_out(one):
                    yield from self._inline(one, boxes)
            yield one.tail or "", False
