"""A server of several models: the writer chooses one for each story, and sees which are loaded."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from llama_srb.bundled import CHECKOUT
from tests.studio.test_accessible import faults
from tests.support.browser import visiting
from tests.support.hands import compose, editor, into
from tests.support.models import write_adapter, write_model
from tests.support.served import key_file
from tests.support.serving import LASTING, Server, serving
from tests.support.several import tables
from tests.support.steps import LONG, OPENING, ask, asked, cards, choose, over, settings
from tests.support.waiting import PATIENCE

Visit = Callable[[str], Page]

FEW: dict[str, Any] = {"max_tokens": 5, "next": False}
PAUSE_MS = 2500  # longer than the pause after which the page sends a prefix
SLOW = ["--load-seconds", "4"]
BAD = ["--exit-while-loading", "3", "--last-words", "'the weights are torn'"]


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Real engines: tale, which is the default, poem with defaults of its own, and small with an adapter."""
    folder = tmp_path_factory.mktemp("several")
    write_model(folder / "small.gguf", "qwen3")
    write_adapter(folder / "pirate.gguf", "qwen3", 0)
    model, flags = f"{CHECKOUT}/models/storyteller.gguf", json.dumps(["-t", "1", *LASTING])
    (folder / "srb.toml").write_text(f"""
        default_model = "tale"
        [models.poem]
        path = "{model}"
        aliases = ["gpt"]
        ctx = 4096
        sampling = {{ temperature = 0.3 }}
        [models.tale]
        path = "{model}"
        preload = true
        ctx = 16384
        engine_args = {flags}
        [models.small]
        path = "small.gguf"
        ctx = 2048
        [models.small.adapters]
        pirate = "pirate.gguf"
        """)
    with serving("--config", str(folder / "srb.toml")) as server:
        yield server


@pytest.fixture
def page(several: Server, visit: Visit) -> Page:
    page = visit(several.url)
    settings(page, **FEW)
    return page


def panel(page: Page, name: str = "Settings") -> None:
    """Opens a panel."""
    button = page.get_by_role("button", name=name, exact=True)
    if button.get_attribute("aria-pressed") != "true":
        button.click()


def control(page: Page) -> Locator:
    panel(page)
    return page.get_by_label("Model")


def look(page: Page) -> None:
    """Moves the focus to the control, which refreshes the states."""
    into(page)
    control(page).focus()


def story(page: Page, name: str) -> None:
    """Opens the story of this name."""
    panel(page, "Stories")
    page.locator(".panel .list button").filter(has_text=name).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(name)


def state(server: Server, name: str) -> str:
    models = server.json("GET", "/v1/models")[1]["data"]
    (found,) = (one["status"]["value"] for one in models if one["id"] == name)
    return str(found)


def unload(server: Server, name: str) -> None:
    """Unloads a model, after the prompt that the page may prefill just now."""
    until = time.monotonic() + PATIENCE
    while (status := server.call("POST", f"/v1/models/{name}/unload")[0]) == 409:
        assert time.monotonic() < until
        time.sleep(0.05)
    assert status == 200


def generated(server: Server, name: str) -> int:
    """The tokens that a model has generated."""
    return int(server.json("GET", "/v1/stats")[1]["models"][name].get("completion_tokens", 0))


def alert(page: Page, text: str) -> Locator:
    return page.get_by_role("alert").filter(has_text=text)


# The choice


def test_the_names_are_listed_with_their_states(page: Page, several: Server) -> None:
    unload(several, "poem")
    options = control(page).locator("option")
    expect(options).to_have_text(
        [
            "the server's default (tale)",
            "poem · not loaded",
            "tale · loaded",
            re.compile("small · (not )?loaded"),
            re.compile("pirate · adapter of small · (not )?loaded"),
        ]
    )
    expect(control(page)).to_have_value("")
    several.call("POST", "/v1/models/poem/load")
    control(page).focus()
    expect(options.nth(1)).to_have_text("poem · loaded")


def test_a_model_that_was_loading_is_read_until_it_is_loaded(page: Page, several: Server) -> None:
    listed = several.json("GET", "/v1/models")[1]
    listed["data"][0]["status"]["value"] = "loading"
    page.route("**/v1/models", lambda route: route.fulfill(json=listed))
    control(page).focus()
    first = control(page).locator("option").nth(1)
    expect(first).to_have_text("poem · loading")
    page.unroute("**/v1/models")
    expect(first).to_have_text(re.compile("poem · (not )?loaded"))


def test_the_choice_reaches_the_request_and_stays_with_the_story(page: Page, several: Server) -> None:
    status = page.locator(".status")
    assert "model" not in asked(page)
    over(page, 4)
    expect(status).to_contain_text(re.compile("tale.* of 16384 cells"))
    story_of_tale = page.get_by_role("heading", level=1).text_content()
    panel(page, "Stories")
    page.get_by_role("button", name="New story").click()
    unload(several, "poem")
    control(page).select_option("poem")
    page.reload()
    expect(control(page)).to_have_value("poem")
    expect(status).to_contain_text("poem")
    expect(page.get_by_label("Creativity (temperature)")).to_have_attribute("placeholder", "0.3")
    before = generated(several, "poem")
    assert asked(page, "A frog sat on a stone")["model"] == "poem"
    over(page, 4)
    assert generated(several, "poem") > before
    expect(status).to_contain_text(re.compile("poem.* of 4096 cells"))
    expect(control(page).locator("option").nth(1)).to_have_text("poem · loaded")
    page.reload()
    expect(control(page)).to_have_value("poem")
    expect(page.get_by_label("Creativity (temperature)")).to_have_attribute("placeholder", "0.3")
    story(page, str(story_of_tale))
    expect(control(page)).to_have_value("")
    expect(page.get_by_label("Creativity (temperature)")).to_have_attribute("placeholder", "0.8")
    assert "model" not in asked(page, "An owl woke up")
    over(page, 4)
    story(page, "A frog sat on a stone")
    expect(control(page)).to_have_value("poem")
    control(page).select_option("")
    assert "model" not in asked(page, "A toad sat on a stone")


def test_a_choice_in_another_tab_comes_with_the_story(browser: Browser, several: Server) -> None:
    with visiting(browser, several.url, pages=2) as [writer, reader]:
        temperature = reader.get_by_label("Creativity (temperature)")
        panel(reader)
        expect(temperature).to_have_attribute("placeholder", "0.8")
        control(writer).select_option("poem")
        reader.get_by_role("button", name="Edit here").click()
        expect(control(reader)).to_have_value("poem")
        expect(temperature).to_have_attribute("placeholder", "0.3")


def test_a_chat_has_its_choice_too(page: Page) -> None:
    panel(page, "Stories")
    page.get_by_role("button", name="New chat").click()
    control(page).select_option("poem")
    with page.expect_request("**/v1/events") as sent:
        page.get_by_label("Your message").fill("Who are you?")
        page.get_by_label("Your message").press("Enter")
    assert sent.value.post_data_json["model"] == "poem"
    over(page, 4)


def test_the_choice_is_in_the_exported_file(page: Page, tmp_path: Path) -> None:
    control(page).select_option("pirate")
    ask(page, "A pirate came")
    panel(page, "Stories")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export JSON").click()
    file = tmp_path / "pirate.json"
    download.value.save_as(file)
    data = json.loads(file.read_text())
    assert data["story"]["model"] == "pirate"
    for written, wanted in (("gpt", "poem"), ({"id": "poem"}, "")):  # an alias; what is no name
        file.write_text(json.dumps({**data, "story": {**data["story"], "model": written}}))
        panel(page, "Stories")
        page.locator("input[type=file]").set_input_files(file)
        expect(control(page)).to_have_value(wanted)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_the_keyboard_chooses(page: Page) -> None:
    page.get_by_role("button", name="Settings").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Model")).to_be_visible()
    while not page.get_by_label("Model").evaluate("field => field === document.activeElement"):
        page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Model")).to_have_value("poem")
    page.keyboard.press("Escape")
    expect(editor(page)).to_be_focused()
    page.keyboard.type(OPENING)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["model"] == "poem"
    over(page, 4)


# Requests of two models in one story


def test_only_candidates_of_the_same_model_are_continued_by_their_id(page: Page) -> None:
    ask(page)
    text = choose(page, 1)
    control(page).select_option("poem")
    body = asked(page, text + " and then")
    assert ("continue" in body, body["prompt"]) == (False, text + " and then")
    over(page, 4)
    longer = choose(page, 1, text + " and then")
    control(page).select_option("tale")
    body = asked(page, longer + ", but")
    assert "continue" in body
    assert body["prompt"] == longer.removeprefix(text) + ", but"
    over(page, 4)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_candidate_is_continued_by_its_text_after_its_model_was_unloaded(
    page: Page, several: Server
) -> None:
    control(page).select_option("poem")
    ask(page)
    text = choose(page, 1)
    unload(several, "poem")
    assert "continue" in asked(page, text + " and")
    over(page, 4)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_an_adapter_continues_candidates_of_its_model(page: Page) -> None:
    control(page).select_option("small")
    ask(page)
    text = choose(page, 1)
    control(page).select_option("pirate")
    body = asked(page, text + " and")
    assert (body["model"], "continue" in body) == ("pirate", True)
    over(page, 4)
    expect(page.get_by_role("alert")).to_have_count(0)


def test_more_after_a_new_choice_is_a_request_of_its_own(page: Page) -> None:
    control(page).select_option("tale")
    settings(page, **LONG)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".card .text").filter(has_text=re.compile(".{5}"))).to_have_count(4)
    control(page).select_option("poem")
    with page.expect_request("**/v1/events") as sent:
        page.locator("button.more").click()
    assert sent.value.post_data_json["model"] == "poem"
    expect(cards(page)).to_have_count(8)
    page.keyboard.press("Escape")
    expect(page.locator(".card.running")).to_have_count(0)


def test_a_prefix_names_the_model_and_loads_none(page: Page, several: Server) -> None:
    several.call("POST", "/v1/models/poem/load")
    control(page).select_option("poem")
    look(page)
    expect(control(page).locator("option").nth(1)).to_have_text("poem · loaded")
    with page.expect_request("**/v1/prefix") as sent:
        compose(page, "A cat")
    assert sent.value.post_data_json == {"prompt": "A cat", "model": "poem"}
    sent.value.response()
    unload(several, "poem")
    look(page)
    expect(control(page).locator("option").nth(1)).to_have_text("poem · not loaded")
    compose(page, "A cat and a dog")
    page.wait_for_timeout(PAUSE_MS)
    assert state(several, "poem") == "unloaded"


# Models that leave, load and fail, with fake engines


def write(folder: Path, *names: str, **models: dict[str, Any]) -> Path:
    """The server's file: models of these names, beside those with settings; the first one is preloaded."""
    quick = {"flags": ["--endless"]}
    return tables(folder, {name: models.get(name, quick) for name in (*names, *models)})


def test_a_story_whose_model_left_says_so_and_keeps_its_choice(visit: Visit, tmp_path: Path) -> None:
    with serving("--config", str(write(tmp_path, "tale", "poem", "song"))) as server:
        page, port = visit(server.url), server.url.rsplit(":", 1)[1]
        settings(page, **FEW)
        control(page).select_option("poem")
        ask(page)
    told = alert(page, "This story's model, poem, is not served any more; tale answers until")
    for left in (("tale", "song"), ("tale",)):
        with serving("--config", str(write(tmp_path, *left)), "--port", port):
            look(page)
            expect(told).to_be_visible()
            page.reload()
            expect(told).to_be_visible()
            expect(control(page)).to_have_value("poem")
            assert "model" not in asked(page, f"{OPENING} {len(left)}")
            over(page, 4)
        with serving("--config", str(write(tmp_path, "tale", "poem", "song")), "--port", port):
            look(page)
            expect(told).to_have_count(0)
            expect(control(page)).to_have_value("poem")
            assert asked(page, f"{OPENING} and {len(left)}")["model"] == "poem"
            over(page, 4)
    with serving("--config", str(write(tmp_path, "tale")), "--port", port):
        look(page)
        expect(told).to_be_visible()
        control(page).select_option("tale")
        expect(told).to_have_count(0)
        expect(page.get_by_label("Model")).to_have_count(0)
        page.reload()
        expect(page.locator(".status")).to_contain_text("tale")
        expect(told).to_have_count(0)


def test_cards_show_how_far_the_load_is(visit: Visit, tmp_path: Path) -> None:
    endless = {"flags": [*SLOW, "--endless"]}
    with serving("--config", str(write(tmp_path, "tale", poem=endless))) as server:
        page = visit(server.url)
        settings(page, **LONG)
        control(page).select_option("poem")
        compose(page, OPENING)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".card").filter(has_text="Loading poem: 0 %")).to_have_count(4)
        expect(page.get_by_role("status").filter(has_text="loading poem")).to_have_count(1)
        expect(page.get_by_label("Model").locator("option").nth(2)).to_have_text("poem · loading")
        expect(page.locator(".card").filter(has_text="Loading poem: 50 %")).to_have_count(4)
        assert faults(page) == []
        expect(page.locator(".card").filter(has_text="Loading")).to_have_count(0)
        expect(page.locator(".card.running")).to_have_count(4)
        expect(page.get_by_label("Model").locator("option").nth(2)).to_have_text("poem · loaded")


def test_a_load_can_be_stopped(visit: Visit, tmp_path: Path) -> None:
    with serving("--config", str(write(tmp_path, "tale", poem={"flags": SLOW}))) as server:
        page = visit(server.url)
        control(page).select_option("poem")
        compose(page, OPENING)
        page.keyboard.press("Control+Enter")
        expect(page.locator(".card").filter(has_text="Loading poem")).to_have_count(4)
        page.keyboard.press("Escape")
        expect(cards(page)).to_have_count(0)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_load_that_fails_shows_the_reason(visit: Visit, tmp_path: Path) -> None:
    with serving("--config", str(write(tmp_path, "tale", torn={"flags": BAD}))) as server:
        page = visit(server.url)
        settings(page, **FEW)
        control(page).select_option("torn")
        compose(page, OPENING)
        page.keyboard.press("Control+Enter")
        expect(alert(page, "the weights are torn")).to_be_visible()
        expect(cards(page)).to_have_count(0)
        expect(editor(page)).to_have_value(OPENING)
        expect(page.get_by_label("Model").locator("option").nth(2)).to_have_text("torn · failed to load")
        expect(page.locator(".panel .bad")).to_contain_text("torn failed to load")
        expect(page.locator(".panel .bad")).to_contain_text("the weights are torn")
        assert faults(page) == []
        control(page).select_option("tale")
        ask(page)
        expect(page.get_by_role("alert")).to_have_count(0)


def test_a_key_sees_only_the_models_that_it_may_use(visit: Visit, tmp_path: Path) -> None:
    keys = key_file(
        tmp_path / "keys",
        {"name": "two", "models": ["song", "poem"]},
        {"name": "one", "models": ["poem"]},
    )
    config = write(tmp_path, "tale", "poem", "song")
    with serving("--config", str(config), "--api-key-file", str(keys)) as server:
        page = visit(server.url)
        page.evaluate("localStorage.setItem('studio.key', 'two')")
        settings(page, **FEW)
        page.reload()
        expect(control(page).locator("option")).to_have_text(
            ["the server's default (poem)", "poem · not loaded", "song · not loaded"]
        )
        ask(page)
        expect(control(page).locator("option").nth(1)).to_have_text("poem · loaded")
        page.evaluate("localStorage.setItem('studio.key', 'one')")
        page.reload()
        expect(page.locator(".status")).to_contain_text("poem")
        panel(page)
        expect(page.get_by_label("Creativity (temperature)")).to_be_visible()
        expect(page.get_by_label("Model")).to_have_count(0)


def test_axe_finds_nothing_serious(page: Page) -> None:
    control(page).select_option("poem")
    assert faults(page) == []
    page.route("**/v1/models", without_poem)
    page.reload()
    expect(alert(page, "poem, is not served any more")).to_be_visible()
    expect(control(page)).to_have_value("poem")
    assert faults(page) == []


def without_poem(route: Any) -> None:
    answer = route.fetch()
    listed = answer.json()
    data = [one for one in listed["data"] if one["id"] != "poem"]
    route.fulfill(response=answer, json={**listed, "data": data})
