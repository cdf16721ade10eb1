"""Two tabs on the same story: one changes it, the other is notified, and no text is lost."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

from tests.support.hands import compose, editor, go
from tests.support.serving import Server
from tests.support.steps import ANOTHER, LONG, OPENING, ask, cards, paused, saved, settings, streaming, texts


def told(page: Page, told: bool = True) -> None:
    expect(page.get_by_role("alert").filter(has_text="another tab")).to_have_count(int(told))


def take(page: Page) -> None:
    page.get_by_role("button", name="Edit here").click()
    told(page, False)


def test_a_story_is_taken_over_in_mid_stream(tabs: list[Page]) -> None:
    reader, writer = tabs
    told(writer)
    settings(writer, **LONG)
    take(writer)
    told(reader)
    streaming(writer)
    before = texts(writer)
    take(reader)
    expect(editor(reader)).to_have_value(OPENING)
    expect(cards(reader)).to_have_count(4)
    assert all(now.startswith(then) for now, then in zip(texts(reader), before, strict=True))


def test_undo_goes_on_where_a_story_is_opened_right_after_a_change(tabs: list[Page]) -> None:
    first, second = tabs
    told(second)
    compose(first, "Once.")
    saved(first)
    first.keyboard.type(" Twice.")
    take(second)
    expect(editor(second)).to_have_value("Once. Twice.")
    first.goto("about:blank")  # else it takes the story over as soon as the second tab has left it
    go(second, "Control+z")
    expect(editor(second)).to_have_value("Once.")
    second.evaluate(ANOTHER)
    second.get_by_role("button", name="Stories", exact=True).click()
    second.locator(".panel .list button").filter(has_text="Once.").click()
    expect(editor(second)).to_have_value("Once.")
    go(second, "Control+Shift+Z")
    expect(editor(second)).to_have_value("Once. Twice.")


def test_another_story_can_be_written_in_the_second_tab(tabs: list[Page]) -> None:
    _, second = tabs
    told(second)
    second.get_by_role("button", name="Stories").click()
    second.get_by_role("button", name="New story").click()
    told(second, False)
    settings(second, max_tokens=5, next=False)
    ask(second)


def test_a_name_given_in_the_second_tab_takes_the_story_over_with_all_text(tabs: list[Page]) -> None:
    first, second = tabs
    told(second)
    compose(first, "Mine")
    paused(first)
    second.get_by_role("button", name="Stories").click()
    second.get_by_label("Name").fill("The fox")
    second.get_by_label("Name").press("Tab")
    told(first)
    expect(second.get_by_role("heading", name="The fox")).to_be_visible()
    expect(editor(second)).to_have_value("Mine")
    saved(second)
    second.reload()
    expect(editor(second)).to_have_value("Mine")


def test_a_page_that_waits_for_an_older_tab_says_so(browser: Browser, server: Server) -> None:
    context = browser.new_context(service_workers="block")
    older, page = context.new_page(), context.new_page()
    older.goto(f"{server.url}/studio/icon.svg")
    older.evaluate("""() => new Promise((done) => {
        const request = indexedDB.open("llama-srb studio", 1);
        request.onupgradeneeded = () => {
            request.result.createObjectStore("stories", { keyPath: "id" });
            request.result.createObjectStore("nodes", { keyPath: ["story", "id"] });
        };
        request.onsuccess = done;  // which it does not close
    }).then(() => true)""")
    page.goto(server.url)
    expect(page.get_by_text("Close the other tabs of the studio")).to_be_visible()
    older.close()
    expect(editor(page)).to_have_value("")
    expect(page.get_by_text("Close the other tabs of the studio")).to_have_count(0)
    context.close()
