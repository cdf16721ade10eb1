"""A whole book in the studio: chapters, find and replace, and times that only a fault reaches.

benchmarks/loads/studio_book.py measures the same without other work beside it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from benchmarks.loads.studio_book import CHAPTERS, book, heap_mb
from tests.support.browser import PHONE, visiting
from tests.support.hands import compose, double_click, editor, go, into
from tests.support.serving import Server
from tests.support.steps import cards, paused, texts, until

MANY_MS = 1500  # for one key: far above what it takes, since other programs run beside the tests
TEXT = (
    "# One\n\nThe fox ran. The Fox slept.\n\nPart of him woke.\n\n"
    "## A part\n\nA fox.\n\nChapter 2\n\nThe owl woke."
)


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url, **PHONE) as [page]:
        yield page


def outline(page: Page, text: str = TEXT) -> None:
    compose(page, text)
    page.get_by_role("button", name="Outline", exact=True).click()


def marked(page: Page) -> str:
    """The selected text of the editor."""
    return str(editor(page).evaluate("e => e.value.slice(e.selectionStart, e.selectionEnd)"))


def test_chapters_are_an_outline_and_a_click_goes_there(page: Page) -> None:
    outline(page, TEXT.replace("A part", "A *part* of \\*it\\*"))
    chapters = page.get_by_role("list", name="Chapters").get_by_role("button")
    expect(chapters).to_have_text(["One11 words", "A part of *it*6 words", "Chapter 25 words"])
    page.keyboard.press("Escape")
    outline(page)
    chapters.filter(has_text="Chapter 2").click()
    expect(editor(page)).to_be_focused()
    expect(chapters.filter(has_text="Chapter 2")).to_have_attribute("aria-current", "true")
    page.keyboard.type(": snow")
    expect(editor(page)).to_have_value(TEXT.replace("Chapter 2", "Chapter 2: snow"))


def test_with_a_finger_a_chapter_is_shown_and_no_keyboard_opens(phone: Page) -> None:
    outline(phone, "# One\n\n" + "The fox ran.\n\n" * 60 + "# Two\n\nThe owl woke.")
    phone.get_by_role("list", name="Chapters").get_by_role("button").last.tap()
    expect(phone.get_by_role("complementary")).to_have_count(0)  # it covers the text
    expect(phone.locator("#editor .cm-line").filter(has_text="The owl woke.")).to_be_in_viewport()
    expect(editor(phone)).not_to_be_focused()


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


MARKED = "text => [...document.querySelectorAll('#editor .found')].map(e => e.textContent).join() === text"


def test_the_words_that_were_found_are_marked_in_the_text(page: Page) -> None:
    """The field shows its own selection only while it has the focus."""
    outline(page)
    find = page.get_by_label("Find")
    find.fill("fox")
    for word in ("fox", "Fox"):
        find.press("Enter")
        until(page, MARKED, word)
        expect(page.locator("#editor .found")).to_have_css("display", "inline")  # its line stays one
    page.get_by_label("Replace with").fill("wolf")
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(editor(page)).to_have_value(TEXT.replace("Fox", "wolf"))
    until(page, MARKED, "fox")
    find.fill("no such word")
    until(page, MARKED, "")


def test_words_are_replaced_one_by_one_or_all_and_undo_brings_them_back(page: Page) -> None:
    outline(page)
    page.get_by_label("Find").fill("fox")
    page.get_by_label("Replace with").fill("wolf")
    page.get_by_role("button", name="Next").click()
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(editor(page)).to_have_value(TEXT.replace("fox", "wolf", 1))
    page.get_by_role("button", name="Replace all").click()
    expect(editor(page)).to_have_value(TEXT.replace("fox", "wolf").replace("Fox", "wolf"))
    into(page)
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
        expect(page.get_by_text(f"1 of {left}", exact=True)).to_be_visible()
        assert marked(page) == "fox"
    page.get_by_role("button", name="Replace", exact=True).click()
    expect(editor(page)).to_have_value("A very large wolf, a very large wolf and a very large wolf")


def test_ctrl_f_finds_the_selected_word_as_a_whole_and_says_which_place_it_is(page: Page) -> None:
    compose(page, "A fox, foxes, a Fox, a tail and fox_1, an arctic-fox. Die Füchse, das Fuchs-Ä: Ä.")
    double_click(page, "fox")
    page.keyboard.press("Control+f")
    find = page.get_by_label("Find")
    expect(find).to_be_focused()
    expect(find).to_have_value("fox")
    expect(page.get_by_text("5 found", exact=True)).to_be_visible()
    page.get_by_label("whole words").click()
    find.press("Enter")
    for place in ("1 of 3", "2 of 3", "3 of 3"):
        expect(page.get_by_text(place, exact=True)).to_be_visible()
        find.press("Enter")
    find.fill("ä")
    expect(page.get_by_text("2 found", exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Undo", exact=True).click()  # with the focus on a button, too
    page.keyboard.press("Control+f")
    expect(find).to_be_focused()


def test_on_a_phone_each_place_is_looked_at_before_it_is_replaced(phone: Page) -> None:
    text = "# One\n\nThe fox ran.\n\nIt was a foxhole. A fox slept."
    outline(phone, text)
    phone.get_by_label("Find").tap()
    phone.keyboard.type("fox")
    phone.get_by_label("whole words").tap()
    phone.get_by_label("Replace with").tap()
    phone.keyboard.type("wolf")
    replace = phone.get_by_role("button", name="Replace", exact=True)
    look = phone.locator(".look")
    replace.tap()
    for before, after in (("The fox", "wolf ran."), ("It was a foxhole. A fox", "wolf slept.")):
        expect(editor(phone)).to_have_value(text)
        expect(look).to_have_text(before + after)
        expect(look.locator("del")).to_have_text("fox")
        replace.tap()
        text = text.replace("fox ", "wolf ", 1)
    expect(editor(phone)).to_have_value(text)
    expect(phone.get_by_text("0 found")).to_be_visible()
    phone.get_by_label("Find").fill("slept")
    phone.get_by_role("button", name="Next").tap()
    look.tap()
    expect(phone.get_by_role("complementary")).to_have_count(0)
    expect(phone.locator("#editor .found")).to_be_in_viewport()
    expect(editor(phone)).not_to_be_focused()


def open_book(page: Page, folder: Path) -> None:
    file = folder / "book.json"
    file.write_text(json.dumps(book()))
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator("input[type=file]").set_input_files(file)
    expect(page.get_by_role("heading", name="A book")).to_be_visible()


NOTE = """() => document.querySelectorAll("#editor .cm-line").forEach((line) => (line.isOld = true))"""
NEW = """() => [...document.querySelectorAll("#editor .cm-line")].filter((line) => !line.isOld).length"""
LINES = "document.querySelectorAll('#editor .cm-line').length"


@pytest.mark.parametrize("part", [0, 0.5, 1], ids=["beginning", "middle", "end"])
def test_of_a_book_few_lines_are_drawn_and_a_change_draws_only_its_own(
    page: Page, tmp_path: Path, part: float
) -> None:
    """Keys, a choice and undo."""
    open_book(page, tmp_path)
    expect(cards(page)).to_have_count(4)
    [first] = texts(page)[:1]
    go(page, "Control+End")
    editor(page).evaluate(
        "(e, part) => e.setSelectionRange(e.value.length * part, e.value.length * part)", part
    )
    page.keyboard.type("ab")
    paused(page)
    assert page.evaluate(LINES) < 150, "of 400"
    page.evaluate(NOTE)
    page.keyboard.type("cd")
    paused(page)
    if part == 1:
        page.keyboard.press("Control+z")
        page.keyboard.press("Control+z")
        page.keyboard.press("Alt+1")
        until(page, "end => document.querySelector('#editor').value.endsWith(end)", first)
        page.keyboard.press("Control+z")
        until(page, "end => !document.querySelector('#editor').value.endsWith(end)", first)
    assert page.evaluate(NEW) <= 4


GROWTH_MB = 2  # four copies of the book's text, or 24 of the pieces that one drawing makes


def test_an_hour_of_writing_in_a_book_keeps_no_older_texts(page: Page, tmp_path: Path) -> None:
    """Each step of undo, each typed piece and each drawn one keeps its own words only."""
    open_book(page, tmp_path)
    devtools = page.context.new_cdp_session(page)
    devtools.send("Performance.enable")
    go(page, "Control+End")
    page.keyboard.insert_text(" The fox came back.")
    paused(page)
    before = heap_mb(devtools)
    for i in range(40):
        page.keyboard.insert_text(f" The fox came back for the {i}th time, and it rained.")
        editor(page).blur()  # which ends a step of undo
        go(page, "Control+End")
    paused(page)
    assert heap_mb(devtools) - before < GROWTH_MB


def test_a_book_of_100_000_words_opens_and_takes_keys(page: Page, tmp_path: Path) -> None:
    open_book(page, tmp_path)
    page.get_by_role("button", name="Outline", exact=True).click()
    chapters = page.get_by_role("list", name="Chapters").get_by_role("button")
    expect(chapters).to_have_count(CHAPTERS)
    chapters.last.click()
    into(page)
    page.keyboard.press("a")
    began = time.monotonic()
    for _ in range(10):
        page.keyboard.press("a")
    assert page.evaluate("new Promise((done) => requestAnimationFrame(() => done(true)))")
    assert (time.monotonic() - began) * 1000 / 10 < MANY_MS
