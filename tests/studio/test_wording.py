"""The words of the page: plain English, the same ones everywhere."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page, expect

from tests.support.rows import each_row
from tests.support.steps import LONG, act, ask, cards, choose, settings, streaming

ROOT = Path(__file__).parents[2]
AWAY = "Can't reach the server. Your writing is safe in this browser; reconnecting…"
FORMATS = ["No limit", "List", "Regular expression", "JSON schema", "Grammar", "Structural tag"]


def test_the_first_page_says_where_suggestions_appear(page: Page) -> None:
    expect(page.locator(".candidates .hint").first).to_contain_text(
        "Suggestions for what comes next appear here."
    )


def test_the_options_of_candidates(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.get_by_role("button", name="Options").click()
    page.get_by_label("Show word odds").check()
    expect(page.locator(".token").first).to_be_visible()
    page.get_by_label("Suggest again after choosing").check()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Show word odds")).to_be_hidden()
    choose(page, 1)
    expect(cards(page)).to_have_count(4)


def test_an_unreachable_server_is_said_once(page: Page) -> None:
    page.route("**/health", lambda route: route.abort())
    expect(page.get_by_role("alert")).to_have_text([AWAY])
    page.unroute("**/health")
    expect(page.get_by_role("alert")).to_have_count(0)


def test_interrupted_candidates_are_resumed(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    page.reload()
    page.get_by_role("button", name="Resume 4 interrupted").click()
    expect(page.locator(".card.running")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(page.locator(".card.running")).to_have_count(0)


def test_the_output_format_and_varying_a_setting(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("Output format").locator("option")).to_have_text(FORMATS)
    page.get_by_role("button", name="vary", exact=True).first.click()
    expect(page.get_by_label("to", exact=True)).to_be_visible()


def test_an_edited_candidate_is_saved_as_another_version(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Your version").fill(" ran.")
    page.get_by_role("button", name="Save as another version").click()
    expect(cards(page).filter(has_text="yours")).to_have_count(1)


def test_discarded_branches_are_shown(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    act(page, "Again")
    page.get_by_role("button", name="Branches").click()
    page.get_by_label("Show discarded").check()
    expect(page.locator(".leaf.aside")).to_have_count(1)


OLD = (
    "will stand here", "will appear here", "next at once", "look inside", "server is away", "Go on with 4",
    "Write here instead", "What each text must be", "Anything", '"Expression"', "Sober to wild",
    "Against the obvious", "spread<", "“spread”", "set aside too", "Save beside",
)  # fmt: skip


@each_row("words", OLD)
def test_no_page_or_document_has_the_old_words(words: str) -> None:
    files = [*ROOT.glob("llama_srb/studio/**/*.js"), ROOT / "docs/studio.md", ROOT / "README.md"]
    assert [file.name for file in files if words in file.read_text()] == []
