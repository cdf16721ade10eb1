"""axe-core finds nothing serious or critical in the studio's main states, in light and in dark colours."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, Page, expect

from tests.support.browser import PHONE, visiting
from tests.support.hands import compose, editor
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.steps import OPENING, act, afresh, ask, cards, over, settings

AXE = (Path(__file__).parent / "vendor" / "axe.js").read_text()
RUN = """async () => (await axe.run({resultTypes: ["violations"]})).violations
    .filter(({impact}) => impact === "serious" || impact === "critical")
    .flatMap(({id, help, nodes}) => nodes.map(({html}) => `${id}: ${help}: ${html.slice(0, 200)}`))"""


SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def faults(page: Page) -> list[str]:
    """What axe-core finds in the page as it is, in light and in dark colours."""
    page.evaluate(AXE)
    found: list[str] = []
    for scheme in SCHEMES:
        page.emulate_media(color_scheme=scheme)
        found += [f"{scheme}: {one}" for one in page.evaluate(RUN)]
    return found


def empty(page: Page) -> None:
    pass


def candidates(page: Page) -> None:
    settings(page, max_tokens=8, next=False)
    ask(page)
    page.get_by_role("button", name="Pin").nth(1).click()


def tree(page: Page) -> None:
    candidates(page)
    page.keyboard.press("Alt+1")
    page.get_by_role("button", name="Branches").click()
    page.get_by_role("treeitem").first.focus()
    page.get_by_role("button", name="Bookmark").click()
    page.get_by_role("button", name="Fold").click()


def inside(page: Page) -> None:
    wild = {"temperature": 3, "top_k": 0, "top_p": 1, "min_p": 0}  # so that every colour occurs
    settings(page, max_tokens=24, next=False, colours=True, values=wild)
    ask(page)
    expect(page.locator(".surprise-5")).not_to_have_count(0)
    cards(page).first.locator(".token").nth(2).click()


def parts_and_diff(page: Page) -> None:
    candidates(page)
    act(page, "Diff")
    page.get_by_role("button", name="Part").nth(2).click()
    page.get_by_role("button", name="Edit").nth(3).click()


def controls(page: Page) -> None:
    settings(
        page,
        full=True,
        structure={"kind": "grammar", "text": "root ::= x"},
        spreads={"temperature": [0.6, 1.2]},
    )
    page.get_by_role("button", name="Settings").click()


def stories(page: Page) -> None:
    page.get_by_role("button", name="Stories").click()


def shelf(page: Page) -> None:
    candidates(page)
    act(page, "Keep")
    page.get_by_role("button", name="Shelf").click()


def background(page: Page) -> None:
    candidates(page)
    page.get_by_role("button", name="Background").click()
    page.get_by_role("button", name="Add an entry").click()
    page.get_by_role("button", name="The exact prompt").click()
    expect(page.get_by_label("Prompt", exact=True)).to_be_visible()


def chat(page: Page) -> None:
    settings(page, max_tokens=8, n=3)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New chat").click()
    page.keyboard.press("Escape")
    page.get_by_label("Your message").fill("Tell me a story.")
    page.get_by_label("Your message").press("Enter")
    over(page, 3)
    page.locator(".card .text").first.click()


def long(page: Page) -> None:
    """Texts that are longer than their cards."""
    settings(page, max_tokens=160, next=False, values={"ignore_eos": True})
    ask(page)
    longer = "one => one.scrollHeight > one.clientHeight + 20"
    assert cards(page).first.locator(".text").evaluate(longer)


def long_diff(page: Page) -> None:
    long(page)
    act(page, "Diff")


def outline(page: Page) -> None:
    compose(page, "# The fox\n\nA fox.\n\n# The owl\n\nAn owl.\n")
    page.get_by_role("button", name="Outline").click()
    page.get_by_label("Find", exact=True).fill("fox")
    page.get_by_label("Replace with").fill("wolf")
    page.get_by_role("button", name="Next").click()
    expect(page.locator(".look ins")).to_have_text("wolf")


def search(page: Page) -> None:
    """All stories are searched; the one without a title is listed by its first words."""
    compose(page, "A fox and another fox.")
    page.get_by_role("button", name="Stories").click()
    page.get_by_label("Search all stories").fill("fox")
    expect(page.get_by_role("list", name="Found").get_by_role("button").first).to_be_visible()


def keys(page: Page) -> None:
    page.locator("#candidates").focus()
    page.keyboard.press("?")


STATES = [
    empty, candidates, long, long_diff, tree, inside, parts_and_diff, controls, stories, shelf, background,
    outline, search, chat, keys,
]  # fmt: skip


@each_row("state", STATES)
def test_axe_finds_nothing_serious(page: Page, state: Callable[[Page], None]) -> None:
    afresh(page)
    state(page)
    assert faults(page) == []
    page.keyboard.press("Escape")


def test_axe_finds_nothing_serious_on_a_phone(browser: Browser, server: Server) -> None:
    with visiting(browser, server.url, **PHONE) as [phone]:
        test_axe_finds_nothing_serious(page=phone)


def test_a_long_text_of_a_card_is_scrolled_by_keys(page: Page) -> None:
    long(page)
    text = cards(page).first.locator(".text")
    for _ in range(20):
        page.keyboard.press("Tab")
        if text.evaluate("one => one === document.activeElement"):
            break
    page.keyboard.press("End")
    expect(text).to_have_js_property("scrollTop", text.evaluate("one => one.scrollHeight - one.clientHeight"))
    chosen = text.text_content() or ""
    page.keyboard.press("Enter")
    expect(editor(page)).to_have_value(OPENING + chosen)
