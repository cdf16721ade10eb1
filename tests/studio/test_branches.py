"""The tree of a long story: it is scrolled before it is zoomed, follows the current node, and is searched."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator, Page, Route, expect

from tests.studio.test_accessible import faults
from tests.support.hands import compose, editor, go
from tests.support.rows import each_row
from tests.support.steps import afresh, settings

NODES = 220
WIDE = 10  # siblings


def story(columns: int) -> dict[str, Any]:
    """A story of NODES nodes in so many columns: of each column one node goes on."""
    siblings = (NODES - 1) // columns
    nodes: dict[str, dict[str, Any]] = {"0.0": {"text": "The beginning.", "source": "user"}}
    parent = "0.0"
    for depth in range(1, columns + 1):
        children = [f"{depth}.{i}" for i in range(siblings)]
        for i, child in enumerate(children):
            text = f" Part {depth}.{i}: a fox and a heron walked on along the river."
            nodes[child] = {"text": text, "source": "model", "children": []}
        nodes[parent]["children"] = children
        parent = children[siblings // 2]
    return {"name": "Long", "root": "0.0", "current": parent, "nodes": nodes}


def opened(page: Page, folder: Path, columns: int) -> dict[str, Any]:
    """Imports a story and opens its tree."""
    made = story(columns)
    file = folder / "long.json"
    file.write_text(json.dumps({"format": "llama-srb studio", "version": 1, "story": made}))
    page.get_by_role("button", name="Stories").click()
    page.get_by_label("File to import").set_input_files(file)
    expect(editor(page)).to_have_value("".join(texts(made)))
    page.get_by_role("button", name="Branches").click()
    return made


def texts(made: dict[str, Any]) -> list[str]:
    """The texts on the way to the current node."""
    parents = {child: id for id, node in made["nodes"].items() for child in node.get("children", ())}
    path = [made["current"]]
    while path[-1] in parents:
        path.append(parents[path[-1]])
    return [made["nodes"][id]["text"] for id in reversed(path)]


def box(page: Page) -> Locator:
    return page.locator(".tree")


SEEN = """box => [...box.querySelectorAll(".leaf text")].filter(text => {
    const [of, its] = [box, text].map(one => one.getBoundingClientRect());
    return its.left >= of.left && its.right <= of.right && its.top >= of.top && its.bottom <= of.bottom;
}).length"""
LETTERS = """box => Math.min(...[...box.querySelectorAll(".leaf text")].map(text =>
    parseFloat(getComputedStyle(text).fontSize) * text.getCTM().a))"""
READABLE = 9  # pixels


def readable(page: Page) -> None:
    """Some labels are seen as a whole, in letters that can be read."""
    expect(page.locator(".leaf.current")).to_be_in_viewport()
    assert box(page).evaluate(SEEN) >= 2
    assert box(page).evaluate(LETTERS) >= READABLE


@each_row("columns", [2, 21, 219])
def test_a_tree_of_220_nodes_is_never_an_empty_box(page: Page, tmp_path: Path, columns: int) -> None:
    page.set_viewport_size({"width": 1280, "height": 600})
    afresh(page)
    opened(page, tmp_path, columns)
    readable(page)
    for _ in range(12):
        page.get_by_role("button", name="Smaller").click(force=True)
    readable(page)
    for _ in range(3):
        page.get_by_role("button", name="Larger").click()
    expect(page.locator(".leaf.current")).to_be_in_viewport()


def test_the_wheel_scrolls_the_tree_and_with_ctrl_zooms_as_far_as_labels_are_read(
    page: Page, tmp_path: Path
) -> None:
    opened(page, tmp_path, 21)
    expect(page.locator(".leaf.current")).to_be_in_viewport()
    before = box(page).evaluate("one => one.scrollTop")
    box(page).hover()
    page.mouse.wheel(0, 200)
    page.wait_for_function("top => document.querySelector('.tree').scrollTop === top + 200", arg=before)
    page.keyboard.down("Control")
    for _ in range(30):
        page.mouse.wheel(0, 100)
    page.keyboard.up("Control")
    expect(page.get_by_role("button", name="Smaller")).to_be_disabled()
    assert box(page).evaluate(LETTERS) >= READABLE
    assert box(page).evaluate(SEEN) >= 2


def test_pieces_without_alternatives_are_one_place_to_whose_end_the_arrows_lead(
    page: Page, tmp_path: Path
) -> None:
    made = opened(page, tmp_path, NODES - 1)  # each piece has one behind it
    expect(page.get_by_role("treeitem")).to_have_count(2)
    page.get_by_role("treeitem", name="The beginning.").click()
    expect(editor(page)).to_have_value("The beginning.")
    page.locator(".leaf.current").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(editor(page)).to_have_value("".join(texts(made)))


def test_the_tree_follows_the_current_node(page: Page, tmp_path: Path) -> None:
    settings(page, max_tokens=6, next=False)
    made = opened(page, tmp_path, 21)
    box(page).evaluate("one => one.scrollTo(0, 0)")
    expect(page.locator(".leaf.current")).not_to_be_in_viewport()
    go(page, "Control+End")
    page.keyboard.type(" And on.")
    expect(editor(page)).to_have_value("".join([*texts(made), " And on."]))
    expect(page.locator(".leaf.current")).to_have_accessible_name(re.compile(r"^Part 21.*And on\.$"))
    expect(page.locator(".leaf.current")).to_be_in_viewport()
    for _ in range(12):
        page.keyboard.press("Control+z")
    expect(page.locator(".leaf.current")).to_be_in_viewport()


def test_the_search_scrolls_to_what_it_finds_and_counts(page: Page, tmp_path: Path) -> None:
    opened(page, tmp_path, 21)
    search = page.get_by_label("Search the branches")
    count = page.locator(".tools .found")
    search.fill("part 7.")
    expect(count).to_have_text("10 found")
    search.press("Enter")
    expect(count).to_have_text("1 of 10")
    expect(page.get_by_role("treeitem", name="Part 7.0:")).to_be_in_viewport()
    for _ in range(2):
        search.press("Enter")
    expect(count).to_have_text("3 of 10")
    expect(page.get_by_role("treeitem", name="Part 7.2:")).to_be_in_viewport()
    search.press("Shift+Enter")
    expect(count).to_have_text("2 of 10")
    expect(search).to_be_focused()
    expect(page.locator(".detail .text")).to_contain_text("Part 7.1:")
    search.fill("no such words")
    expect(count).to_have_text("0 found")


def test_the_passage_below_the_tree_is_reached_by_keyboard(page: Page, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 600})
    opened(page, tmp_path, 21)
    passage = page.get_by_role("region", name="The passage")
    assert passage.evaluate("one => one.scrollHeight > one.clientHeight"), "it is longer than its place"
    assert faults(page) == []
    page.locator(".leaf.current").focus()
    page.keyboard.press("Tab")
    expect(passage).to_be_focused()
    before = passage.evaluate("one => one.scrollTop")
    page.keyboard.press("Home")
    page.wait_for_function("top => document.activeElement.scrollTop < top", arg=before)


def test_a_click_on_a_candidate_without_text_leaves_the_story_where_it_is(page: Page) -> None:
    page.get_by_role("button", name="Branches").click()
    held: list[Route] = []
    page.route("**/v1/events", lambda route: held.append(route))
    compose(page, "The fox")
    page.keyboard.press("Control+Enter")
    empty = page.get_by_role("treeitem", name="(empty)")
    expect(empty.first).to_be_visible()
    empty.nth(3).click()
    page.keyboard.press("Escape")
    expect(empty).to_have_count(0)
    expect(editor(page)).to_have_value("The fox")
    go(page, "End")
    page.keyboard.type(" ran")
    expect(page.locator(".leaf.current")).to_have_accessible_name("The fox ran")
