"""Texts come into the page and leave it as texts do everywhere: by copying, pasting and dropping."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.studio.test_documents import CLIPBOARDS
from tests.support.hands import compose, drag_over, editor, into
from tests.support.steps import OPENING, afresh, over

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


def test_a_page_of_html_is_pasted_with_its_emphasis_and_continued(page: Page) -> None:
    copied(page, "<p>It was <b>late</b>.<p>Tom &amp; Mia <i>slept</i>.<script>1</script>")
    into(page)
    page.keyboard.press("Control+v")
    text = "It was **late**.\n\nTom & Mia *slept*."
    expect(editor(page)).to_have_value(text)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    assert sent.value.post_data_json["prompt"] == text
    over(page, 4)


# another program: what it puts on the clipboard, and what it gets from there
COPIES = """parts => addEventListener("copy", (event) => {
    event.preventDefault();
    for (const [type, text] of Object.entries(parts)) event.clipboardData.setData(type, text);
})"""
PASTES = """addEventListener("paste", ({clipboardData: data}) => {
    window.pasted = [data.getData("text/plain"), data.getData("text/html")];
})"""


def copied_by_a_program(page: Page, parts: dict[str, str]) -> None:
    other = elsewhere(page, "<textarea>x</textarea>")
    other.evaluate(COPIES, parts)
    other.locator("textarea").click()
    other.keyboard.press("Control+c")
    other.close()
    page.bring_to_front()


def pasted(page: Page) -> list[str]:
    """The plain text and the HTML that another program gets."""
    other = elsewhere(page, "<textarea></textarea>")
    other.evaluate(PASTES)
    other.locator("textarea").click()
    other.keyboard.press("Control+v")
    got: list[str] = other.evaluate("window.pasted")
    other.close()
    page.bring_to_front()
    return got


def test_what_word_and_google_copy_keeps_emphasis_and_headings_unless_it_is_pasted_plain(page: Page) -> None:
    for html, expected in CLIPBOARDS.items():
        copied_by_a_program(page, {"text/html": html, "text/plain": "plain words"})
        afresh(page)
        compose(page, "Before.\n")
        expect(page.get_by_role("button", name="Undo", exact=True)).to_be_enabled()
        page.keyboard.press("Control+v")
        expect(editor(page)).to_have_value("Before.\n" + (expected or "plain words"))
        page.keyboard.press("Control+z")
        expect(editor(page)).to_have_value("Before.\n")
        page.keyboard.press("Control+Shift+v")
        expect(editor(page)).to_have_value("Before.\nplain words")


MARKED = "# One\n\nA *small* and **big** fox.\n5 * 3, \\*no\\*, a_b"


def test_a_copy_has_its_emphasis_as_html_and_comes_back_as_it_was(page: Page) -> None:
    compose(page, MARKED)
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+c")
    plain, html = pasted(page)
    assert plain == MARKED
    found = re.findall(r"<(h1|p|em|strong)\b[^>]*>([^<]*)", html)
    assert found == [
        ("h1", "One"),
        *(("p", "A "), ("em", "small"), ("strong", "big")),
        ("p", "5 * 3, *no*, a_b"),
    ]
    into(page)
    page.keyboard.press("Control+a")
    page.keyboard.press("Control+v")
    page.keyboard.press("Control+v")
    expect(editor(page)).to_have_value(MARKED * 2)


def test_a_copy_of_a_part_has_the_emphasis_around_it_and_a_cut_can_be_undone(page: Page) -> None:
    compose(page, MARKED)
    drag_over(page, "all")
    page.keyboard.press("Control+c")
    plain, html = pasted(page)
    assert (plain, re.findall("<em>.*</em>", html)) == ("all", ["<em>all</em>"])
    drag_over(page, "big")
    page.keyboard.press("Control+x")
    expect(editor(page)).to_have_value(MARKED.replace("big", ""))
    plain, html = pasted(page)
    assert (plain, re.findall("<strong>.*</strong>", html)) == ("big", ["<strong>big</strong>"])
    into(page)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(MARKED)


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
    page.locator(".panel > .list button").filter(has_text=OPENING).click()
    expect(editor(page)).to_have_value(OPENING)
