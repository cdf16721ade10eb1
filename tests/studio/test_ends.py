"""Candidates that are not there: the model would end the story, or the writer has hit a stray key."""

from __future__ import annotations

import itertools

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import compose, editor
from tests.support.rows import each_row
from tests.support.steps import OPENING, afresh, ask, cards, over, paused, settings, stand, texts, value

ENDED = "Tom was happy. He went home and slept.\n\nThe end."
FEW = {"max_tokens": 6, "next": False}


def ended(page: Page) -> Locator:
    return page.locator(".ended").filter(has_text="The model would end here")


def test_where_the_model_would_end_one_message_stands_and_it_writes_on_anyway(page: Page) -> None:
    settings(page, **FEW, values={"temperature": 0})
    ask(page, ENDED, n=0)
    expect(ended(page)).to_have_count(1)
    expect(page.get_by_text("Several continuations")).to_have_count(0)
    page.reload()
    expect(ended(page)).to_have_count(1)
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Write on anyway").click()
    assert sent.value.post_data_json["ignore_eos"] is True
    over(page, 4)
    assert all(texts(page))
    expect(ended(page)).to_have_count(0)


def test_the_message_stands_beside_candidates_with_text(page: Page) -> None:
    settings(page, **FEW, n=16, spreads={"temperature": [0, 3]})
    compose(page, ENDED)
    page.keyboard.press("Control+Enter")
    expect(ended(page)).to_have_count(1)
    expect(page.locator(".card.running")).to_have_count(0)
    some = cards(page).count()
    assert 0 < some < 16
    assert all(texts(page))
    page.get_by_role("button", name="Write on anyway").click()
    over(page, 16)
    assert all(texts(page))


def test_a_stop_string_that_comes_first_is_named(page: Page) -> None:
    settings(page, **FEW, stop=" ", values={"temperature": 0})
    ask(page, n=0)
    expect(page.get_by_text("begin with a stop string")).to_be_visible()


def test_tab_goes_to_the_button_in_place_of_cards(page: Page) -> None:
    settings(page, **FEW, values={"temperature": 0})
    ask(page, ENDED, n=0)
    expect(page.get_by_role("button", name="Write on anyway")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    over(page, 4)


@each_row("keys, is_slow", itertools.product(["x", "ab", " and"], [False, True]))
def test_after_a_stray_key_and_backspace_the_candidates_are_there(
    page: Page, keys: str, is_slow: bool
) -> None:
    afresh(page, **FEW)
    ask(page)
    before = texts(page)
    page.keyboard.type(keys)
    if is_slow:
        expect(cards(page)).to_have_count(0)
    for _ in keys:
        page.keyboard.press("Backspace")
    expect(editor(page)).to_have_value(OPENING)
    paused(page)
    stand(page, before)
    page.keyboard.press("Alt+2")
    assert value(page) == OPENING + before[1]


def test_text_that_is_deleted_and_typed_again_has_its_candidates(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    before = texts(page)
    page.keyboard.press("Backspace")
    paused(page)
    page.keyboard.type(OPENING[-1])
    over(page, 4)
    stand(page, before)


def test_a_stray_key_within_the_text_loses_nothing(page: Page) -> None:
    settings(page, **FEW)
    before, behind = "Tom saw a dog.", " The end."
    compose(page, before + behind)
    for _ in behind:
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    candidates = texts(page)
    for pauses in (False, True):
        page.keyboard.type("x")
        if pauses:
            paused(page)
        page.keyboard.press("Backspace")
        paused(page)
        stand(page, candidates)
    page.keyboard.press("Alt+1")
    assert value(page, before + behind) == before + candidates[0] + behind


def test_undo_after_a_stray_key_that_was_taken_back(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    before = texts(page)
    page.keyboard.type("x")
    paused(page)
    page.keyboard.press("Backspace")
    paused(page)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(OPENING + "x")
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(OPENING)
    stand(page, [*before, "x"])  # what was typed is a branch
    page.keyboard.press("Control+Shift+Z")
    expect(editor(page)).to_have_value(OPENING + "x")
