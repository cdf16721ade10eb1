"""How long candidates are, and rewrites of a selected passage."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

from tests.real.answer_cases import INFILL
from tests.studio.conftest import visiting
from tests.studio.steps import Body, asked, cards, editor, over, settings, texts, value
from tests.support.models import write_model
from tests.support.serving import Server, serving

BEFORE = "Once upon a time, there was a little fox."
MIDDLE = " He liked to play in the sun."
BEHIND = ' One day, he met a bird. The bird was sad. The fox said, "Do not cry." They became friends.'
STORY = BEFORE + MIDDLE + BEHIND
ENDED = re.compile(r"[.!?]+[\"\']?$")


def select(page: Page, begin: int, end: int) -> None:
    editor(page).evaluate("(field, [a, b]) => field.setSelectionRange(a, b)", [begin, end])


def rewritten(page: Page, begin: int, end: int, story: str = STORY) -> Body:
    """Types the story, selects a passage and asks for rewrites; returns the body of the request."""
    editor(page).fill(story)
    select(page, begin, end)
    with page.expect_request("**/v1/events") as sent:
        editor(page).press("Control+Enter")
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
    page.get_by_label("Length").select_option(label="To the end of a sentence")
    page.keyboard.press("Escape")
    body = asked(page)
    assert body["end"] == {"sentences": 1}
    over(page, 4)
    assert all(ENDED.search(text) for text in texts(page)), texts(page)


def test_a_selection_is_rewritten_in_its_place_and_the_old_text_stays(page: Page, server: Server) -> None:
    settings(page, next=True, n=4)
    body = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
    assert body["prompt"] == BEFORE
    assert body["end"] == {"sentences": 1}
    assert BEHIND.startswith(body["rank_by"]["following"]["text"][:60])
    expect(page.locator(".card.running")).to_have_count(0)
    over(page, 4)
    assert all(ENDED.search(text) for text in texts(page)), texts(page)
    ranked = [behind(server, BEFORE + text) for text in texts(page)]
    assert all(one >= other - 2e-3 for one, other in itertools.pairwise(ranked)), ranked
    first = cards(page).nth(0).locator(".text").text_content()
    page.keyboard.press("Alt+1")
    assert value(page, STORY) == BEFORE + str(first) + BEHIND
    expect(page.locator(".card.running")).to_have_count(0)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(STORY)


def test_a_part_of_a_sentence_is_rewritten_without_an_end(page: Page) -> None:
    begin = STORY.index("sun")
    body = rewritten(page, begin, begin + len("sun"))
    assert body["prompt"] == STORY[: begin - 1]
    assert "end" not in body
    assert body["rank_by"]["following"]["text"].startswith(". One day,")


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
        expect(page.locator(".card.running")).to_have_count(0)
        assert all(text.startswith(" ") for text in texts(page))


def test_a_model_with_infill_tokens_gets_both_sides(browser: Browser, tmp_path: Path) -> None:
    write_model(tmp_path / "model.gguf", "llama", control=INFILL, context=4096)
    with (
        serving("-m", str(tmp_path / "model.gguf"), "--", "-t", "1") as server,
        visiting(browser, server.url) as [page],
    ):
        body = rewritten(page, len(BEFORE) + 1, len(BEFORE + MIDDLE))
        assert (body["prompt"], body["suffix"]) == (BEFORE, BEHIND)
        expect(page.locator(".card.running")).to_have_count(0)
        assert cards(page).count() > 1
