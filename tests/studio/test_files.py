"""A file is chosen: another tool's story is opened with its branches, and a file of no such kind is refused.

How each kind of file is read is tested without a page: pure/files.test.js.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.support import hands
from tests.support.browser import DESK, PHONE, visiting
from tests.support.hands import compose, editor, into
from tests.support.places import ROOT
from tests.support.serving import Server
from tests.support.steps import over, paused, reopen, settings


def loom_node(text: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    usual = {"collapsed": False, "unread": False, "bookmarked": False, "searchResultState": None}
    return {"text": text, "parentId": parent, **usual, **fields}


LOOM = {
    "hoisted": [],
    "searchTerm": "",
    "generating": None,
    "current": "c3d1",
    "nodes": {
        "a1f0": loom_node("The lamp went out.", None, lastVisited=1697000000000),
        "b2e9": loom_node(" Nobody spoke.", "a1f0", unread=True),
        "c3d1": loom_node(" Mara laughed.", "a1f0", bookmarked=True, lastVisited=1697000000001),
        "d4c8": loom_node(" Then the door", "c3d1", unread=True),
    },
}


def take(page: Page, folder: Path, content: Any) -> None:
    file = folder / "lamp.json"
    file.write_text(json.dumps(content))
    page.get_by_role("button", name="Stories").click()
    page.locator("input[type=file]").set_input_files(file)


def branches(page: Page, count: int) -> None:
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Branches").click()
    expect(page.get_by_role("treeitem")).to_have_count(count)


def test_a_tree_of_obsidian_loom_is_imported(page: Page, tmp_path: Path) -> None:
    take(page, tmp_path, LOOM)
    expect(editor(page)).to_have_value("The lamp went out. Mara laughed.")
    expect(page.locator(".card .text")).to_have_text([" Then the door"])
    branches(page, 5)  # the beginning is a separate leaf
    expect(page.get_by_role("treeitem", name="★ Mara laughed.")).to_have_count(1)
    expect(page.locator(".leaf.unseen-yet")).to_have_count(2)


def test_a_file_of_another_kind_is_refused_and_the_story_stays(page: Page, tmp_path: Path) -> None:
    compose(page, "Mine")
    take(page, tmp_path, {"a": 1})
    expect(page.get_by_role("alert")).to_contain_text("lamp.json: expected a story of the studio")
    expect(editor(page)).to_have_value("Mine")


DOCUMENTS = ROOT / "tests/support/documents"
BOOK = DOCUMENTS / "odd.epub"
WORLD = {"entries": {"0": {"key": ["door", "/(?=a)/"], "comment": "Door", "content": "It is shut."}}}
WIDE = "document.scrollingElement.scrollWidth > document.scrollingElement.clientWidth"
DROP = """([name, data]) => {
    const files = new DataTransfer();
    files.items.add(new File([Uint8Array.from(atob(data), (one) => one.charCodeAt(0))], name));
    const drop = new DragEvent("drop", { dataTransfer: files, bubbles: true, cancelable: true });
    document.body.dispatchEvent(drop);
}"""


def test_an_import_says_what_it_did_until_it_is_read_and_is_undone(
    browser: Browser, server: Server, tmp_path: Path
) -> None:
    for options in (DESK, PHONE):
        with visiting(browser, server.url, **options) as [page]:
            imports_and_undoes(page, tmp_path)


def picture(**card: str) -> bytes:
    """A character of SillyTavern as a picture has it."""
    words = b"chara\0" + base64.b64encode(json.dumps({"spec": "chara_card_v2", "data": card}).encode())
    chunks = [
        struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
        for kind, part in (
            (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)),
            (b"tEXt", words),
            (b"IEND", b""),
        )
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def imports_and_undoes(page: Page, folder: Path) -> None:
    def press(name: str) -> None:
        hands.press(page.get_by_role("button", name=name, exact=True))

    compose(page, "Mine")
    take(page, folder, {"a": 1})
    expect(page.get_by_role("alert")).to_contain_text("lamp.json: expected a story")
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(BOOK)
    told = page.locator(".imported")
    text = BOOK.with_suffix(".epub.txt").read_text(encoding="utf-8")
    expect(told).to_have_text(re.compile("odd.epub is open as a new story, “The Book”: 25 words, 1 chapter."))
    expect(told).to_be_in_viewport()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(editor(page)).to_have_value(text)
    assert not page.evaluate(WIDE)
    press("Dismiss")
    reopen(page, "Stories")
    for label in ("Word", "EPUB", "Markdown"):
        with page.expect_download() as loading:
            press(f"Export {label}")
        file = folder / loading.value.suggested_filename
        loading.value.save_as(file)
        chooser.set_input_files(file)
        expect(told).to_contain_text(file.name)
        expect(editor(page)).to_have_value(text)
        press("Undo the import")
        expect(told).to_have_count(0)
        reopen(page, "Stories")
        expect(page.get_by_role("complementary").get_by_role("listitem")).to_have_count(2)
    for sample in (DOCUMENTS / "pandoc.odt", DOCUMENTS / "signs.rtf", DOCUMENTS / "literal.docx"):
        chooser.set_input_files(sample)
        expect(told).to_contain_text(f"{sample.name} is open as a new story")
        expect(editor(page)).to_have_value(sample.with_name(f"{sample.name}.txt").read_text("utf-8"))
        press("Undo the import")
        reopen(page, "Stories")
    card = folder / "mara.png"
    card.write_bytes(picture(name="Mara", description="A smith.", first_mes="{{char}} waved."))
    chooser.set_input_files(card)
    expect(told).to_contain_text("mara.png is open as a new story, “Mara”: 2 words, a memory")
    expect(editor(page)).to_have_value("Mara waved.")
    press("Undo the import")
    reopen(page, "Stories")
    page.evaluate(DROP, ["more.rtf", base64.b64encode(b"{\\rtf1 The {\\b fox}.}").decode()])
    expect(told).to_contain_text("more.rtf is open as a new story, “more”: 2 words")
    expect(editor(page)).to_have_value("The **fox**.")
    press("Dismiss")
    expect(told).to_have_count(0)
    take_more(page, folder, WORLD)
    expect(told).to_contain_text("1 entry added to the lore of “more”")
    left_out = r"“Door”: its key /\(\?=a\)/ is left out: it looks ahead"
    expect(told.get_by_role("listitem")).to_have_text(re.compile(left_out))
    assert lore_of(page) == ["door"]
    assert not page.evaluate(WIDE)
    page.reload()  # the report was not read
    expect(told).to_contain_text("1 entry added to the lore of “more”")
    press("Undo the import")
    expect(told).to_have_count(0)
    assert lore_of(page) == []
    for name in ("a.md", "b.md", "c.md"):
        page.evaluate(DROP, [name, base64.b64encode(b"A fox.").decode()])
        expect(told).to_contain_text(f"{name} is open as a new story")
    expect(told).to_have_count(1)
    press("2 more")
    expect(told).to_contain_text(["c.md", "b.md", "a.md"])
    compose(page, "A changed fox.")
    hands.press(told.first.get_by_role("button", name="Undo the import"))
    said = page.locator(".unseen[role=status]")
    expect(said).to_have_text("the import is undone; in the trash, being changed since: “c”")


def take_more(page: Page, folder: Path, content: Any) -> None:
    file = folder / "world.json"
    file.write_text(json.dumps(content))
    page.locator("input[type=file]").set_input_files(file)


NOTED = "A fox.[^1] An owl.[^2]\n\n[^1]: Red.\n[^2]: Grey."
TOLD = [
    "[^3] has no line “[^3]: …”",
    "[^4] is not in the text, only its line “[^4]: …”",
]


def test_what_is_written_after_an_import_goes_before_its_notes_which_stay_footnotes(
    page: Page, tmp_path: Path
) -> None:
    settings(page, max_tokens=4, next=False)
    file = tmp_path / "noted.md"
    file.write_text(NOTED)
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator("input[type=file]").set_input_files(file)
    expect(editor(page)).to_have_value(NOTED)
    expect(editor(page)).to_be_focused()
    begin, notes = NOTED.split("\n\n")
    page.keyboard.type(" They met.")
    paused(page)
    page.reload()
    expect(editor(page)).to_have_value(f"{begin} They met.\n\n{notes}")
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == f"{begin} They met."
    over(page, 4)
    page.keyboard.press("Alt+1")
    expect(editor(page)).not_to_have_value(f"{begin} They met.\n\n{notes}")
    written = editor(page).input_value()
    assert written.startswith(f"{begin} They met.")
    assert written.endswith(f"\n\n{notes}")
    page.keyboard.press("Control+End")
    page.keyboard.type("\n[^4]: Late.\nMore.[^3]\n")
    page.get_by_role("button", name="Stories", exact=True).click()
    told = page.locator(".imported")
    for label, part in (("Word", "word/footnotes.xml"), ("EPUB", "book/chapter1.xhtml")):
        with page.expect_download() as loading:
            page.get_by_role("button", name=f"Export {label}", exact=True).click()
        loading.value.save_as(tmp_path / "out")
        with zipfile.ZipFile(tmp_path / "out") as made:
            xml = made.read(part).decode()
        assert re.findall("(?:Red|Grey|Late)[.](?=</w:t></w:r></w:p></w:footnote>|</p></aside>)", xml) == [
            "Red.",
            "Grey.",
        ]
        expect(told.first).to_contain_text(f"{loading.value.suggested_filename} is exported")
        expect(told.first.get_by_role("listitem")).to_have_text(TOLD)
        expect(told.first.get_by_role("button", name="Undo the import")).to_have_count(0)


LORE = """import(new URL("studio/story/session.js", document.baseURI))
    .then(({ session }) => (session.story.parts?.lore ?? []).map(({ keys }) => keys))"""


def lore_of(page: Page) -> list[str]:
    keys: list[str] = page.evaluate(LORE)
    return keys


def test_the_writer_sees_an_escape_and_the_model_does_not(page: Page) -> None:
    """Word has stars that are no emphasis: they are escaped in the text, and stars in what is asked for."""
    sample = DOCUMENTS / "literal.docx"
    settings(page, max_tokens=4, next=False)
    page.get_by_role("button", name="Stories", exact=True).click()
    with page.expect_request("**/v1/prefix") as prefilled:
        page.locator("input[type=file]").set_input_files(sample)
        expect(page.locator(".origins")).to_contain_text("\\*not emphasis\\*")
        into(page)
        page.keyboard.press("Control+End")
        page.keyboard.type(" ")
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    plain = "*not emphasis*\n5 * 3 * 2\n# no heading\n> no quote\na_b_c\nC:\\dir\n#tag\n\\*x*"
    for request, space in ((prefilled.value, ""), (sent.value, " ")):
        assert request.post_data_json["prompt"] == plain + space
