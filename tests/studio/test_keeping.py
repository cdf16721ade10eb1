"""Stories in the browser's storage: no text is lost, and no deleted story comes back."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import Page, expect

from tests.studio.conftest import PATIENCE_MS
from tests.studio.steps import LONG, OPENING, act, ask, cards, editor, over, settings, streaming, texts

STUCK = """() => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (value) {
    if (value.children?.length === 4) window.stuck = true;
    const again = () => (this.count().onsuccess = again);
    if (window.stuck) again(); // the transaction does not end until the page goes away
    return put.call(this, value);
  };
}"""

REFUSALS = (
    "throw new DOMException('The disk is full.')",
    "request.onsuccess = () => this.transaction.abort()",
)
REFUSE = """() => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (value) {
    const request = put.call(this, value);
    if (!window.mended) %s;
    return request;
  };
}"""

WRITTEN = """async () => {
  const request = indexedDB.open("llama-srb studio");
  await new Promise((resolve) => (request.onsuccess = resolve));
  const nodes = request.result.transaction("nodes").objectStore("nodes").getAll();
  await new Promise((resolve) => (nodes.onsuccess = resolve));
  return nodes.result.filter((node) => node.tokens?.length).length;
}"""


def until(page: Page, condition: str, wanted: object) -> None:
    """Polls from here, since the page's policy forbids it to evaluate text."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while (found := page.evaluate(condition)) != wanted:
        assert time.monotonic() < deadline, found
        page.wait_for_timeout(20)


def delete_story(page: Page) -> None:
    page.get_by_role("button", name="Stories").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Delete this story").click()


@pytest.mark.parametrize("disk", ["quick", "stuck"])
def test_a_reload_in_mid_stream_loses_nothing(page: Page, disk: str) -> None:
    settings(page, **LONG)
    if disk == "stuck":
        page.evaluate(STUCK)
    editor(page).fill(OPENING)
    editor(page).press("Control+Enter")
    expect(page.locator(".card.running")).to_have_count(4)
    expect(page.locator(".card .text").filter(has_text=re.compile(".{20}"))).to_have_count(4)
    if disk == "stuck":
        until(page, "window.stuck", True)
    before = texts(page)
    page.reload()
    expect(editor(page)).to_have_value(OPENING)
    expect(cards(page)).to_have_count(4)
    assert all(now.startswith(then) for now, then in zip(texts(page), before, strict=True))
    expect(page.get_by_text("interrupted")).to_have_count(4)
    settings(page, max_tokens=5)
    act(page, "Longer")
    expect(page.get_by_text("interrupted")).to_have_count(3)
    over(page, 4)
    assert len(texts(page)[0]) > len(before[0])


def test_text_typed_a_moment_before_a_reload_is_kept(page: Page) -> None:
    editor(page).press_sequentially("A wolf")
    page.reload()
    expect(editor(page)).to_have_value("A wolf")


@pytest.mark.parametrize("refusal", REFUSALS, ids=["at once", "later"])
def test_a_write_that_the_browser_refuses_is_reported_and_tried_again(page: Page, refusal: str) -> None:
    settings(page, max_tokens=5, next=False)
    page.evaluate(REFUSE % refusal)
    ask(page)
    told = page.get_by_role("alert").filter(has_text="could not keep what is new")
    expect(told).to_be_visible()
    page.get_by_role("button", name="Stories").click()
    page.locator(".panel .list button").first.click()  # the stored version is older
    over(page, 4)
    page.evaluate("window.mended = true")
    until(page, WRITTEN, 4)
    expect(told).to_have_count(0)


def test_a_story_deleted_in_mid_stream_stays_deleted(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    delete_story(page)
    expect(editor(page)).to_have_value("")
    page.wait_for_timeout(1500)  # longer than the delay before a write
    page.reload()
    expect(editor(page)).to_have_value("")
    page.get_by_role("button", name="Stories").click()
    expect(page.locator(".panel").get_by_text("Untitled")).to_have_count(1)
    expect(page.locator(".panel").get_by_text("Once upon a time")).to_have_count(0)


def test_a_story_deleted_in_the_second_tab_stays_deleted(tabs: list[Page]) -> None:
    reader, writer = tabs
    settings(writer, **LONG)
    writer.get_by_role("button", name="Write here instead").click()
    streaming(writer)
    delete_story(reader)
    expect(reader.get_by_role("button", name="Write here instead")).to_have_count(0)
    writer.close()
    reader.wait_for_timeout(1500)  # longer than the delay before a write
    reader.reload()
    expect(editor(reader)).to_have_value("")
    until(reader, WRITTEN, 0)
