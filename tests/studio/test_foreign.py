"""Word's files, which need a page's parser of XML, and lore: python-docx writes and reads Word's.

How files of other tools are read is tested without a page: pure/files.test.js.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docx
from docx.document import Document
from docx.oxml.ns import qn
from playwright.sync_api import Page, expect

from llama_srb.request.story.lore import NOTATION, _expression
from tests.support.hands import compose, editor
from tests.support.long import amount
from tests.support.rows import each_row
from tests.support.steps import paused

LOREBOOK = {
    "lorebookVersion": 5,
    "settings": {"orderByKeyLocations": False},
    "categories": [],
    "entries": [
        {
            "text": "The harbour is closed in winter.",
            "contextConfig": {"tokenBudget": 300, "budgetPriority": 400, "insertionPosition": -1},
            "displayName": "Harbour",
            "id": "4f1",
            "keys": ["harbour", "/doc?ks/i"],
            "searchRange": 2000,
            "enabled": True,
            "forceActivation": False,
        },
        {
            "text": "Mara is a smith.",
            "displayName": "Mara",
            "keys": [],
            "enabled": True,
            "forceActivation": True,
        },
        {"text": "Not used.", "displayName": "Off", "keys": ["x"], "enabled": False},
    ],
}


def bring(page: Page, file: Path) -> None:
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator("input[type=file]").set_input_files(file)


def written(folder: Path, name: str, content: Any) -> Path:
    file = folder / name
    file.write_text(json.dumps(content))
    return file


def exported(page: Page, folder: Path, label: str) -> Path:
    with page.expect_download() as loading:
        page.get_by_role("button", name=label, exact=True).click()
    file = folder / loading.value.suggested_filename
    loading.value.save_as(file)
    return file


def lore(page: Page, folder: Path) -> list[dict[str, Any]]:
    """The open story's lore, of its export."""
    entries = json.loads(exported(page, folder, "Export JSON").read_text())["story"]["parts"]["lore"]
    return [{name: value for name, value in entry.items() if name != "id"} for entry in entries]


def entry(**fields: Any) -> dict[str, Any]:
    usual = {"name": "", "text": "", "keys": "", "also": "", "always": False, "meaning": None}
    return {**usual, "order": 100, "search": None, "budget": None, **fields}


def told(page: Page, text: str) -> None:
    expect(page.locator(".unseen[role=status]")).to_have_text(text)


def test_a_lorebook_of_novelai_becomes_lore_of_the_story(page: Page, tmp_path: Path) -> None:
    compose(page, "Mine")
    bring(page, written(tmp_path, "town.lorebook", LOREBOOK))
    told(page, "2 entries added to the lore of “Mine”; 1 more is off and left out")
    expect(editor(page)).to_have_value("Mine")
    assert lore(page, tmp_path) == [
        entry(name="Harbour", text="The harbour is closed in winter.", keys="harbour\n/doc?ks/i", order=400,
              search=2000, budget=300),
        entry(name="Mara", text="Mara is a smith.", always=True),
    ]  # fmt: skip


def english() -> Document:
    document = docx.Document()
    document.add_heading("Chapter 1", 1)
    paragraph = document.add_paragraph("The ")
    paragraph.add_run("fox").bold = True
    paragraph.add_run(" ran & <hid>.\tThen")
    document.add_heading("A part", 2)
    document.add_paragraph("Ende gut, „alles gut“: né 日本.")
    return document


def german() -> Document:
    """A German Word writes styleId="berschrift1" for the style whose name is “heading 1”."""
    document = docx.Document()
    for level, id in ((1, "berschrift1"), (2, "berschrift2")):
        document.styles[f"Heading {level}"].element.set(qn("w:styleId"), id)
    document.add_heading("Kapitel", 1)
    document.add_paragraph("Der Fuchs.")
    document.add_heading("Ein Teil", 2)
    return document


def french() -> Document:
    """Plain paragraphs that would be items of lists in the text, and one that is."""
    document = docx.Document()
    for line in ("1984. Rien.", "- Bonjour, dit-il."):
        document.add_paragraph(line)
    document.add_paragraph("Un", "List Bullet")
    return document


WORDS = [
    (french, "My book", "1984\\. Rien.\n\\- Bonjour, dit-il.\n- Un"),
    (
        english,
        "Chapter 1",
        "# Chapter 1\nThe **fox** ran & <hid>.\tThen\n## A part\nEnde gut, „alles gut“: né 日本.",
    ),
    (german, "Kapitel", "# Kapitel\nDer Fuchs.\n## Ein Teil"),
]


@each_row("made, name, text", WORDS)
def test_a_word_file_becomes_a_story_with_its_headings(
    page: Page, tmp_path: Path, made: Callable[[], Document], name: str, text: str
) -> None:
    made().save(str(tmp_path / "My book.docx"))
    bring(page, tmp_path / "My book.docx")
    expect(editor(page)).to_have_value(text)
    expect(page.get_by_role("heading", level=1)).to_have_text(name)
    page.keyboard.press("Escape")


RICH = """# Chapter *1*

The fox & <the> "owl".\tÄhem 🦊
## A part
A *long*, **dark** and ***cold*** night; 5 * 3, snake_case, #tag.


Two blank lines.

> A quote.
- An item
- Another
7. Seven
8. Eight

***
\\*not\\* emphasised. A note[^1]

[^1]: Of *1913*."""


def runs(paragraph: Any) -> list[tuple[str, str]]:
    """Each run with its emphasis."""
    kinds = {"b": "bold", "i": "italic"}
    return [
        ("".join(kind for kind, name in kinds.items() if getattr(run, name)), run.text)
        for run in paragraph.runs
    ]


def test_a_story_is_exported_as_a_word_file_that_word_processors_read(page: Page, tmp_path: Path) -> None:
    text = RICH
    compose(page, text)
    paused(page)
    page.get_by_role("button", name="Stories", exact=True).click()
    page.get_by_label("Name").fill("My book & more")
    page.get_by_label("Name").press("Tab")
    file = exported(page, tmp_path, "Export Word")
    assert file.name == "My book _ more.docx"
    assert zipfile.ZipFile(file).testzip() is None
    document = docx.Document(str(file))
    found = [(one.style.name if one.style else "", runs(one)) for one in document.paragraphs]
    assert found == [
        ("Heading 1", [("", "Chapter "), ("i", "1")]),
        ("Space Before", [("", 'The fox & <the> "owl".\tÄhem 🦊')]),
        ("Heading 2", [("", "A part")]),
        ("Normal", [("", "A "), ("i", "long"), ("", ", "), ("b", "dark"), ("", " and "), ("bi", "cold"),
                    ("", " night; 5 * 3, snake_case, #tag.")]),
        ("Normal", []),
        ("Normal", []),
        ("Normal", [("", "Two blank lines.")]),
        ("Quote", [("", "A quote.")]),
        ("List Bullet", [("", "An item")]),
        ("List Bullet", [("", "Another")]),
        ("List Number", [("", "Seven")]),
        ("List Number", [("", "Eight")]),
        ("Scene Break", [("", "•••")]),
        ("Normal", [("", "*"), ("", "not"), ("", "*"), ("", " emphasised. A note"), ("", "")]),
    ]  # fmt: skip
    styles = {run.style.name for one in document.paragraphs for run in one.runs if run.style}
    assert styles == {"Default Paragraph Font", "Literal", "footnote reference"}
    notes = zipfile.ZipFile(file).read("word/footnotes.xml").decode()
    assert '<w:i/></w:rPr><w:t xml:space="preserve">1913</w:t>' in notes
    assert document.core_properties.title == "My book & more"
    bring_again = page.locator("input[type=file]")
    bring_again.set_input_files(file)
    expect(page.get_by_role("heading", level=1)).to_have_text("My book & more")
    expect(editor(page)).to_have_value(text)


KEYS = """async ([seeds, texts]) => {
    const { keysOf } = await import(new URL("studio/files/lorekeys.js", document.baseURI));
    const pieces = [
        "a", "b", "é", "1", " ", ".", "^", "$", "|", "\\\\b", "\\\\w+", "\\\\d", "\\\\s", "\\\\S*",
        "(", ")", "(?:", "(?=", "(?!", "(?<n>", "(?<=", "\\\\1", "\\\\k<n>", "[", "]", "[^",
        "[ab]", "[^]", "[]", "-", "*", "+", "?", "+?", "{2}", "{1,}", "{,3}", "{1001}", "\\\\/",
        "\\\\u00e9", "\\\\u{e9}", "\\\\x61", "\\\\p{L}", "\\\\cA", "\\\\.", "\\\\\\\\", "\\\\0",
        "\\\\n", "&&", "[[:alpha:]]", "(?i)", "\\\\Q", "\\\\z", "\\\\A", "\\\\h"
    ];
    const found = [];
    for (let seed = 1; seed <= seeds; seed++) {
        let state = seed;
        const below = (n) => {
            state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
            return Math.floor((state / 2 ** 32) * n);
        };
        const pattern = Array.from({ length: 1 + below(6) }, () => pieces[below(pieces.length)]).join("");
        const flags = ["", "i", "s", "m", "u", "giu"][below(6)];
        const made = keysOf([`/${pattern}/${flags}`], () => {});
        if (!made) continue;
        const expression = new RegExp(pattern, flags.replace("g", ""));
        found.push([pattern, flags, made, texts.map((text) => expression.test(text))]);
    }
    return found;
}"""
TEXTS = ["ab", "A é 1", "aab 11\\n", "", "a\\/b", "\n", "éa", "bbb.", "a-b", "hQz[:]", "u{2}", "_ &&"]


def test_the_server_has_every_key_that_an_import_keeps_and_finds_the_same_with_it(page: Page) -> None:
    found = page.evaluate(KEYS, [amount(3000, 100_000), TEXTS])
    assert len(found) > 500
    for pattern, flags, made, matches in found:
        given = NOTATION.fullmatch(made)
        assert given, (pattern, made)
        name = f"/{pattern}/{flags} → {made}"
        try:
            expression = _expression(f"(?{given[2]}){given[1]}" if given[2] else given[1])
        except ValueError as error:
            raise AssertionError(name) from error
        assert [expression.search(text) is not None for text in TEXTS] == matches, name
