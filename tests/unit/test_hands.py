"""Tests of the page reach the studio's text as a person does: a mouse or a finger puts the focus there.

`focus`, `fill` and `press` of Playwright reach a text into which nobody can click. The studio had such a text
for a day, and 353 tests in a browser passed. tests/support/hands.py has the ways that a person has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.support.places import ROOT

FOLDERS = ("tests/studio", "tests/journeys", "tests/support")
HANDS = ROOT / "tests/support/hands.py"
TEXT = ("editor(", "'Story'", "#editor", "getElementById(\\'editor")  # as ast.unparse writes them
REACHING = {"focus", "fill", "press", "press_sequentially", "type", "clear", "select_text", "dispatch_event"}
SCRIPTS = {"evaluate", "evaluate_handle", "eval_on_selector"}


def reaches(call: ast.Call) -> bool:
    """Whether a call puts the focus into the text, or keys, without a mouse or a finger."""
    written = ast.unparse(call)
    if not isinstance(call.func, ast.Attribute) or not any(text in written for text in TEXT):
        return False
    return call.func.attr in REACHING or (call.func.attr in SCRIPTS and ".focus(" in written)


def found(source: str) -> Iterator[int]:
    """The lines of such calls, and of names for the text, under which a call would not be seen."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and reaches(node):
            yield node.lineno
        if isinstance(node, ast.Assign | ast.NamedExpr) and is_text(node.value):
            yield node.lineno


def is_text(value: ast.expr) -> bool:
    """Whether a value is the text's locator: editor(page), page.get_by_label("Story", …), page.locator(…)."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else ast.unparse(value.func)
    locates = name in ("editor", "locator") or name.startswith("get_by_")
    return locates and any(text in ast.unparse(value) for text in TEXT)


BANNED = (
    "editor(page).focus()",
    "editor(page).fill('Once')",
    "editor(page).press('Control+Enter')",
    "editor(page).first.press_sequentially('a')",
    "page.get_by_label('Story', exact=True).fill('Once')",
    "page.get_by_role('textbox', name='Story').type('Once')",
    "page.locator('#editor').clear()",
    "page.fill('#editor', 'Once')",
    "editor(page).evaluate('e => (e.blur(), e.focus())')",
    "page.evaluate('document.querySelector(\\'#editor\\').focus()')",
    "text = editor(page)",
)
ALLOWED = (
    "editor(page).click()",
    "editor(page).tap()",
    "page.keyboard.press('Control+Enter')",
    "page.get_by_label('Name').fill('Story of a fox')",
    "page.locator('#candidates').focus()",
    "editor(page).evaluate('e => e.value')",
    "text = editor(page).input_value()",
)


def test_the_ways_around_a_mouse_are_found_and_no_others() -> None:
    assert [source for source in BANNED if not [*found(source)]] == []
    assert [source for source in ALLOWED if [*found(source)]] == []


def test_no_test_of_the_page_goes_around_the_mouse() -> None:
    files = [file for folder in FOLDERS for file in (ROOT / folder).glob("*.py") if file != HANDS]
    assert len(files) > 40
    assert [f"{file.name}:{line}" for file in files for line in found(file.read_text())] == []
