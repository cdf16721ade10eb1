"""Stories are imported from other tools' files as well as from the studio's own.

Obsidian Loom exports the state of a note: nodes by id, each with its parent's id. mikupad exports a session,
each property of which is JSON in a string; its prompt is a list of pieces, which are marked as the writer's
or are tokens with their alternatives.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
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


def mikupad_piece(content: str, *likely: tuple[str, float]) -> dict[str, Any]:
    probs = [{"tok_str": text, "prob": prob} for text, prob in likely]
    return {
        "content": content,
        "prob": probs[0]["prob"],
        "completion_probabilities": [{"content": content, "probs": probs}],
    }


MIKUPAD = {
    "name": "The lamp",
    "temperature": 0.7,
    "endpoint": "http://127.0.0.1:8080",
    "prompt": [
        {"type": "user", "content": "The lamp went"},
        mikupad_piece(" out", (" out", 0.9), (" dim", 0.05)),
        mikupad_piece(".", (".", 0.7), (",", 0.2)),
        {"type": "user", "content": " Mara"},
    ],
}


def take(page: Page, folder: Path, content: Any, name: str = "lamp.json") -> None:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
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


def test_a_session_of_mikupad_is_imported(page: Page, tmp_path: Path) -> None:
    take(page, tmp_path, {name: json.dumps(value) for name, value in MIKUPAD.items()})
    expect(editor(page)).to_have_value("The lamp went out. Mara")
    expect(page.get_by_role("heading", level=1)).to_have_text("The lamp")
    expect(page.locator(".origins .by-model")).to_have_text([" out."])
    branches(page, 4)


def test_the_alternatives_of_mikupads_tokens_are_shown(page: Page, tmp_path: Path) -> None:
    take(page, tmp_path, {name: json.dumps(value) for name, value in MIKUPAD.items()})
    branches(page, 4)
    page.get_by_role("treeitem", name="The lamp went").click()
    page.get_by_role("button", name="Options").click()
    page.get_by_label("Show word odds").check()
    page.keyboard.press("Escape")
    page.locator(".card .token").first.click()
    expect(page.locator(".alternatives")).to_contain_text("dim")
    expect(page.locator(".alternatives")).to_contain_text("5.0 %")


WRONG = {
    "no JSON": "{nodes",
    "another's JSON": '{"a": 1}',
    "null": "null",
    "no beginning": '{"format": "llama-srb studio", "version": 1, "story": {"nodes": {}, "root": "r"}}',
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_a_file_of_another_kind_is_refused_and_the_story_stays(page: Page, tmp_path: Path, text: str) -> None:
    compose(page, "Mine")
    take(page, tmp_path, text)
    expect(page.get_by_role("alert").filter(has_text="stor")).to_be_visible()
    expect(editor(page)).to_have_value("Mine")


def test_a_story_with_invalid_fields_is_imported_without_them(page: Page, tmp_path: Path) -> None:
    node = {
        "text": "<b>Hm</b>",
        "source": "x",
        "tokens": ["no"],
        "sampling": {"a": {}},
        "seed": "1",
        "children": ["r"],
    }
    story = {"name": {}, "root": "r", "current": "r", "nodes": {"r": node}}
    take(page, tmp_path, {"format": "llama-srb studio", "version": 1, "story": story})
    expect(editor(page)).to_have_value("<b>Hm</b>")
    page.reload()
    expect(editor(page)).to_have_value("<b>Hm</b>")
