"""The writer's hands: what is typed goes to the text, and candidates are chosen from there."""

from __future__ import annotations

from collections.abc import Callable

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import WORD, compose, editor, first_word
from tests.support.rows import each_row
from tests.support.steps import (
    LONG,
    OPENING,
    act,
    afresh,
    ask,
    cards,
    over,
    settings,
    streaming,
    texts,
    value,
)

FEW = {"max_tokens": 6, "next": False}
MIDDLE = 10  # of OPENING


def test_typing_after_ctrl_enter_goes_to_the_text(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    expect(editor(page)).to_be_focused()
    page.keyboard.type(" with 2 horses")
    expect(editor(page)).to_have_value(OPENING + " with 2 horses")


def test_typing_after_the_button_goes_to_the_text(page: Page) -> None:
    settings(page, **FEW)
    compose(page, OPENING)
    page.get_by_role("button", name="Continue").click()
    over(page, 4)
    page.keyboard.type(" 2")
    expect(editor(page)).to_have_value(OPENING + " 2")


def test_typing_after_a_click_on_a_candidate_goes_to_the_text(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    page.locator(".card .text").first.click()
    chosen = value(page)
    expect(editor(page)).to_be_focused()
    page.keyboard.type(" 2")
    expect(editor(page)).to_have_value(chosen + " 2")


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def open_panel(page: Page, name: str) -> None:
    button(page, name).click()
    expect(page.get_by_role("complementary", name=name)).to_be_visible()


def import_a_file(page: Page) -> None:
    open_panel(page, "Stories")
    page.get_by_label("File to import").set_input_files(
        {"name": "owl.md", "mimeType": "text/markdown", "buffer": b"The owl slept."}
    )
    expect(editor(page)).to_have_value("The owl slept.")


def open_another(page: Page) -> None:
    open_panel(page, "Stories")
    button(page, "New story").click()
    expect(editor(page)).to_have_value("")
    page.get_by_role("complementary").get_by_role("button", name=OPENING[:20]).first.click()


def discard(page: Page) -> None:
    open_panel(page, "Stories")
    button(page, "Move to the trash").click()
    expect(editor(page)).not_to_have_value(OPENING)


def keep_and_insert(page: Page) -> None:
    page.keyboard.press("Control+a")
    open_panel(page, "Shelf")
    button(page, "Keep the selection").click()
    button(page, "Insert").click()
    button(page, "Remove").wait_for()


def replace_all(page: Page) -> None:
    page.keyboard.press("Control+f")
    page.get_by_label("Find", exact=True).fill("fox")
    page.get_by_label("Replace with").fill("owl")
    button(page, "Replace all").click()


def begin(page: Page, kind: str) -> None:
    open_panel(page, "Stories")
    button(page, kind).click()


LEADING: dict[str, Callable[[Page], object]] = {
    "New story": lambda page: begin(page, "New story"),
    "New chat": lambda page: begin(page, "New chat"),
    "a story of the list": open_another,
    "Import": import_a_file,
    "Undo the import": lambda page: [import_a_file(page), button(page, "Undo the import").first.click()],
    "Move to the trash": discard,
    "Insert": keep_and_insert,
    "Replace all": replace_all,
}


@each_row("name", LEADING)
def test_typing_after_a_button_that_opens_or_changes_a_text_goes_there(page: Page, name: str) -> None:
    afresh(page, **FEW)
    compose(page, OPENING)
    LEADING[name](page)
    text = page.get_by_label("Your message") if name == "New chat" else editor(page)
    expect(text).to_be_focused()
    page.keyboard.type(" 2 owls")
    assert "2 owls" in page.evaluate("document.activeElement.value")


@each_row("made", ["3", "£", "\u00a1"])
def test_alt_and_a_digit_choose_from_the_text_whatever_character_they_make(page: Page, made: str) -> None:
    afresh(page, **FEW)
    ask(page)
    third = texts(page)[2]
    keys = page.context.new_cdp_session(page)
    key = {"key": made, "code": "Digit3", "modifiers": 1}
    for kind in ("rawKeyDown", "keyUp"):
        keys.send("Input.dispatchKeyEvent", {"type": kind, **key})
    expect(editor(page)).to_have_value(OPENING + third)
    expect(editor(page)).to_be_focused()


def test_alt_gr_and_a_digit_choose_nothing(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    page.keyboard.press("Control+Alt+3")  # AltGr on Windows
    page.keyboard.type(".")
    expect(editor(page)).to_have_value(OPENING + ".")


@each_row("key", ["Tab", "ArrowDown"])
def test_tab_and_down_go_to_the_cards_where_digits_and_letters_work(page: Page, key: str) -> None:
    afresh(page, **FEW)
    ask(page)
    page.keyboard.press(key)
    expect(cards(page).first).to_be_focused()
    page.keyboard.press("p")
    expect(cards(page).first).to_have_class("card pinned")
    second = texts(page)[1]
    page.keyboard.press("2")
    expect(editor(page)).to_be_focused()
    page.keyboard.type(" 2")
    expect(editor(page)).to_have_value(OPENING + second + " 2")


@each_row("keys", [("Enter",), ("w", "Enter"), ("j", "Enter")])
def test_after_a_choice_by_any_key_the_focus_is_back_in_the_text(page: Page, keys: tuple[str, ...]) -> None:
    afresh(page, **FEW)
    ask(page)
    page.keyboard.press("Tab")
    for key in keys:
        page.keyboard.press(key)
    expect(editor(page)).to_be_focused()
    chosen = value(page)
    page.keyboard.type("; 2")
    expect(editor(page)).to_have_value(chosen + "; 2")


def test_among_the_cards_other_letters_do_nothing_and_a_hint_names_esc(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    hint = page.get_by_text("Esc leads to the text", exact=True)
    expect(hint).to_be_hidden()
    page.keyboard.press("Tab")
    expect(hint).to_be_visible()
    before = page.locator("#candidates").inner_html()
    keys = page.context.new_cdp_session(page)
    for key in "zyxqäж7":
        for kind in ("keyDown", "keyUp"):
            keys.send("Input.dispatchKeyEvent", {"type": kind, "key": key, "text": key[: kind == "keyDown"]})
    expect(page.get_by_role("status").filter(has_text="Letters are keys of the candidates")).to_have_count(1)
    expect(cards(page).first).to_be_focused()
    expect(editor(page)).to_have_value(OPENING)
    assert page.locator("#candidates").inner_html() == before
    page.keyboard.press("Escape")
    expect(hint).to_be_hidden()
    page.keyboard.type(" z")
    expect(editor(page)).to_have_value(OPENING + " z")


def test_after_a_click_on_read_j_and_k_walk_and_after_any_other_button_there(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".candidates .place")).to_have_text("1 of 4")
    for key, place in (("j", "2 of 4"), ("j", "3 of 4"), ("k", "2 of 4")):
        page.keyboard.press(key)
        expect(page.locator(".candidates .place")).to_have_text(place)
    page.get_by_role("button", name="Read", exact=True).click()
    page.keyboard.press("j")
    expect(cards(page).first).to_be_focused()
    page.get_by_role("button", name="Reroll").click()
    over(page, 4)
    for key in ("j", "j", "k", "j"):
        page.keyboard.press(key)
    expect(cards(page).nth(1)).to_be_focused()


def test_down_stays_in_the_text_while_more_text_follows(page: Page) -> None:
    settings(page, **FEW)
    ask(page, "One\nTwo\nThree")
    page.keyboard.press("Control+Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.type("- ")
    expect(editor(page)).to_have_value("One\n- Two\nThree")


def test_without_candidates_tab_goes_to_the_buttons(page: Page) -> None:
    compose(page, OPENING)
    expect(page.get_by_role("button", name="Undo", exact=True)).to_be_enabled()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Undo", exact=True)).to_be_focused()


def test_the_first_page_names_the_keys(page: Page) -> None:
    first = page.locator(".hint.keys").all_inner_texts()
    assert "Alt with 1 to 9 chooses" in first[0]
    assert "Tab" in first[0]
    assert "Esc returns to the text" in first[1]


@each_row("colours", [False, True], ids=["plain", "inside"])
def test_shift_and_a_click_choose_a_part_wherever_the_caret_is(page: Page, colours: bool) -> None:
    afresh(page, max_tokens=12, next=False, colours=colours)
    ask(page)
    page.keyboard.press("Control+Home")
    for _ in range(MIDDLE):
        page.keyboard.press("ArrowRight")
    text = page.locator(".card .text").first.text_content() or ""
    page.locator(".card .text").first.click(modifiers=["Shift"], position={"x": 6, "y": 8})
    taken = value(page).removeprefix(OPENING)
    assert taken.split() == text.split()[:1]
    assert text.startswith(taken)
    expect(editor(page)).to_be_focused()
    assert page.evaluate("() => getSelection().toString()") == ""


def test_shift_and_a_click_choose_a_part_of_a_compared_candidate(page: Page) -> None:
    settings(page, max_tokens=12, next=False)
    ask(page)
    second = texts(page)[1]
    act(page, "Diff")
    text = page.locator(".card").nth(1).locator(".text")
    text.click(trial=True)  # once it stands still
    _, right, y = first_word(text.locator("ins").filter(has_text=WORD).first)
    page.keyboard.down("Shift")
    page.mouse.click(right - 2, y)
    page.keyboard.up("Shift")
    taken = value(page).removeprefix(OPENING)
    assert taken
    assert second.startswith(taken)
    assert len(taken) < len(second)


def test_alt_and_a_digit_in_another_field_choose_nothing(page: Page) -> None:
    settings(page, **FEW)
    ask(page)
    page.get_by_role("button", name="Stories").click()
    page.get_by_label("Name").press("Alt+1")
    page.keyboard.press("Escape")
    page.keyboard.type(".")
    expect(editor(page)).to_have_value(OPENING + ".")


def test_escape_at_an_open_info_closes_it_and_stops_nothing(page: Page) -> None:
    settings(page, **LONG)
    streaming(page)
    cards(page).first.get_by_role("button", name="Details").click()
    expect(page.locator(":popover-open")).to_have_count(1)
    page.keyboard.press("Escape")
    expect(page.locator(":popover-open")).to_have_count(0)
    page.wait_for_timeout(300)
    expect(page.locator(".card.running")).to_have_count(4)
    page.keyboard.press("Escape")
    expect(page.locator(".card.running")).to_have_count(0)


def test_keys_of_an_input_method_are_its_own(page: Page) -> None:
    page.get_by_role("button", name="Untitled").click()
    title = page.get_by_label("Title")
    title.fill("狐")
    title.evaluate("""field => ["Enter", "Escape"].forEach((key) => field.dispatchEvent(
        new KeyboardEvent("keydown", { key, isComposing: true, bubbles: true, cancelable: true })))""")
    expect(title).to_be_focused()
    title.press("Enter")
    expect(page.get_by_role("heading", name="狐")).to_be_visible()
    expect(editor(page)).to_be_focused()
