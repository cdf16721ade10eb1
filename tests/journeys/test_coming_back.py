"""A page that is left is there again: by Back, by a reload, in a second tab."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import compose, editor, go
from tests.support.serving import Server
from tests.support.steps import LONG, OPENING, act, cards, over, settings, streaming, texts


def test_back_returns_to_the_story_and_its_candidates(page: Page, studio: Server) -> None:
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    over(page, 4)
    before = texts(page)
    page.goto(f"{studio.url}/openapi.json")
    page.go_back()
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(4)
    assert texts(page) == before


def test_a_reload_in_mid_stream_loses_nothing(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    before = texts(page)
    page.reload()
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(4)
    assert all(now.startswith(then) for now, then in zip(texts(page), before, strict=True))
    expect(page.locator(".facts", has_text="interrupted")).to_have_count(4)
    settings(page, max_tokens=5)
    act(page, "Longer")
    expect(page.locator(".facts", has_text="interrupted")).to_have_count(3)
    over(page, 4)
    assert len(texts(page)[0]) > len(before[0])


def notice(page: Page) -> Locator:
    return page.get_by_role("alert").filter(has_text="another tab")


def test_the_second_tab_shows_a_notice_and_can_take_over_the_story(tabs: list[Page]) -> None:
    first, second = tabs
    expect(notice(second)).to_have_count(1)
    expect(notice(first)).to_have_count(0)
    compose(first, "Mine")
    expect(second.locator(".columns")).to_have_attribute("inert", "")
    second.get_by_role("button", name="Edit here").click()
    expect(notice(second)).to_have_count(0)
    expect(notice(first)).to_have_count(1)
    expect(editor(second)).to_have_value("Mine")
    go(second, "End")
    second.keyboard.type(" too")
    second.close()
    expect(notice(first)).to_have_count(0)
    expect(editor(first)).to_have_value("Mine too")
