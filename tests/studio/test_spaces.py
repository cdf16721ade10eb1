"""Where the text ends with a space or within a word, candidates are those of the whole words."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.support.hands import compose, editor, go
from tests.support.rows import each_row
from tests.support.steps import (
    OPENING,
    afresh,
    ask,
    asked,
    cards,
    choose,
    over,
    paused,
    settings,
    stand,
    texts,
    value,
)

NAMED = "There was a little girl named"
FEW = {"max_tokens": 4, "next": False, "values": {"temperature": 0.8}}


def test_candidates_behind_a_trailing_space_are_names(page: Page) -> None:
    settings(page, **FEW, n=16)
    body = asked(page, NAMED + " ")
    assert body["prompt"] == NAMED + " "
    assert body["token_healing"] is True
    over(page, 16)
    assert all(text.startswith(" ") and text[1].isupper() for text in texts(page))
    expect(editor(page)).to_have_value(NAMED + " ")
    first = texts(page)[0]
    page.keyboard.press("Alt+1")
    assert value(page, NAMED + " ") == NAMED + first


@each_row("behind", ("They saw a fire", "They saw a fire [truck]"))
def test_behind_a_space_that_was_typed_another_word_begins(page: Page, behind: str) -> None:
    """The text in brackets is the model's, which goes on by its name."""
    begin, _, models = behind.partition(" [")
    if models:
        settings(page, **FEW, structure={"kind": "choice", "text": f" {models[:-1]}"})
        ask(page, begin)
        choose(page, 1, begin)
    settings(page, **FEW, structure={"kind": "choice", "text": "place"})
    go(page, "Control+End") if models else compose(page, begin)
    text = editor(page).input_value()
    page.keyboard.type(" ")
    page.keyboard.press("Control+Enter")
    stand(page, [" place"] * 4)
    over(page, 4)
    assert choose(page, 1, f"{text} ") == f"{text} place"
    afresh(page)


def test_a_space_that_is_typed_since_parts_what_would_have_ended_the_word(page: Page) -> None:
    settings(page, **FEW, structure={"kind": "choice", "text": "place"})
    ask(page, "They saw a fire")
    stand(page, ["place"] * 4)
    page.keyboard.type(" ")
    paused(page)
    cards(page).first.hover()
    expect(page.locator(".ghost")).to_have_text(" place", use_inner_text=True)
    assert choose(page, 1, "They saw a fire ") == "They saw a fire place"


def test_a_candidate_without_a_space_removes_the_writers(page: Page) -> None:
    settings(page, **FEW, structure={"kind": "choice", "text": ". She was kind."})
    ask(page, NAMED + " Lily ")
    page.keyboard.press("Alt+1")
    assert value(page, NAMED + " Lily ").startswith(NAMED + " Lily. She")


def test_a_held_back_space_within_the_text_goes_with_the_choice(page: Page) -> None:
    settings(page, **FEW)
    behind = " and a dog."
    compose(page, NAMED + " " + behind)
    for _ in behind:
        page.keyboard.press("ArrowLeft")
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == NAMED + " "
    over(page, 4)
    first = texts(page)[0]
    page.keyboard.press("Alt+1")
    assert value(page, NAMED + " " + behind) == NAMED + first + behind


def test_a_space_that_is_typed_behind_the_text_keeps_its_candidates(page: Page) -> None:
    settings(page, **FEW)
    ask(page, NAMED)
    before = texts(page)
    with page.expect_response("**/v1/prefix") as answer:
        page.keyboard.type(" ")
    assert answer.value.request.post_data_json["prompt"] == NAMED
    stand(page, before)
    page.keyboard.press("Alt+2")
    assert value(page, NAMED + " ") == NAMED + before[1]


def test_ctrl_enter_in_mid_word_ends_the_word(page: Page) -> None:
    settings(page, **FEW, n=16)
    ask(page, "There was a little gi", n=16)
    assert all(text.startswith("rl") for text in texts(page))
    page.keyboard.press("Alt+1")
    assert value(page, "There was a little gi").startswith("There was a little girl")


def test_the_tokens_of_a_word_that_was_ended_show_only_its_end(page: Page) -> None:
    settings(page, **FEW, colours=True)
    ask(page, "There was a little gi")
    card = cards(page).first
    assert card.locator(".token").first.text_content() == "rl"
    whole = "".join(card.locator(".token").all_text_contents())
    token = card.locator(".token").nth(1)
    token.click()
    card.locator(".alternatives button:not([disabled])").first.click()
    over(page, 5)
    assert "".join(cards(page).nth(1).locator(".token").all_text_contents()).startswith("rl")
    page.keyboard.press("Alt+1")
    assert value(page, "There was a little gi") == "There was a little gi" + whole


def test_a_candidate_is_continued_as_it_is(page: Page) -> None:
    settings(page, max_tokens=4)
    ask(page, NAMED)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Alt+1")
    body = sent.value.post_data_json
    assert "continue" in body
    assert "token_healing" not in body


RETURNS = {"kind": "grammar", "text": 'root ::= " and then\\r\\nhe" (" ran" | " slept")'}


def test_a_candidates_line_breaks_are_those_of_the_text_field(page: Page) -> None:
    settings(page, max_tokens=60, next=False, n=1, structure=RETURNS)
    ask(page, n=1)
    page.keyboard.press("Alt+1")
    assert value(page).startswith(OPENING + " and then\nhe")
    paused(page)
    expect(page.locator(".origins .by-user")).to_have_text([OPENING])
    expect(page.locator(".origins .by-model")).to_have_text([" and then", re.compile("^he (ran|slept)$")])
