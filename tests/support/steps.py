"""Steps of a writer in the studio, and what the page shows."""

from __future__ import annotations

import re
import time
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import TOUCHES, compose, editor, press
from tests.support.waiting import PATIENCE

OPENING = "Once upon a time, there was a little fox"

Body = dict[str, Any]

# Of a text with a line break each line is an element of the page: what counts elements asks for one line.
ONE_LINE = {"kind": "regex", "text": r"[^\n]{9,}"}
LONG = {"max_tokens": 7000, "values": {"ignore_eos": True}}  # longer than any test waits


def cards(page: Page) -> Locator:
    return page.locator(".card")


SETTINGS = """values => import(new URL("studio/story/session.js", document.baseURI))
    .then(({ DEFAULTS, setting }) => setting({ ...DEFAULTS, ...values }))"""


def settings(page: Page, **values: Any) -> None:
    """Puts these settings, and else the usual ones, in the place of all, as the page's controls do."""
    page.evaluate(SETTINGS, values)
    drawn(page)


ANOTHER = (
    "import(new URL('studio/story/library.js', document.baseURI)).then(({ createStory }) => createStory())"
)


def afresh(page: Page, **values: Any) -> None:
    """Begins another story with these settings and no panel, on a page that a row of a table has used."""
    settings(page, **values)
    page.evaluate(ANOTHER)
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary")).to_have_count(0)
    expect(editor(page)).to_have_value("")
    expect(cards(page)).to_have_count(0)


def reopen(page: Page, panel: str) -> None:
    """Opens a panel again where it has closed: on a phone it covers the text that it leads to."""
    if page.evaluate(TOUCHES):
        expect(page.get_by_role("complementary")).to_have_count(0)
        press(page.get_by_role("button", name=panel, exact=True))


def ask(page: Page, text: str = OPENING, n: int = 4) -> None:
    """Types and asks; returns when all candidates are complete."""
    compose(page, text)
    page.keyboard.press("Control+Enter")
    over(page, n)


def streaming(page: Page) -> None:
    """Types and asks; returns when each candidate has some text."""
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(page.locator(".card .text").filter(has_text=re.compile(".{20}"))).to_have_count(4)


def asked(page: Page, text: str = OPENING) -> Body:
    """Types and asks; returns the body of the request."""
    compose(page, text)
    with page.expect_request("**/v1/events") as sent:
        page.keyboard.press("Control+Enter")
    body: Body = sent.value.post_data_json
    return body


def act(page: Page, name: str, card: int = 0) -> None:
    """Chooses an action from the menu of a card."""
    cards(page).nth(card).get_by_role("button", name="Actions").click()
    cards(page).nth(card).get_by_role("button", name=name).click()


def figures(part: Locator) -> dict[str, str]:
    """The figures behind the info button of a card, or of the bar."""
    names, values = (part.locator(f".figures {kind}").all_text_contents() for kind in ("dt", "dd"))
    return dict(zip(names, values, strict=True))


def drawn(page: Page) -> None:
    """Returns when the page shows all that has changed: it is drawn some frames after an action."""
    page.evaluate("import(new URL('studio/ui/ui.js', document.baseURI)).then(({ drawn }) => drawn())")


def until(page: Page, script: str, argument: object = None, wanted: object = True) -> None:
    """Waits until a script returns this; polls from here, since the page's policy forbids its text."""
    deadline = time.monotonic() + PATIENCE
    while (found := page.evaluate(script, argument)) != wanted:
        assert time.monotonic() < deadline, found
        page.wait_for_timeout(20)


PAUSED = """async () => {
    const load = (path) => import(new URL(`studio/${path}.js`, document.baseURI));
    const [{ session }, { textOf }] = await Promise.all(["story/session", "story/tree"].map(load));
    return textOf(session.story) === session.text;
}"""


def paused(page: Page) -> None:
    """The writer pauses: returns when what was typed is in the story's tree, as a step of undo."""
    until(page, PAUSED)


def saved(page: Page, where: str | re.Pattern[str] = "Saved in this browser") -> None:
    """The writer pauses: returns when what was typed is saved there."""
    paused(page)
    expect(page.locator(".saved")).to_have_attribute("title", where)


def over(page: Page, n: int) -> None:
    drawn(page)
    expect(cards(page)).to_have_count(n)
    expect(page.locator(".card.running")).to_have_count(0)


def shown(page: Page) -> list[str]:
    """The candidates that are shown, each by its id."""
    drawn(page)
    ids: list[str] = cards(page).evaluate_all("all => all.map(one => one.dataset.id)")
    return ids


def next_over(page: Page, before: list[str], n: int = 4) -> None:
    """Returns when the candidates that were shown before are gone, and n others are complete."""
    for id in before:
        expect(page.locator(f'.card[data-id="{id}"]')).to_have_count(0)
    over(page, n)


def stand(page: Page, expected: list[str]) -> None:
    """Waits until these are the candidates' texts."""
    expect(page.locator(".card .text")).to_have_text(expected)


def gone(page: Page, text: str) -> None:
    """Returns when no candidate shows that text any more: a page is drawn a moment after an action."""
    expect(page.locator(".card .text").filter(has_text=text)).to_have_count(0)


def texts(page: Page) -> list[str]:
    drawn(page)
    return page.locator(".card .text").all_text_contents()


def value(page: Page, other_than: str = OPENING) -> str:
    """Waits until the story has changed; returns it."""
    expect(editor(page)).not_to_have_value(other_than)
    return editor(page).input_value()


def choose(page: Page, number: int, before: str = OPENING) -> str:
    """Chooses the candidate of that number; returns the story with its text."""
    page.keyboard.press(f"Alt+{number}")
    return value(page, before)


def computed(page: Page) -> int:
    """The number of tokens of the last prompt that were not cached."""
    said = page.locator(".status").text_content() or ""
    found = re.search(r"(\d+) of (\d+) tokens cached", said)
    assert found, said
    return int(found[2]) - int(found[1])
