"""A story of more than the model's context, with memory, lore, summary and an author's note."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Response, Route, expect

from llama_srb.bundled import CHECKOUT
from tests.support.browser import visiting
from tests.support.encoder import CONTEXT, write_encoder
from tests.support.hands import compose, editor
from tests.support.serving import Server, serving
from tests.support.steps import (
    act,
    ask,
    asked,
    cards,
    computed,
    next_over,
    over,
    settings,
    shown,
    texts,
    value,
)

FEW: dict[str, Any] = {"max_tokens": 12, "next": False, "values": {"ignore_eos": True}}
DAYS = ("saw a red boat", "found a big hat", "ran to the park", "met a sad frog", "ate a sweet cake")
LONG = "\n\n".join(
    f"On day {day} Tom and Lily went out to play. They {DAYS[day % 5]}. It was fun, and they laughed."
    for day in range(200)
)  # some contexts long
DRAWN_MS = 300  # longer than an answer waits to be drawn


@pytest.fixture(scope="module")
def short() -> Iterator[Server]:
    """The bundled model with its own context of 1,024 tokens."""
    with serving("--", "-t", "1") as server:
        yield server


@pytest.fixture
def page(browser: Browser, short: Server) -> Iterator[Page]:
    with visiting(browser, short.url) as [page]:
        settings(page, **FEW)
        yield page


def panel(page: Page) -> Locator:
    """Opens the panel, if it is not open."""
    button = page.get_by_role("button", name="Background", exact=True)
    if button.get_attribute("aria-pressed") != "true":
        button.click()
    return page.locator(".panel-background")


def parts(page: Page) -> Locator:
    return page.locator(".reads .list li")


def entry(page: Page, **fields: str) -> Locator:
    """Adds an entry to the lore; returns it."""
    entries = panel(page).locator(".entry")
    before = entries.count()
    page.get_by_role("button", name="Add an entry").click()
    expect(entries).to_have_count(before + 1)
    added = entries.last
    for label, text in fields.items():
        added.get_by_label(LABELS[label], exact=True).fill(text)
    return added


LABELS = {
    "name": "Entry's name",
    "keys": "Keys, one a line",
    "also": "Second keys, one a line",
    "order": "Order",
    "search": "Characters searched",
    "budget": "Tokens, at most",
    "text": "Text",
    "meaning": "Near in meaning, %",
}


def test_a_story_longer_than_the_context_gets_candidates(page: Page) -> None:
    assert asked(page, LONG)["prompt"] == LONG, "the whole story is sent"
    over(page, 4)
    assert all(texts(page))
    first, before = texts(page)[0], shown(page)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Alt+1")
        chosen = value(page, LONG)
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == chosen == LONG + first
    next_over(page, before)
    assert all(texts(page))


def test_a_story_that_grows_beyond_the_context_goes_on(page: Page) -> None:
    """Candidates are continued by name until the server cuts."""
    settings(page, max_tokens=250, values={"ignore_eos": True})
    text = LONG[:1500]
    ask(page, text)
    sent = []
    page.on("request", lambda request: sent.append(request) if "v1/events" in request.url else None)
    for _ in range(4):
        before = shown(page)
        page.keyboard.press("Alt+1")
        text = value(page, text)
        next_over(page, before)
        assert all(texts(page))
    assert page.get_by_role("alert").count() == 0
    bodies = [request.post_data_json for request in sent]
    assert "continue" in bodies[0]
    assert bodies[-1]["prompt"] == text


def test_a_candidate_of_a_long_story_can_be_made_longer(page: Page) -> None:
    ask(page, LONG)
    before = texts(page)[0]
    act(page, "Longer")
    over(page, 4)
    assert len(texts(page)[0]) > len(before)
    assert texts(page)[0].startswith(before)


def read_first(page: Page) -> str:
    """The paragraph above which the line is. It is scrolled to, since only what is seen is drawn."""
    line, sheet = page.locator(".reads-from"), page.locator(".write .sheet")
    for part in range(100):
        sheet.evaluate("(one, part) => (one.scrollTop = (one.scrollHeight * part) / 100)", part)
        page.wait_for_timeout(50)
        if line.count():
            before = "line => line.closest('.cm-line').textContent.indexOf(line.nextSibling.textContent)"
            assert line.evaluate(before) == 0, "it stands between paragraphs"
            return str(line.evaluate("line => line.closest('.cm-line').textContent"))
    raise AssertionError("there is no line")


def test_a_line_shows_where_the_model_begins_to_read(page: Page) -> None:
    with page.expect_response("**/v1/events") as answer:
        ask(page, LONG)
    start = json.loads(answer.value.text().split("data: ")[1].split("\n")[0])
    begins = start["story"]["begins"]
    assert begins > 0
    assert read_first(page) == LONG[begins:].split("\n")[0]
    ask(page, LONG[-500:])
    expect(page.locator(".reads-from")).to_have_count(0)


def test_the_line_counts_characters_beyond_16_bits(page: Page) -> None:
    ask(page, "🦊" * 20 + LONG)
    assert read_first(page) in LONG.split("\n\n")


def with_depth(depth: int) -> Callable[[Response], bool]:
    """Whether an answer is the one about a prompt whose note has that depth: there are older ones."""

    def is_it(answer: Response) -> bool:
        if not answer.url.endswith("/v1/prompt"):
            return False
        note: dict[str, Any] = answer.request.post_data_json["story"].get("note", {})
        return note.get("depth") == depth

    return is_it


def test_the_panel_shows_the_parts_that_the_server_names(page: Page) -> None:
    compose(page, LONG)
    panel(page).get_by_label("Memory").fill("A story for children.")
    panel(page).get_by_label("Summary").fill("They had a lot of fun.")
    panel(page).get_by_label("Author's note").first.fill("A storm comes up.")
    with page.expect_response(with_depth(40)) as answer:
        panel(page).get_by_label("Tokens of the text behind it").fill("40")
        page.keyboard.press("Tab")
    made = answer.value.json()["story"]
    names = {"memory": "Memory", "summary": "Summary", "text": "Text", "note": "Author's note"}
    expect(parts(page)).to_have_text(
        [f"{names[part['name']]}{part['tokens']} tokens" for part in made["parts"]]
    )
    assert [part["name"] for part in made["parts"]] == ["memory", "summary", "text", "note", "text"]
    assert 20 <= made["parts"][-1]["tokens"] <= 40
    story = asked(page, LONG)["story"]
    assert story == {
        "memory": "A story for children.",
        "summary": "They had a lot of fun.",
        "note": {"text": "A storm comes up.", "depth": 40},
    }
    expect(panel(page)).to_contain_text(f"{made['cut_tokens']} tokens before that are cut")


def test_a_late_refusal_does_not_take_the_place_of_a_newer_answer(page: Page) -> None:
    compose(page, "Mia the cat saw a door.")
    keys = entry(page, name="bad", text="A cat.").get_by_label(LABELS["keys"], exact=True)
    expect(panel(page).locator(".entry summary small")).to_have_text(
        ["not there: none of its keys was found"]
    )
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "/(cat/" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/prompt", hold)
    with page.expect_request(lambda request: "/(cat/" in (request.post_data or "")):
        keys.fill("/(cat/")
    keys.fill("/(cat)/")
    expect(parts(page)).to_have_count(2)
    with page.expect_response(lambda response: response.request == held[0].request) as answer:
        held[0].continue_()
    assert answer.value.status == 400
    page.wait_for_timeout(DRAWN_MS)
    expect(panel(page).get_by_role("alert")).to_have_count(0)


def test_a_late_start_does_not_take_the_place_of_a_newer_answer(page: Page) -> None:
    panel(page)
    compose(page, "Mia the cat saw a door.")
    held: list[Route] = []
    page.route("**/v1/events", lambda route: held.append(route), times=1)
    page.keyboard.press("Control+Enter")
    panel(page).get_by_label("Memory").fill("A story for children.")
    expect(parts(page).first).to_contain_text("Memory")
    held[0].continue_()
    over(page, 4)
    expect(parts(page).first).to_contain_text("Memory")


def test_the_exact_prompt_is_the_servers(page: Page) -> None:
    compose(page, LONG)
    panel(page).get_by_label("Memory").fill("A story for children.")
    expect(parts(page).first).to_contain_text("Memory")
    with page.expect_response("**/v1/prompt") as answer:
        panel(page).get_by_role("button", name="The exact prompt").click()
    expect(page.get_by_label("Prompt", exact=True)).to_have_text(
        answer.value.json()["prompt"], use_inner_text=False
    )


def test_each_entry_of_the_lore_says_why_it_is_there_or_not(page: Page) -> None:
    compose(page, "Mia the cat saw a door. She went in.")
    for name, fields in {
        "found": {"keys": "dog\nCAT"},
        "expression": {"keys": "/d[aeo]+r/"},
        "part of a word": {"keys": "doo"},
        "second": {"keys": "cat", "also": "mouse"},
        "second found": {"keys": "cat", "also": "mouse\nMia"},
        "too far back": {"keys": "Mia", "search": "10"},
        "too long": {"keys": "cat", "order": "1"},
    }.items():
        text = "One word. " * 400 if name == "too long" else f"This is {name}."
        entry(page, name=name, **fields, text=text)
        page.locator(".entry").last.locator("summary").click()
    entry(page, name="always", text="It is always there.")
    page.locator(".entry").last.get_by_label("always there").check()
    whys = page.locator(".entry summary small")
    expect(whys).to_have_text(
        [
            "there: “CAT” was found",
            "there: “/d[aeo]+r/” was found",
            "not there: none of its keys was found",
            "not there: no second key was found",
            "there: “cat” was found",
            "not there: none of its keys was found",
            "not there: no tokens are left for it",
            "always there",
        ]
    )
    body = asked(page, "Mia the cat saw a door. She went in.")["story"]
    assert [one["name"] for one in body["lore"]][:2] == ["found", "expression"]
    assert body["lore"][0]["keys"] == ["dog", "CAT"]
    assert body["lore"][3]["also"] == ["mouse"]
    assert body["lore"][5]["search"] == 10
    assert body["lore"][6]["order"] == 1
    assert body["lore"][7]["always"] is True


def test_the_budgets_of_lore_are_the_writers(page: Page) -> None:
    compose(page, "Mia the cat saw a door.")
    entry(page, name="long", keys="cat", budget="8", text="One small word. " * 30)
    panel(page).get_by_label("Tokens of all lore").fill("50")
    panel(page).get_by_label("Characters to search").fill("300")
    page.keyboard.press("Tab")
    story = asked(page, "Mia the cat saw a door.")["story"]
    assert (story["budget"], story["search"], story["lore"][0]["budget"]) == (50, 300, 8)
    expect(parts(page).filter(has_text="Lore: long")).to_contain_text("9 tokens")  # with its line break


def test_an_expression_with_a_fault_is_named(page: Page) -> None:
    compose(page, "Mia the cat saw a door.")
    added = entry(page, name="bad", keys="/(cat/", text="A cat.")
    expect(panel(page).get_by_role("alert")).to_contain_text("story.lore")
    added.get_by_label(LABELS["keys"], exact=True).fill("/(cat)/")
    expect(panel(page).get_by_role("alert")).to_have_count(0)
    added.get_by_role("button", name="Remove").click()
    expect(page.locator(".entry")).to_have_count(0)


def test_an_entry_comes_by_its_meaning_and_says_so(browser: Browser, tmp_path: Path) -> None:
    """The encoder's weights are random, so only texts that are alike are near."""
    write_encoder(tmp_path / "encoder.gguf", "mean")
    models = {"tale": (CHECKOUT / "models/storyteller.gguf", True), "mini": ("encoder.gguf", False)}
    tables = [
        f"[models.{name}]\npath = '{path}'\npreload = {str(loaded).lower()}\n"
        for name, (path, loaded) in models.items()
    ]
    (tmp_path / "srb.toml").write_text("".join(tables) + f"ctx = {CONTEXT}\n")
    text = "Mia the cat saw a door."
    with (
        serving("--config", str(tmp_path / "srb.toml"), "--", "-t", "1") as server,
        visiting(browser, server.url) as [page],
    ):
        compose(page, text)
        added = entry(page, name="alike", text=text, meaning="95")
        added.get_by_label(LABELS["meaning"], exact=True).press("Tab")
        expect(panel(page).get_by_role("alert")).to_contain_text("no embedding model is loaded")
        assert server.json("POST", "/v1/embeddings", {"model": "mini", "input": "x"})[0] == 200
        added = entry(page, name="other", text="Ten cold ships sailed north.", meaning="95")
        added.get_by_label(LABELS["meaning"], exact=True).press("Tab")
        whys = page.locator(".entry summary small")
        expect(whys).to_have_text(
            [
                "there: 100 % near in meaning",
                re.compile(r"none of its keys was found, -?\d+ % near in meaning"),
            ]
        )
        expect(panel(page).get_by_role("alert")).to_have_count(0)
        assert asked(page, text)["story"]["lore"][0]["meaning"] == 0.95


def test_the_parts_stay_with_the_story(page: Page) -> None:
    compose(page, "Mia the cat saw a door.")
    panel(page).get_by_label("Memory").fill("A story for children.")
    entry(page, name="cat", keys="cat", text="A grey cat.")
    page.reload()
    expect(panel(page).get_by_label("Memory")).to_have_value("A story for children.")
    expect(page.locator(".entry")).to_have_count(1)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New story").click()
    expect(panel(page).get_by_label("Memory")).to_have_value("")
    expect(page.locator(".entry")).to_have_count(0)


def test_choices_in_a_long_story_compute_little(page: Page) -> None:
    """But for the requests whose cut moves, at most the note's depth and 64 tokens are computed."""
    settings(page, max_tokens=12, values={"ignore_eos": True})
    compose(page, LONG)
    panel(page).get_by_label("Author's note").first.fill("A storm comes up.")
    panel(page).get_by_label("Tokens of the text behind it").fill("40")
    text, cuts, many = LONG, [], []
    ask(page, LONG)
    for _ in range(8):
        before = shown(page)
        with page.expect_response("**/v1/events") as answer:
            page.keyboard.press("Alt+1")
        text = value(page, text)
        next_over(page, before)
        start = json.loads(answer.value.text().split("data: ")[1].split("\n")[0])
        cuts.append(start["story"]["begins"])
        many.append(computed(page) > 40 + 64)
    moved = sum(before != after for before, after in pairwise(cuts))
    assert sum(many) <= moved + 1


def test_in_a_pause_the_cut_prompt_is_computed(page: Page) -> None:
    with page.expect_response("**/v1/prefix") as answer:
        compose(page, LONG)
    assert answer.value.ok
    assert answer.value.request.post_data_json["prompt"] == LONG
    page.keyboard.press("Control+Enter")
    over(page, 4)
    assert computed(page) <= 1


def test_without_a_chat_template_no_summary_is_drafted(page: Page) -> None:
    compose(page, LONG)
    expect(panel(page)).to_contain_text("tokens before that are cut")
    expect(page.get_by_role("button", name="Draft it")).to_have_count(0)


def test_a_draft_of_the_summary_is_edited_before_it_is_used(browser: Browser) -> None:
    with (
        serving("--", "-t", "1", "--chat-template", "chatml") as server,
        visiting(browser, server.url) as [page],
    ):
        compose(page, "Tom had a dog.")
        expect(panel(page)).to_contain_text("All of the text is read")
        expect(page.get_by_role("button", name="Draft it")).to_have_count(0)
        compose(page, LONG)
        with page.expect_request("**/v1/events") as sent:
            page.get_by_role("button", name="Draft it").click()
        [message] = sent.value.post_data_json["messages"]
        assert "On day 1" in message["content"]
        assert "On day 199 " not in message["content"], "only what is cut is summarised"
        use = page.get_by_role("button", name="Use it")
        expect(use).to_be_enabled()
        draft = page.get_by_label("Draft of the summary")
        assert draft.input_value()
        page.get_by_role("button", name="Background", exact=True).click()
        expect(draft).to_have_count(0)
        panel(page)
        expect(draft).not_to_have_value("")
        expect(page.get_by_label("Summary", exact=True)).to_have_value("")
        draft.fill("They played outside.")
        use.click()
        expect(page.get_by_label("Summary", exact=True)).to_have_value("They played outside.")
        expect(parts(page).filter(has_text="Summary")).to_have_count(1)


def test_a_chat_has_no_background(page: Page) -> None:
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New chat").click()
    expect(page.get_by_role("button", name="Background", exact=True)).to_have_count(0)
    expect(cards(page)).to_have_count(0)


def test_the_parts_are_in_the_export(page: Page, tmp_path: Path) -> None:
    compose(page, "Mia the cat saw a door.")
    panel(page).get_by_label("Memory").fill("A story for children.")
    panel(page).get_by_label("Author's note").first.fill("A storm comes up.")
    panel(page).get_by_label("Tokens of the text behind it").fill("40")
    entry(page, name="cat", keys="cat", order="7", text="A grey cat.")
    sent = asked(page, "Mia the cat saw a door.")["story"]
    page.get_by_role("button", name="Stories").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Export JSON").click()
    file = tmp_path / "story.json"
    download.value.save_as(file)
    page.get_by_role("button", name="New story").click()
    expect(editor(page)).to_have_value("")
    page.get_by_label("File to import").set_input_files(file)
    assert value(page, "").startswith("Mia")
    assert asked(page, "Mia the cat saw a door.")["story"] == sent
