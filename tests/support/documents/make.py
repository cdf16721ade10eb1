"""Makes the samples of this folder, by hand: python make.py.

It wants python-docx, odfpy, EbookLib and pypandoc_binary. NAME is a document, NAME.txt the text that is expected
of it in the studio, marks included. What no program writes is made of XML here.
"""

# ruff: noqa: E501, RUF001 (samples)

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import docx
import ebooklib.epub as ebooklib_module
import pypandoc
from docx.document import Document
from docx.shared import Pt
from odf.opendocument import OpenDocumentText
from odf.style import Style, TextProperties
from odf.table import Table, TableCell, TableRow
from odf.text import (
    H,
    LineBreak,
    List,
    ListItem,
    ListLevelStyleNumber,
    ListStyle,
    Note,
    NoteBody,
    NoteCitation,
    P,
    S,
    Span,
    Tab,
)

HERE = Path(__file__).resolve().parent
os.environ["SOURCE_DATE_EPOCH"] = "1767225600"  # the same files each time
WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT_RELATIONS = "http://purl.oclc.org/ooxml/officeDocument/relationships"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
TIME = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
DATE = (2026, 1, 1, 0, 0, 0)  # of all files in an archive, so that making them again changes nothing


def keep(name: str, content: bytes, text: str) -> None:
    (HERE / name).write_bytes(content)
    (HERE / f"{name}.txt").write_text(text, encoding="utf-8")


def archive(files: Mapping[str, str | bytes], stored: tuple[str, ...] = ()) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as opened:
        for name, content in files.items():
            kind = zipfile.ZIP_STORED if name in stored else zipfile.ZIP_DEFLATED
            opened.writestr(zipfile.ZipInfo(name, DATE), content, compress_type=kind)
    return made.getvalue()


def dated(content: bytes, stored: tuple[str, ...] = ()) -> bytes:
    """An archive with the same date for all its files."""
    with zipfile.ZipFile(io.BytesIO(content)) as opened:
        files = {name: opened.read(name) for name in opened.namelist()}
    return archive(
        {name: re.sub(TIME, b"2026-01-01T00:00:00Z", file) for name, file in files.items()}, stored
    )


# ---- Word ----------------------------------------------------------------------------------------------

SPACES = " ".join(
    f'xmlns:{prefix}="{name}"'
    for prefix, name in {
        "mc": "http://schemas.openxmlformats.org/markup-compatibility/2006",
        "wps": "http://schemas.microsoft.com/office/word/2010/wordprocessingShape",
        "v": "urn:schemas-microsoft-com:vml",
        "o": "urn:schemas-microsoft-com:office:office",
        "m": "http://schemas.openxmlformats.org/officeDocument/2006/math",
    }.items()
)


def word(body: str, main: str = "word/document.xml", words: str = WORDS, relations: str = RELATIONS) -> bytes:
    """A .docx with this body, and nothing else."""
    return archive({
        "[Content_Types].xml": '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
        f'<Override PartName="/{main}" ContentType="{TYPE}.document.main+xml"/></Types>',
        "_rels/.rels": '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
        f'<Relationship Id="r1" Type="{relations}/officeDocument" Target="/{main}"/></Relationships>',
        main: f'<w:document xmlns:w="{words}" {SPACES}><w:body>{body}</w:body></w:document>',
    })  # fmt: skip


def run(text: str, look: str = "") -> str:
    return f'<w:r><w:rPr>{look}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def paragraph(*content: str, properties: str = "") -> str:
    return f"<w:p><w:pPr>{properties}</w:pPr>{''.join(content)}</w:p>"


def saved(document: Document) -> bytes:
    made = io.BytesIO()
    document.save(made)
    return dated(made.getvalue())


def field(code: str, result: str) -> str:
    def sign(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    return f"{sign('begin')}{code}{sign('separate')}{result}{sign('end')}"


def code(text: str) -> str:
    return f"<w:r><w:instrText>{text}</w:instrText></w:r>"


def box(inner: str, prefix: str) -> str:
    return f"<{prefix}><w:txbxContent>{inner}</w:txbxContent></{prefix.split()[0]}>"


def tracked() -> None:
    gone, moved = "<w:rPr><w:del w:id='9'/></w:rPr>", "<w:rPr><w:moveFrom w:id='8'/></w:rPr>"
    body = (
        paragraph(
            run("The "), "<w:del w:id='1'><w:r><w:delText>old </w:delText></w:r></w:del>",
            f"<w:ins w:id='2'>{run('new ')}</w:ins>", run("house."),
        )
        + paragraph(f"<w:moveFrom w:id='3'>{run('It moved.')}</w:moveFrom>", properties=moved)
        + paragraph(run("It stood "), properties=gone)
        + paragraph(run("still."))
        + paragraph(f"<w:moveTo w:id='4'>{run('It moved.')}</w:moveTo>")
        + f"<w:ins w:id='5'>{paragraph(run('Inserted.'))}</w:ins><w:del w:id='6'>{paragraph(run('Deleted.'))}</w:del>"
    )  # fmt: skip
    rows = "".join(
        f"<w:tr><w:trPr>{mark}</w:trPr><w:tc>{paragraph(run(words))}</w:tc></w:tr>"
        for words, mark in (("A row.", ""), ("A deleted row.", "<w:del w:id='7'/>"))
    )
    body += f"<w:tbl>{rows}</w:tbl>"
    keep("tracked.docx", word(body), "The new house.\nIt stood still.\nIt moved.\nInserted.\nA row.")


def strict() -> None:
    body = paragraph(run("Strict "), run("and bold", "<w:b/>"), run(", by its relations."))
    made = word(body, "word/document2.xml", STRICT, STRICT_RELATIONS)
    keep("strict.docx", made, "Strict **and bold**, by its relations.")


def boxes() -> None:
    inner = paragraph(run("In the box.")) + paragraph(run("Twice in the file."))
    both = (
        f'<mc:AlternateContent><mc:Choice Requires="wps"><w:drawing>{box(inner, "wps:txbx")}</w:drawing></mc:Choice>'
        f"<mc:Fallback><w:pict><v:shape>{box(inner, 'v:textbox')}</v:shape></w:pict></mc:Fallback>"
        "</mc:AlternateContent>"
    )
    old = f"<w:pict><v:shape>{box(paragraph(run('An old box.')), 'v:textbox')}</v:shape></w:pict>"
    body = paragraph(run("Before"), f"<w:r>{both}</w:r>", run(" and behind.")) + paragraph(
        f"<w:r>{old}</w:r>"
    )
    text = "Before and behind.\nIn the box.\nTwice in the file.\n\nAn old box."
    keep("boxes.docx", word(body), text)


def controls() -> None:
    nested = field(code("IF ") + field(code("PAGE"), run("hidden")) + code(" = 1"), run("three"))
    body = (
        f"<w:sdt><w:sdtPr><w:alias w:val='no'/></w:sdtPr><w:sdtContent>{paragraph(run('A control.'))}"
        "</w:sdtContent></w:sdt>"
        + paragraph(run("One "), f"<w:sdt><w:sdtContent>{run('two')}</w:sdtContent></w:sdt>", run(" "), nested)
        + paragraph(f"<w:fldSimple w:instr='DATE'>{run('1 May')}</w:fldSimple>", run(", "),
                    f"<w:hyperlink w:anchor='a'>{run('a link', '<w:i/>')}</w:hyperlink>", run(", "),
                    f"<w:smartTag w:element='place'>{run('Bath')}</w:smartTag>")
        + f"<w:customXml w:element='x'>{paragraph(run('Custom.'))}</w:customXml>"
    )  # fmt: skip
    keep("controls.docx", word(body), "A control.\nOne two three\n1 May, *a link*, Bath\nCustom.")


def signs() -> None:
    ruby = (
        "<w:r><w:ruby><w:rubyPr/><w:rt><w:r><w:t>かんじ</w:t></w:r></w:rt>"
        "<w:rubyBase><w:r><w:t>漢字</w:t></w:r></w:rubyBase></w:ruby></w:r>"
    )
    pieces = "<w:t>a</w:t><w:cr/><w:t>b</w:t><w:tab/><w:t>c</w:t><w:br/><w:t>d</w:t>"
    body = (
        paragraph(ruby, run("を読む。"))
        + paragraph(f"<w:r>{pieces}</w:r>")
        + paragraph("<w:r><w:t>x</w:t><w:noBreakHyphen/><w:t>y</w:t><w:softHyphen/><w:t>z</w:t>"
                    "<w:sym w:font='Arial' w:char='2013'/></w:r>")
        + paragraph("<w:r><w:pict><v:rect o:hr='t'/></w:pict></w:r>")
        + paragraph("<w:r><w:br w:type='page'/></w:r>")
        + paragraph("<w:r><w:t>e</w:t><w:br w:type='page'/><w:t>f</w:t><w:br w:type='page'/></w:r>")
        + paragraph("<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>")
    )  # fmt: skip
    keep("signs.docx", word(body), "漢字を読む。\na\nb\tc\nd\nx\u2011y\u00adz–\n***\n\ne\nf\nx=1")


def symbols() -> None:
    """Signs of Symbol and Wingdings, as Word, Writer and RTF name them; one that has no character stays."""
    signs = (("Symbol", "F061"), ("Wingdings", "F04A"), ("Wingdings", "F0E0"), ("Symbol", "00B7"),
             ("Wingdings", "F0FF"), ("Webdings", "F04A"), ("Arial", "2014"))  # fmt: skip
    fonts = '<w:rFonts w:ascii="Wingdings" w:hAnsi="Wingdings"/>'
    body = paragraph(
        *(f"<w:r><w:sym w:font='{font}' w:char='{sign}'/></w:r>" for font, sign in signs)
    ) + paragraph(run("Go \uf0e0 on", fonts), run(" \uf0e0"))
    keep("symbols.docx", word(body), "α☺→•\uf0ff\uf04a—\nGo → on \uf0e0")
    spaces = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{prefix}:1.0"'
        for prefix in ("office", "style", "text")
    )
    content = (
        f"<office:document-content {spaces}><office:automatic-styles>"
        '<style:style style:name="T1" style:family="text"><style:text-properties style:font-name="Wingdings"/>'
        "</style:style></office:automatic-styles><office:body><office:text><text:p>Go "
        '<text:span text:style-name="T1">\uf0e0</text:span> on \uf0e0</text:p>'
        "</office:text></office:body></office:document-content>"
    )
    files = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content}
    keep("symbols.odt", archive(files, ("mimetype",)), "Go → on \uf0e0")
    rtf = (
        r"{\rtf1\ansi{\fonttbl{\f0 Times;}{\f1\fcharset2 Symbol;}{\f2\fcharset2{\*\panose 05}Wingdings;}}"
        r"\f0 Go {\f2\'e0} on, {\f1 a\'b7}{\f2\u-4022?J}, \'e0\bullet.}"
    )
    keep("symbols.rtf", rtf.encode("ascii"), "Go → on, α•☺☺, à•.")


def literal() -> None:
    lines = ["*not emphasis*", "5 * 3 * 2", "# no heading", "> no quote", "a_b_c", "C:\\dir", "#tag", "\\*x*"]
    expected = ["\\*not emphasis\\*", "5 * 3 * 2", "\\# no heading", "\\> no quote", "a_b_c", "C:\\dir", "#tag",
                "\\\\\\*x\\*"]  # fmt: skip
    keep("literal.docx", word("".join(paragraph(run(line)) for line in lines)), "\n".join(expected))


def hidden() -> None:
    """What Word and Writer hide is left out: of a line, a line, what an index is made of, a paragraph's end."""
    gone = "<w:vanish/>"
    mark = f"<w:rPr>{gone}</w:rPr>"
    entry = "".join(
        f"<w:r><w:rPr>{gone}</w:rPr>{part}</w:r>"
        for part in (
            '<w:fldChar w:fldCharType="begin"/>', "<w:instrText>XE x</w:instrText>",
            '<w:fldChar w:fldCharType="end"/>',
        )
    )  # fmt: skip
    body = (
        paragraph(
            run("Seen"), run(" not seen", gone), entry, run(" again", '<w:vanish w:val="0"/>'), run(".")
        )
        + paragraph(run("A hidden line.", gone), properties=mark)
        + paragraph(run("One line "), properties=mark)
        + paragraph(run("of two."))
        + paragraph(run("A head."), properties=f"<w:rPr>{gone}<w:specVanish/></w:rPr>")
        + paragraph(run("Its text."))
    )
    keep("hidden.docx", word(body), "Seen again.\nOne line of two.\nA head.\nIts text.")
    spaces = " ".join(
        f'xmlns:{prefix}="urn:oasis:names:tc:opendocument:xmlns:{prefix}:1.0"'
        for prefix in ("office", "style", "text")
    )
    content = (
        f"<office:document-content {spaces}><office:automatic-styles>"
        '<style:style style:name="T1" style:family="text"><style:text-properties text:display="none"/></style:style>'
        '<style:style style:name="P1" style:family="paragraph" style:parent-style-name="T1"/>'
        "</office:automatic-styles><office:body><office:text>"
        '<text:p>Seen<text:span text:style-name="T1"> not seen</text:span> again<text:hidden-text '
        'text:condition="x" text:string-value="no" text:is-hidden="true">no</text:hidden-text>.</text:p>'
        '<text:p text:style-name="P1">A hidden line.</text:p>'
        '<text:p><text:hidden-paragraph text:condition="x" text:is-hidden="true"/>Another.</text:p>'
        '<text:section text:name="a" text:display="none"><text:p>A section.</text:p></text:section>'
        '<text:section text:name="b"><text:p>Shown.</text:p></text:section>'
        "</office:text></office:body></office:document-content>"
    )
    files = {"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": content}
    keep("hidden.odt", archive(files, ("mimetype",)), "Seen again.\nShown.")


def styled() -> None:
    document = docx.Document()
    document.add_heading("The *Fox*", 0)
    document.add_heading("", 1).add_run("Chapter 1").bold = True
    one = document.add_paragraph("The ")
    for text, bold, italic in (
        ("quick", True, None),
        (" brown ", None, True),
        ("fox", True, True),
        (" ran.", None, None),
    ):
        added = one.add_run(text)
        added.bold, added.italic = bold, italic
    two = document.add_paragraph()
    two.add_run("Strong", "Strong")
    two.add_run(" and ")
    two.add_run("soft", "Emphasis")
    thought = document.styles.add_style("Thought", 1)
    thought.font.italic = True
    three = document.add_paragraph("I think, ", "Thought")
    three.add_run("therefore").italic = False
    for text in ("One", "Two"):
        document.add_paragraph(text, "List Bullet")
    for text in ("First", "Second"):
        document.add_paragraph(text, "List Number")
    document.add_paragraph("To be.", "Quote")
    document.add_heading("", 2)
    document.add_paragraph("After space").paragraph_format.space_before = Pt(12)
    text = (
        "# \\*Fox\\*\n# Chapter 1\nThe **quick** *brown **fox*** ran.\n**Strong** and *soft*\n*I think,* therefore\n"
        "- One\n- Two\n1. First\n2. Second\n> To be.\n\n\nAfter space"
    ).replace("# \\*Fox", "# The \\*Fox")
    keep("styled.docx", saved(document), text)


def tables() -> None:
    document = docx.Document()
    document.add_paragraph("Before")
    table = document.add_table(3, 3)
    for i, row in enumerate(table.rows):
        for j, cell in enumerate(row.cells):
            cell.text = f"{'abc'[j]}{i + 1}"
    table.cell(0, 0).merge(table.cell(0, 1)).text = "wide"
    table.cell(1, 0).merge(table.cell(2, 0)).text = "high"
    inner = table.cell(2, 2)
    inner.text = "outer"
    nested = inner.add_table(1, 2)
    nested.cell(0, 0).text, nested.cell(0, 1).text = "in1", "in2"
    document.add_paragraph("Behind")
    keep("tables.docx", saved(document), "Before\nwide\tc1\nhigh\tb2\tc2\nb3\nouter\nin1\tin2\n\nBehind")


PROSE = """# One

The *quick* **brown** ***fox***.[^1]

> A quote.

- a
- b

3. c
4. d

------------------------------------------------------------------------

Né 日本 🦊 "quoted" & \\<tag\\>.[^2]

## Two

End\\*.

[^1]: The *first* note.

[^2]: The second.
"""


def pandoc(kind: str, expected: str, *arguments: str) -> None:
    path = HERE / f"pandoc.{kind}"
    pypandoc.convert_text(
        PROSE,
        kind,
        "markdown-smart",
        outputfile=str(path),
        extra_args=["--standalone", "--metadata=identifier:sample", *arguments],
    )
    content = path.read_bytes()
    keep(path.name, content if kind == "rtf" else dated(content, ("mimetype",)), expected)


# ---- EPUB ----------------------------------------------------------------------------------------------

CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container" version="1.0"><rootfiles>'
    '<rootfile full-path="{}" media-type="application/oebps-package+xml"/></rootfiles></container>'
)
XHTML = "application/xhtml+xml"


def page(body: str, head: str = "") -> str:
    return f'<html xmlns="http://www.w3.org/1999/xhtml"><head><title>no</title>{head}</head><body>{body}</body></html>'


def epub(
    items: Mapping[str, tuple[str, str, str]],
    spine: tuple[str, ...],
    more: Mapping[str, str | bytes] = {},
    book: str = "OEBPS/content.opf",
) -> bytes:
    """items: id -> path in the archive, media type, content; spine: ids, each with a fragment or not."""
    folder = book.rpartition("/")[0]
    manifest = "".join(
        f'<item id="{id}" href="{quote(path.removeprefix(folder + "/"))}" media-type="{kind}"/>'
        for id, (path, kind, _) in items.items()
    )
    refs = "".join(f'<itemref idref="{id}"/>' for id in spine)
    package = (
        '<package xmlns="http://www.idpf.org/2007/opf" version="2.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Book</dc:title></metadata>'
        f"<manifest>{manifest}</manifest><spine>{refs}</spine></package>"
    )
    files = {path: content for path, _, content in items.values()}
    return archive(
        {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER.format(book), book: package}
        | files | dict(more),
        ("mimetype",),
    )  # fmt: skip


ENCRYPTION = (
    '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container" '
    'xmlns:enc="http://www.w3.org/2001/04/xmlenc#"><enc:EncryptedData><enc:EncryptionMethod Algorithm="{}"/>'
    '<enc:CipherData><enc:CipherReference URI="{}"/></enc:CipherData></enc:EncryptedData></encryption>'
)


def odd_epub() -> None:
    """Chapters by their media type, whatever they are called; fragments; letter case; a style sheet's italics."""
    sheet = '<link rel="stylesheet" href="../Styles/a.css"/>'
    one = page(
        '<h1>One</h1><p>It was <span class="it">late</span>&nbsp;&mdash; very.<a epub:type="noteref" href="#f">*</a></p>'
        '<p class="no">Not this.</p><aside class="no" epub:type="footnote" id="f"><p>Hid.</p></aside>'
        '<aside class="no" epub:type="footnote"><p>Not called.</p></aside><p>&nbsp;</p><hr/>',
        sheet,
    )
    two = page('<h2 id="a">Two</h2><p>A <b>bold</b> line<br/>of two.</p><ol start="3"><li>c</li><li><p>d</p></li></ol>'
               "<ul><li>x<ul><li>y</li></ul></li></ul><p id='b'><ruby>漢字<rt>かんじ</rt></ruby></p>"
               '<table><tr><td><p>e</p></td><td><p>f</p></td></tr></table>'
               '<p>Note<a epub:type="noteref" xmlns:epub="http://www.idpf.org/2007/ops" href="#n">1</a></p>')  # fmt: skip
    items = {
        "c1": ("OEBPS/Text/one.bin", XHTML, one),
        "c2": ("OEBPS/Text/Chapter Two.HTM", "Application/XHTML+xml", two),
        "c2b": ("OEBPS/Text/Chapter Two.HTM#b", XHTML, ""),
        "css": (
            "OEBPS/Styles/A.css",
            "text/css",
            ".it { font-style: italic } p { margin: 0 } .no { display: none }",
        ),
        "toc": ("OEBPS/toc.ncx", "application/x-dtbncx+xml", "<ncx/>"),
    }
    made = epub(items, ("c1", "c2", "c2b", "toc"), {
        "META-INF/encryption.xml": ENCRYPTION.format("http://www.idpf.org/2008/embedding", "OEBPS/a.otf"),
    })  # fmt: skip
    made = made.replace(b"Chapter%20Two.HTM%23b", b"Chapter%20Two.HTM#b")
    text = ("# One\nIt was *late*\u00a0— very.[^1]\nNot called.\n\n***\n\n## Two\nA **bold** line\nof two.\n3. c\n4. d\n- x\n- y\n"
            "漢字\ne\tf\nNote[1]\n\n[^1]: Hid.")  # fmt: skip
    keep("odd.epub", made, text)


def broken_epub() -> None:
    """A chapter that is no XML, but HTML as browsers read it."""
    body = "<html><head><title/></head><body><p>An &unknown; sign &amp a <i>slip<p>Not closed"
    made = epub({"c": ("book/c.xhtml", XHTML, body)}, ("c",), book="book/b.opf")
    keep("broken.epub", made, "An &unknown; sign & a *slip*\n*Not closed*")


def ebooklib_epub() -> None:
    book = ebooklib_module.EpubBook()
    book.set_identifier("sample")
    book.set_title("By EbookLib")
    book.set_language("en")
    chapters = []
    for i, words in enumerate(("The <em>first</em>.", "The <strong>second</strong>.")):
        chapter = ebooklib_module.EpubHtml(title=f"Chapter {i + 1}", file_name=f"c{i}.xhtml", lang="en")
        chapter.content = f"<h1>Chapter {i + 1}</h1><p>{words}</p>"
        book.add_item(chapter)
        chapters.append(chapter)
    book.toc = tuple(chapters)
    book.add_item(ebooklib_module.EpubNcx())
    book.add_item(ebooklib_module.EpubNav())
    book.spine = ["nav", *chapters]
    path = HERE / "ebooklib.epub"
    ebooklib_module.write_epub(str(path), book)
    keep(path.name, dated(path.read_bytes(), ("mimetype",)),
         "# Chapter 1\nThe *first*.\n\n# Chapter 2\nThe **second**.")  # fmt: skip


# ---- OpenDocument and rich text ------------------------------------------------------------------------


def odfpy() -> None:
    document = OpenDocumentText()
    for name, attributes in {"it": {"fontstyle": "italic"}, "bo": {"fontweight": "bold"}}.items():
        style = Style(name=name, family="text")
        style.addElement(TextProperties(**attributes))
        document.automaticstyles.addElement(style)
    quotation = Style(name="Quotations", family="paragraph")
    document.styles.addElement(quotation)
    numbers = ListStyle(name="numbers")
    numbers.addElement(ListLevelStyleNumber(level=1, numformat="1", numsuffix=".", startvalue=3))
    document.automaticstyles.addElement(numbers)
    body = document.text
    body.addElement(H(outlinelevel=1, text="Chapter 1"))
    one = P(text="It was ")
    one.addElement(Span(stylename="it", text="very late"))
    one.addText(" and ")
    one.addElement(Span(stylename="bo", text="dark"))
    one.addElement(S(c=3))
    one.addText("here")
    one.addElement(Tab())
    one.addText("and   there")
    one.addElement(LineBreak())
    one.addText("below.")
    note = Note(noteclass="footnote", id="n1")
    note.addElement(NoteCitation(text="1"))
    inside = NoteBody()
    inside.addElement(P(text="A note."))
    note.addElement(inside)
    one.addElement(note)
    body.addElement(one)
    body.addElement(P())
    body.addElement(P(stylename=quotation, text="To be."))
    for style, words in (("numbers", ("c", "d")), (None, ("x", "y"))):
        items = List(stylename=style) if style else List()
        for word in words:
            item = ListItem()
            item.addElement(P(text=word))
            items.addElement(item)
        body.addElement(items)
    table = Table()
    row = TableRow()
    for words in ("a", "b"):
        cell = TableCell()
        cell.addElement(P(text=words))
        row.addElement(cell)
    table.addElement(row)
    body.addElement(table)
    made = io.BytesIO()
    document.save(made)
    keep("odfpy.odt", dated(made.getvalue(), ("mimetype",)),
         "# Chapter 1\nIt was *very late* and **dark**   here\tand there\nbelow.[^1]\n\n> To be.\n3. c\n4. d\n"
         "- x\n- y\na\tb\n\n[^1]: A note.")  # fmt: skip


RTF = r"""{\rtf1\ansi\ansicpg1252\uc1\deff0
{\fonttbl{\f0\fcharset0 Times;}{\f1\fcharset204 Arial;}{\f2\fcharset128 Mincho;}}
{\colortbl;\red255\green0\blue0;}
{\stylesheet{\s0 Normal;}{\s1\outlinelevel0 heading 1;}{\*\cs2 Strong;}}
{\info{\title No text}}{\*\generator Nobody;}
{\header Not this\par}
\pard\plain\s1 Chapter 1\par
\pard\plain It was {\i late} and {\b dark\i  and cold}; caf\'e9 \u8212?\'97 \u55358?\u56714?.\par
{\f1\'cf\'f0\'e8} {\f2\'93\'fa\'96\'7b} \{a\}\~b\tab c\line d{\v hidden}{\deleted gone}\par
\par
{\listtext\'b7\tab}an item\par
{\listtext 3.\tab}the third\par
{\field{\*\fldinst HYPERLINK "x"}{\fldrslt a link}}, a note{\super\chftn{\footnote\pard Of {\i all}.}}.\par
\trowd\cellx1\cellx2 a\cell b\cell\row
\pard{\upr{old}{\*\ud new}} end}"""


def rtf() -> None:
    text = (
        "# Chapter 1\nIt was *late* and **dark *and cold***; café —— 🦊.\nПри 日本 {a}\u00a0b\tc\nd\n\n- an item\n"
        "3. the third\na link, a note[^1].\na\tb\nnew end\n\n[^1]: Of *all*."
    )
    keep("signs.rtf", RTF.encode("ascii"), text)


def main() -> None:
    for make in (tracked, strict, boxes, controls, signs, symbols, literal, hidden, styled, tables, odd_epub, broken_epub,
                 ebooklib_epub, odfpy, rtf):  # fmt: skip
        make()
    notes = "\n\n[^1]: The *first* note.\n[^2]: The second."
    prose = (
        "# One\nThe *quick* **brown** ***fox***.[^1]\n> A quote.\n- a\n- b\n3. c\n4. d\n***\n"
        'Né 日本 🦊 "quoted" & <tag>.[^2]\n## Two\nEnd*.'
    )
    pandoc("docx", prose + notes)
    pandoc("odt", prose + notes)
    rich = prose.replace("> A", "A").replace("***\nN", "—————\nN")  # it writes these as plain paragraphs
    pandoc("rtf", rich + notes)
    pandoc("epub", prose + notes)


main()
