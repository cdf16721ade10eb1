"""What a writer must be able to trust: what is shown is so, here and on a phone, and old news goes."""

from __future__ import annotations

import os
import signal
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.support.browser import PHONE, profile, visiting
from tests.support.hands import TOUCHES, compose, editor, first_word, into, place, press, press_twice
from tests.support.serving import LASTING, Server, serving
from tests.support.steps import (
    LONG,
    OPENING,
    afresh,
    ask,
    asked,
    cards,
    drawn,
    next_over,
    over,
    reopen,
    saved,
    settings,
    shown,
    streaming,
    texts,
)


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url, **PHONE) as [page]:
        yield page


def test_the_preview_is_of_the_candidate_that_is_read_also_after_another_request(phone: Page) -> None:
    settings(phone, max_tokens=8, next=False)
    into(phone)
    phone.keyboard.type(OPENING)
    for button in ("Continue", "Continue", "Reroll"):
        before = shown(phone)
        phone.get_by_role("button", name=button).tap()
        next_over(phone, before)
        expect(phone.locator(".ghost")).to_have_text(texts(phone)[0])


QUICK = ((".digit", 50), (".digit", 200), (".text", 100))  # where a candidate is pressed twice, ms between


def test_two_quick_clicks_on_a_candidate_choose_once(page: Page) -> None:
    """The second one may find the next candidates there."""
    for part, pause_ms in QUICK:
        settings(page, max_tokens=6)
        ask(page)
        before, first = shown(page), texts(page)[0]
        box = cards(page).first.locator(part).bounding_box()
        assert box
        press_twice(page, box["x"] + 8, box["y"] + 8, pause_ms)
        next_over(page, before)
        page.wait_for_timeout(600)  # longer than a double click
        expect(editor(page)).to_have_value(OPENING + first)
        second = texts(page)[0]
        press(cards(page).first.locator(".digit"))
        expect(editor(page)).to_have_value(OPENING + first + second)
        afresh(page)


def test_the_error_of_an_engine_that_ended_goes_when_it_is_back(browser: Browser) -> None:
    with (
        serving("--", *LASTING) as server,
        visiting(browser, server.url) as [page],
        visiting(browser, server.url, **PHONE) as [phone],
    ):
        for one in (page, phone):
            settings(one, **LONG)
            streaming(one)
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        for pid in children:
            if b"llama-batched" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
        for one in (page, phone):
            expect(one.get_by_role("alert").filter(has_text="engine ended")).to_be_visible()
        for one in (page, phone):
            expect(one.get_by_role("alert")).to_have_count(0)
            settings(one, max_tokens=5)
            press(one.get_by_role("button", name="Resume 4 interrupted"))
            over(one, 4)


def test_a_start_writes_no_error_to_the_console(browser: Browser, server: Server) -> None:
    """Also none of a resource: a server without --stories is not asked for them."""
    with profile(browser) as context:
        said: list[str] = []
        context.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
        page = context.new_page()
        page.goto(server.url)
        expect(page.locator(".status")).to_contain_text("server: ok")
        expect(page.locator(".saved")).to_contain_text("Saved in this browser")
        ask(page)  # by then all has been asked for
        assert said == []


KEYS_SAID = """() => [...document.querySelectorAll("body *:not(.keys-sheet *)")]
    .filter(one => one.checkVisibility())
    .flatMap(one => [one.title, one.placeholder ?? "",
        ...[...one.childNodes].filter(node => node.nodeType === 3).map(node => node.data)])
    .filter(text => /Ctrl|Esc\\b/.test(text))"""


def test_a_phone_is_told_of_no_keys(phone: Page) -> None:
    said = list(phone.evaluate(KEYS_SAID))
    settings(phone, max_tokens=6, next=False)
    ask(phone)
    cards(phone).first.get_by_role("button", name="Edit").tap()
    phone.get_by_role("button", name="Settings").tap()
    assert said + phone.evaluate(KEYS_SAID) == []


def test_the_title_is_whole_on_small_screens(page: Page) -> None:
    ask(page, "Once upon a time there was a fox in a big forest.")
    title = page.get_by_role("heading", level=1).get_by_role("button")
    expect(title).to_contain_text("Once upon a time there was")
    cut = []
    for width in range(700, 1001, 20):
        page.set_viewport_size({"width": width, "height": 800})
        if title.evaluate("one => one.scrollWidth > one.clientWidth"):
            cut.append(width)
    assert cut == []
    bar = page.get_by_role("banner")
    page.set_viewport_size({"width": 720, "height": 800})
    assert bar.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_a_look_at_the_branches_changes_no_number_of_candidates(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    press(page.get_by_role("button", name="Branches"))
    if page.evaluate(TOUCHES):
        press(page.get_by_role("button", name="Close"))  # it covers the text
    compose(page, OPENING)
    press(page.get_by_role("button", name="Continue"))
    over(page, 4)


WORD = "Donaudampfschifffahrtsgesellschaftskapitaen and the fox"


def test_an_unnamed_entry_scrolls_no_panel_sideways(page: Page) -> None:
    compose(page, "A fox sat here.")
    press(page.get_by_role("button", name="Background"))
    press(page.get_by_role("button", name="Add an entry"))
    for label, text in (("Text", WORD), ("Keys, one a line", "fox")):
        page.locator(".entry").get_by_label(label, exact=True).fill(text)
    expect(page.locator(".reads")).to_contain_text("Lore: Donau")
    panel = page.get_by_role("complementary", name="Background")
    assert panel.evaluate("one => one.scrollWidth <= one.clientWidth")


def listed(*answers: str) -> dict[str, object]:
    """Settings with which each candidate is one of these."""
    structure = {"kind": "choice", "text": "\n".join(answers)}
    return {"max_tokens": 40, "next": False, "structure": structure}


def chosen_before(page: Page, behind: str) -> None:
    """Asks where these last words of the text begin, and chooses the first candidate, by a click or a tap."""
    into(page)
    page.keyboard.press("Control+End")
    for _ in behind:
        page.keyboard.press("ArrowLeft")
    press(page.get_by_role("button", name="Continue"))
    over(page, 4)
    cards(page).first.locator(".text").hover()
    expect(page.locator(".ghost")).to_have_text(" a fox. ", use_inner_text=True)
    press(cards(page).first.locator(".text"))


def test_a_choice_before_a_word_is_not_glued_to_it(page: Page) -> None:
    settings(page, **listed(" a fox."))
    text, behind = "Tom saw Then he left.", "Then he left."
    compose(page, text)
    chosen_before(page, behind)
    expect(editor(page)).to_have_value("Tom saw a fox. Then he left.")
    press(page.get_by_role("button", name="Undo"))
    expect(editor(page)).to_have_value(text)
    expect(cards(page).first.locator(".facts")).not_to_contain_text("goes on")
    press(page.get_by_role("button", name="Redo"))
    expect(editor(page)).to_have_value("Tom saw a fox. Then he left.")


def test_an_own_version_is_not_glued_to_the_text(page: Page) -> None:
    settings(page, **listed(" a fox."))
    ask(page, "Tom saw ")
    press(cards(page).first.get_by_role("button", name="Edit"))
    page.get_by_label("Your version").fill("a cat.")
    press(page.get_by_role("button", name="Save as another version"))
    press(cards(page).filter(has_text="a cat.").locator(".text"))
    expect(editor(page)).to_have_value("Tom saw a cat.")


def test_redo_shows_what_it_does_again(page: Page) -> None:
    compose(page, OPENING)
    page.keyboard.press("Control+Home")
    page.keyboard.type("Now. ")
    page.keyboard.press("Control+End")
    page.keyboard.type(" And")
    for name in ("Undo", "Undo", "Redo"):
        press(page.get_by_role("button", name=name))
    page.keyboard.type("Well. ")
    expect(editor(page)).to_have_value(f"Now. Well. {OPENING}")


def test_a_chosen_candidate_gets_the_quotation_marks_of_the_text_on_a_phone(phone: Page) -> None:
    settings(phone, **listed(' "It\'s me," she said.'))
    ask(phone, "„Wer?“ fragte er.")
    cards(phone).first.locator(".text").tap()
    expect(editor(phone)).to_have_value("„Wer?“ fragte er. „It\u2019s me,“ she said.")


def test_a_chosen_candidate_gets_the_quotation_marks_of_the_text(page: Page) -> None:
    settings(page, **listed(' "It\'s me," she said.'))
    ask(page, "“Who?” he asked.")
    cards(page).first.locator(".text").hover()
    expect(page.locator(".ghost")).to_have_text(" “It\u2019s me,” she said.")
    cards(page).first.locator(".text").click()
    expect(editor(page)).to_have_value("“Who?” he asked. “It\u2019s me,” she said.")
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    body = sent.value.post_data_json
    assert body["prompt"].endswith("“It\u2019s me,” she said.")  # not what the server has of the candidate


TYPED = " ".join(f"and the {number}th fox ran" for number in range(15))  # without a pause


def test_undo_takes_back_words_also_after_a_reload(page: Page) -> None:
    into(page)
    page.keyboard.type(TYPED)
    undo = page.get_by_role("button", name="Undo")
    left = TYPED
    for presses in (1, 30):
        for _ in range(presses):
            press(undo)
            expect(editor(page)).not_to_have_value(left)
            now = editor(page).input_value()
            assert left.startswith(now)
            assert 0 < len(left) - len(now) <= 40
            left = now
        saved(page)
        page.reload()
        expect(editor(page)).to_have_value(left)
    press(page.get_by_role("button", name="Redo"))
    expect(editor(page)).not_to_have_value(left)


LINES = "".join(f"Line {number} of a story that is longer than the page.\n" for number in range(120))
PLACE = "document.getElementById('editor').selectionStart"


def test_a_story_opens_where_its_caret_was(page: Page) -> None:
    settings(page, **listed(" Then a fox came."))
    compose(page, LINES)
    saved(page)
    changed = page.evaluate(CHANGED)
    page.keyboard.press("Control+Home")
    for key in ["ArrowDown"] * 60 + ["Home"]:
        page.keyboard.press(key)
    drawn(page)  # the browser tells of a moved caret a moment later
    at = page.evaluate(PLACE)
    assert 500 < at < len(LINES) - 500
    page.reload()
    seen(page, at)
    assert page.evaluate(CHANGED) == changed, "that is no change of the story"
    press(page.get_by_role("button", name="Stories"))
    press(page.get_by_role("button", name="New story"))
    expect(editor(page)).to_have_value("")
    reopen(page, "Stories")
    press(page.get_by_role("complementary").get_by_role("button", name="Line 0 of a story").first)
    seen(page, at)
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)
    press(page.get_by_role("button", name="Continue"))
    over(page, 4)
    page.reload()
    over(page, 4)  # which are at the caret
    press(cards(page).first.locator(".text"))
    expect(editor(page)).to_have_value(LINES[:at] + " Then a fox came. " + LINES[at:])


CHANGED = """() => import(new URL("studio/story/session.js", document.baseURI))
    .then(({session}) => session.story.changed)"""


def seen(page: Page, at: int) -> None:
    """The text is shown with the caret at a place, and the line there is seen."""
    expect(editor(page)).to_have_value(LINES)
    expect(page.locator(".saved")).to_contain_text("Saved")
    expect(page.locator(".status")).to_contain_text("server: ok")
    assert page.evaluate(PLACE) == at
    line = LINES[at:].split("\n", 1)[0]
    _, y, _, _ = place(page, line)
    sheet = page.locator(".sheet").bounding_box()
    assert sheet
    assert sheet["y"] < y < sheet["y"] + sheet["height"]


def test_a_story_has_a_language(page: Page) -> None:
    settings(page, **listed(' "Ja."'))
    press(page.get_by_role("button", name="Stories"))
    page.get_by_label("Language").select_option("German (de)")
    expect(editor(page)).to_have_attribute("lang", "de")
    press(page.get_by_role("button", name="Close"))
    ask(page, "Er geht\u2019s an.")
    page.reload()
    expect(editor(page)).to_have_attribute("lang", "de")
    press(cards(page).first.locator(".text"))
    expect(editor(page)).to_have_value("Er geht\u2019s an. „Ja.“")
    press(page.get_by_role("button", name="Stories"))
    with page.expect_download() as saved:
        press(page.get_by_role("button", name="Export EPUB"))
    with zipfile.ZipFile(saved.value.path()) as book:
        [package] = [book.read(name).decode() for name in book.namelist() if name.endswith(".opf")]
    assert "<dc:language>de</dc:language>" in package


def test_a_word_of_a_candidate_never_comes_again(page: Page) -> None:
    settings(page, max_tokens=16, n=8, next=False)
    ask(page, n=8)
    text = cards(page).first.locator(".text")
    drag_over_word(page, text)
    word = str(page.evaluate("String(getSelection())")).strip()
    assert word.isalpha()
    button = page.get_by_role("button", name="Never again")
    button.click()
    expect(button).to_have_attribute("aria-pressed", "true")
    before = shown(page)
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Reroll").click()
    assert sent.value.post_data_json["banned_strings"] == [word.lower()]
    next_over(page, before, 8)
    assert [one for one in texts(page) if word.lower() in one.lower()] == []
    page.reload()
    page.get_by_role("button", name="Settings").click()
    lists = page.get_by_label("Phrases banned in")
    expect(lists.first).to_have_value(word)
    lists.first.fill("")
    lists.last.fill("the end\nsuddenly")
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New story").click()
    assert asked(page, "Once")["banned_strings"] == ["the end", "suddenly"]


def drag_over_word(page: Page, text: Locator) -> None:
    """Drags the mouse over the first word of a card's text."""
    left, right, y = first_word(text)
    page.mouse.move(left, y)
    page.mouse.down()
    page.mouse.move(right, y, steps=8)
    page.mouse.up()


def test_a_selected_phrase_never_comes_again_on_a_phone(phone: Page) -> None:
    compose(phone, "Suddenly a fox came")
    for _ in "a fox came":
        phone.keyboard.press("Shift+ArrowLeft")
    button = phone.get_by_role("button", name="Never again")
    button.tap()
    expect(button).to_have_attribute("aria-pressed", "true")
    button.tap()
    expect(button).to_have_attribute("aria-pressed", "false")
    button.tap()
    assert asked(phone, "Once")["banned_strings"] == ["a fox came"]


def test_the_focus_is_where_the_next_key_goes(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    hint = page.get_by_text("Esc leads to the text", exact=True)
    ask(page)
    expect(hint).to_be_hidden()
    page.keyboard.press("Tab")
    expect(hint).to_be_visible()
    first = texts(page)[0]
    for key in "zxq":  # which name no action
        page.keyboard.press(key)
    expect(editor(page)).to_have_value(OPENING)
    page.keyboard.press("1")
    expect(editor(page)).to_be_focused()
    page.keyboard.type(" And so")
    expect(editor(page)).to_have_value(OPENING + first + " And so")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".place")).to_have_text("1 of 4")
    page.keyboard.press("j")
    expect(page.locator(".place")).to_have_text("2 of 4")
    page.keyboard.press("k")
    expect(page.locator(".place")).to_have_text("1 of 4")
