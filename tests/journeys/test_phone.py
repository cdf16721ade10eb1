"""A writer with a phone: 390 x 844 pixels, and a finger."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.support.hands import editor, into, swipe, tap
from tests.support.steps import OPENING, cards, over, texts, value

LINES = """one => [...one.getClientRects()].map(({left, right, top, bottom}) =>
    [(left + right) / 2, (top + bottom) / 2])"""


def test_a_writer_taps_types_swipes_and_chooses(phone: Page) -> None:
    into(phone)
    expect(editor(phone)).to_be_focused()  # which opens the phone's keyboard
    phone.keyboard.type(OPENING)
    phone.get_by_role("button", name="Continue").tap()
    over(phone, 4)
    second = texts(phone)[1]
    expect(phone.locator(".place")).to_have_text("1 of 4")
    swipe(phone, range(330, 60, -20))
    expect(phone.locator(".place")).to_have_text("2 of 4")
    expect(cards(phone).nth(1)).to_be_in_viewport()
    expect(phone.locator(".ghost")).to_have_text(second)
    cards(phone).nth(1).locator(".text").tap()
    assert value(phone) == OPENING + second


def test_a_writer_taps_on_the_preview_and_types_on(phone: Page) -> None:
    """The preview covers most of a phone's sheet and is no text: the caret goes to its edge."""
    into(phone)
    phone.keyboard.type(OPENING)
    phone.get_by_role("button", name="Continue").tap()
    over(phone, 4)
    ghost = phone.locator(".ghost")
    for line in (0, 1, -1):
        tap(phone, *ghost.evaluate(LINES)[line])
        phone.keyboard.type("x")
        expect(editor(phone)).to_have_value(OPENING + "x")
        phone.keyboard.press("Backspace")
        expect(ghost).to_be_visible()
