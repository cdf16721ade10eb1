"""Documents for tests, made here: PDF, DOCX and EPUB, and archives that were made to do harm."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence

DOCX = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
EPUB = "application/epub+zip"
PDF = "application/pdf"


def pdf(pages: Sequence[str], streams: Sequence[bytes] = ()) -> bytes:
    """A PDF with a line of text a page, or with compressed content of these bytes."""
    contents = streams or [f"BT /F1 12 Tf 72 700 Td ({page}) Tj ET".encode() for page in pages]
    n = len(contents)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [%b] /Count %d >>"
        % (b" ".join(b"%d 0 R" % (4 + 2 * i) for i in range(n)), n),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for i, content in enumerate(contents):
        data = zlib.compress(content, 9)
        objects += [
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % (5 + 2 * i),
            b"<< /Length %d /Filter /FlateDecode >>\nstream\n%b\nendstream" % (len(data), data),
        ]
    return written_pdf(objects)


def written_pdf(objects: Sequence[bytes]) -> bytes:
    made, places = b"%PDF-1.4\n", []
    for i, one in enumerate(objects):
        places.append(len(made))
        made += b"%d 0 obj\n%b\nendobj\n" % (i + 1, one)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    return made + (
        b"xref\n0 %d\n0000000000 65535 f \n%btrailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n"
        % (len(objects) + 1, table, len(objects) + 1, len(made))
    )


def archive(files: Mapping[str, str | bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return made.getvalue()


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile full-path="OEBPS/book.opf"/></rootfiles></container>'
)


def epub(chapters: Mapping[str, str], spine: Sequence[str] | None = None, **files: str | bytes) -> bytes:
    """An EPUB; chapters by file name, in the order of the spine (all of them without one)."""
    items = "".join(f'<item id="{name}" href="{name}"/>' for name in chapters)
    refs = "".join(f'<itemref idref="{name}"/>' for name in (chapters if spine is None else spine))
    package = f'<package xmlns="http://www.idpf.org/2007/opf"><manifest>{items}</manifest><spine>{refs}</spine></package>'
    named = {f"OEBPS/{name}": content for name, content in chapters.items()}
    return archive({"META-INF/container.xml": CONTAINER, "OEBPS/book.opf": package, **named, **files})


def docx(paragraphs: Sequence[str], table: Sequence[Sequence[str]] = ()) -> bytes:
    from docx import Document

    document = Document()
    for paragraph in paragraphs:
        document.add_paragraph(paragraph)
    if table:
        made = document.add_table(len(table), len(table[0]))
        for i, row in enumerate(table):
            for j, text in enumerate(row):
                made.cell(i, j).text = text
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def changed(body: bytes, name: str, content: str | bytes) -> bytes:
    """An archive with another content of one file."""
    with zipfile.ZipFile(io.BytesIO(body)) as opened:
        files: dict[str, str | bytes] = {one: opened.read(one) for one in opened.namelist()}
    return archive(files | {name: content})
