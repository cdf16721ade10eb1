"""Documents go in and out with nothing eaten: random texts through Word, and samples of many programs.

Reading XML needs a page. The samples and the texts that are expected of them: tests/support/documents.
"""

from __future__ import annotations

import base64
import io
import re

import docx
import pytest
from docx.oxml.ns import nsmap
from playwright.sync_api import Error, Page

from tests.support.documents import EPUB, archive
from tests.support.long import amount
from tests.support.places import ROOT

SAMPLES = ROOT / "tests/support/documents"
SEEDS = amount(150, 5000)
ODT = "application/vnd.oasis.opendocument.text"

ROUND = """async ([kind, seeds]) => {
    const load = (path) => import(new URL(`studio/files/${path}.js`, document.baseURI));
    const ways = {
        docx: async (text) => {
            const [{ toDocx }, { fromDocx }] = await Promise.all(["todocx", "docx"].map(load));
            return (await fromDocx(await new Blob(await toDocx("T", text)).arrayBuffer())).text;
        },
        html: async (text) => {
            const { fromHtml, toHtml } = await load("html");
            return fromHtml(`<meta charset="utf-8">${toHtml(text)}`);
        },
        epub: async (text) => {
            const [{ toEpub }, { fromEpub }] = await Promise.all(["toepub", "epub"].map(load));
            const about = { id: "a", title: "T", author: "", language: "en", changed: 0 };
            return (await fromEpub(await new Blob(await toEpub(about, text)).arrayBuffer())).text;
        },
        markdown: async (text) => {
            const [{ fromFile, toMarkdown }, { newStory, textOf, write }] =
                await Promise.all(["exchange", "../story/tree"].map(load));
            const story = newStory();
            write(story, [[0, 0, text]]);
            return textOf(await fromFile(new File([toMarkdown(story)], "a.md")));
        },
    };
    const signs = ["*", "*", "**", "***", "\\\\", "a", "b ", " ", "_", "#", "\\n# ", "\\n> ", "\\n- ",
        "\\n7. ", "\\n***\\n", "\\n* * *\\n", "\\n", "\\n\\n", "\\n\\n\\n", "\\t", "🦊", "\\u00a0", "\\u2028",
        "\\u0085", "<&>\\"'", "]]>", "•", "\\ufeff", "\\ufffd", "né 日本", "\\u202e", "[^1]",
        "\\n\\n[^1]: a", "[^2]", "\\n[^2]: "];
    const anywhere = (random) => {
        const at = Math.floor(random() * (random() < 0.1 ? 0x10ffff : 0x300));
        const one = String.fromCodePoint(at);
        return /[^\\t\\n\\u0020-\\ud7ff\\ue000-\\ufffd\\u{10000}-\\u{10ffff}]/u.test(one) ? "x" : one;
    };
    const { blockOf, lineOf, runsOf } = await load("emphasis");
    const { notesOf, withNotes, withoutBold } = await load("paragraphs");
    const looks = (line) => { // HTML has neither escapes nor bold headings
        const { kind, level, runs } = blockOf(line);
        const plain = runs.map((one) => ({ ...one, literal: false }));
        return lineOf({ kind, level, runs: kind === "heading" ? withoutBold(plain) : plain });
    };
    const inOrder = (text) => { // documents number their notes, and have them behind the text
        const { body, notes } = notesOf(text);
        return withNotes(body, notes.map((one) => runsOf(one, false)));
    };
    const same = (text) => ["epub", "html"].includes(kind) ? text.split("\\n").map(looks).join("\\n") : text;
    const expected = (text) => same(["docx", "epub"].includes(kind) ? inOrder(text) : text);
    for (let seed = 1; seed <= seeds; seed++) {
        let state = seed;
        const random = () => {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
            return state / 2 ** 32;
        };
        const pick = () => random() < 0.2 ? anywhere(random) : signs[Math.floor(random() * signs.length)];
        const text = Array.from({ length: Math.floor(random() * 40) }, pick).join("");
        const found = await ways[kind](text);
        if (same(found) !== expected(text)) return { seed, text, found };
    }
    return null;
}"""


def test_any_text_is_the_same_after_word_and_markdown_and_looks_the_same_after_html(page: Page) -> None:
    for kind in ("docx", "markdown", "epub", "html"):
        assert page.evaluate(ROUND, [kind, SEEDS]) is None


NOTES = """async (text) => {
    const load = (path) => import(new URL(`studio/files/${path}.js`, document.baseURI));
    const [{ toEpub }, { fromEpub }, { unzipped }] = await Promise.all(["toepub", "epub", "zip"].map(load));
    const about = { id: "a", title: "T", author: "", language: "en", changed: 0 };
    const book = await new Blob(await toEpub(about, text)).arrayBuffer();
    const zip = unzipped(book);
    const names = zip.paths.filter((path) => path.endsWith(".xhtml")).sort();
    const pages = names.map(async (path) => new TextDecoder().decode(await zip.read(path)));
    return [await Promise.all(pages), (await fromEpub(book)).text];
}"""


def test_notes_of_an_epub_stand_in_the_chapter_that_calls_them(page: Page) -> None:
    text = "# One[^1]\n\nA word.\n\n# Two\n\n*Second[^2]* end.\n\n[^1]: First *note*.\n[^2]: # Second."
    (one, two, contents), again = page.evaluate(NOTES, text)
    assert again == text
    assert [part for part in (one, two, contents) if "[^" in part] == []
    assert "First <em>note</em>.</p></aside></body>" in one
    assert '>2</a></em> end.</p>\n<aside epub:type="footnote"' in two
    assert "# Second.</p></aside></body>" in two


READ = """async ([name, data]) => {
    const load = (path) => import(new URL(`studio/${path}.js`, document.baseURI));
    const [{ fromFile }, { textOf }] = await Promise.all(["files/exchange", "story/tree"].map(load));
    const bytes = Uint8Array.from(atob(data), (one) => one.charCodeAt(0));
    return textOf(await fromFile(new File([bytes], name)));
}"""


def read(page: Page, name: str, content: bytes) -> str:
    """The text of the story that a file becomes."""
    text: str = page.evaluate(READ, [name, base64.b64encode(content).decode()])
    return text


def word(title: str | None, heading: str) -> bytes:
    document = docx.Document()
    document.core_properties.title = title or ""
    document.add_paragraph("Once.")
    if heading:
        document.add_heading(heading, 2)
    made = io.BytesIO()
    document.save(made)
    return made.getvalue()


def open_document(*meta: str) -> bytes:
    """With these lines as its meta.xml."""
    spaces = 'xmlns:office="o" xmlns:text="t"'
    body = "<text:p>Once.</text:p><text:h>A <text:span>heading</text:span></text:h>"
    content = f"<office:document {spaces}><office:text>{body}</office:text></office:document>"
    files = {"mimetype": ODT, "content.xml": content}
    return archive({**files, "meta.xml": "".join(meta)} if meta else files)


NAME = """async ([name, data]) => {
    const { fromFile } = await import(new URL("studio/files/exchange.js", document.baseURI));
    return (await fromFile(new File([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], name))).name;
}"""
INFO = rb"{\rtf1{\info{\author A. B.}{\title The \u8220?Long\u8221? Night }{\*\company C}}"
RTF_HEADING = rb"{\stylesheet{\s1 heading 1;}}Once.\par\pard\s1 A heading\par}"
NAMES = [
    ("a.docx", word("The Long Night", "A heading"), "The Long Night"),
    ("a.docx", word(None, "The Long Night"), "The Long Night"),
    ("a.docx", word(None, ""), "a"),
    ("a.odt", open_document("<m><title>The Long\n  Night</title></m>"), "The Long Night"),
    ("a.odt", open_document("<m><title/></m>"), "A heading"),
    ("a.odt", open_document(), "A heading"),
    ("a.odt", open_document("<?xml version='1.0' encoding='none'?>", "<m/>"), "A heading"),
    ("a.rtf", INFO + RTF_HEADING, "The “Long” Night"),
    ("a.rtf", rb"{\rtf1" + RTF_HEADING, "A heading"),
    ("a.rtf", rb"{\rtf1 Once.}", "a"),
    ("a.html", b"<!doctype html><p>Once.<h1>A <i>heading</i></h1>", "A heading"),
]


def test_a_story_has_the_title_of_its_document_or_of_its_first_heading_or_the_file(page: Page) -> None:
    found = [page.evaluate(NAME, [name, base64.b64encode(content).decode()]) for name, content, _ in NAMES]
    assert found == [expected for *_, expected in NAMES]
    assert read(page, "a.rtf", INFO + RTF_HEADING) == "Once.\n# A heading"


def test_a_document_of_any_program_becomes_the_text_that_is_expected(page: Page) -> None:
    samples = sorted(SAMPLES.glob("*.txt"))
    assert len(samples) > 15
    wrong = {}
    for expected in samples:
        sample = expected.with_suffix("")
        text = read(page, sample.name, sample.read_bytes())
        if text != expected.read_text(encoding="utf-8"):
            wrong[sample.name] = text
    assert wrong == {}


OFFICE = """<html xmlns:o="urn:schemas-microsoft-com:office:office"><head>
<meta name=Generator content="Microsoft Word 15">
<style>p.MsoNormal {margin:0cm; font-family:Calibri}</style></head><body lang=EN-GB><!--StartFragment-->
<h1>Chapter <i>1</i><o:p></o:p></h1>
<p class=MsoNormal>It was <i style='mso-bidi-font-style:normal'>late</i>, and
<b>dark</b>.<o:p></o:p></p>
<p class=MsoNormal><o:p>&nbsp;</o:p></p>
<p class=MsoNormal style='text-align:center'><span style='color:red'>Red &amp; <u>under</u></span></p>
<p class=MsoListParagraph style='mso-list:l0 level1 lfo1'><![if !supportLists]><span
style='font-family:Symbol'><span style='mso-list:Ignore'>·<span style='font:7.0pt "Times New Roman"'>&nbsp;
</span></span></span><![endif]>An item</p>
<p class=MsoListParagraph><span style='mso-list:Ignore'>3.<span>&nbsp; </span></span>The third</p>
<!--EndFragment--></body></html>"""
GOOGLE = """<meta charset="utf-8"><b style="font-weight:normal;" id="docs-internal-guid-1"><h2 dir="ltr"
style="margin-top:18pt"><span style="font-size:16pt;font-weight:400">Two</span></h2><p dir="ltr"
style="line-height:1.38;margin-top:0pt;margin-bottom:0pt;"><span
style="font-weight:400;font-style:normal">A </span><span
style="font-weight:700;font-style:italic;white-space:pre-wrap;">bold  one</span></p><br />
<ul style="margin-top:0;margin-bottom:0"><li dir="ltr" style="list-style-type:disc"><p dir="ltr"
style="margin-top:0pt"><span style="font-weight:400">x</span></p></li></ul></b>"""
COMMENT = """<html xmlns:o="urn:schemas-microsoft-com:office:office"><body>
<p class=MsoTitle>A title</p><p class=MsoQuote>To be.</p>
<table class=MsoTableGrid><tr><td><p class=MsoNormal>a</p></td><td><p class=MsoNormal>b</p></td></tr>
<tr><td><p class=MsoNormal>c</p></td><td></td></tr></table>
<p class=MsoNormal>It was<a style='mso-comment-reference:EB_1'></a><span class=MsoCommentReference><span
style='font-size:8.0pt'><![if !supportAnnotations]><a class=msocomanchor id="_anchor_1"
onmouseover="msoCommentShow('_anchor_1','_com_1')" onmouseout="msoCommentHide('_com_1')"
href="#_msocom_1">[EB1]</a><![endif]></span></span> late.</p>
<div style='mso-element:comment-list'><![if !supportAnnotations]><hr class=msocomoff size=1><![endif]>
<div style='mso-element:comment'><div class=msocomtxt><p class=MsoCommentText>Cut?</p></div></div></div>
</body></html>"""
OFFICE_LIBRE = """<html><head><meta name="generator" content="LibreOffice 7.3.7.2 (Linux)"/></head><body>
<p style="line-height: 100%; margin-bottom: 0in">Libre <i>it</i></p><p style="line-height: 100%">b</p>
<p style="line-height: 100%"><br/></p><p>two</p></body></html>"""
WEB = """<p>It was <b>late</b>.<p>Tom &amp; Mia <i>slept</i>.<script>1</script><hr>
<blockquote><p>To be.</p></blockquote>"""
STYLED = """<html><head><meta name=Generator content="Microsoft Word 15"><style><!--
@font-face {font-family:Calibri} @page Section1 {size:21cm} p.MsoNormal {margin:0cm; font-style:normal}
span.Thoughts {mso-style-name:Thoughts; font-style:italic} p.Letter, li.Letter {font-style:italic}
span.Loud {font-weight:700} a:visited {font-style:italic} --></style></head><body>
<p class=MsoNormal>It was <span class=Thoughts>so <span class=Loud>very</span></span> late.<o:p></o:p></p>
<p class=Letter>Dear <span style='font-style:normal'>Tom</span>,</p></body></html>"""
WEB_PAGE = """<html><head><meta content="text/html; charset=UTF-8"><style type="text/css">@import url(x.css);
.c0{color:#000;font-weight:400;font-style:normal}.c1{font-weight:400;font-style:italic}.c2{font-weight:700}
.c3{display:none}p,em,b{font:inherit}</style></head><body class="c4"><h1
class="c2"><span class="c2">One</span></h1><p>"<em>So</em>", <span
class="c0">she was </span><span class="c1">very</span> <span class="c2">tired</span><span class="c3">x</span>.
</p></body></html>"""
CLIPBOARDS = {
    STYLED: "It was *so **very*** late.\n\n*Dear* Tom*,*",
    WEB_PAGE: '# One\n\n"*So*", she was *very* **tired**.',
    "<ol><li value=0>a<li>b<li value=x>c<li value=7>d</ol><ol start=0><li>e</ol><ol start=x><li>f</ol>": (
        "0. a\n1. b\n2. c\n7. d\n\n0. e\n\n1. f"
    ),
    OFFICE: "# Chapter *1*\nIt was *late*, and **dark**.\n\nRed & under\n- An item\n3. The third",
    GOOGLE: "## Two\nA ***bold  one***\n\n- x",
    WEB: "It was **late**.\n\nTom & Mia *slept*.\n\n***\n\n> To be.",
    COMMENT: "# A title\n> To be.\na\tb\nc\t\nIt was late.",
    OFFICE_LIBRE: "Libre *it*\nb\n\ntwo",
    "<p>a</p><p><br></p><p>b</p>": "a\n\nb",
    "<table><tr><td><h2>a</h2><p>b</p></td></tr><tr><td>c<td><i>d</i></table>": "## a\n\nb\nc\t*d*",
    "<p>Seen<span style='display:none'>hidden</span> on = <a id='x' onclick='y()'>z</a></p>": "Seen on = z",
    "no <em>marks</em>, 5 * 3": "no *marks*, 5 * 3",
    "<pre>a\n  b\n</pre>": "a\n  b",
    "<p>He said <q>hi, <i>she</i> said <q>no</q></q>.</p>": "He said “hi, *she* said \u2018no\u2019”.",
    "<p>He didn't say <q>hi <q>no</q></q>.</p>": "He didn't say \"hi 'no'\".",
    "<html lang=de><p>Er sagte <q>ja</q>.</p>": "Er sagte „ja“.",
    "<p>Go <span style='font-family:Wingdings'><span style='mso-char-type:symbol'>à</span></span> on, <font"
    " face=Symbol>a <span style='font-family:Arial'>b</span></font>": "Go → on, \u03b1 b",
    "": "",
}


def test_what_word_google_and_pages_copy_becomes_text_with_its_emphasis(page: Page) -> None:
    found = page.evaluate(
        """(all) => import(new URL("studio/files/html.js", document.baseURI))
            .then(({ fromHtml }) => all.map(fromHtml))""",
        list(CLIPBOARDS),
    )
    assert found == list(CLIPBOARDS.values())


WORDS = f'<w:document xmlns:w="{nsmap["w"]}"><w:body><w:p><w:r><w:t>x</w:t></w:r></w:p></w:body></w:document>'
TYPES = "<Types><Override ContentType='application/vnd.ms-word.wordprocessingml'/></Types>"
DRM = """<encryption xmlns:e="http://www.w3.org/2001/04/xmlenc#"><e:EncryptedData><e:EncryptionMethod
    Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/></e:EncryptedData></encryption>"""
PASSWORD = """<m:manifest xmlns:m="urn:oasis:names:tc:opendocument:xmlns:manifest:1.0"><m:file-entry>
    <m:encryption-data/></m:file-entry></m:manifest>"""
REFUSED = {
    "drm.epub": ({"mimetype": EPUB, "META-INF/encryption.xml": DRM}, "it is encrypted (DRM)"),
    "bare.epub": ({"mimetype": EPUB}, "it has no list of its chapters"),
    "secret.odt": ({"mimetype": ODT, "META-INF/manifest.xml": PASSWORD}, "it has a password"),
    "bare.odt": ({"mimetype": ODT}, "it has no content.xml"),
    "bare.docx": ({"[Content_Types].xml": TYPES}, "it has no word/document.xml"),
    "cut.docx": (
        {"[Content_Types].xml": TYPES, "word/document.xml": WORDS[:-20]},
        "its word/document.xml is damaged",
    ),
}


def test_a_document_that_cannot_be_read_is_refused_with_what_is_wrong(page: Page) -> None:
    for name, (files, message) in REFUSED.items():
        with pytest.raises(Error, match=re.escape(f"{name} is no story: {message}")):
            read(page, name, archive(files))
