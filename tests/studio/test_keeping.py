"""Stories in the browser's storage: no text is lost, and no deleted story comes back."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support.hands import compose, editor, into
from tests.support.steps import (
    LONG,
    OPENING,
    ask,
    cards,
    choose,
    over,
    saved,
    settings,
    streaming,
    texts,
    until,
)

STUCK = """() => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (value) {
    if (value.children?.length === 4) window.stuck = true;
    const again = () => (this.count().onsuccess = again);
    if (window.stuck) again(); // the transaction does not end until the page goes away
    return put.call(this, value);
  };
}"""

SLOW = """() => {
  const put = IDBObjectStore.prototype.put;
  IDBObjectStore.prototype.put = function (value) {
    const end = performance.now() + %d;
    const again = () => performance.now() < end && (this.count().onsuccess = again);
    again(); // the transaction ends so late
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


def delete_story(page: Page) -> None:
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="Move to the trash").click()


def test_a_reload_while_the_disk_is_stuck_loses_no_candidate(page: Page) -> None:
    settings(page, **LONG)
    page.evaluate(STUCK)
    streaming(page)
    until(page, "window.stuck", wanted=True)
    before = texts(page)
    page.reload()
    expect(cards(page)).to_have_count(4)
    assert all(now.startswith(then) for now, then in zip(texts(page), before, strict=True))
    expect(page.locator(".facts", has_text="interrupted")).to_have_count(4)


def test_text_typed_a_moment_before_a_reload_is_kept(page: Page) -> None:
    into(page)
    page.keyboard.type("A wolf")
    page.reload()
    expect(editor(page)).to_have_value("A wolf")


def test_text_typed_while_a_new_story_is_stored_is_in_that_story(page: Page) -> None:
    compose(page, "The fox slept.")
    saved(page)
    page.evaluate(SLOW % 1000)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New story").click()
    compose(page, "The owl woke.")
    expect(page.locator(".panel > .list button")).to_have_count(2)  # it is stored
    expect(editor(page)).to_have_value("The owl woke.")
    page.locator(".panel > .list button").last.click()
    expect(editor(page)).to_have_value("The fox slept.")


def test_a_search_finds_text_that_waits_for_a_slow_disk(page: Page) -> None:
    page.evaluate(SLOW % 2000)
    compose(page, "A fox.")
    page.wait_for_timeout(600)  # its write begins
    compose(page, "The heron waited.")
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New story").click()
    page.get_by_label("Search all stories").fill("heron")
    page.get_by_role("list", name="Found").get_by_role("button").first.click()
    expect(editor(page)).to_have_value("The heron waited.")


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
    until(page, WRITTEN, wanted=4)
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
    expect(page.locator(".panel > .list").get_by_text("Untitled")).to_have_count(1)
    expect(page.locator(".panel > .list").get_by_text("Once upon a time")).to_have_count(0)


def test_a_story_deleted_in_the_second_tab_stays_deleted(tabs: list[Page]) -> None:
    reader, writer = tabs
    settings(writer, **LONG)
    writer.get_by_role("button", name="Edit here").click()
    streaming(writer)
    delete_story(reader)
    expect(reader.get_by_role("button", name="Edit here")).to_have_count(0)
    writer.close()
    reader.wait_for_timeout(1500)  # longer than the delay before a write
    reader.reload()
    expect(editor(reader)).to_have_value("")
    reader.get_by_role("button", name="Stories").click()
    expect(reader.get_by_text("Trash (1)")).to_be_visible()


def test_a_deleted_story_is_in_the_trash_until_the_writer_removes_it(page: Page) -> None:
    compose(page, "The fox slept.")
    delete_story(page)
    expect(editor(page)).to_have_value("")
    page.get_by_text("Trash (1)").click()
    page.get_by_role("button", name="Restore").click()
    expect(editor(page)).to_have_value("The fox slept.")
    expect(page.get_by_text("Trash (1)")).to_have_count(0)
    page.get_by_role("button", name="Move to the trash").click()
    page.get_by_text("Trash (1)").click()
    page.once("dialog", lambda dialog: dialog.accept())
    page.get_by_role("button", name="Empty the trash").click()
    expect(page.get_by_text("Trash (1)")).to_have_count(0)
    page.reload()
    page.get_by_role("button", name="Stories").click()
    expect(page.get_by_text("Trash (1)")).to_have_count(0)


def test_text_typed_while_a_story_goes_into_the_trash_goes_with_it(page: Page) -> None:
    compose(page, "The fox slept.")
    saved(page)
    page.evaluate(SLOW % 5000)
    delete_story(page)
    compose(page, "The fox woke.")
    expect(editor(page)).to_have_value("")
    saved(page)
    page.reload()
    page.get_by_role("button", name="Stories").click()
    page.get_by_text("Trash (1)").click()
    page.get_by_role("button", name="Restore").click()
    expect(editor(page)).to_have_value("The fox woke.")


def test_the_page_says_whether_what_was_typed_is_saved(page: Page) -> None:
    saved(page)
    page.evaluate(REFUSE % REFUSALS[0])
    into(page)
    page.keyboard.type("A wolf")
    expect(page.locator(".saved")).to_have_attribute("title", "Saving… in this browser")
    page.evaluate("window.mended = true")
    saved(page)


def test_the_browser_is_asked_to_keep_stories_when_its_disk_is_full(page: Page) -> None:
    page.add_init_script("""
        window.asked = 0;
        navigator.storage.persist = async () => { window.asked += 1; return false; };
        navigator.storage.persisted = async () => false;
    """)
    page.reload()
    editor(page).wait_for()
    until(page, "window.asked", wanted=1)
    page.get_by_role("button", name="Stories").click()
    expect(page.get_by_text("This browser may delete stories when its disk is full.")).to_be_visible()


def test_undo_and_redo_survive_a_reload(page: Page) -> None:
    settings(page, max_tokens=5, next=False)
    ask(page, "The fox")
    chosen = choose(page, 1, "The fox")
    page.keyboard.type(" Then it slept.")
    saved(page)
    page.keyboard.type(" It dreamt.")
    saved(page)
    page.reload()
    expect(editor(page)).to_have_value(f"{chosen} Then it slept. It dreamt.")
    slept = [f"{chosen} Then it ", f"{chosen} Then "]  # what was typed goes word by word
    dreamt = [f"{chosen} Then it slept. It ", f"{chosen} Then it slept."]
    for text in (*dreamt, *slept, chosen, "The fox"):
        page.keyboard.press("Control+z")
        expect(editor(page)).to_have_value(text)
    expect(page.locator(".card")).to_have_count(4)
    saved(page)
    page.reload()
    expect(editor(page)).to_have_value("The fox")
    for text in (chosen, *slept[::-1], *dreamt[::-1], f"{chosen} Then it slept. It dreamt."):
        page.keyboard.press("Control+Shift+z")
        expect(editor(page)).to_have_value(text)


def test_undo_of_a_change_in_older_text_returns_to_the_candidates_behind_it(page: Page) -> None:
    settings(page, max_tokens=5, next=False)
    ask(page, "The fox slept.")
    before = texts(page)
    compose(page, "The wolf slept.")
    saved(page)
    expect(page.locator(".card .text")).to_have_text(before)  # they stay behind the text that has moved
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value("The fox slept.")
    expect(page.locator(".card .text")).to_have_text(before)
    page.keyboard.press("Control+Shift+z")
    expect(editor(page)).to_have_value("The wolf slept.")


def test_one_click_backs_up_all_stories_and_the_file_brings_them_back(page: Page, tmp_path: Path) -> None:
    compose(page, "The fox slept.")
    saved(page)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New story").click()
    compose(page, "The owl woke.")
    saved(page)
    page.get_by_role("button", name="Move to the trash").click()
    expect(editor(page)).to_have_value("The fox slept.")
    with page.expect_download() as loading:
        page.get_by_role("button", name="Back up all").click()
    file = tmp_path / loading.value.suggested_filename
    loading.value.save_as(file)
    assert re.fullmatch(r"stories \d{4}-\d\d-\d\d\.json", file.name)
    page.locator("input[type=file]").set_input_files(file)  # all of them are here already
    expect(page.locator(".unseen[role=status]")).to_have_text("0 of 2 stories brought back")
    compose(page, "The fox ran.")
    saved(page)
    page.locator("input[type=file]").set_input_files(file)
    expect(editor(page)).to_have_value("The fox slept.")  # beside the other one
    page.evaluate("() => { indexedDB.deleteDatabase('llama-srb studio'); localStorage.clear(); }")
    page.reload()
    expect(editor(page)).to_have_value("")
    page.get_by_role("button", name="Stories").click()
    page.locator("input[type=file]").set_input_files(file)
    expect(editor(page)).to_have_value("The fox slept.")
    expect(page.get_by_text("Trash (1)")).to_be_visible()


def test_deleted_words_stay_deleted_after_a_reload(page: Page) -> None:
    settings(page, max_tokens=5, next=False)
    ask(page)
    before = texts(page)
    compose(page, f"{OPENING} zebra")
    saved(page)
    compose(page, OPENING)
    saved(page)
    page.reload()
    page.get_by_role("button", name="Stories").click()
    search = page.get_by_label("Search all stories")
    for words, found in (("little fox", "2 found"), ("zebra", "Nothing found.")):
        search.fill(words)
        expect(page.get_by_text(found, exact=True)).to_be_visible()
    page.get_by_role("button", name="Branches").click()
    expect(page.get_by_role("treeitem")).to_have_count(5)
    expect(page.locator(".card .text")).to_have_text(before)
