"""A calm page: figures on demand, few buttons, a sheet of keys, titles in place, long words, every script."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.studio.test_accessible import faults
from tests.support.hands import compose, editor
from tests.support.rows import each_row
from tests.support.steps import act, ask, cards, over, settings

ROOT = Path(__file__).parents[2]
FIGURES = re.compile(r"token|logprob|seed|cells|cached")


def test_figures_stand_behind_info_buttons(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    expect(page.locator(".status")).to_contain_text("saved by sharing")
    assert not FIGURES.search(page.locator("body").inner_text())
    cards(page).first.get_by_role("button", name="Details").click()
    shown = cards(page).first.locator(".figures")
    for figure in ("tokens", "logprob", "seed"):
        expect(shown.get_by_text(figure, exact=True)).to_be_visible()
    page.get_by_role("button", name="Figures").click()
    expect(shown).to_be_hidden()
    expect(page.locator(".status").get_by_text("saved by sharing")).to_be_visible()
    expect(page.locator(".status").get_by_text("of 1024 tokens")).to_be_visible()


def test_the_figures_say_how_many_guesses_were_right(page: Page) -> None:
    sure = {"kind": "choice", "text": " and his mother gave him a big hug, and they were very happy all day."}
    settings(page, n=1, max_tokens=60, next=False, values={"draft": 16}, structure=sure)
    compose(page, "The little fox ran home to his mother")
    page.keyboard.press("Control+Enter")
    over(page, 1)
    page.get_by_role("button", name="Figures").click()
    expect(page.locator(".status").get_by_text(re.compile(r"^\d+ of \d+ tokens were right$"))).to_be_visible()


def test_a_card_shows_three_actions_and_a_menu_has_the_rest(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    actions = cards(page).first.locator(".actions")
    expect(actions.get_by_role("button", name="Part")).to_be_visible()
    assert actions.inner_text().split() == ["Part", "Edit", "Pin", "⋯"]
    actions.get_by_role("button", name="Actions").click()
    assert actions.locator(".popover").inner_text().split() == ["Longer", "Again", "Copy", "Keep", "Diff"]
    expect(actions.get_by_role("button", name="Longer")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(actions.get_by_role("button", name="Again")).to_be_focused()
    page.keyboard.press("Escape")
    expect(actions.locator(".popover")).to_be_hidden()
    expect(actions.get_by_role("button", name="Actions")).to_be_focused()
    act(page, "Keep")
    expect(actions.locator(".popover")).to_be_hidden()


def rows_of_the_page() -> list[list[str]]:
    table = (ROOT / "docs/studio.md").read_text().split("| key | where | what |\n")[1]
    lines = table.split("\n\n")[0].splitlines()[1:]  # below the line of dashes
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_question_mark_opens_the_sheet_of_keys(page: Page) -> None:
    compose(page, "Why")
    page.keyboard.press("?")
    expect(editor(page)).to_have_value("Why?")
    sheet = page.get_by_role("dialog", name="Keys")
    expect(sheet).to_be_hidden()
    page.locator("#candidates").focus()
    page.keyboard.press("?")
    expect(sheet).to_be_visible()
    found = [row.locator("td").all_text_contents() for row in sheet.locator("tbody tr").all()]
    assert found == rows_of_the_page()
    assert faults(page) == []
    page.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    page.get_by_role("button", name="Keys").click()
    sheet.get_by_role("button", name="Close").click()
    expect(sheet).to_be_hidden()


def test_the_title_is_edited_in_place_and_is_that_of_the_tab(page: Page) -> None:
    page.get_by_role("heading", level=1).get_by_role("button").click()
    page.get_by_label("Title").fill("The Heron")
    page.get_by_label("Title").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("The Heron")
    expect(page).to_have_title("The Heron · llama-srb studio")
    page.get_by_role("heading", level=1).get_by_role("button").click()
    page.get_by_label("Title").fill("Another")
    page.get_by_label("Title").press("Escape")
    page.reload()
    expect(page).to_have_title("The Heron · llama-srb studio")


LONG = "Donaudampfschifffahrt" * 20


def test_long_words_wrap(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page, f"{LONG} and")
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Your version").fill(LONG)
    page.get_by_role("button", name="Save as another version").click()
    expect(cards(page).filter(has_text=LONG)).to_have_count(1)
    page.get_by_role("button", name="Stories").click()
    page.get_by_label("Name").fill(LONG)
    page.get_by_label("Name").press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text(LONG)
    for part in (".write .sheet", ".card .text", "#candidates", ".panel", "html"):
        fits = "one => one.scrollWidth <= one.clientWidth + 1"
        assert page.locator(part).first.evaluate(fits), part


RIGHT = "היה היה שועל קטן"
SIDE = """box => {
    const range = document.createRange();
    range.selectNodeContents(box);
    const [of, its] = [box.closest(".cm-line"), range].map(one => one.getBoundingClientRect());
    return Math.round(of.right - its.right);
}"""


def test_texts_run_in_their_own_direction(page: Page) -> None:
    settings(page, max_tokens=4, next=False)
    ask(page, RIGHT)
    lines = page.locator(".origins .cm-line")
    assert lines.locator("span").first.evaluate(SIDE) <= 2, "the shown text begins at the right"
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Your version").fill(RIGHT)
    page.get_by_role("button", name="Save as another version").click()
    text = cards(page).filter(has_text="yours").locator(".text")
    assert text.evaluate("one => getComputedStyle(one).direction") == "rtl"
    compose(page, RIGHT + "\nand")
    expect(lines).to_have_count(2)
    assert [line.evaluate("one => getComputedStyle(one).direction") for line in lines.all()] == ["rtl", "ltr"]


COUNTS = {"": "0 words", "Once": "1 word", "Once upon": "2 words", "# Once\n\n***\n\n- upon —": "2 words"}


@each_row("text, count", COUNTS.items())
def test_words_are_counted_in_plain_english(page: Page, text: str, count: str) -> None:
    compose(page, text)
    expect(page.locator(".count")).to_have_text(re.compile(rf"^{count}( · by the model: 0 %)?$"))
