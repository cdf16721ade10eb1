"""The ways around a mouse or a finger into the studio's text are closed to all tests."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page

from tests.support.by_hand import NotByHandError
from tests.support.hands import editor
from tests.support.rows import each_row

FOCUSES = "one => { one.blur(); one.focus(); }"
WAYS: dict[str, Callable[[Page], object]] = {
    "focus": lambda page: editor(page).focus(),
    "fill": lambda page: editor(page).first.fill("Once"),
    "press": lambda page: editor(page).press("Control+Enter"),
    "clear": lambda page: page.get_by_label("Story", exact=True).clear(),
    "type": lambda page: page.get_by_role("textbox", name="Story").press_sequentially("a"),
    "any text": lambda page: page.get_by_role("textbox").first.fill("Once"),
    "a class": lambda page: page.locator(".cm-content").focus(),
    "of the page": lambda page: page.fill("#editor", "Once"),
    "an event": lambda page: editor(page).dispatch_event("focus"),
    "selected": lambda page: editor(page).select_text(),
    "a script": lambda page: editor(page).evaluate(FOCUSES),
    "a handle": lambda page: editor(page).evaluate_handle(FOCUSES),
    "a selector's script": lambda page: page.eval_on_selector(".origins", FOCUSES),
    "the page's script": lambda page: page.evaluate("document.querySelector('.origins').focus()"),
}


@each_row("way", WAYS.items())
def test_no_way_around_the_mouse_is_open(page: Page, way: tuple[str, Callable[[Page], object]]) -> None:
    with pytest.raises(NotByHandError):
        way[1](page)
    assert editor(page).input_value() == ""
