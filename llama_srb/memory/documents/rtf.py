"""Rich text (.rtf): the text that a reader sees. Source: Microsoft's Rich Text Format 1.9.1."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from .bounds import Limits, Unreadable, require
from .texts import heading_line

_TOKEN = re.compile(
    r"\\([a-zA-Z]{1,32})(-?\d{1,10})? ?|\\'([0-9a-fA-F]{2})|\\(.)|([{}])|([\r\n]+)|([^\\{}\r\n]+)", re.DOTALL
)
_LEFT_OUT = frozenset((
    "colortbl", "stylesheet", "info", "pict", "object", "objdata", "header", "headerl",
    "headerr", "headerf", "footer", "footerl", "footerr", "footerf", "ftnsep", "ftnsepc", "fldinst",
    "listtable", "listoverridetable", "revtbl", "rsidtbl", "generator", "themedata", "colorschememapping",
    "datastore", "latentstyles", "xmlnstbl", "bkmkstart", "bkmkend", "nonshppict", "sp", "filetbl",
    "mmathPr", "tc", "xe", "atnid", "atnauthor", "annotation", "atrfstart", "atrfend", "atnref", "atndate",
    "shprslt", "userprops", "pntxtb", "pntxta", "pn", "pgptbl", "defchp", "defpap", "listtext", "pntext",
))  # fmt: skip
_STARRED = frozenset(("shpinst", "shptxt", "ud", "fldrslt", "footnote"))  # of those with \* that are read
_SIGNS = {
    "tab": "\t", "cell": " | ", "nestcell": " | ", "line": "\n", "lquote": "\u2018", "rquote": "\u2019",
    "ldblquote": "\u201c", "rdblquote": "\u201d", "bullet": "\u2022", "endash": "\u2013",
    "emdash": "\u2014", "emspace": "\u2003", "enspace": "\u2002", "qmspace": "\u2005", "~": "\u00a0",
    "_": "\u2011", "-": "\u00ad", "{": "{", "}": "}", "\\": "\\", "zwj": "\u200d", "zwnj": "\u200c",
    "ltrmark": "\u200e", "rtlmark": "\u200f",
    **dict.fromkeys(("par", "sect", "page", "\n", "\r"), "\n"),
}  # fmt: skip
_ROWS = frozenset(("row", "nestrow"))
_CODEPAGES = {932: "cp932", 936: "gbk", 949: "cp949", 950: "big5", 10000: "mac-roman", 65001: "utf-8",
              874: "cp874"}  # fmt: skip
_CHARSETS = {0: 1252, 128: 932, 129: 949, 134: 936, 136: 950, 161: 1253, 162: 1254, 163: 1258, 177: 1255,
             178: 1256, 186: 1257, 204: 1251, 222: 874, 238: 1250}  # fmt: skip
MAX_DEPTH = 10_000  # groups in groups


def _codec(page: int) -> str:
    return _CODEPAGES.get(page) or (f"cp{page}" if 1250 <= page <= 1258 else "cp1252")


@dataclass(frozen=True, slots=True)
class _State:
    """What holds in a group. skip: characters that stand for a \\u; to: where its text goes, around: that of
    the group around it; level: of a heading, 0 of another paragraph."""

    to: str = "text"
    around: str = ""
    is_hidden: bool = False
    skip: int = 1
    font: int = -1
    level: int = 0


_CHANGES: dict[str, Callable[[_State, int | None], _State]] = {  # of the state, by a control word
    "uc": lambda state, number: replace(state, skip=1 if number is None else max(0, number)),
    "f": lambda state, number: replace(state, font=-1 if number is None else number),
    "v": lambda state, number: replace(state, is_hidden=number != 0),
    "deleted": lambda state, number: replace(state, is_hidden=number != 0),
    "pard": lambda state, _: replace(state, level=0),
    "outlinelevel": lambda state, number: replace(
        state, level=(number or 0) + 1 if number in range(9) else 0
    ),
    "plain": lambda state, _: replace(state, is_hidden=False),
    "upr": lambda state, _: replace(state, around=state.to, to=""),  # the same for older programs first
    "ud": lambda state, _: replace(state, to=state.around),
    "fonttbl": lambda state, _: replace(state, to="fonts"),
    **{word: lambda state, _: replace(state, to="") for word in _LEFT_OUT},
}


class _Reader:
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._state, self._outer = _State(), list[_State]()
        self._charset, self._fonts, self._font = "cp1252", dict[int, str](), -1
        self._bytes = bytearray()  # of characters that are written as bytes, which may belong together
        self._left = 0  # characters to skip
        self._size = 0
        self._text: list[str] = []
        self._begin = 0  # of the paragraph's pieces
        self._notes: list[list[str]] = []

    def read(self, source: str) -> str:
        at, is_starred = 0, False
        while found := _TOKEN.match(source, at):
            at = found.end()
            word, number, byte, sign, brace, _, text = found.groups()
            if byte is None:
                self._flush()
            if word == "bin":
                at += max(0, int(number or 0))
            elif word is not None:
                self._control(word, None if number is None else int(number), is_starred)
            elif byte is not None:
                self._byte(int(byte, 16))
            elif brace:
                self._group(brace)
            elif sign is not None:
                self._add_sign(_SIGNS.get(sign, ""))
            elif text:
                self._add(text)
            is_starred = sign == "*"
        self._flush()
        notes = (" ".join("".join(one).split()) for one in self._notes)
        return "".join((*self._text, *(f"\n[{i}] {note}" for i, note in enumerate(notes, 1))))

    def _group(self, brace: str) -> None:
        if brace == "{":
            require(len(self._outer), MAX_DEPTH, "groups within groups")
            self._outer.append(self._state)
        elif self._outer:
            self._state = self._outer.pop()

    def _control(self, word: str, number: int | None, is_starred: bool) -> None:
        state = self._state
        if word == "u":
            self._add_sign(chr((number or 0) % 0x10000))
            self._left = state.skip
        elif word in ("ansicpg", "mac"):
            self._charset = "mac-roman" if word == "mac" else _codec(number or 0)
        elif state.to == "fonts" and word in ("f", "fcharset"):
            self._describe_font(word, number or 0)
        elif word == "footnote" and state.to == "text":
            self._notes.append([])
            self._add_sign(f"[{len(self._notes)}]")
            self._state = replace(state, to="note")
        elif is_starred and word not in _STARRED:
            self._state = replace(state, to="")
        elif word in _CHANGES:
            self._state = _CHANGES[word](state, number)
        elif word in _ROWS:
            self._end_row()
        elif word == "par" and state.to == "text":
            self._end_paragraph()
        else:
            self._add_sign(_SIGNS.get(word, ""))

    def _describe_font(self, word: str, number: int) -> None:
        if word == "f":
            self._font = number
        else:
            self._fonts[self._font] = _codec(_CHARSETS.get(number, 0))

    def _end_row(self) -> None:
        """A row's last cell has no cell behind it."""
        if self._state.to == "text" and self._text and self._text[-1] == _SIGNS["cell"]:
            self._text[-1] = ""
        self._add_sign("\n")

    def _end_paragraph(self) -> None:
        said = self._text[self._begin :]
        if self._state.level and _SIGNS["cell"] not in said:
            self._text[self._begin :] = [heading_line(self._state.level, "".join(said))]
        self._add_sign("\n")
        self._begin = len(self._text)

    def _byte(self, byte: int) -> None:
        if self._left > 0:
            self._left -= 1
        else:
            self._bytes.append(byte)

    def _flush(self) -> None:
        if self._bytes:
            codec = self._fonts.get(self._state.font, self._charset)
            text = self._bytes.decode(codec, errors="replace")
            self._bytes.clear()
            self._add_sign(text)

    def _add(self, text: str) -> None:
        skipped = min(self._left, len(text))
        self._left -= skipped
        self._add_sign(text[skipped:])

    def _add_sign(self, text: str) -> None:
        if not text or self._state.is_hidden:
            return
        if self._state.to == "text":
            place = self._text
        elif self._state.to == "note" and self._notes:
            place = self._notes[-1]
        else:
            return
        self._size += len(text)
        require(self._size, self._limits.text, "characters of text")
        place.append(text)


def read_rtf(body: bytes, _: str, limits: Limits) -> str:
    if not body.lstrip().startswith(b"{\\rtf"):
        raise Unreadable("it is no rich text: it does not begin with {\\rtf")
    text = _Reader(limits).read(body.decode("latin-1"))
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # \u has halves of pairs
