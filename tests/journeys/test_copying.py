"""Texts come into the page and leave it as texts do everywhere: by copying, pasting and dropping."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.hands import compose, drag_over, editor, into
from tests.support.steps import OPENING, over

ELSEWHERE = "<!doctype html><title>Elsewhere</title><body>"
LINES = "It was late.\n\nThe owl woke."


def elsewhere(page: Page, html: str) -> Page:
    """Another page of the same browser."""
    other = page.context.new_page()
    other.set_content(ELSEWHERE + html)
    other.bring_to_front()
    return other


def copied(page: Page, html: str) -> None:
    """Copies all of another page, as a person does."""
    other = elsewhere(page, html)
    other.locator("body > *").first.click()
    other.keyboard.press("Control+a")
    other.keyboard.press("Control+c")
    other.close()
    page.bring_to_front()


def test_a_sentence_is_copied_out_of_the_page(page: Page) -> None:
    compose(page, "The fox ran. The owl woke. The end.")
    drag_over(page, "The owl woke.")
    page.keyboard.press("Control+c")
    other = elsewhere(page, "<textarea></textarea>")
    other.locator("textarea").click()
    other.keyboard.press("Control+v")
    expect(other.locator("textarea")).to_have_value("The owl woke.")


def test_a_plain_text_is_pasted_and_undone(page: Page) -> None:
    copied(page, f"<textarea>{LINES}</textarea>")
    into(page)
    page.keyboard.type("Before. ")
    expect(page.get_by_role("button", name="Undo", exact=True)).to_be_enabled()  # a pause ends a step
    page.keyboard.press("Control+v")
    expect(editor(page)).to_have_value("Before. " + LINES)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value("Before. ")


def test_a_page_of_html_is_pasted_as_its_text_and_continued(page: Page) -> None:
    copied(page, "<p>It was <b>late</b>.<p>Tom &amp; Mia <i>slept</i>.<script>1</script>")
    into(page)
    page.keyboard.press("Control+v")
    text = "It was late.\n\nTom & Mia slept."
    expect(editor(page)).to_have_value(text)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == text
    over(page, 4)


def dropped(page: Page, *files: Path) -> None:
    """Drags files from a file manager, and drops them on the text."""
    box = editor(page).bounding_box()
    assert box
    devtools = page.context.new_cdp_session(page)
    data = {"items": [], "files": [str(file) for file in files], "dragOperationsMask": 1}
    for kind in ("dragEnter", "dragOver", "drop"):
        place = {"x": box["x"] + box["width"] / 2, "y": box["y"] + 20}
        devtools.send("Input.dispatchDragEvent", {"type": kind, "data": data, **place})


def test_a_file_that_is_dropped_on_the_page_is_a_story_and_the_old_one_stays(
    page: Page, tmp_path: Path
) -> None:
    compose(page, OPENING)
    (tmp_path / "Night.md").write_text(LINES)
    dropped(page, tmp_path / "Night.md")
    expect(editor(page)).to_have_value(LINES)
    expect(page.get_by_role("heading", level=1)).to_have_text("Night")
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator(".panel > .list button").filter(has_text="Untitled").click()
    expect(editor(page)).to_have_value(OPENING)
