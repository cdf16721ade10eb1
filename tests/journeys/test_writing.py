"""A writer with mouse and keyboard, on a page that was just opened."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.support.hands import click_behind, compose, double_click, drag_over, editor, into, selected
from tests.support.steps import OPENING, cards, next_over, over, shown, texts, value

STORY = "Tom had a red ball. He saw a big dog in the park. The dog was sad. The end."
BEFORE, SENTENCE, BEHIND = STORY.partition(" The dog was sad.")


def asked(page: Page, button: str) -> Any:
    """Clicks on a button that asks; returns the body of its request when the candidates are complete."""
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name=button).click()
    over(page, 4)
    return sent.value.post_data_json


def choose_by_mouse(page: Page, number: int) -> str:
    """Clicks on the text of a candidate; returns that text."""
    text = texts(page)[number - 1]
    cards(page).nth(number - 1).locator(".text").click()
    return text


def test_a_page_is_opened_clicked_into_and_typed_in_and_candidates_are_chosen_by_mouse(page: Page) -> None:
    into(page)
    page.keyboard.type(OPENING)
    asked(page, "Continue")
    before = shown(page)
    first = choose_by_mouse(page, 2)
    assert value(page) == OPENING + first
    next_over(page, before)
    second = choose_by_mouse(page, 3)
    assert value(page, OPENING + first) == OPENING + first + second
    page.keyboard.type(" The end.")
    expect(editor(page)).to_have_value(OPENING + first + second + " The end.")


def test_a_word_is_selected_by_a_double_click_and_rewritten(page: Page) -> None:
    compose(page, STORY)
    double_click(page, "red")
    assert selected(page) == "red"
    assert asked(page, "Rewrite")["prompt"] == "Tom had a "
    other = choose_by_mouse(page, 1)
    assert value(page, STORY) == STORY.replace(" red", other)


def test_a_sentence_is_selected_by_dragging_and_rewritten(page: Page) -> None:
    compose(page, STORY)
    drag_over(page, SENTENCE.strip())
    assert selected(page) == SENTENCE.strip()
    body = asked(page, "Rewrite")
    assert (body["prompt"], body["end"]) == (f"{BEFORE} ", {"sentences": 1})
    other = choose_by_mouse(page, 4)
    assert value(page, STORY) == BEFORE + other + BEHIND


def test_the_caret_is_placed_by_a_click_in_the_middle_and_ctrl_enter_writes_there(page: Page) -> None:
    compose(page, STORY)
    click_behind(page, BEFORE)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == BEFORE
    over(page, 4)
    first = choose_by_mouse(page, 1)
    assert value(page, STORY) == BEFORE + first + SENTENCE + BEHIND


def test_typing_goes_where_the_mouse_has_clicked(page: Page) -> None:
    compose(page, STORY)
    click_behind(page, "a big")
    page.keyboard.type(", friendly")
    expect(editor(page)).to_have_value(STORY.replace("a big", "a big, friendly"))


def test_a_writer_without_a_mouse_comes_from_the_address_bar_and_chooses_by_keys(page: Page) -> None:
    page.keyboard.type(OPENING)
    page.keyboard.press("Control+Enter")
    over(page, 4)
    before, second = shown(page), texts(page)[1]
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    expect(cards(page).nth(1)).to_be_focused()
    page.keyboard.press("Enter")
    assert value(page) == OPENING + second
    next_over(page, before)
    page.keyboard.press("Escape")
    third = texts(page)[2]
    page.keyboard.press("Alt+3")
    assert value(page, OPENING + second) == OPENING + second + third
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(OPENING + second)
