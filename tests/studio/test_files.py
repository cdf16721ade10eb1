"""A file is chosen: another tool's story is opened with its branches, and a file of no such kind is refused.

How each kind of file is read is tested without a page: pure/files.test.js.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from tests.support.hands import compose, editor


def loom_node(text: str, parent: str | None, **fields: Any) -> dict[str, Any]:
    usual = {"collapsed": False, "unread": False, "bookmarked": False, "searchResultState": None}
    return {"text": text, "parentId": parent, **usual, **fields}


LOOM = {
    "hoisted": [],
    "searchTerm": "",
    "generating": None,
    "current": "c3d1",
    "nodes": {
        "a1f0": loom_node("The lamp went out.", None, lastVisited=1697000000000),
        "b2e9": loom_node(" Nobody spoke.", "a1f0", unread=True),
        "c3d1": loom_node(" Mara laughed.", "a1f0", bookmarked=True, lastVisited=1697000000001),
        "d4c8": loom_node(" Then the door", "c3d1", unread=True),
    },
}


def take(page: Page, folder: Path, content: Any) -> None:
    file = folder / "lamp.json"
    file.write_text(json.dumps(content))
    page.get_by_role("button", name="Stories").click()
    page.locator("input[type=file]").set_input_files(file)


def branches(page: Page, count: int) -> None:
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Branches").click()
    expect(page.get_by_role("treeitem")).to_have_count(count)


def test_a_tree_of_obsidian_loom_is_imported(page: Page, tmp_path: Path) -> None:
    take(page, tmp_path, LOOM)
    expect(editor(page)).to_have_value("The lamp went out. Mara laughed.")
    expect(page.locator(".card .text")).to_have_text([" Then the door"])
    branches(page, 5)  # the beginning is a separate leaf
    expect(page.get_by_role("treeitem", name="★ Mara laughed.")).to_have_count(1)
    expect(page.locator(".leaf.unseen-yet")).to_have_count(2)


def test_a_file_of_another_kind_is_refused_and_the_story_stays(page: Page, tmp_path: Path) -> None:
    compose(page, "Mine")
    take(page, tmp_path, {"a": 1})
    expect(page.get_by_role("alert")).to_contain_text("lamp.json: expected a story of the studio")
    expect(editor(page)).to_have_value("Mine")
