"""With a finger on a phone of 390 x 844 pixels: what a writer trusts, banned phrases, the clipboard.

Files go in and out there in test_files.py, find and search in test_book.py and test_finding.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.studio import test_finding as finding
from tests.studio import test_trust as trust
from tests.support.browser import PHONE, visiting
from tests.support.hands import compose, editor, into
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.steps import OPENING, afresh, ask, cards, next_over, settings, shown, texts


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url, **PHONE) as [page]:
        yield page


# the first one wants no other stories
JOURNEYS = (
    finding.test_a_story_without_a_title_is_listed_by_its_first_words,
    trust.test_a_choice_before_a_word_is_not_glued_to_it,
    trust.test_two_quick_clicks_on_a_candidate_choose_once,
    trust.test_undo_takes_back_words_also_after_a_reload,
    trust.test_a_story_opens_where_its_caret_was,
    trust.test_a_story_has_a_language,
    trust.test_a_look_at_the_branches_changes_no_number_of_candidates,
    trust.test_an_unnamed_entry_scrolls_no_panel_sideways,
)


@each_row("journey", JOURNEYS)
def test_what_holds_on_a_desk_holds_with_a_finger(phone: Page, journey: Callable[[Page], None]) -> None:
    try:
        journey(phone)
    finally:  # a row that fails spoils no other one
        phone.reload()
        phone.get_by_label("Story", exact=True).wait_for()
        afresh(phone)


def test_a_tap_on_a_candidate_opens_no_keyboard_and_closes_none(phone: Page) -> None:
    settings(phone, max_tokens=6, next=False)
    ask(phone)
    first = texts(phone)[0]
    cards(phone).first.locator(".text").tap()
    expect(editor(phone)).to_have_value(OPENING + first)
    expect(editor(phone)).to_be_focused()
    phone.keyboard.type(" And")
    before = shown(phone)
    phone.get_by_role("button", name="Continue").tap()
    next_over(phone, before)
    phone.get_by_role("button", name="The next candidate").tap()
    expect(phone.locator(".place")).to_have_text("2 of 4")
    second = texts(phone)[1]
    cards(phone).nth(1).locator(".text").tap()
    expect(editor(phone)).to_have_value(OPENING + first + " And" + second)
    expect(editor(phone)).not_to_be_focused()


SELECT = """one => {
    const [{index, 0: word}] = one.textContent.matchAll(/[a-z]{2,}/gi);
    getSelection().setBaseAndExtent(one.firstChild, index, one.firstChild, index + word.length);
    return word;
}"""


def test_phrases_are_banned_with_a_finger_in_the_settings_and_in_a_candidate(
    phone: Page, server: Server
) -> None:
    [about] = (
        row["about"]
        for row in server.json("GET", "/v1/samplers")[1]["samplers"]
        if row["name"] == "temperature"
    )
    settings(phone, max_tokens=6, next=False)
    phone.get_by_role("button", name="Settings", exact=True).tap()
    expect(phone.get_by_text(about, exact=True).first).to_be_visible()
    phone.get_by_label("Phrases banned in all stories").tap()
    phone.keyboard.type("suddenly")
    phone.get_by_role("button", name="Close").tap()
    ask(phone)
    word = cards(phone).first.locator(".text").evaluate(SELECT)
    button = phone.get_by_role("button", name="Never again")
    button.tap()
    expect(button).to_have_attribute("aria-pressed", "true")
    before = shown(phone)
    with phone.expect_request("**/v1/events") as sent:
        phone.get_by_role("button", name="Reroll").tap()
    assert sorted(sent.value.post_data_json["banned_strings"]) == sorted([word.lower(), "suddenly"])
    next_over(phone, before)
    assert [one for one in texts(phone) if word.lower() in one.lower()] == []


COPIED = """navigator.clipboard.read().then(([one]) =>
    Promise.all(["text/plain", "text/html"].map((kind) => one.getType(kind).then((part) => part.text()))))"""
PUT = """html => navigator.clipboard.write([new ClipboardItem(
    {"text/html": new Blob([html], {type: "text/html"}), "text/plain": new Blob(["A"], {type: "text/plain"})}
)])"""


def test_what_is_copied_and_pasted_on_a_phone_keeps_its_emphasis(phone: Page) -> None:
    phone.context.grant_permissions(["clipboard-read", "clipboard-write"])
    phone.evaluate(PUT, "<h2>Two</h2><p>It was <b>late</b> and <i>dark</i>.</p>")
    into(phone)
    phone.keyboard.press("Control+v")  # as the browser's own menu does
    text = "## Two\n\nIt was **late** and *dark*."
    expect(editor(phone)).to_have_value(text)
    phone.keyboard.press("Control+a")
    phone.keyboard.press("Control+c")
    plain, html = phone.evaluate(COPIED)
    assert plain == text
    for part in (">Two</h2>", "<strong>late</strong>", "<em>dark</em>"):
        assert part in html
    compose(phone, "")
    phone.keyboard.press("Control+v")
    expect(editor(phone)).to_have_value(text)
    compose(phone, "He said no")
    phone.evaluate(PUT, "<h2>A</h2><p>It was</p>")
    for _ in range(3):
        phone.keyboard.press("ArrowLeft")
    phone.keyboard.press("Control+v")
    expect(editor(phone)).to_have_value("He said\n## A\n\nIt was no")
