"""Settings reach the server's request, and its errors are shown at the setting."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.studio.steps import OPENING, Body, asked, cards, editor, figures, over, settings
from tests.support.serving import Server


def panel(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()


def test_the_settings_come_from_the_servers_table(page: Page, server: Server) -> None:
    rows = server.json("GET", "/v1/samplers")[1]["samplers"]
    numbers = [row for row in rows if row["type"] in ("int", "float")]
    settings(page, full=True)
    panel(page)
    for row in numbers:
        field = page.get_by_label(row["name"], exact=True)
        expect(field).to_have_attribute("placeholder", f"{row['default']:.12g}")
        expect(page.get_by_text(row["meaning"], exact=True).first).to_be_attached()
    page.get_by_label("show every setting").uncheck()
    expect(page.get_by_label(numbers[-1]["name"], exact=True)).to_have_count(0)
    expect(page.get_by_label("temperature", exact=True)).to_be_visible()


def test_a_spread_gives_each_candidate_its_own_value(page: Page) -> None:
    settings(page, max_tokens=4, next=False, n=8, values={"seed": 7})
    panel(page)
    page.get_by_role("button", name="spread").first.click()
    expect(page.get_by_label("to", exact=True)).to_be_visible()
    page.get_by_label("temperature", exact=True).fill("0.6")
    page.get_by_label("to", exact=True).fill("1.3")
    assert asked(page)["temperature"] == [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]
    over(page, 8)
    shown = figures(cards(page).nth(3))
    assert (shown["temperature"], shown["seed"]) == ("0.9", "10")


def test_a_preset_sets_values_and_an_own_preset_is_kept(page: Page) -> None:
    settings(page, max_tokens=4, next=False, values={"temperature": 0.3})
    panel(page)
    page.once("dialog", lambda dialog: dialog.accept("Calm"))
    page.get_by_role("button", name="Save as preset").click()
    page.get_by_label("Preset").select_option("No repetition")
    assert asked(page)["dry_multiplier"] == 0.8
    page.reload()
    panel(page)
    page.get_by_label("Preset").select_option("Calm")
    body = asked(page)
    assert (body["temperature"], "dry_multiplier" in body) == (0.3, False)


def test_stop_strings_are_entered_one_a_line(page: Page) -> None:
    settings(page, max_tokens=4, next=False)
    panel(page)
    page.get_by_label("Stop strings").fill("The end\n\\n\\n\n")
    assert asked(page)["stop"] == ["The end", "\n\n"]


def test_a_value_out_of_bounds_is_refused(page: Page) -> None:
    settings(page, max_tokens=4, next=False)
    panel(page)
    field = page.get_by_role("spinbutton", name="Candidates", exact=True)
    for wrong in ("65", "0"):
        field.fill(wrong)
        field.press("Tab")
        assert not field.evaluate("field => field.validity.valid")
        expect(page.get_by_role("button", name="Continue")).to_contain_text(" 4")


WRONG = {
    "grammar": ('root ::= "a"\nx ::= nothere\n', "Grammar (GBNF)", "n"),
    "json_schema": ('{"type": "object",\n "properties": {"a": }}', "JSON schema", "}"),
    "regex": ("a\n[z-", "Expression", "["),
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_servers_error_is_marked_at_its_place(page: Page, kind: str) -> None:
    text, label, marked = WRONG[kind]
    settings(page, structure={"kind": kind, "text": text})
    panel(page)
    editor(page).fill(OPENING)
    editor(page).press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="line 2, column").first).to_be_visible()
    field = page.get_by_role("textbox", name=label)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    cut = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert field.evaluate(cut) == marked
    assert field.evaluate("field => field.selectionStart") > text.index("\n")


def test_with_the_branches_open_more_candidates_are_asked_for(page: Page) -> None:
    settings(page, max_tokens=4, next=False)
    assert asked(page)["n"] == 4
    over(page, 4)
    page.get_by_role("button", name="Branches").click()
    assert asked(page)["n"] == 8
    over(page, 8)
    page.get_by_role("button", name="Close").click()
    expect(page.get_by_role("button", name="Continue")).to_contain_text(" 4")


def test_a_chat_has_a_system_prompt(page: Page) -> None:
    settings(page, max_tokens=4, n=2)
    page.get_by_role("button", name="Stories").click()
    page.get_by_role("button", name="New chat").click()
    page.get_by_text("System prompt").click()
    page.get_by_label("System prompt").fill("You are a fox.")
    with page.expect_request("**/v1/events") as sent:
        page.get_by_label("Your message").fill("Who are you?")
        page.get_by_label("Your message").press("Enter")
    body: Body = sent.value.post_data_json
    assert body["messages"] == [
        {"role": "system", "content": "You are a fox."},
        {"role": "user", "content": "Who are you?"},
    ]
