"""How long candidates are, and rewrites of a selected passage."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, Route, expect

from tests.real.answer_cases import INFILL
from tests.support.browser import visiting
from tests.support.hands import click_behind, compose, editor, into
from tests.support.models import write_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving
from tests.support.steps import (
    Body,
    afresh,
    ask,
    asked,
    cards,
    next_over,
    over,
    paused,
    settings,
    shown,
    stand,
    texts,
    value,
)

BEFORE = "Once upon a time, there was a little fox."
MIDDLE = " He liked to play in the sun."
BEHIND = ' One day, he met a bird. The bird was sad. The fox said, "Do not cry." They became friends.'
STORY = BEFORE + MIDDLE + BEHIND
ENDED = re.compile(r"[.!?]+[\"\']?$")


def select(page: Page, begin: int, end: int) -> None:
    editor(page).evaluate("(field, [a, b]) => field.setSelectionRange(a, b)", [begin, end])


def rewritten(page: Page, begin: int, end: int, story: str = STORY) -> Body:
    """Types the story, selects a passage and asks for rewrites; returns the body of the request."""
    compose(page, story)
    select(page, begin, end)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    body: Body = sent.value.post_data_json
    return body


def behind(server: Server, prompt: str) -> float:
    """The mean logprob of what stands behind the passage."""
    status, answer = server.json("POST", "/v1/score", {"prompt": prompt, "texts": [BEHIND]})
    assert status == 200, answer
    return float(answer["data"][0]["mean"])


def test_a_candidate_goes_to_the_end_of_so_many_sentences(page: Page) -> None:
    settings(page, max_tokens=3, next=False)
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("Tokens each")).to_have_value("3")
    page.get_by_label("Length").select_option(label="To the end of a sentence")
    expect(page.get_by_label("Tokens each")).to_have_count(0)
    page.keyboard.press("Escape")
    body = asked(page)
    assert body["end"] == {"sentences": 1}
    over(page, 4)
    assert all(ENDED.search(text) for text in texts(page)), texts(page)


def test_the_room_of_the_answer_is_that_of_the_length(page: Page) -> None:
    settings(page, max_tokens=3, next=False, n=1, length={"kind": "paragraphs", "count": 1})
    page.get_by_role("button", name="Background", exact=True).click()
    with page.expect_request("**/v1/prefix") as prefix, page.expect_request("**/v1/prompt") as prompt:
        compose(page, STORY)
    rooms = [sent.value.post_data_json["max_tokens"] for sent in (prefix, prompt)]
    assert rooms == [asked(page, STORY)["max_tokens"]] * 2


def test_a_selection_is_rewritten_in_its_place_and_the_old_text_stays(
    visit: Callable[..., Page], exact: Server
) -> None:
    page = visit(exact.url)
    settings(page, next=True, n=4)
    body = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    assert body["prompt"] == BEFORE + " "
    assert body["end"] == {"sentences": 1}
    assert BEHIND.startswith(body["rank_by"]["following"]["text"][:60])
    expect(page.locator(".card.running")).to_have_count(0)
    over(page, 4)
    assert all(ENDED.search(text) for text in texts(page)), texts(page)
    ranked = [behind(exact, BEFORE + text) for text in texts(page)]
    assert all(one >= other - 2e-3 for one, other in itertools.pairwise(ranked)), ranked
    first = cards(page).nth(0).locator(".text").text_content()
    page.keyboard.press("Alt+1")
    assert value(page, STORY) == BEFORE + str(first) + BEHIND
    expect(page.locator(".card.running")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(STORY)


def test_a_rewrite_is_previewed_in_the_place_of_the_old_text(page: Page) -> None:
    settings(page, next=False, n=2)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    layer = page.locator(".origins")
    expect(layer).to_have_text(STORY, use_inner_text=True)
    cards(page).nth(0).hover()
    expect(layer).to_have_text(BEFORE + texts(page)[0] + BEHIND, use_inner_text=True)
    page.mouse.move(5, 5)
    expect(layer).to_have_text(STORY, use_inner_text=True)


def test_the_button_rewrites_what_is_selected(page: Page) -> None:
    """Phones have no Ctrl+Enter."""
    settings(page, next=False, n=2)
    compose(page, STORY)
    into(page)
    select(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Rewrite").click()
    assert sent.value.post_data_json["prompt"] == BEFORE + " "
    over(page, 2)
    page.keyboard.press("ArrowLeft")
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Continue").click()
    assert sent.value.post_data_json["prompt"] == BEFORE, "at the caret"


def test_the_text_behind_a_chosen_rewrite_is_no_candidate(page: Page) -> None:
    settings(page, next=False, n=2)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    page.keyboard.press("Alt+1")
    value(page, STORY)
    expect(cards(page)).to_have_count(0)


def test_a_model_with_a_chat_template_is_told_to_rewrite(browser: Browser) -> None:
    with (
        serving("--", "-t", "1", "--chat-template", "chatml") as server,
        visiting(browser, server.url) as [page],
    ):
        body = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
        [message] = body["messages"]
        for text in (BEFORE, MIDDLE.strip(), BEHIND):
            assert text in message["content"]
        assert ("prompt" in body, "rank_by" in body, body["end"]) == (False, False, {"sentences": 1})
        expect(cards(page).nth(1)).to_be_visible()
        expect(page.locator(".card.running")).to_have_count(0)
        assert all(text.startswith(" ") for text in texts(page))


def test_a_model_with_infill_tokens_gets_both_sides(browser: Browser, tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", "llama", control=INFILL, context=4096)
    with (
        serving("-m", str(tmp_path / "model.gguf"), "--", "-t", "1") as server,
        visiting(browser, server.url) as [page],
    ):
        held: list[Route] = []
        answers = False
        page.route("**/v1/models", lambda route: route.continue_() if answers else held.append(route))
        page.reload()
        compose(page, STORY)
        select(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
        page.keyboard.press("Control+Enter")
        expect(page.locator(".card.running")).to_have_count(4)
        with page.expect_request("**/v1/events") as sent:  # not before the models are known
            answers = True
            for route in held:
                route.continue_()
        body = sent.value.post_data_json
        assert (body["prompt"], body["suffix"]) == (BEFORE, BEHIND)
        expect(cards(page).nth(1)).to_be_visible()
        expect(page.locator(".card.running")).to_have_count(0)
        assert cards(page).count() > 1


SPREAD = {"values": {"temperature": 1.5}}  # so that no two rewrites are equal
LONG_PASSAGE = " and so on" * 600  # which no sentence ends: its rewrites may have as many tokens


@each_row("end", [len(BEFORE), len(STORY)], ids=["first sentence", "everything"])
def test_a_passage_at_the_beginning_is_rewritten_in_its_place(page: Page, end: int) -> None:
    afresh(page, next=False, n=2)
    assert rewritten(page, 0, end)["prompt"] == ""
    over(page, 2)
    first = texts(page)[0]
    page.keyboard.press("Alt+1")
    assert value(page, STORY) == first + STORY[end:]
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(STORY)
    page.reload()
    expect(editor(page)).to_have_value(STORY)


def test_candidates_before_the_first_word_keep_the_text_after_them(page: Page) -> None:
    settings(page, next=False, n=2, max_tokens=6)
    compose(page, STORY)
    select(page, 0, 0)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == ""
    over(page, 2)
    first = texts(page)[0]
    page.keyboard.press("Alt+1")
    assert value(page, STORY) == first + " " + STORY


def test_another_first_word_takes_the_place_of_the_old_one(page: Page) -> None:
    settings(page, next=False, n=2, max_tokens=6)
    ask(page, BEFORE, n=2)
    select(page, 0, len("Once"))
    page.keyboard.type("Never")
    paused(page)
    page.reload()
    expect(editor(page)).to_have_value("Never" + BEFORE.removeprefix("Once"))


def test_reroll_makes_other_rewrites_of_the_same_passage(page: Page) -> None:
    settings(page, next=False, n=2)
    first = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    before = shown(page)
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Reroll").click()
    assert sent.value.post_data_json == first
    next_over(page, before, 2)
    text = texts(page)[0]
    cards(page).nth(0).locator(".text").click()
    assert value(page, STORY) == BEFORE + text + BEHIND


def test_after_undo_reroll_still_rewrites(page: Page) -> None:
    settings(page, next=False, n=2)
    first = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    page.keyboard.press("Alt+1")
    value(page, STORY)
    page.keyboard.press("Control+z")
    over(page, 2)
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Reroll").click()
    assert sent.value.post_data_json["prompt"] == first["prompt"]
    assert sent.value.post_data_json["end"] == first["end"]


def test_after_a_rewrite_candidates_are_asked_for_at_the_caret(page: Page) -> None:
    settings(page, next=False, n=2, max_tokens=6)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    for caret, prompt in ((len(BEFORE), BEFORE), (len(STORY), STORY)):
        select(page, caret, caret)
        with page.expect_request("**/v1/events") as sent:
            page.keyboard.press("Control+Enter")
        body = sent.value.post_data_json
        assert (body["prompt"], body["max_tokens"], "end" in body) == (prompt, 6, False)
        over(page, 2)


def test_where_no_rewrite_has_text_they_are_written_on_anyway(page: Page) -> None:
    settings(page, next=False, n=2, values={"temperature": 0})
    before, passage = "Tom was happy. He went home and slept.\n\nThe end.", "He was very glad."
    body = rewritten(page, len(before), len(before + passage), before + passage + BEHIND)
    with page.expect_request("**/v1/events") as sent:
        page.get_by_role("button", name="Write on anyway").click()
    again = sent.value.post_data_json
    assert (again["ignore_eos"], again["end"]) == (True, body["end"])
    over(page, 2)
    text = texts(page)[0]
    page.keyboard.press("Alt+1")
    assert value(page, before + passage + BEHIND) == before + text + BEHIND


def test_more_rewrites_join_the_running_stream(page: Page) -> None:
    settings(page, next=False, n=2, values={"ignore_eos": True})
    story = BEFORE + LONG_PASSAGE + BEHIND
    rewritten(page, len(BEFORE) + 1, len(BEFORE + LONG_PASSAGE), story)
    expect(page.locator(".card.running")).to_have_count(2)
    with page.expect_response(re.compile("/extend$")) as extended:
        page.get_by_role("button", name="More", exact=False).last.click()
    assert extended.value.ok, extended.value.text()
    expect(cards(page).filter(has_text=re.compile(".{20}"))).to_have_count(4)
    page.get_by_role("button", name="Stop all").click()
    over(page, 4)
    text = texts(page)[3]
    page.keyboard.press("Alt+4")
    assert value(page, story) == BEFORE + text + BEHIND


def test_an_edited_rewrite_stands_in_the_passages_place(page: Page) -> None:
    settings(page, next=False, n=2)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    cards(page).nth(0).get_by_role("button", name="Edit").click()
    page.get_by_label("Your version").fill(" He slept.")
    page.get_by_role("button", name="Save as another version").click()
    cards(page).filter(has_text="He slept.").locator(".text").click()
    assert value(page, STORY) == BEFORE + " He slept." + BEHIND


UNSPACED = {"kind": "regex", "text": r"(He|She|They) (ran|sat|slept) (home|there)\."}


def tokens(page: Page, card: int) -> Locator:
    """A candidate's tokens; those that spell only the prompt's end again have no text."""
    return cards(page).nth(card).locator(".token").filter(has_text=re.compile(r"\S"))


def test_an_alternative_in_a_rewrite_keeps_its_space_and_its_place(page: Page) -> None:
    settings(page, next=False, n=2, colours=True, structure=UNSPACED, **SPREAD)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    first = tokens(page, 0).all_text_contents()[0]
    assert first.startswith(" ")
    tokens(page, 0).nth(1).click()
    cards(page).nth(0).locator(".alternatives button:not([disabled])").first.click()
    over(page, 3)
    branched = texts(page)[1]
    assert branched.startswith(first)
    page.keyboard.press("2")
    assert value(page, STORY) == BEFORE + branched + BEHIND


def test_a_part_of_a_rewrite_leaves_the_tokens_of_the_rest(page: Page) -> None:
    settings(page, next=False, n=2, colours=True, structure=UNSPACED, **SPREAD)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    [word] = re.findall(r"^ \w+", texts(page)[0])
    rest = texts(page)[0].removeprefix(word)
    tokens(page, 0).first.click(modifiers=["Shift"])
    assert value(page, STORY) == BEFORE + word + BEHIND
    stand(page, [rest])
    assert "".join(cards(page).nth(0).locator(".token").all_text_contents()) == rest


def rewrite_that_stands(page: Page) -> tuple[str, str]:
    """Chooses a rewrite, pins another one, and asks for rewrites of the chosen one; returns both."""
    afresh(page, next=False, n=2, **SPREAD)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    chosen, other = texts(page)
    cards(page).nth(1).get_by_role("button", name="Pin").click()
    page.keyboard.press("Alt+1")
    story = value(page, STORY)
    assert story == BEFORE + chosen + BEHIND
    into(page)
    select(page, len(BEFORE) + 1, len(BEFORE + chosen))
    page.keyboard.press("Control+Enter")
    over(page, 3)  # the old text, the pinned one, a new one
    return story, other


@each_row("number", [1, 2], ids=["the old text", "another rewrite"])
def test_one_version_of_a_passage_takes_the_place_of_another(page: Page, number: int) -> None:
    story, other = rewrite_that_stands(page)
    page.keyboard.press(f"Alt+{number}")
    assert value(page, story) == BEFORE + (MIDDLE if number == 1 else other) + BEHIND


def test_an_exported_rewrite_still_replaces_its_passage(page: Page, tmp_path: Path) -> None:
    settings(page, next=False, n=2)
    rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    over(page, 2)
    text = texts(page)[0]
    page.get_by_role("button", name="Stories").click()
    with page.expect_download() as export:
        page.get_by_role("button", name="Export JSON").click()
    export.value.save_as(tmp_path / "story.json")
    page.locator("input[type=file]").set_input_files(tmp_path / "story.json")
    expect(page.locator(".panel > .list button")).to_have_count(2)  # the imported one is open
    page.keyboard.press("Escape")
    select(page, len(BEFORE), len(BEFORE))
    page.keyboard.press("x")
    paused(page)
    page.keyboard.press("Backspace")  # which comes back to the place that has candidates
    over(page, 2)
    page.keyboard.press("Alt+1")
    assert value(page, STORY) == BEFORE + text + BEHIND


@each_row("is_rewrite", (True, False), ids=("rewrites", "candidates amid the text"))
def test_what_was_asked_for_stays_while_a_word_is_typed_elsewhere(page: Page, is_rewrite: bool) -> None:
    settings(page, next=False, n=2, max_tokens=5)
    ask(page, STORY, n=2)
    at_the_end = shown(page)
    begin = BEFORE if is_rewrite else BEFORE + MIDDLE
    select(page, len(begin), len(BEFORE + MIDDLE))
    page.keyboard.press("Control+Enter")
    next_over(page, at_the_end, 2)
    made = texts(page)
    click_behind(page, "a little")
    page.keyboard.type(" red")
    paused(page)
    typed = STORY.replace("little", "little red", 1)
    assert (editor(page).input_value(), texts(page)) == (typed, made)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(STORY)
    stand(page, made)
    page.keyboard.press("Control+Shift+Z")
    expect(editor(page)).to_have_value(typed)
    page.keyboard.press("Alt+2")
    expect(editor(page)).to_have_value(begin.replace("little", "little red") + made[1] + BEHIND)
    afresh(page)
