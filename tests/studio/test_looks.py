"""The layout on phones and large screens, and for users who want no motion."""

from __future__ import annotations

from typing import Literal

from playwright.sync_api import Page, expect

from tests.support.hands import compose
from tests.support.rows import each_row
from tests.support.steps import LONG, OPENING, afresh, ask, cards, settings

PANELS = ("Stories", "Branches", "Settings", "Shelf")
CUT = """() => [...document.querySelectorAll(".count, .button, .act, .facts, h2")]
    .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.textContent)"""


@each_row("width", [375, 768, 1280, 2560])
def test_nothing_is_cut_off_and_nothing_scrolls_sideways(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    afresh(page, max_tokens=8)
    ask(page)
    expect(page.locator(".status")).to_contain_text("of 1024")
    for panel in PANELS:
        page.get_by_role("button", name=panel).click()
        expect(page.get_by_role("button", name="Close")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(CUT) == []
        page.get_by_role("button", name="Close").click()
    assert page.evaluate(CUT) == []


FIELDS = (
    """panel => [...panel.querySelectorAll("input, textarea, select")].filter((one) => one.offsetParent)"""
)
CUT_HINTS = f"""panel => ({FIELDS})(panel).filter((one) => {{
    const [style, pen] = [getComputedStyle(one), document.createElement("canvas").getContext("2d")];
    pen.font = style.font;
    const room = one.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return one.type === "number" && pen.measureText(one.placeholder).width > room;
}}).map((one) => one.placeholder)"""
PALE = f"""panel => ({FIELDS})(panel)
    .filter((one) => getComputedStyle(one).color !== getComputedStyle(document.body).color)
    .map((one) => one.outerHTML)"""
TOUCHING = f"""panel => ({FIELDS})(panel).map((one) => one.closest("label") ?? one)
    .filter((one) => {{
        const [box, above] = [one, one.previousElementSibling].map((each) => each?.getBoundingClientRect());
        return above && box.top < above.bottom + 4;
    }})
    .map((one) => one.textContent)"""


@each_row("width", [390, 1280])
def test_fields_stand_apart_and_their_words_are_dark_and_whole(page: Page, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    afresh(page)
    compose(page, OPENING)
    for name in ("Background", "Settings", "Stories"):
        page.get_by_role("button", name=name, exact=True).click()
        panel = page.get_by_role("complementary", name=name)
        if name == "Background":
            panel.get_by_role("button", name="Add an entry").click()
            expect(panel.get_by_label("Entry's name")).to_be_visible()
        for fault in (CUT_HINTS, PALE, TOUCHING):
            assert panel.evaluate(fault) == []


def test_a_page_without_animation_frames_is_drawn_too(page: Page) -> None:
    page.add_init_script("window.requestAnimationFrame = () => 0")
    settings(page, max_tokens=6)
    page.reload()
    ask(page)


@each_row("wish, name", [("reduce", "none"), ("no-preference", "wait")])
def test_nothing_moves_for_users_who_prefer_reduced_motion(
    page: Page, wish: Literal["reduce", "no-preference"], name: str
) -> None:
    page.emulate_media(reduced_motion=wish)
    afresh(page, **LONG)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(cards(page)).to_have_count(4)
    moving = page.locator(".card.running .digit").first
    assert moving.evaluate("one => getComputedStyle(one).animationName") == name
    moves = "document.getAnimations().length"
    assert (page.evaluate(moves) == 0) == (name == "none")
