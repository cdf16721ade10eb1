"""A whole book in the studio: chapters, find and replace, and times that only a fault reaches.

benchmarks/loads/studio_book.py measures the same without other work beside it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from playwright.sync_api import Page, expect

from benchmarks.loads.studio_book import CHAPTERS, book
from tests.studio.steps import editor

MANY_MS = 1500  # for one key: far above what it takes, since other programs run beside the tests
TEXT = (
    "# One\n\nThe fox ran. The Fox slept.\n\nPart of him woke.\n\n"
    "## A part\n\nA fox.\n\nChapter 2\n\nThe owl woke."
)


def outline(page: Page, text: str = TEXT) -> None:
    editor(page).fill(text)
    page.get_by_role("button", name="Outline", exact=True).click()


def marked(page: Page) -> str:
    """The selected text of the editor."""
    return str(editor(page).evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)"))


def test_chapters_are_an_outline_and_a_click_goes_there(page: Page) -> None:
    outline(page)
    chapters = page.get_by_role("list", name="Chapters").get_by_role("button")
    expect(chapters).to_have_text(["One12 words", "A part5 words", "Chapter 25 words"])
    chapters.filter(has_text="Chapter 2").click()
    place = editor(page).evaluate("e => e.value.slice(e.selectionStart)")
    assert place == "Chapter 2\n\nThe owl woke."
    expect(chapters.filter(has_text="Chapter 2")).to_have_attribute("aria-current", "true")


def test_words_are_found_from_place_to_place(page: Page) -> None:
    outline(page)
    page.get_by_label("Find").fill("fox")
    expect(page.get_by_text("3 found")).to_be_visible()
    page.get_by_label("match case").check()
    expect(page.get_by_text("2 found")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    assert marked(page) == "fox"
    first = editor(page).evaluate("e => e.selectionStart")
    page.get_by_role("button", name="Next").click()
    assert editor(page).evaluate("e => e.selectionStart") > first
    page.get_by_role("button", name="Previous").click()
    assert editor(page).evaluate("e => e.selectionStart") == first


def test_words_are_replaced_one_by_one_or_all_and_undo_brings_them_back(page: Page) -> None:
    outline(page)
    page.get_by_label("Find").fill("fox")
    page.get_by_label("Replace with").fill("wolf")
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(editor(page)).to_have_value(TEXT.replace("fox", "wolf", 1))
    page.get_by_role("button", name="Replace all").click()
    expect(editor(page)).to_have_value(TEXT.replace("fox", "wolf").replace("Fox", "wolf"))
    editor(page).focus()
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(TEXT.replace("fox", "wolf", 1))
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(TEXT)


def test_each_replacement_goes_on_to_the_next_place(page: Page) -> None:
    outline(page, "A fox, a fox and a fox")
    page.get_by_label("Find").fill("fox")
    page.get_by_label("Replace with").fill("very large wolf")
    page.get_by_role("button", name="Next").click()
    for left in (2, 1):
        page.get_by_role("button", name="Replace", exact=True).click()
        expect(page.get_by_text(f"{left} found")).to_be_visible()
        assert marked(page) == "fox"
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(editor(page)).to_have_value("A very large wolf, a very large wolf and a very large wolf")


def test_a_book_of_100_000_words_opens_and_takes_keys(page: Page, tmp_path: Path) -> None:
    file = tmp_path / "book.json"
    file.write_text(json.dumps(book()))
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_role("heading", name="A book")).to_be_visible()
    page.get_by_role("button", name="Outline", exact=True).click()
    chapters = page.get_by_role("list", name="Chapters").get_by_role("button")
    expect(chapters).to_have_count(CHAPTERS)
    chapters.last.click()
    editor(page).focus()
    page.keyboard.press("a")
    began = time.monotonic()
    for _ in range(10):
        page.keyboard.press("a")
    assert page.evaluate("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert (time.monotonic() - began) * 1000 / 10 < MANY_MS
    layout = "(() => [...document.querySelectorAll('.page > *')].map((one) => one.scrollHeight))()"
    coloured, typed = page.evaluate(layout)
    assert abs(coloured - typed) <= 2, "the coloured text lies behind the typed one, line by line"
