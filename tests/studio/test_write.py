"""A writer's loop: ask, read, choose, continue, go back."""

from __future__ import annotations

import json
import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.hands import compose, editor, go
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.steps import (
    LONG,
    OPENING,
    afresh,
    ask,
    cards,
    choose,
    computed,
    gone,
    over,
    settings,
    streaming,
    texts,
    value,
)


def test_asks_streams_chooses_by_key_and_continues(page: Page) -> None:
    settings(page, max_tokens=12)
    ask(page)
    second = texts(page)[1]
    assert second
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Alt+2")
    expect(editor(page)).to_have_value(OPENING + second)
    body = sent.value.post_data_json
    assert body["continue"]["index"] == 1
    assert "prompt" not in body
    gone(page, second)
    over(page, 4)
    assert computed(page) <= 1


def test_a_choice_in_mid_stream_continues_from_the_text_so_far(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    with page.expect_request("**/v1/events") as sent:
        chosen = choose(page, 1)
    named = sent.value.post_data_json["continue"]
    assert named["index"] == 0
    assert 0 < named["at"] < LONG["max_tokens"]
    gone(page, chosen.removeprefix(OPENING))
    expect(page.locator(".card .text").filter(has_text=re.compile(".{20}"))).to_have_count(4)
    assert computed(page) <= 1
    assert editor(page).input_value() == chosen, "what the model wrote after the choice is not taken"
    page.keyboard.press("Escape")
    expect(page.locator(".card.running")).to_have_count(0)


def test_in_a_pause_the_prompt_is_computed(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    with page.expect_response("**/v1/prefix") as answer:
        compose(page, "In a pause of the writer the prompt is computed.")
    length = answer.value.json()["prompt_tokens"]
    expect(page.locator(".status")).to_contain_text(f"{length} of ")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    assert computed(page) <= 1


def test_a_click_takes_a_candidate_and_shift_click_only_a_part(page: Page) -> None:
    settings(page, max_tokens=12, next=False)
    ask(page)
    text = texts(page)[0]
    page.locator(".card .text").first.click(modifiers=["Shift"], position={"x": 3, "y": 8})
    taken = value(page).removeprefix(OPENING)
    assert taken
    assert text.startswith(taken)
    assert len(taken) < len(text)
    expect(cards(page)).to_have_count(1)
    assert texts(page) == [text[len(taken) :]], "the rest is what goes on from there"


def test_branches_keep_the_candidates_that_were_not_chosen(page: Page) -> None:
    settings(page, max_tokens=8, next=False)
    ask(page)
    first, second = texts(page)[:2]
    page.keyboard.press("Alt+1")
    expect(editor(page)).to_have_value(OPENING + first)
    page.get_by_role("button", name="Branches").click()
    tree = page.get_by_role("tree")
    assert tree.get_by_role("treeitem").count() == 5  # the opening, four candidates
    tree.get_by_role("treeitem", name=second.strip()[:20]).first.click()
    expect(editor(page)).to_have_value(OPENING + second)
    tree.locator(".current").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(4)


def test_undo_and_redo_cover_typing_and_choices(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    chosen = choose(page, 3)
    go(page, "Control+End")
    page.keyboard.type(" And")
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(chosen)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(OPENING)
    page.keyboard.press("Control+Shift+Z")
    page.keyboard.press("Control+Shift+Z")
    expect(editor(page)).to_have_value(chosen + " And")


def test_typing_over_the_text_makes_a_branch(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.keyboard.press("Alt+1")
    compose(page, OPENING.replace("fox", "cat"))
    ask(page, OPENING.replace("fox", "cat") + " who")
    page.get_by_role("button", name="Branches").click()
    expect(page.get_by_role("treeitem").filter(has_text="cat who").first).to_be_attached()
    expect(page.get_by_role("treeitem").filter(has_text="fox").first).to_be_attached()


def test_stops_one_card_while_the_others_go_on(page: Page) -> None:
    settings(page, **LONG)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".card.running")).to_have_count(4)
    page.get_by_role("button", name="Stop", exact=True).first.click()
    expect(page.locator(".card").first).to_contain_text("stopped")
    expect(page.locator(".card.running")).not_to_have_count(0)
    page.keyboard.press("Escape")
    expect(page.locator(".card.running")).to_have_count(0)


def test_a_pinned_card_stays_when_the_others_are_rolled_again(page: Page) -> None:
    settings(page, max_tokens=6)
    ask(page)
    second = texts(page)[1]
    page.get_by_role("button", name="Pin").nth(1).click()
    page.get_by_role("button", name="Reroll").click()
    earlier = page.get_by_role("button", name="3 earlier")
    expect(earlier).to_be_visible()
    over(page, 4)
    assert texts(page)[0] == second
    earlier.click()
    expect(cards(page)).to_have_count(7)


def test_a_reroll_in_mid_stream_cancels_the_replaced_candidates(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    page.get_by_role("button", name="Pin").first.click()
    expect(page.locator(".card.pinned")).to_have_count(1)
    page.get_by_role("button", name="Reroll").click()
    page.get_by_role("button", name="3 earlier").click()
    expect(cards(page)).to_have_count(7)
    expect(page.locator(".card.aside").filter(has_text="stopped")).to_have_count(3)
    expect(page.locator(".card.pinned.running")).to_have_count(1)
    expect(page.locator(".card .text").filter(has_text=re.compile(r"\w"))).to_have_count(7)
    page.keyboard.press("Escape")
    over(page, 7)


def test_more_candidates_join_the_running_stream(page: Page) -> None:
    settings(page, **LONG)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".card.running")).to_have_count(4)
    with page.expect_response("**/extend") as answer:
        page.get_by_role("button", name="More").click()
    assert answer.value.ok
    expect(page.locator(".card .text").filter(has_text=re.compile(".{20}"))).to_have_count(8)
    page.reload()
    expect(cards(page)).to_have_count(8)


GENERATED = """async enough => {
    const { session } = await import(new URL("studio/story/session.js", document.baseURI));
    return Object.values(session.story.nodes).some(({ text }) => text.length > enough);
}"""  # characters


def test_more_candidates_are_not_as_long_as_the_one_that_is_written_on(page: Page) -> None:
    settings(page, max_tokens=6, next=False, n=2)
    ask(page, n=2)
    settings(page, **LONG, next=False, n=2)
    more = page.locator(".more")
    more.hover()
    place = more.bounding_box()
    page.mouse.down()
    page.keyboard.press("k")
    page.keyboard.press("l")
    page.wait_for_function(GENERATED, arg=1000)
    assert more.bounding_box() == place, "what grows above a button moves it from below the pressed pointer"
    with page.expect_request("**/v1/events") as sent:
        page.mouse.up()
    assert sent.value.post_data_json["prompt"] == OPENING
    expect(page.locator(".card .text").filter(has_text=re.compile(r"\w"))).to_have_count(4)
    page.get_by_role("button", name="Stop all").click()
    over(page, 4)


def test_candidates_at_the_caret_keep_the_text_after_it(page: Page) -> None:
    settings(page, max_tokens=5, next=False)
    compose(page, "Tom saw a dog. The end.")
    for _ in range(len(" The end.")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    text = texts(page)[0]
    page.keyboard.press("Alt+1")
    expect(editor(page)).to_have_value(f"Tom saw a dog.{text} The end.")


def test_shows_tokens_and_branches_from_an_alternative(page: Page) -> None:
    settings(page, max_tokens=8, colours=True)
    ask(page, n=4)
    card = page.locator(".card").first
    token = card.locator(".token").nth(2)
    token.click()
    other = card.locator(".alternatives button:not([disabled])").first
    begin = "".join(card.locator(".token").all_text_contents()[:2])
    other.click()
    over(page, 5)
    branched = page.locator(".card").nth(1).locator(".token").all_text_contents()
    assert "".join(branched).startswith(begin)
    assert len(branched) > 3


def test_the_page_may_load_nothing_from_elsewhere_and_run_no_inline_script(server: Server) -> None:
    policy = server.call("GET", "/")[1]["Content-Security-Policy"]
    allowed = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert allowed["default-src"] == "'none'"
    assert {allowed[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}


HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&amp;"


def test_hostile_text_stays_text(page: Page) -> None:
    settings(page, max_tokens=200, alternatives=0, structure={"kind": "choice", "text": ""})
    page.route("**/v1/events", lambda route: route.continue_(post_data=json.dumps(
        route.request.post_data_json | {"choice": [HOSTILE], "n": 4, "temperature": 0}
    )))  # fmt: skip
    ask(page)
    assert texts(page) == [HOSTILE] * 4
    page.keyboard.press("Alt+1")
    expect(editor(page)).to_have_value(OPENING + HOSTILE)
    page.get_by_role("button", name="Branches").click()
    expect(page.get_by_role("treeitem").filter(has_text="<img")).not_to_have_count(0)
    assert page.locator("img").count() == 0
    assert "owned" not in page.title()


@each_row("kind", ["JSON", "Markdown"])
def test_exports_and_imports(page: Page, tmp_path: Path, kind: str) -> None:
    afresh(page, max_tokens=6, next=False)
    ask(page)
    text = choose(page, 1)
    page.get_by_role("button", name="Stories").click()
    with page.expect_download() as download:
        page.get_by_role("button", name=f"Export {kind}").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    page.get_by_role("button", name="New story").click()
    expect(editor(page)).to_have_value("")
    page.locator("input[type=file]").set_input_files(file)
    expect(editor(page)).to_have_value(text)
    if kind == "JSON":
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Branches").click()
        expect(page.get_by_role("treeitem")).to_have_count(5)


def test_a_refused_request_leaves_the_earlier_candidates(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    old = texts(page)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Output format").select_option("grammar")
    page.get_by_role("textbox", name="Grammar").fill('root ::= "a"\nx ::= nothere\n')
    page.get_by_role("button", name="Reroll").click()
    expect(page.get_by_role("alert").filter(has_text="line 2").first).to_be_visible()
    expect(page.locator(".card .text")).to_have_text(old)
    expect(page.get_by_role("button", name="earlier")).to_have_count(0)


def test_the_server_goes_away_and_comes_back(page: Page, server: Server) -> None:
    page.route("**/health", lambda route: route.abort())
    expect(page.get_by_role("alert").filter(has_text="reach the server")).to_be_visible()
    compose(page, "Still here")
    page.unroute("**/health")
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(editor(page)).to_have_value("Still here")


def test_answers_to_a_message(page: Page) -> None:
    settings(page, max_tokens=8, n=3)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New chat").click()
    page.get_by_role("button", name="Close").click()
    page.get_by_label("Your message").fill("Tell me a story.")
    page.get_by_label("Your message").press("Enter")
    over(page, 3)
    answer = texts(page)[0]
    page.locator(".card .text").first.click()
    expect(page.locator(".said")).to_have_count(2)
    expect(page.locator(".said").last).to_contain_text(answer.strip())
    page.get_by_role("button", name="The next one").click()
    expect(page.locator(".said").last).not_to_contain_text(answer.strip())
