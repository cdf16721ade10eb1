"""Text and HTML: bytes → text. Headings of all kinds of documents become lines as Markdown has them."""

from __future__ import annotations

import codecs
import re
from typing import Any

from .bounds import Limits, Unreadable, require

CHARSETS = frozenset((
    "utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "ascii", "cp866", "cp874", "mac-roman",
    "mac-cyrillic", "koi8-r", "koi8-u", "gbk", "gb18030", "gb2312", "big5", "big5hkscs", "shift_jis", "cp932",
    "euc_jp", "iso2022_jp", "euc_kr", "cp949",
    *(f"cp{number}" for number in range(1250, 1259)),
    *(f"iso8859-{number}" for number in (*range(1, 12), *range(13, 17))),
))  # fmt: skip
"""Python's names of the web's (https://encoding.spec.whatwg.org). Others, as punycode, may take minutes."""
MAX_DEPTH = 400  # levels of elements
_CHARSET = re.compile(rb"""<meta[^>]{0,200}charset\s*=\s*["']?([\w-]{1,40})""", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"""<\?xml[^>]{0,200}encoding\s*=\s*["']([\w-]{1,40})""")


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
    "rt",
    "rp",
}
BLOCKS = {
    "address", "article", "aside", "blockquote", "dd", "div", "dl", "dt", "fieldset", "figcaption", "figure",
    "footer", "form", "h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "li", "main", "ol", "p", "pre",
    "section", "table", "tr", "ul",
}  # fmt: skip
CELLS = {"td", "th"}
PARAGRAPHS = BLOCKS - {"li", "tr", "dt", "dd", "div"}
LEVELS = {f"h{level}": level for level in range(1, 7)}  # of headings
_MARK = "\0"  # before a heading, until the text is whole; no text keeps it
_LIKE_HEADING = re.compile(rf"^(?:{_MARK}|(?=#{{1,6}}[ \t]))", re.MULTILINE)


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


def heading_line(level: int, text: str) -> str:
    """A heading as marked() expects it; "" if it has no text."""
    title = " ".join(text.split()).removesuffix("¶")  # a link of Sphinx to the heading
    return f"{_MARK}{'#' * min(level, 6)} {title}" if title else ""


def marked(text: str) -> str:
    """The text of a document whose headings are lines of Markdown, and no other lines: they are indented.

    Others are comments of code, and rows of tables that have a # above numbers.
    """
    return _LIKE_HEADING.sub(lambda found: "" if found[0] else "  ", text)


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
    counts = dict.fromkeys(("depth", "hidden", "as it is", "heading"), 0)
    size = begin = 0  # begin: of the pieces of a heading
    for event, node in events:
        is_start = event == "start"
        _count(counts, node.tag, 1 if is_start else -1)
        require(counts["depth"], MAX_DEPTH, "levels of elements")
        if node.tag in LEVELS and counts["heading"] == is_start:
            if is_start:
                begin = len(pieces) + 1  # behind the space before it
            else:
                pieces[begin:] = [heading_line(LEVELS[node.tag], "".join(pieces[begin:]))]
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
    counts["heading"] += step * (tag in LEVELS)


def _space(tag: str, is_start: bool) -> str:
    """What an element's begin or end is in a text."""
    if tag in BLOCKS or (tag == "br" and is_start):
        return "\n\n" if tag in PARAGRAPHS else "\n"
    return " | " if tag in CELLS and not is_start else ""
