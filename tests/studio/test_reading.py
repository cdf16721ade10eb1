"""Reading candidates: one at a time, as ghost text at the caret, and as small cards."""

from __future__ import annotations

import base64
import json

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import compose, editor
from tests.support.steps import OPENING, ask, cards, over, settings, texts

MANY = {"max_tokens": 100, "n": 16, "next": False, "values": {"ignore_eos": True}}
IN_VIEW = """list => [...list.querySelectorAll(".card")].filter(card => {
    const [of, its] = [list, card].map(one => one.getBoundingClientRect());
    return its.left >= of.left - 1 && its.right <= of.right + 1 && its.bottom <= of.bottom + 1
        && its.height > of.height / 2;
}).map(card => card.querySelector(".text").textContent)"""


def large(page: Page, expected: list[str]) -> None:
    """Waits until these are the texts of the large cards that are seen as a whole."""
    seen = f"({IN_VIEW})(document.getElementById('candidates'))"
    page.wait_for_function(f"wanted => JSON.stringify({seen}) === JSON.stringify(wanted)", arg=expected)


def reads(page: Page, number: int, of: int) -> None:
    expect(page.get_by_role("heading", name=f"{number} of {of}", exact=True)).to_be_visible()


def test_one_candidate_is_read_large_and_j_and_k_go_on(page: Page) -> None:
    settings(page, **MANY)
    ask(page, n=16)
    all_texts = texts(page)
    large(page, [])
    page.get_by_role("button", name="Read", exact=True).click()
    reads(page, 1, 16)
    large(page, all_texts[:1])
    size = "one => parseFloat(getComputedStyle(one).fontSize)"
    assert cards(page).first.locator(".text").evaluate(size) > editor(page).evaluate(size)
    page.locator("#candidates").focus()
    for key, number in (("j", 2), ("j", 3), ("k", 2)):
        page.keyboard.press(key)
        reads(page, number, 16)
        large(page, [all_texts[number - 1]])
    page.get_by_role("button", name="The next candidate").click()
    reads(page, 3, 16)
    page.keyboard.press("Enter")
    expect(editor(page)).to_have_value(OPENING + all_texts[2])


def test_the_next_candidates_are_read_from_the_first_one(page: Page) -> None:
    settings(page, max_tokens=6, reading=True)
    ask(page)
    for key in ("Tab", "j", "j"):
        page.keyboard.press(key)
    reads(page, 3, 4)
    page.keyboard.press("3")
    expect(editor(page)).not_to_have_value(OPENING)
    over(page, 4)
    reads(page, 1, 4)


def shown(page: Page) -> Locator:
    return page.locator(".origins")


def test_hover_and_focus_preview_a_candidate_at_the_caret(page: Page) -> None:
    settings(page, max_tokens=12, next=False)
    before, behind = "Tom saw a dog.", " The end."
    compose(page, before + behind)
    for _ in behind:
        page.keyboard.press("ArrowLeft")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    first, second = texts(page)[:2]
    cards(page).first.hover()
    expect(page.locator(".ghost")).to_have_text(first)
    assert (shown(page).text_content() or "").startswith(before + first + behind)
    page.mouse.move(5, 5)
    expect(page.locator(".ghost")).to_have_count(0)
    for key in ("Tab", "ArrowRight"):
        page.keyboard.press(key)
    expect(page.locator(".ghost")).to_have_text(second)
    assert editor(page).input_value() == before + behind, "a preview changes nothing"
    page.keyboard.press("Escape")
    expect(page.locator(".ghost")).to_have_count(0)


def test_a_preview_below_the_shown_text_is_scrolled_to_and_back(page: Page) -> None:
    settings(page, max_tokens=40, next=False)
    ask(page, "A line.\n" * 60)
    sheet = page.locator(".write .sheet")
    sheet.evaluate("one => one.scrollTop = 0")
    cards(page).first.hover()
    expect(page.locator(".ghost")).to_be_in_viewport()
    page.mouse.move(5, 5)
    expect(page.locator(".ghost")).to_have_count(0)
    assert sheet.evaluate("one => one.scrollTop") == 0


DARKEST = """async ([png, from, to]) => {
    const bytes = Uint8Array.from(atob(png), one => one.charCodeAt(0));
    const image = await createImageBitmap(new Blob([bytes], {type: "image/png"}));
    const canvas = new OffscreenCanvas(image.width, image.height).getContext("2d");
    canvas.drawImage(image, 0, 0);
    const {data} = canvas.getImageData(0, from * image.height, image.width * 0.9, (to - from) * image.height);
    return data.filter((_, i) => i % 4 == 1).reduce((least, one) => Math.min(least, one), 255);
}"""


def darkest(page: Page, text: Locator, start: float, end: float) -> int:
    """0 to 255: the darkest pixel in a part of the picture of a text."""
    png = base64.b64encode(text.screenshot()).decode()
    found: int = page.evaluate(DARKEST, [png, start, end])
    return found


OVER_TEXT = """card => {
    const text = card.querySelector(".text").getBoundingClientRect();
    return [...card.querySelectorAll("button")].filter(one => {
        const box = one.getBoundingClientRect();
        return box.height && box.top < text.bottom - 1 && box.bottom > text.top + 1;
    }).map(one => one.textContent);
}"""


def test_a_cut_text_fades_and_no_button_lies_over_it(page: Page) -> None:
    settings(page, **MANY)
    ask(page, n=16)
    card = cards(page).nth(1)
    text = card.locator(".text")
    assert text.evaluate("one => one.scrollHeight > one.clientHeight + 20"), "the text is cut"
    card.hover()
    assert card.evaluate(OVER_TEXT) == []
    assert darkest(page, text, 0.3, 0.6) < 90
    assert darkest(page, text, 0.95, 1) > 180, "the last line fades"
    text.evaluate("one => one.scrollTop = one.scrollHeight")
    assert darkest(page, text, 0.6, 0.9) < 90, "at its end the text is as dark as elsewhere"


def test_the_reading_view_is_kept(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.keyboard.press("Tab")
    page.keyboard.press("v")
    reads(page, 1, 4)
    kept = page.evaluate("localStorage.getItem('studio.settings')")
    assert json.loads(kept)["reading"] is True
    page.reload()
    reads(page, 1, 4)
