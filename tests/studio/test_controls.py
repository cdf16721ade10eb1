"""Settings reach the server's request, and its errors are shown at the setting."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import compose
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.steps import OPENING, Body, afresh, asked, cards, figures, over, settings


def panel(page: Page) -> None:
    page.get_by_role("button", name="Settings").click()


def test_the_settings_come_from_the_servers_table(page: Page, server: Server) -> None:
    rows = server.json("GET", "/v1/samplers")[1]["samplers"]
    numbers = [row for row in rows if row["type"] in ("int", "float")]
    settings(page, full=True)
    panel(page)
    for row in numbers:
        field = page.get_by_label(f"{row['title']} ({row['name']})", exact=True)
        expect(field).to_have_attribute("placeholder", f"{row['default']:.12g}")
        expect(page.get_by_text(row["about"], exact=True).first).to_be_attached()
    said = page.get_by_role("complementary").inner_text()
    assert not re.search(r"\d{6}|logit|entropy|standard deviation", said, re.IGNORECASE)
    page.get_by_label("show every setting").uncheck()
    expect(page.get_by_label(f"({numbers[-1]['name']})")).to_have_count(0)
    expect(page.get_by_label("Creativity (temperature)")).to_be_visible()


def test_a_spread_gives_each_candidate_its_own_value(page: Page) -> None:
    settings(page, max_tokens=4, next=False, n=8, values={"seed": 7})
    panel(page)
    page.get_by_role("button", name="vary").first.click()
    expect(page.get_by_label("to", exact=True)).to_be_visible()
    page.get_by_label("Creativity (temperature)").fill("0.6")
    page.get_by_label("to", exact=True).fill("1.3")
    assert asked(page)["temperature"] == [0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3]
    over(page, 8)
    shown = figures(cards(page).nth(3))
    assert (shown["Creativity (temperature)"], shown["seed"]) == ("0.9", "10")


def test_candidates_are_led_away_from_a_text_and_without_one_they_are_not(page: Page) -> None:
    settings(page, max_tokens=4, next=False)
    panel(page)
    scale = page.get_by_label("(guidance_scale)")
    expect(scale).to_have_count(0)
    page.get_by_label("Not like this").fill("A bad beginning")
    expect(scale).to_have_value("1.5")
    scale.fill("2")
    scale.press("Tab")
    body = asked(page)
    assert (body["negative_prompt"], body["guidance_scale"]) == ("A bad beginning", 2)
    over(page, 4)
    shown = figures(cards(page).first)
    assert shown["Not like this (negative_prompt)"] == "A bad beginning"
    page.get_by_label("Not like this").fill("")
    assert not asked(page).keys() & {"negative_prompt", "guidance_scale"}


def preset(page: Page) -> Locator:
    return page.get_by_label("Preset")


def active(page: Page, title: str) -> None:
    """Waits until the preset is shown as the active one."""
    expect(preset(page).locator("option:checked")).to_have_text(title)


def answering(page: Page, button: str, text: str) -> None:
    """Presses a button and gives the answer that the browser's dialog asks for."""
    page.once("dialog", lambda dialog: dialog.accept(text))
    page.get_by_role("button", name=button, exact=True).click()


def test_presets_are_the_servers_and_the_active_one_is_shown(page: Page, server: Server) -> None:
    presets = server.json("GET", "/v1/presets")[1]["data"]
    settings(page, max_tokens=4, next=False)
    panel(page)
    active(page, "Server's defaults")
    titles = [one["title"] for one in presets]
    expect(preset(page).locator("optgroup").first.locator("option")).to_have_text(titles)
    assert {"Cautious to wild", "Less predictable", "No loops"} <= set(titles)
    preset(page).select_option(label="No loops")
    active(page, "No loops")
    assert asked(page)["dry_multiplier"] == 0.8
    preset(page).select_option(label="Cautious to wild")
    assert asked(page)["temperature"] == [0.6, 0.8, 1.0, 1.2]
    page.reload()
    panel(page)
    active(page, "Cautious to wild")
    page.get_by_label("to", exact=True).fill("1.5")
    page.get_by_label("to", exact=True).press("Tab")
    active(page, "Cautious to wild, changed")


def test_own_presets_stand_beside_the_servers_and_are_renamed_and_deleted(page: Page) -> None:
    settings(page, max_tokens=4, next=False, values={"temperature": 0.3})
    panel(page)
    active(page, "Your settings")
    answering(page, "Save as preset", "Calm")
    active(page, "Calm")
    preset(page).select_option(label="No loops")
    expect(page.get_by_role("button", name="Rename", exact=True)).to_have_count(0)
    page.reload()
    panel(page)
    preset(page).select_option(label="Calm")
    body = asked(page)
    assert (body["temperature"], "dry_multiplier" in body) == (0.3, False)
    answering(page, "Rename", "Quiet")
    active(page, "Quiet")
    expect(preset(page).locator("option").filter(has_text="Calm")).to_have_count(0)
    answering(page, "Delete", "")
    active(page, "Your settings")
    page.reload()
    panel(page)
    expect(preset(page).locator("option").filter(has_text="Quiet")).to_have_count(0)
    active(page, "Your settings")


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
    "grammar": ('root ::= "a"\nx ::= nothere\n', "Grammar", "n"),
    "json_schema": ('{"type": "object",\n "properties": {"a": }}', "JSON schema", "}"),
    "regex": ("a\n[z-", "Regular expression", "["),
}


@each_row("kind", WRONG)
def test_the_servers_error_is_marked_at_its_place(page: Page, kind: str) -> None:
    text, label, marked = WRONG[kind]
    afresh(page, structure={"kind": kind, "text": text})
    panel(page)
    compose(page, OPENING)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert").filter(has_text="line 2, column").first).to_be_visible()
    field = page.get_by_role("textbox", name=label)
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_be_focused()
    cut = "field => field.value.slice(field.selectionStart, field.selectionEnd)"
    assert field.evaluate(cut) == marked
    assert field.evaluate("field => field.selectionStart") > text.index("\n")


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
