"""A writer has many candidates begun, keeps the best of them, and reads them in an order of their own."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import compose
from tests.support.serving import Server
from tests.support.steps import OPENING, Body, act, asked, cards, drawn, over, settings, texts

FEW = {"max_tokens": 12, "next": False}
KEEP, MARK = "Write on only the best (prune)", "compared after so many tokens"
ORDER, FIRST = "Order by (rank_by)", "Stop when enough are done (finish)"


def panel(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()


def fill(page: Page, label: str, value: str) -> None:
    field = page.get_by_label(label, exact=True)
    field.fill(value)
    field.press("Tab")


def ended(page: Page, why: str) -> Locator:
    return page.locator(".card .facts").filter(has_text=why)


def pruned(page: Page, **others: object) -> None:
    """Six candidates are begun, of which two go on."""
    settings(page, **FEW, n=6, values={"prune": {"at": [4], "keep": 2}, **others})
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    over(page, 2)


def test_only_the_best_are_written_on_and_the_others_are_set_aside(page: Page) -> None:
    settings(page, **FEW, n=6)
    panel(page)
    fill(page, KEEP, "2")
    fill(page, MARK, "4")
    body = asked(page)
    assert (body["n"], body["prune"]) == (6, {"at": [4], "keep": 2})
    over(page, 2)
    page.get_by_role("button", name="4 set aside").click()
    over(page, 6)
    expect(ended(page, "others were better")).to_have_count(4)
    page.reload()
    expect(cards(page)).to_have_count(2)
    expect(page.get_by_role("button", name="4 set aside")).to_be_visible()


def test_a_candidate_that_was_set_aside_is_written_on_with_longer(page: Page) -> None:
    pruned(page)
    page.get_by_role("button", name="4 set aside").click()
    over(page, 6)
    before = texts(page)
    place = next(i for i in range(6) if "others were" in (cards(page).nth(i).text_content() or ""))
    with page.expect_request("**/v1/events") as sent:
        act(page, "Longer", place)
    body: Body = sent.value.post_data_json
    assert "prune" not in body, "a single candidate has no others"
    expect(page.get_by_role("button", name="3 set aside")).to_be_visible()
    over(page, 6)
    after = texts(page)[place]
    assert after.startswith(before[place])
    assert len(after) > len(before[place])


def test_a_pinned_candidate_is_not_set_aside(page: Page) -> None:
    values = {"prune": {"at": [600], "keep": 1}, "ignore_eos": True}
    settings(page, n=2, next=False, max_tokens=610, values=values)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(cards(page)).to_have_count(2)
    for i in range(2):
        cards(page).nth(i).get_by_role("button", name="Pin").click()
    over(page, 2)
    expect(page.locator(".card.pinned")).to_have_count(2)
    expect(ended(page, "others were better")).to_have_count(1)


def test_the_rest_stops_when_enough_are_done(page: Page) -> None:
    settings(page, n=4, next=False, max_tokens=400, values={"ignore_eos": True}, stop=".")
    panel(page)
    fill(page, FIRST, "1")
    body = asked(page, OPENING + " whose name was")
    assert body["finish"] == {"first": 1}
    over(page, 4)
    expect(ended(page, "ends here")).to_have_count(1)
    expect(ended(page, "enough others were done")).to_have_count(3)


def test_candidates_are_shown_in_the_chosen_order(page: Page) -> None:
    settings(page, **FEW, n=6)
    panel(page)
    page.get_by_label(ORDER).select_option(label="the likeliest first")
    assert asked(page)["rank_by"] == "logprob"
    over(page, 6)
    expect(page.locator(".status")).to_be_visible()

    def falls() -> bool:
        means = cards(page).locator(".figures dt:has-text('logprob') + dd").all_text_contents()
        return sorted(means, key=float, reverse=True) == means

    drawn(page)
    assert falls()
    order = texts(page)
    page.reload()
    expect(cards(page)).to_have_count(6)
    assert texts(page) == order


def test_the_orders_are_those_of_the_server(page: Page, server: Server) -> None:
    [row] = [one for one in server.json("GET", "/v1/samplers")[1]["request"] if one["name"] == "rank_by"]
    panel(page)
    box, field = (page.locator(one).bounding_box() for one in (".panel", ".row:not(.explained):has(select)"))
    assert box is not None
    assert field is not None
    assert field["x"] + field["width"] <= box["x"] + box["width"], "it does not stand out of the panel"
    options = page.get_by_label(ORDER).locator("option").all_text_contents()
    assert options == ["as they come", *row["values"].values()]
    for value in row["values"]:
        page.get_by_label(ORDER).select_option(value=value)
        settings_ = page.evaluate("() => JSON.parse(localStorage.getItem('studio.settings'))")
        assert settings_["values"] == {"rank_by": value}


def test_a_wrong_mark_is_named_at_its_setting(page: Page) -> None:
    settings(page, **FEW, n=6, values={"prune": {"at": [0], "keep": 2}})
    panel(page)
    asked(page)
    expect(page.locator(".row.bad").filter(has_text=KEEP)).to_be_visible()
