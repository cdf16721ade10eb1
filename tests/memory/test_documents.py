"""Documents of each kind become text; hostile ones are refused, and errors name the limit."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import time
from dataclasses import fields
from typing import Any

import pypdf
import pytest

from llama_srb.memory.documents import DEFAULT_LIMITS, KINDS, DocumentLimits, Documents, readers, type_of
from llama_srb.memory.records import Chunking, MemoryUnusable
from llama_srb.request.values import RequestError
from tests.support.documents import DOCX, EPUB, PDF, archive, changed, docx, epub, pdf, written_pdf
from tests.support.places import ROOT
from tests.support.rows import each_row

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha ha ha ha">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]><p>&i;</p>"
)
SECRET = '<?xml version="1.0"?><!DOCTYPE x [<!ENTITY s SYSTEM "file:///etc/passwd">]><p>&s;</p>'


async def text_of(body: bytes, content_type: str, limits: DocumentLimits = DEFAULT_LIMITS) -> str:
    async with Documents(limits).reading_body(body, content_type, Chunking()) as read:
        return read.text


ODT, RTF = "application/vnd.oasis.opendocument.text", "text/rtf"
DRM = '<a xmlns:e="u"><e:EncryptedData><e:EncryptionMethod Algorithm="aes"/></e:EncryptedData></a>'
CHAPTER = "<html><head><title>T</title></head><body>{}</body></html>"


@each_row(
    ("body", "content_type", "expected"),
    [
        ("Héllo\n".encode(), "text/plain", "Héllo"),
        ("Héllo".encode("utf-16"), "text/plain", "Héllo"),
        ("Héllo".encode("latin-1"), "text/plain; charset=ISO-8859-1", "Héllo"),
        (b"# Title\n\n- *one*\n", "text/markdown", "# Title\n\n- *one*"),
        (b"<h1>Title</h1><p>One <b>bold</b>\n word.<br>New<script>x()</script><style>y</style><p>Two.",
         "text/html", "# Title\n\nOne bold word.\nNew\n\nTwo."),
        (b"<ul><li>one<li>two</ul><table><tr><td>1<td>2</table><pre>  a\n    b</pre>",
         "TEXT/HTML; charset=utf-8", "one\n\ntwo\n\n1 | 2 |\n\n  a\n    b"),
        ('<meta charset="windows-1251"><p>Война</p>'.encode("cp1251"), "text/html", "Война"),
        ("<p>Gr\xfcn</p>".encode("cp1252"), "text/html", "Grün"),
        (pdf(["First page.", "Second page."]), PDF, "First page.\n\nSecond page."),
        (docx(["First paragraph.", "Second one."], [["a", "b"], ["c", "d"]]), DOCX,
         "First paragraph.\n\nSecond one.\n\na | b\nc | d"),
        (epub({"2.xhtml": CHAPTER.format("<p>Two.</p>"), "1.xhtml": CHAPTER.format("<p>One.</p>"),
               "nav.xhtml": CHAPTER.format("<p>Not in the spine.</p>")}, ["1.xhtml", "2.xhtml"]), EPUB,
         "One.\n\nTwo."),
    ],
    ids=lambda value: value.split(";")[0][-20:] if isinstance(value, str) and "/" in value else "",
)  # fmt: skip
async def test_a_document_becomes_text(body: bytes, content_type: str, expected: str) -> None:
    assert await text_of(body, content_type) == expected


W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def styled_docx(styles: str, *paragraphs: tuple[str, str]) -> bytes:
    """Paragraphs: each has its properties before its text."""
    body = "".join(f"<w:p><w:pPr>{of}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>" for of, text in paragraphs)
    document = f"<w:document {W}><w:body>{body}</w:body></w:document>"
    made = changed(docx(["x"]), "word/styles.xml", f"<w:styles {W}>{styles}</w:styles>")
    return changed(made, "word/document.xml", document)


def style(id: str, name: str, base: str = "", outline: str = "") -> str:
    based = f'<w:basedOn w:val="{base}"/>' if base else ""
    level = f'<w:pPr><w:outlineLvl w:val="{outline}"/></w:pPr>' if outline else ""
    return f'<w:style w:styleId="{id}"><w:name w:val="{name}"/>{based}{level}</w:style>'


def in_style(id: str) -> str:
    return f'<w:pStyle w:val="{id}"/>'


STYLES = "".join((
    style("berschrift1", "heading 1"), style("Kapitel", "Kapitel", "berschrift1"),
    style("Gross", "Groß", outline="2"), style("Inhalt", "TOC Heading", "berschrift1", "9"),
    style("A", "a", "B"), style("B", "b", "A"), style("C", "c", "A"),
))  # fmt: skip
PARAGRAPHS = (
    (in_style("berschrift1"), "One"), (in_style("Kapitel"), "Also one"), (in_style("Gross"), "Three"),
    (in_style("Inhalt"), "Contents"), ('<w:outlineLvl w:val="7"/>', "Eight"),
    (in_style("Heading2"), "Not described"), ("", "# No heading"), *((in_style(id), id) for id in "ABC"),
)  # fmt: skip
OFFICE = "xmlns:office='o' xmlns:text='t' xmlns:table='b'"
HEADED_ODT = (
    f"<office:document-content {OFFICE}><office:body><office:text>"
    '<text:h text:outline-level="2">Two</text:h><text:h>One</text:h><text:p>text</text:p><table:table>'
    "<table:table-row><table:table-cell><text:h>cell</text:h></table:table-cell></table:table-row>"
    "</table:table></office:text></office:body></office:document-content>"
)
HEADED: dict[str, tuple[bytes, str, str]] = {
    "HTML": (
        b"<h2>Two<br> <b>lines</b><a>&para;</a>\n</h2><h3></h3><h6><div>Six</div></h6>x<nav><h2>x</h2></nav>",
        "text/html",
        "## Two lines\n\n###### Six\n\nx",
    ),
    "comments in code": (
        b"text<pre>x = 1\n# one\n<b># two</b>\n#three\n</pre><table><th>#<th>Name<tr><td>1<td>Iris</table>",
        "text/html",
        "text\n\nx = 1\n  # one\n  # two\n#three\n\n  # | Name |\n1 | Iris |",
    ),
    "EPUB": (
        epub({f"{i}.xhtml": CHAPTER.format(f"<h1>Chapter {i}</h1><p>It is {i}.</p>") for i in (1, 2)}),
        EPUB,
        "# Chapter 1\n\nIt is 1.\n\n# Chapter 2\n\nIt is 2.",
    ),
    "Word": (
        styled_docx(STYLES, *PARAGRAPHS),
        DOCX,
        "# One\n\n# Also one\n\n### Three\n\nContents\n\n###### Eight\n\n## Not described\n\n"
        "  # No heading\n\nA\n\nB\n\nC",
    ),
    "OpenDocument": (archive({"content.xml": HEADED_ODT}), ODT, "## Two\n\n# One\n\ntext\n\ncell"),
    "rich text": (
        rb"{\rtf1{\pard\outlinelevel1 T{\b wo}\par}\pard x\par\outlinelevel0 a\cell b\par\outlinelevel9 c"
        rb"\par\trowd d\cell e\cell\row f\cell\row g}",
        RTF,
        "## Two\nx\na | b\nc\nd | e\nf\ng",
    ),
}


@each_row(("body", "content_type", "expected"), HEADED.values(), ids=HEADED)
async def test_headings_are_lines_of_markdown(body: bytes, content_type: str, expected: str) -> None:
    assert await text_of(body, content_type) == expected


def bookmarked(body: bytes, *bookmarks: tuple[str, int, int]) -> bytes:
    """A PDF with these: title, page, level."""
    writer, above = pypdf.PdfWriter(clone_from=io.BytesIO(body)), dict[int, Any]()
    for title, page, level in bookmarks:
        above[level] = writer.add_outline_item(title=title, page_number=page, parent=above.get(level - 1))
    written = io.BytesIO()
    writer.write(written)
    return written.getvalue()


LINES = b"BT /F1 12 Tf 14 TL 72 700 Td (1.2  Moor the) Tj T* (boats) Tj T* (BOATS) Tj T* (Boats) Tj ET"


async def test_bookmarks_of_a_pdf_are_headings() -> None:
    body = pdf([], [LINES, LINES])
    marked = bookmarked(body, ("Harbour", 0, 1), ("Moor the", 1, 2), ("Boats!", 1, 3))
    assert await text_of(marked, PDF) == (
        f"{await text_of(pdf([], [LINES]), PDF)}\n\n## 1.2 Moor the\n\n### boats\n\nBOATS\nBoats"
    )
    broken = re.sub(rb"/First \d+ 0 R", b"/First  [7]", marked)
    assert broken != marked
    assert await text_of(broken, PDF) == await text_of(body, PDF)


def many_headings() -> list[tuple[bytes, str]]:
    chain = "".join(style(f"s{i}", "x", f"s{i + 1}") for i in range(20_000))
    return [
        (b"<h1>a<h2>b</h1>" * 30_000, "text/html"),
        (b"<h1>" + b"<i>a </i>" * 100_000, "text/html"),
        (styled_docx(chain, *((in_style(f"s{i}"), "text") for i in range(20_000))), DOCX),
        (rb"{\rtf1" + rb"\outlinelevel0 a " * 200_000 + rb"\par}", RTF),
    ]


@each_row(("body", "content_type"), many_headings, ids=["HTML", "one heading", "Word", "rich text"])
async def test_headings_take_time_in_proportion_to_the_document(body: bytes, content_type: str) -> None:
    assert await text_of(body, content_type, DocumentLimits(seconds=10))


SAMPLES = ROOT / "tests/support/documents"
MARKS = re.compile(r"[*\\\[\]^]|^ *(?:#+|>|[-•]|\d+\.)\s|^(\d+):", re.MULTILINE)


def words(text: str) -> list[str]:
    """The words of a text without marks, escapes and the labels of lists."""
    for _ in range(2):  # the first time, those before the others
        text = MARKS.sub(r"\1", text)
    return text.replace(" | ", " ").replace("\u00ad", "").replace("\u200b", "").split()


async def test_samples_of_many_programs_become_their_words() -> None:
    """The studio reads the same files, and what is expected of them is its text.

    But a memory keeps notes of EPUB where they stand, signs of Symbol as stored, and no soft hyphens.
    """
    wrong = {}
    for expected in sorted(SAMPLES.glob("*.txt")):
        file = expected.with_suffix("")
        read = words(await text_of(file.read_bytes(), type_of(file.name)))
        if read != (wanted := words(expected.read_text(encoding="utf-8"))):
            wrong[file.name] = (read, wanted)
    assert wrong.keys() == {"odd.epub", "pandoc.epub", "symbols.docx", "symbols.odt", "symbols.rtf"}


@each_row(
    ("body", "content_type", "limits", "says"),
    [
        (b"x" * 11, "text/plain", {"body": 10}, "the document has 11 bytes; it must have at most 10"),
        (b"x" * 11, "text/plain", {"text": 10}, "it has 11 bytes of text; it must have at most 10"),
        (
            b"<p>" + b"x" * 11,
            "text/html",
            {"text": 10},
            "it has 11 characters of text; it must have at most 10",
        ),
        (pdf(["p"] * 4), PDF, {"pages": 3}, "it has 4 pages; it must have at most 3"),
        (
            epub({f"{i}.xhtml": CHAPTER.format("x") for i in range(4)}),
            EPUB,
            {"pages": 3},
            "it has 4 chapters; it must",
        ),
        (docx(["x"]), DOCX, {"unpacked": 5000}, "bytes when it is unpacked; it must have at most 5,000"),
        (docx(["x"]), DOCX, {"entries": 3}, "files in its archive; it must have at most 3"),
        (b"<p>" * 3000 + b"x", "application/xhtml+xml", {}, ""),
        (b"<div>" * 3000 + b"x", "text/html", {}, "it has 401 levels of elements; it must have at most 400"),
        (b"Gr\xfcn", "text/plain", {}, "it is not utf-8 at byte 2; name its charset in Content-Type"),
        (
            b"x",
            "text/plain; charset=zlib_codec",
            {},
            "its charset is 'zlib_codec'; it must be one that the web uses",
        ),
        (b"x", "text/plain; charset=punycode", {}, "its charset is 'punycode'"),
        (b"<meta charset=punycode>x", "text/html", {}, "its charset is 'punycode'"),
        (b"x", "text/plain; charset=klingon", {}, "its charset is 'klingon'"),
        (b"", "text/html", {}, "it has no text"),
        (b"  \n", "text/plain", {}, "it has no text"),
        (pdf(["", ""]), PDF, {}, "it has no text: scanned pages need text recognition"),
        (b"no pdf", PDF, {}, "it is no valid pdf"),
        (pdf(["page"])[:200], PDF, {}, "it is no valid pdf"),
        (b"no archive", EPUB, {}, "it is no ZIP archive"),
        (archive({"a.xml": "<a/>"}), EPUB, {}, "its archive has no META-INF/container.xml"),
        (archive({"META-INF/container.xml": "<a>"}), EPUB, {}, "META-INF/container.xml is no valid XML"),
        (epub({"1.xhtml": CHAPTER.format("x")}, []), EPUB, {}, "its spine names no chapter"),
        (archive({"a.xml": "<a/>"}), DOCX, {}, "its archive has no word/document.xml"),
        (archive({"content.xml": "<a/>"}), ODT, {}, "content.xml has no text"),
        (archive({"META-INF/manifest.xml": "<a><encryption-data/></a>"}), ODT, {}, "it is encrypted with a"),
        (archive({"META-INF/encryption.xml": DRM}), EPUB, {}, "it is encrypted (DRM)"),
        (b"Not rich.", RTF, {}, "it is no rich text: it does not begin with"),
        (rb"{\rtf1 " + b"x" * 11, RTF, {"text": 10}, "it has 11 characters of text; it must have at most 10"),
        (rb"{\rtf1" + b"{" * 20_000, RTF, {}, "groups within groups; it must have at most 10,000"),
    ],
)
async def test_a_document_above_a_bound_or_broken_is_refused(
    body: bytes, content_type: str, limits: dict[str, int], says: str
) -> None:
    if not says:
        assert await text_of(body, content_type) == "x"  # paragraphs end each other
        return
    with pytest.raises(RequestError) as error:
        await text_of(body, content_type, DocumentLimits(**limits))
    assert says in error.value.message
    assert len(error.value.message) < 400


def hostile() -> list[tuple[bytes, str, str]]:
    return [
        (archive({"bomb.xml": bytes(400 << 20)}), EPUB,
         "419,430,400 bytes when it is unpacked; it must have at most 268,435,456"),
        (epub({"1.xhtml": CHAPTER.format("x")}, **{f"{i}.bin": bytes(30 << 20) for i in range(10)}), EPUB,
         "bytes when it is unpacked; it must have at most 268,435,456"),
        (archive({f"{i}.xml": "" for i in range(10_001)}), EPUB, "it has 10,001 files in its archive"),
        (epub({"1.xhtml": LAUGHS}), EPUB, "'OEBPS/1.xhtml' in its archive declares XML entities"),
        (epub({"1.xhtml": SECRET}), EPUB, "declares XML entities"),
        (epub({"1.xhtml": SECRET.encode("utf-16")}), EPUB, "declares XML entities"),  # type: ignore[dict-item]
        (changed(docx(["x"]), "word/document.xml", LAUGHS), DOCX, "declares XML entities"),
        (changed(docx(["x"]), "word/document.xml", SECRET), DOCX, "declares XML entities"),
        (pdf([], [b"BT /F1 12 Tf (x) Tj ET " + bytes(300 << 20)]), PDF, "it is no valid pdf"),
        (written_pdf([b"<< /Type /Catalog /Pages 2 0 R >>",
                      b"<< /Type /Pages /Kids [2 0 R] /Count 1000000 >>"]),
         PDF, "the document cannot be read: it "),
    ]  # fmt: skip


HOSTILE = (
    "bomb", "parts", "entries", "laughs", "external", "utf-16", "docx-laughs", "docx-external",
    "pdf-bomb", "pdf-loop",
)  # fmt: skip


@each_row(("body", "content_type", "says"), hostile, ids=HOSTILE)
async def test_a_hostile_document_is_refused(body: bytes, content_type: str, says: str) -> None:
    begun = time.monotonic()
    with pytest.raises(RequestError) as error:
        await text_of(body, content_type)
    assert says in error.value.message
    assert "root:" not in error.value.message
    assert time.monotonic() - begun < 60


async def test_entities_of_a_page_are_not_read_from_files() -> None:
    """The parser of HTML knows no entities but HTML's own."""
    assert "root:" not in await text_of(SECRET.encode(), "text/html")
    assert (
        "ha" not in (await text_of(LAUGHS.replace("]>", "]><p>x</p>").encode(), "text/html")).split("]")[-1]
    )


async def test_a_reader_that_takes_too_long_is_ended() -> None:
    slow = pdf([], [b"BT /F1 12 Tf " + b"(x) Tj " * 400_000 + b"ET"])
    begun = time.monotonic()
    with pytest.raises(RequestError, match="reading it takes more than 1 seconds"):
        await text_of(slow, PDF, DocumentLimits(seconds=1))
    assert time.monotonic() - begun < 10


async def test_a_reader_that_takes_too_much_memory_is_ended() -> None:
    with pytest.raises(RequestError, match="memory"):
        await text_of(b"x" * (60 << 20), "text/plain", DocumentLimits(memory=80 << 20, text=100 << 20))


LOCKED = """
import socket, os, sys
from llama_srb.memory.documents.child import lock_down
lock_down(1 << 30, 10)
for name, try_it in (
    ("read", lambda: open("/etc/passwd")),
    ("write", lambda: open("/tmp/x-memory", "w")),
    ("connect", lambda: socket.socket()),
    ("pipe", os.pipe),
    ("list", lambda: os.listdir("/")),
):
    try:
        try_it()
    except OSError:
        print(name)
try:
    bytearray(2 << 30)
except MemoryError:
    print("memory")
"""


def test_the_subprocess_opens_no_file_and_no_socket() -> None:
    result = subprocess.run([sys.executable, "-c", LOCKED], capture_output=True, text=True, timeout=60)
    assert result.stdout.split() == ["read", "write", "connect", "pipe", "list", "memory"], result.stderr


async def test_an_unknown_content_type_is_named_with_the_nearest() -> None:
    with pytest.raises(RequestError) as error:
        await text_of(b"x", "text/plane")
    assert error.value.status == 415
    assert 'Content-Type is "text/plane"; it must be one of text/plain, ' in error.value.message
    assert error.value.message.endswith("did you mean text/plain?")


async def test_a_short_text_needs_no_subprocess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_srb.memory.documents._CHILD", ("false",))
    assert await text_of("Ein Fuchs läuft.\r\n".encode(), "text/plain") == "Ein Fuchs läuft."
    for body in (b"\xff\xfeO\0", b"Ein Fuchs. " * 1000):
        with pytest.raises(RequestError):
            await text_of(body, "text/plain")


async def test_a_missing_library_is_the_operators_error(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.modules['pypdf'] = None; from llama_srb.memory.documents.child import main; main()"
    )
    monkeypatch.setattr("llama_srb.memory.documents._CHILD", (sys.executable, "-c", code))
    with pytest.raises(MemoryUnusable, match=r"need pypdf: pip install 'llama-srb\[memory\]'"):
        await text_of(pdf(["x"]), PDF)
    assert await text_of(b"x", "text/plain") == "x"


def test_the_limits_of_both_sides_have_the_same_fields() -> None:
    assert [one.name for one in fields(DocumentLimits)] == [one.name for one in fields(readers.Limits)]
    assert set(KINDS.values()) == readers.READERS.keys()
