"""A writer's hands on the studio's text: a mouse or a finger puts the focus there, then keys are pressed.

Playwright's `focus`, `fill` and `press` refuse the text in all tests: tests/support/by_hand.py.
"""

# ruff: noqa: SLF001, ASYNC109 (Text is one of Playwright's own locators)

from __future__ import annotations

import re
import time
from typing import Any

from playwright._impl.locator import Locator as Found
from playwright.sync_api import Locator, Page, expect

TOUCHES = "navigator.maxTouchPoints > 0"
TAPPED = """() => ({tap: new Promise((done) => {
    const drawn = () => requestAnimationFrame(() => requestAnimationFrame(done));
    addEventListener("click", drawn, {once: true});
})})"""
WORD = re.compile(r"[a-z]{2,}", re.IGNORECASE)
FIRST_WORD = f"""one => {{
    const node = one.firstChild;
    const {{0: word, index}} = /{WORD.pattern}/i.exec(node.data);
    const range = document.createRange();
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const {{left, right, top, bottom}} = range.getClientRects()[0];
    return [left, right, (top + bottom) / 2];
}}"""


class Text(Found):
    """The studio's text, whose `value` Playwright reads of text areas only.

    So `expect(editor(page)).to_have_value(...)` and `editor(page).input_value()` read it nevertheless.
    """

    async def _expect(self, expression: str, options: Any, title: str | None) -> Any:
        if expression == "to.have.value":
            [wanted] = options.pop("expectedText")
            expression = "to.have.property"
            options |= {"expressionArg": "value", "expectedValue": wanted["string"]}
        return await super()._expect(expression, options, title)

    async def input_value(self, timeout: float | None) -> str:
        return str(await self.evaluate("one => one.value", None, timeout))


def editor(page: Page) -> Locator:
    found = page.get_by_label("Story", exact=True)._impl_obj
    return Locator(Text(found._frame, found._selector))


def into(page: Page) -> None:
    """Puts the focus into the text, with a finger where the page is touched, else with the mouse."""
    if page.evaluate(TOUCHES):
        editor(page).tap()
    else:
        editor(page).click()


def press(found: Locator) -> None:
    """Presses a button with a finger where the page is touched, else with the mouse."""
    if found.page.evaluate(TOUCHES):
        found.tap()
    else:
        found.click()


def tap(page: Page, x: float, y: float) -> None:
    """Taps at a place; waits until the page knows: a browser makes a click of it, then moves the caret."""
    tapped = page.evaluate_handle(TAPPED)
    page.touchscreen.tap(x, y)
    tapped.evaluate("({tap}) => tap")


def press_twice(page: Page, x: float, y: float, pause_ms: int) -> None:
    """Presses at a place twice, with that time between by the events' own clock.

    A machine that is slow between the two makes no slow finger of a quick one.
    """
    touches = page.evaluate(TOUCHES)
    devtools, now = page.context.new_cdp_session(page), time.time()
    for count in (1, 2):
        if touches:
            at = now + (count - 1) * pause_ms / 1000
            for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchEnd", [])):
                event = {"type": kind, "touchPoints": points, "timestamp": at}
                devtools.send("Input.dispatchTouchEvent", event)
        else:
            page.mouse.move(x, y)
            page.mouse.down(click_count=count)
            page.mouse.up(click_count=count)
        page.wait_for_timeout(pause_ms)


def compose(page: Page, text: str) -> None:
    """Writes this in the place of the whole text, as one input."""
    into(page)
    page.keyboard.press("Control+a")
    if text:
        page.keyboard.insert_text(text)
    else:
        page.keyboard.press("Delete")


def go(page: Page, key: str) -> None:
    """Puts the focus into the text, then presses a key there, such as Control+End."""
    into(page)
    page.keyboard.press(key)


# Places are where the text is seen, in pixels; of a long text only the lines that are seen have places.

PLACE = """text => {
    const walker = document.createTreeWalker(document.querySelector(".origins"), NodeFilter.SHOW_TEXT);
    const range = document.createRange();
    const [nodes, ends] = [[], []];
    let all = "";
    while (walker.nextNode()) {
        nodes.push(walker.currentNode);
        ends.push((all += walker.currentNode.data).length);
    }
    const set = (which, at) => {
        const i = ends.findIndex((end) => at < end || (which === "setEnd" && at === end));
        range[which](nodes[i], at - (i ? ends[i - 1] : 0));
    };
    const at = all.indexOf(text);
    if (at < 0) return null;
    set("setStart", at);
    set("setEnd", at + text.length);
    const boxes = [...range.getClientRects()].filter(({width}) => width);
    const [first, last] = [boxes[0], boxes.at(-1)];
    return [first.left, first.top + first.height / 2, last.right, last.top + last.height / 2];
}"""


def place(page: Page, text: str) -> tuple[float, float, float, float]:
    """Where a passage is seen for the first time: x and y of its begin, x and y of its end."""
    expect(page.locator(".origins")).to_contain_text(text)  # it is drawn a moment after it was typed
    found = page.evaluate(PLACE, text)
    assert found, f"the page does not show {text!r}"
    left, top, right, bottom = found
    return left, top, right, bottom


def click_behind(page: Page, text: str) -> None:
    """Clicks with the mouse where a passage ends."""
    _, _, x, y = place(page, text)
    page.mouse.click(x, y)


def double_click(page: Page, word: str) -> None:
    left, y, right, _ = place(page, word)
    page.mouse.dblclick((left + right) / 2, y)


def drag_over(page: Page, text: str) -> None:
    """Drags the mouse from the begin of a passage to its end."""
    left, top, right, bottom = place(page, text)
    page.mouse.move(left, top)
    page.mouse.down()
    page.mouse.move(right, bottom, steps=8)
    page.mouse.up()


def selected(page: Page) -> str:
    """What is selected in the text."""
    return str(editor(page).evaluate("one => one.value.slice(one.selectionStart, one.selectionEnd)"))


def swipe(page: Page, way: range) -> None:
    """Moves a finger over the candidates, along these x coordinates."""
    box = page.locator("#candidates").bounding_box()
    assert box
    devtools, y = page.context.new_cdp_session(page), box["y"] + box["height"] / 2
    for kind, x in (("touchStart", way.start), *(("touchMove", x) for x in way)):
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": [{"x": x, "y": y}]})
    devtools.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})


def first_word(text: Locator) -> tuple[float, float, float]:
    """Where the first word of a text stands: its left, its right and its middle; it is never on two lines."""
    left, right, y = text.evaluate(FIRST_WORD)
    return left, right, y
