"""A change in the text moves what stands behind it: its colours, candidates and branches stay."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.studio.test_sharing import open_story, shared, stories
from tests.support.hands import click_behind, compose, double_click, drag_over, editor, go, into
from tests.support.serving import LASTING, Server, serving
from tests.support.steps import (
    ONE_LINE,
    OPENING,
    act,
    ask,
    cards,
    choose,
    drawn,
    over,
    paused,
    saved,
    settings,
    stand,
    texts,
)

WRITERS, MODELS = "The fox ran home.", " It rained, and the owl slept. Then the fox sang."
TEXT = WRITERS + MODELS
CANDIDATES = [" The end.", " Then it stopped."]


def node(text: str, source: str, *children: str) -> dict[str, Any]:
    return {"text": text, "source": source, "children": list(children), "state": "stop", "seen": True}


STORY = {
    "name": "The fox",
    "root": "r",
    "current": "a",
    "nodes": {
        "r": node(WRITERS, "user", "a"),
        "a": node(MODELS, "model", "c", "d"),
        **{id: node(text, "model") for id, text in zip("cd", CANDIDATES, strict=True)},
    },
}


def file_of(story: dict[str, Any], folder: Path, version: int = 1) -> Path:
    file = folder / "story.json"
    file.write_text(json.dumps({"format": "llama-srb studio", "version": version, "story": story}))
    return file


def bring_in(page: Page, file: Path) -> None:
    page.get_by_role("button", name="Stories", exact=True).click()
    page.get_by_label("File to import").set_input_files(file)


def opened(page: Page, folder: Path) -> None:
    settings(page, n=2, max_tokens=5, next=False, structure=ONE_LINE)
    bring_in(page, file_of(STORY, folder))
    expect(editor(page)).to_have_value(TEXT)
    page.keyboard.press("Escape")


def models(page: Page) -> list[str]:
    """What is coloured as the model's, part by part."""
    drawn(page)
    return page.locator(".origins .by-model").all_text_contents()


def share(text: str, of: str) -> str:
    count, all_of = (len("".join(one.split())) for one in (of, text))
    return f"by the model: {round(100 * count / all_of)} %"


PATH = """Promise.all(
    ["session", "tree"].map((name) => import(new URL(`studio/story/${name}.js`, document.baseURI))))
    .then(([{ session }, { pathTo }]) => pathTo(session.story).map(({ id, text }) => [id, text]))"""


def path(page: Page) -> list[tuple[str, str]]:
    """The pieces of the text, as ids and texts."""
    drawn(page)
    return [(id, text) for id, text in page.evaluate(PATH)]


def test_a_word_that_is_changed_early_leaves_colours_and_candidates_behind_it(
    page: Page, tmp_path: Path
) -> None:
    opened(page, tmp_path)
    last = path(page)[-1]
    expect(page.locator(".count")).to_have_text(f"14 words · {share(TEXT, MODELS)}")
    double_click(page, "fox")
    page.keyboard.type("wolf")
    assert models(page) == [MODELS], "before it is in the tree"
    paused(page)
    changed = TEXT.replace("fox", "wolf", 1)
    expect(editor(page)).to_have_value(changed)
    assert models(page) == [MODELS]
    assert path(page)[-1] == last
    stand(page, CANDIDATES)
    expect(page.locator(".count .share")).to_have_text(share(changed, MODELS))
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(TEXT)
    stand(page, CANDIDATES)
    page.keyboard.press("Control+Shift+Z")
    expect(editor(page)).to_have_value(changed)
    assert (models(page), path(page)[-1]) == ([MODELS], last)


def test_a_text_that_is_pasted_back_with_some_words_changed_stays_the_models(
    page: Page, tmp_path: Path
) -> None:
    opened(page, tmp_path)
    changed = TEXT.replace("fox", "wolf", 1).replace("sang", "wept")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.evaluate("text => navigator.clipboard.writeText(text)", changed)
    go(page, "Control+a")
    page.keyboard.press("Control+v")
    expect(editor(page)).to_have_value(changed)
    before, after = MODELS.split("sang")
    assert models(page) == [before, after]
    go(page, "Control+z")
    expect(editor(page)).to_have_value(TEXT)
    assert models(page) == [MODELS]


def test_going_to_the_old_words_takes_the_text_behind_along(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path)
    double_click(page, "fox")
    page.keyboard.type("wolf")
    paused(page)
    changed = TEXT.replace("fox", "wolf", 1)
    page.reload()
    expect(editor(page)).to_have_value(changed)
    page.get_by_role("button", name="Branches", exact=True).click()
    page.get_by_role("treeitem", name="fox", exact=True).click()
    expect(editor(page)).to_have_value(TEXT)
    assert models(page) == [MODELS]
    page.get_by_role("treeitem", name="wolf", exact=True).click()
    expect(editor(page)).to_have_value(changed)
    into(page)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(TEXT)
    assert models(page) == [MODELS]


def test_words_that_are_replaced_everywhere_are_the_writers_and_all_else_stays(
    page: Page, tmp_path: Path
) -> None:
    opened(page, tmp_path)
    page.get_by_role("button", name="Outline", exact=True).click()
    page.get_by_label("Find").fill("the")
    page.get_by_label("Replace with").fill("a")
    page.get_by_role("button", name="Replace all").click()
    changed = "a fox ran home. It rained, and a owl slept. an a fox sang."
    expect(editor(page)).to_have_value(changed)
    assert models(page) == [" It rained, and ", " owl slept. ", "n ", " fox sang."]
    stand(page, CANDIDATES)
    page.get_by_role("button", name="Undo", exact=True).click()
    expect(editor(page)).to_have_value(TEXT)
    assert "".join(models(page)) == MODELS


def test_a_passage_of_the_shelf_stays_its_writers(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path)
    act(page, "Keep")  # a candidate
    drag_over(page, "home. It rained")  # of which only the first word is the writer's
    page.get_by_role("button", name="Shelf", exact=True).click()
    page.get_by_role("button", name="Keep the selection").click()
    inserts = page.get_by_role("button", name="Insert", exact=True)
    expect(inserts).to_have_count(2)
    click_behind(page, "the owl slept.")
    inserts.last.click()
    inserts.first.click()
    begin, rest = MODELS.split(" Then")
    changed = f"{WRITERS}{begin} home. It rained{CANDIDATES[0]} Then{rest}"
    expect(editor(page)).to_have_value(changed)
    kept = f" It rained{CANDIDATES[0]} Then{rest}"
    assert models(page) == [begin, kept]
    for key, value in (("z", TEXT), ("Shift+Z", changed)):
        for _ in inserts.all():
            page.keyboard.press(f"Control+{key}")
        expect(editor(page)).to_have_value(value)
    assert models(page) == [begin, kept]
    saved(page)
    page.reload()
    expect(editor(page)).to_have_value(changed)
    assert models(page) == [begin, kept]


def test_a_choice_in_the_midst_of_the_text_leaves_what_is_behind_it(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path)
    click_behind(page, "rained")
    page.keyboard.press("Control+Enter")
    over(page, 2)
    behind = path(page)[-1]
    assert behind[1].startswith(", and the owl")
    first, second = texts(page)
    page.keyboard.press("Alt+1")
    begin, rest = TEXT.split("rained")
    expect(editor(page)).to_have_value(f"{begin}rained{first}{rest}")
    assert path(page)[-1] == behind
    assert "".join(models(page)) == f" It rained{first}{rest}"
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(TEXT)
    stand(page, [first, second])
    page.keyboard.press("Alt+2")
    expect(editor(page)).to_have_value(f"{begin}rained{second}{rest}")
    assert path(page)[-1] == behind


def test_a_request_names_a_candidate_only_behind_the_text_that_it_continued(page: Page) -> None:
    settings(page, n=2, max_tokens=5, next=False)
    ask(page, n=2)
    text = choose(page, 1)
    double_click(page, "fox")
    page.keyboard.type("hen")
    paused(page)
    for key, begin, names in (("Control+End", "hen", False), ("Control+z", "fox", True)):
        go(page, key)
        expect(editor(page)).to_have_value(text.replace("fox", begin, 1))
        page.keyboard.press("Control+End")
        with page.expect_request("**/v1/events") as sent:
            page.keyboard.press("Control+Enter")
        body = sent.value.post_data_json
        prompt = None if names else text.replace("fox", begin, 1)
        assert (body.get("prompt"), "continue" in body) == (prompt, names)
        over(page, 2)


# ---- other places that a story goes to -----------------------------------------------------------------


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps stories."""
    with serving("--stories", str(tmp_path_factory.mktemp("stories")), "--", "-t", "1", *LASTING) as server:
        yield server


NEWER = {**STORY, "name": "From later", "format": 2}
REFUSAL = "“From later” has the format 2, and this page knows formats up to 1"


def test_another_device_can_go_back_to_what_was_there_before_a_change(
    visit: Callable[..., Page], keeper: Server, tmp_path: Path
) -> None:
    phone = visit(keeper.url)
    opened(phone, tmp_path)
    double_click(phone, "fox")
    phone.keyboard.type("wolf")
    shared(phone)
    laptop = visit(keeper.url)
    open_story(laptop, "The fox")
    expect(editor(laptop)).to_have_value(TEXT.replace("fox", "wolf", 1))
    laptop.get_by_role("button", name="Branches", exact=True).click()
    laptop.get_by_role("treeitem", name="fox", exact=True).click()
    expect(editor(laptop)).to_have_value(TEXT)
    shared(laptop)
    phone.locator(".saved").click()
    expect(editor(phone)).to_have_value(TEXT)
    assert models(phone) == [MODELS]


def test_a_story_of_a_newer_format_on_the_server_stays_there_as_it_is(
    visit: Callable[..., Page], keeper: Server
) -> None:
    status, _, _ = keeper.call("PUT", "/v1/stories/later", NEWER, **{"If-None-Match": "*"})
    assert status in (200, 201)
    page = visit(keeper.url)
    compose(page, "Once")
    paused(page)
    page.locator(".saved").click()
    expect(page.locator(".saved")).to_have_attribute("title", re.compile(re.escape(REFUSAL)))
    page.get_by_role("button", name="Stories", exact=True).click()
    expect(page.locator(".panel .list button").filter(has_text="From later")).to_have_count(0)
    assert json.loads(keeper.call("GET", "/v1/stories/later")[2]) == NEWER
    assert "From later" in [one["name"] for one in stories(keeper)]


AGE = """new Promise((done) => {
    const open = indexedDB.open("llama-srb studio");
    open.onsuccess = () => {
        const work = open.result.transaction("stories", "readwrite");
        const all = work.objectStore("stories");
        all.getAll().onsuccess = ({ target }) => {
            for (const one of target.result)
                if (one.name === "The fox") all.put({ ...one, name: "From later", format: 2 });
        };
        work.oncomplete = () => { open.result.close(); done(); };
    };
})"""
STORED = """new Promise((done) => {
    const open = indexedDB.open("llama-srb studio");
    open.onsuccess = () => {
        const work = open.result.transaction(["stories", "nodes"]);
        const all = ["stories", "nodes"].map((name) => work.objectStore(name).getAll());
        work.oncomplete = () => {
            open.result.close();
            const [{ id, ...head }] = all[0].result.filter(({ format }) => format === 2);
            done(JSON.stringify([id, head, all[1].result.filter(({ story }) => story === id)]));
        };
    };
})"""


def test_a_story_of_a_newer_format_in_the_browser_is_not_opened_and_not_changed(
    page: Page, tmp_path: Path
) -> None:
    opened(page, tmp_path)
    saved(page)
    page.evaluate(AGE)
    before = page.evaluate(STORED)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text(REFUSAL)
    expect(editor(page)).to_have_value("")
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator(".panel .list button").filter(has_text="From later").click()
    expect(page.get_by_role("alert")).to_contain_text(REFUSAL)
    page.wait_for_timeout(1200)
    assert page.evaluate(STORED) == before


def test_a_file_of_a_newer_format_is_refused(page: Page, tmp_path: Path) -> None:
    compose(page, OPENING)
    bring_in(page, file_of(STORY, tmp_path, version=2))
    expect(page.get_by_role("alert")).to_contain_text("“story.json” has the format 2")
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(0)
