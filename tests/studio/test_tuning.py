"""The page of tasks: a draft is edited, tried beside the configured task, looked into, exported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.studio.test_accessible import faults
from tests.studio.tuning import (
    CONTROL,
    FACT,
    PROMPT,
    SIDES,
    TASKS,
    alert,
    chooser,
    ended,
    run,
    side,
    texts,
    tuning,
    view,
)
from tests.support.hands import editor
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.serving import LASTING, Server, serving
from tests.support.steps import OPENING, ask, cards, settings

Visit = Callable[[str], Page]


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file = tmp_path_factory.mktemp("tasks") / "srb.toml"
    file.write_text(TASKS)
    with serving("--config", str(file), "--", "-t", "1", *LASTING) as server:
        path = "/v1/memories/tales/documents/keeper.txt?author=Ann"
        assert server.call("PUT", path, FACT.encode(), "text/plain")[0] == 201
        yield server


@pytest.fixture
def page(tasks: Server, visit: Visit) -> Page:
    page = visit(tasks.url)
    tuning(page)
    return page


# Who has the page


def test_a_server_without_tasks_has_no_page_of_them(page: Page, server: Server, visit: Visit) -> None:
    """And the browser loads none of its code until it is opened."""
    loaded: list[str] = []
    other = visit(server.url)
    other.on("request", lambda request: loaded.append(request.url))
    other.reload()
    expect(other.locator(".status")).to_contain_text("storyteller")
    expect(other.get_by_role("button", name="Tasks", exact=True)).to_have_count(0)
    page.on("request", lambda request: loaded.append(request.url))
    page.reload()
    expect(page.get_by_role("button", name="Tasks", exact=True)).to_be_visible()
    assert [url for url in loaded if "tuning.js" in url or "trials.js" in url] == []


def test_only_an_admin_has_the_page(visit: Visit, tmp_path: Path) -> None:
    (tmp_path / "srb.toml").write_text('[tasks.story]\nprefix = "x"\n')
    keys = key_file(tmp_path / "keys", {"name": "user"}, {"name": "boss", "scopes": ["admin"]})
    with serving("--config", str(tmp_path / "srb.toml"), "--api-key-file", str(keys)) as server:
        page = visit(server.url)
        for key, count in (("user", 0), ("boss", 1)):
            page.evaluate("key => localStorage.setItem('studio.key', key)", key)
            page.reload()
            expect(page.locator(".status")).to_contain_text("storyteller")
            page.get_by_role("button", name="Settings").click()
            expect(page.get_by_label("Model").locator("option")).to_contain_text(
                ["story · task of storyteller"]
            )
            expect(page.get_by_role("button", name="Tasks", exact=True)).to_have_count(count)


# Trials


def test_an_edited_task_runs_beside_the_configured_one(exact: Server, visit: Visit) -> None:
    page = visit(exact.url)
    tuning(page)
    run(page)
    before = texts(page, "As configured")
    assert (len(before), texts(page, "Edited")) == (3, before), "the draft is the task, with the same seed"
    page.get_by_label("Postfix").fill(" But the dog")
    page.get_by_role("spinbutton", name="Candidates").fill("4")
    page.get_by_role("spinbutton", name="Candidates").press("Tab")
    expect(page.locator(".draft .edited")).to_have_count(2)
    run(page)
    assert texts(page, "As configured") == before
    assert len(texts(page, "Edited")) == 4
    assert not set(texts(page, "Edited")) & set(before)


def test_several_prompts_are_tried_one_after_the_other(page: Page) -> None:
    page.get_by_role("button", name="Add a prompt").click()
    page.get_by_label("Prompt 2", exact=True).fill("A frog sat on a stone.")
    run(page)
    ended(page, 2)
    assert texts(page, "Edited", 1) != texts(page, "Edited", 2)
    page.get_by_role("button", name="Remove prompt 1").click()
    expect(page.get_by_label("Prompt 1", exact=True)).to_have_value("A frog sat on a stone.")


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop_ends_both_and_keeps_their_texts(page: Page, tasks: Server, how: str) -> None:
    tuning(page, "endless")
    page.get_by_label("Prompt 1", exact=True).fill(PROMPT)
    page.get_by_role("button", name="Run both").click()
    for name in SIDES:
        expect(
            side(page, name).locator(".card.running .text").filter(has_text=re.compile(".{20}"))
        ).to_have_count(2)
    if how == "button":
        page.get_by_role("button", name="Stop", exact=True).click()
    else:
        page.keyboard.press("Escape")
    ended(page)
    for name in SIDES:
        expect(side(page, name)).to_contain_text("stopped")
        assert all(len(text) >= 20 for text in texts(page, name))
    page.wait_for_function(
        "async () => (await (await fetch('v1/stats')).json()).requests_open === 0"
    )  # the server has noticed it
    expect(chooser(page)).to_be_visible()


def test_a_second_answer_and_a_chat_are_tried_too(page: Page) -> None:
    tuning(page, "judge")
    expect(page.get_by_label("Bias prompt")).to_have_value(" It was")
    choices = page.get_by_role("textbox", name="List")
    expect(choices).to_have_value(" good\n bad")
    choices.fill(" big\n small")
    page.get_by_label("as a chat").check()
    with page.expect_request("**/v1/trials") as sent:
        run(page, "The day")
    assert sent.value.post_data_json["messages"] == [{"role": "user", "content": "The day"}]
    assert {text.strip() for text in texts(page, "As configured")} <= {"good", "bad"}
    assert {text.strip() for text in texts(page, "Edited")} <= {"big", "small"}


def test_what_the_server_refuses_is_said(page: Page) -> None:
    page.get_by_label("Other fields, as TOML").fill("temperatur = 1")
    run(page)
    expect(alert(page, "tasks.story.temperatur in toml is not a field of a task")).to_be_visible()
    assert (len(texts(page, "As configured")), texts(page, "Edited")) == (3, [])
    view(page, "TOML")
    expect(alert(page, "did you mean temperature?")).to_be_visible()
    view(page, "Compare")
    page.get_by_label("Other fields, as TOML").fill("")
    page.get_by_role("combobox", name="Output format").select_option("regex")
    page.get_by_role("textbox", name="Regular expression").fill("a[z-")
    run(page)
    expect(page.get_by_role("textbox", name="Regular expression")).to_have_attribute("aria-invalid", "true")


def test_a_draft_is_kept_until_it_is_reset(page: Page) -> None:
    page.get_by_label("Prelude").fill("Two words.")
    page.get_by_label("Creativity (temperature)").fill("0.2")
    page.get_by_label("Prompt 1", exact=True).fill(PROMPT)
    page.reload()
    tuning(page)
    expect(page.get_by_label("Prelude")).to_have_value("Two words.")
    expect(page.get_by_label("Creativity (temperature)")).to_have_value("0.2")
    expect(page.get_by_label("Prompt 1", exact=True)).to_have_value(PROMPT)
    tuning(page, "judge")
    expect(page.get_by_label("Prelude")).to_have_value("")
    tuning(page)
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_label("Prelude")).to_have_value(re.compile("^Once upon a time"))
    expect(page.locator(".draft .edited")).to_have_count(0)


# The exact prompt, and the memory


def test_the_exact_prompt_shows_tokens_and_marks_control_tokens(page: Page) -> None:
    page.get_by_label("Prompt 1", exact=True).fill(CONTROL)
    page.get_by_label("Prefix").fill(CONTROL)
    view(page, "Prompt")
    edited = page.locator(".beside .edited")
    parts = ["begin", "prelude", "prefix", "prompt", "postfix"]
    expect(edited.locator("dt")).to_have_text(parts)
    expect(edited.locator(".control")).to_have_count(2)
    for kind, marked in (("begin", 1), ("prefix", 1), ("prompt", 0)):
        part = edited.locator("dd").nth(parts.index(kind))
        expect(part.locator(".control")).to_have_count(marked)
    expect(edited.locator("dd").nth(3)).to_contain_text("<")
    expect(page.locator(".beside .configured dd").nth(2)).to_contain_text("⏎")
    page.get_by_label("Prelude").fill("A dog.")
    expect(edited.locator("dd").nth(1)).to_have_text("A␣dog.")


def test_the_memory_is_searched_and_recalled_from(page: Page, tasks: Server) -> None:
    tuning(page, "recalls")
    page.get_by_label("Prompt 1", exact=True).fill("Where does the keeper hide his key?")
    view(page, "Prompt")
    expect(page.locator(".beside .edited dd").nth(1)).to_contain_text("lighthouse")
    view(page, "Memory")
    expect(page.get_by_label("Search for")).to_have_value("Where does the keeper hide his key?")
    page.get_by_role("button", name="Search").click()
    expect(page.locator(".found li")).to_have_count(1)
    expect(page.locator(".found li")).to_contain_text(FACT)
    expect(page.locator(".found li")).to_contain_text("keeper.txt · author Ann")
    page.get_by_label("pre_filter, as JSON").fill('{"metadata": {"author": "Bob"}}')
    page.get_by_role("button", name="Search").click()
    expect(page.get_by_text("Nothing was found.")).to_be_visible()
    view(page, "Prompt")
    expect(page.locator(".beside .edited dt")).to_have_text(["begin", "prefix", "prompt"])
    view(page, "Compare")
    run(page)
    listed = tasks.json("GET", "/v1/memories/tales/documents")[1]["data"]
    assert [one["id"] for one in listed] == ["keeper.txt"], "no prompt of a trial is stored"


# By keyboard, on phones, in both colours


def test_the_keyboard_is_enough(page: Page) -> None:
    page.get_by_role("button", name="Tasks", exact=True).focus()
    page.keyboard.press("Enter")  # closes the page
    expect(editor(page)).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name", exact=True)).to_be_visible()
    for field in (chooser(page), page.get_by_label("Name", exact=True), page.get_by_label("Postfix")):
        while not field.evaluate("field => field === document.activeElement"):
            page.keyboard.press("Tab")
    page.keyboard.type(" and")
    page.keyboard.press("Control+Enter")
    ended(page)
    assert len(texts(page, "Edited")) == 3
    page.keyboard.press("Escape")
    expect(page.get_by_label("Name", exact=True)).to_have_count(0)
    expect(editor(page)).to_be_focused()


def test_the_keys_of_a_story_do_nothing_there(page: Page) -> None:
    page.keyboard.press("Escape")
    settings(page, max_tokens=4, next=False)
    ask(page)
    tuning(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Alt+1")
    page.keyboard.press("Escape")
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(4)


VIEWS = ("Compare", "Prompt", "Memory", "TOML")


@each_row("width", [375, 768, 1280, 2560])
def test_nothing_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    view(page, "Compare")
    if width < 1000:
        expect(page.get_by_label("Postfix")).to_be_hidden()
        view(page, "Edit")
    page.get_by_label("Postfix").fill(" But")
    if width < 1000:
        view(page, "Compare")
        expect(page.get_by_label("Postfix")).to_be_hidden()
    run(page)
    for name in VIEWS:
        view(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.locator(".tuning").evaluate("one => one.scrollWidth <= one.clientWidth")


def test_axe_finds_nothing_serious(page: Page) -> None:
    tuning(page, "recalls")
    page.get_by_label("Postfix").fill(" But")
    page.get_by_label("show every setting").check()
    run(page)
    for name in VIEWS:
        view(page, name)
        if name == "Memory":
            page.get_by_label("Search for").fill("the keeper")
            page.get_by_role("button", name="Search").click()
            expect(page.locator(".found li")).to_have_count(1)
        if name == "Prompt":
            expect(page.locator(".control")).not_to_have_count(0)
        assert faults(page) == []
