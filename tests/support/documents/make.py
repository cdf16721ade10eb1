"""Makes the samples of this folder, by hand: python make.py, with python-docx, odfpy, EbookLib, pypandoc_binary.

NAME is a document, NAME.txt the text that is expected of it in the studio, marks included. What no program
writes is made of XML here.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path

import docx
import pypandoc
from docx.document import Document
from docx.shared import Pt

HERE = Path(__file__).resolve().parent
WORDS = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
STRICT = "http://purl.oclc.org/ooxml/wordprocessingml/main"
RELATIONS = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
STRICT_RELATIONS = "http://purl.oclc.org/ooxml/officeDocument/relationships"
TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml"
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
        return archive({name: opened.read(name) for name in opened.namelist()}, stored)


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
            run("The "), f"<w:del w:id='1'><w:r><w:delText>old </w:delText></w:r></w:del>",
            f"<w:ins w:id='2'>{run('new ')}</w:ins>", run("house."),
        )
        + paragraph(f"<w:moveFrom w:id='3'>{run('It moved.')}</w:moveFrom>", properties=moved)
        + paragraph(run("It stood "), properties=gone)
        + paragraph(run("still."))
        + paragraph(f"<w:moveTo w:id='4'>{run('It moved.')}</w:moveTo>")
        + f"<w:ins w:id='5'>{paragraph(run('Inserted.'))}</w:ins><w:del w:id='6'>{paragraph(run('Deleted.'))}</w:del>"
    )  # fmt: skip
    keep("tracked.docx", word(body), "The new house.\nIt stood still.\nIt moved.\nInserted.")


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
    body = paragraph(run("Before"), f"<w:r>{both}</w:r>", run(" and behind.")) + paragraph(f"<w:r>{old}</w:r>")
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
        + paragraph("<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>")
    )  # fmt: skip
    keep("signs.docx", word(body), "漢字を読む。\na\nb\tc\nd\nx\u2011y\u00adz–\n***\nx=1")


def literal() -> None:
    lines = ["*not emphasis*", "5 * 3 * 2", "# no heading", "> no quote", "a_b_c", "C:\\dir", "#tag", "\\*x*"]
    expected = ["\\*not emphasis\\*", "5 * 3 * 2", "\\# no heading", "\\> no quote", "a_b_c", "C:\\dir", "#tag",
                "\\\\\\*x\\*"]  # fmt: skip
    keep("literal.docx", word("".join(paragraph(run(line)) for line in lines)), "\n".join(expected))


def styled() -> None:
    document = docx.Document()
    document.add_heading("The *Fox*", 0)
    document.add_heading("Chapter 1", 1)
    one = document.add_paragraph("The ")
    for text, bold, italic in (("quick", True, None), (" brown ", None, True), ("fox", True, True), (" ran.", None, None)):
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
    pypandoc.convert_text(PROSE, kind, "markdown-smart", outputfile=str(path), extra_args=["--standalone", *arguments])
    content = path.read_bytes()
    keep(path.name, content if kind == "rtf" else dated(content, ("mimetype",)), expected)


def main() -> None:
    for make in (tracked, strict, boxes, controls, signs, literal, styled, tables):
        make()
    pandoc("docx", "")


main()
