"""Features that writers ask for, beyond those of test_write.py."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.hands import editor, go
from tests.support.steps import ONE_LINE, OPENING, act, ask, cards, choose, gone, over, settings, texts, value


def tree(page: Page) -> Locator:
    """Opens the tree; returns its leaves."""
    if not page.get_by_role("tree").count():
        page.get_by_role("button", name="Branches").click()
    return page.get_by_role("treeitem")


def test_arrows_walk_the_cards_and_enter_chooses(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    third = texts(page)[2]
    for key in ("Tab", "ArrowRight", "ArrowDown", "ArrowRight", "ArrowUp"):
        page.keyboard.press(key)
    expect(cards(page).nth(2)).to_be_focused()
    page.keyboard.press("Enter")
    expect(editor(page)).to_have_value(OPENING + third)


def test_arrows_go_by_rows_and_the_focus_is_never_lost(page: Page) -> None:
    settings(page, max_tokens=4)
    ask(page)
    for key, number in (("Down", 0), ("Down", 2), ("Right", 3), ("Up", 1), ("Up", 0), ("Left", 0)):
        page.keyboard.press(f"Arrow{key}")
        expect(cards(page).nth(number)).to_be_focused()
    page.keyboard.press("Enter")
    chosen = value(page)
    expect(editor(page)).to_be_focused()
    over(page, 4)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("e")
    expect(page.get_by_label("Your version")).to_be_focused()
    page.keyboard.type("Mine")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#candidates")).to_be_focused()
    page.keyboard.press("Escape")
    expect(editor(page)).to_be_focused()
    assert editor(page).input_value() == chosen


def test_letters_work_on_the_card_that_has_the_focus(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.keyboard.press("Tab")
    page.keyboard.press("p")
    expect(cards(page).first).to_have_class("card pinned")
    page.keyboard.press("w")
    expect(page.get_by_label("Words to take")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".part .in")).to_have_count(2)
    first = texts(page)[0]
    page.keyboard.press("Enter")
    assert value(page) == OPENING + "".join(re.findall(r"\s*\S+", first)[:2])


def test_a_retry_is_a_sibling_and_the_count_is_shown(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    old = texts(page)
    for count in (1, 2):
        act(page, "Again")
        expect(page.get_by_role("button", name=f"{count} earlier")).to_be_visible()
        over(page, 4)
    assert texts(page)[1:] == old[1:]
    page.get_by_role("button", name="2 earlier").click()
    expect(cards(page)).to_have_count(6)
    assert texts(page)[0] == old[0]


def test_more_candidates_are_added_after_the_last_card(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    old = texts(page)
    page.keyboard.press("Tab")
    for _ in range(4):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_role("button", name="More")).to_be_focused()
    page.keyboard.press("Enter")
    over(page, 8)
    assert texts(page)[:4] == old


def test_the_tree_folds_hoists_bookmarks_and_sets_aside(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    page.keyboard.press("Alt+1")
    ask(page, value(page))
    expect(tree(page)).to_have_count(9)
    expect(page.locator(".leaf.unseen-yet")).to_have_count(7)
    tree(page).nth(1).focus()
    page.get_by_role("button", name="Only this").click()
    expect(tree(page)).to_have_count(5)
    page.get_by_role("button", name="Bookmark").click()
    expect(page.get_by_role("treeitem", name="★")).to_have_count(1)
    page.get_by_role("button", name="Only this").click()
    page.get_by_role("button", name="Fold").click()
    expect(tree(page)).to_have_count(5)
    page.get_by_role("button", name="Fold").click()
    tree(page).last.focus()
    page.get_by_role("button", name="Discard").click()
    expect(tree(page)).to_have_count(8)
    page.get_by_label("Show discarded").check()
    expect(tree(page)).to_have_count(9)


def test_a_piece_is_split_at_the_caret_and_joined_again(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    text = choose(page, 1)
    expect(tree(page)).to_have_count(5)
    go(page, "End")
    for _ in range(4):
        page.keyboard.press("ArrowLeft")
    page.get_by_role("button", name="Split").click()
    expect(tree(page)).to_have_count(6)
    page.locator(".leaf.current").focus()
    page.get_by_role("button", name="Join").click()
    expect(tree(page)).to_have_count(5)
    expect(editor(page)).to_have_value(text)
    page.reload()
    expect(editor(page)).to_have_value(text)
    expect(tree(page)).to_have_count(5)


def test_undo_after_a_join_finds_the_old_text(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    once = choose(page, 1)
    ask(page, once)
    twice = choose(page, 2, once)
    tree(page)
    page.locator(".leaf.current").focus()
    expect(page.get_by_role("button", name="Join")).to_be_disabled()  # the piece before it has other children
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(once)
    page.keyboard.press("Control+Shift+Z")
    expect(editor(page)).to_have_value(twice)


def test_a_token_shows_its_alternatives(page: Page) -> None:
    settings(page, max_tokens=6, next=False, colours=True)
    ask(page)
    title = cards(page).first.locator(".token").first.get_attribute("title")
    assert title
    assert len(title.split("\n")) >= 5
    assert title.count("%") == len(title.split("\n"))


def test_a_candidate_with_its_tokens_shown_is_chosen_by_its_number(page: Page) -> None:
    settings(page, max_tokens=6, next=False, colours=True)
    ask(page)
    tokens = cards(page).nth(2).locator(".token").all_text_contents()
    page.get_by_role("button", name="Choose 3").click()
    expect(editor(page)).to_have_value(OPENING + "".join(tokens))


def test_a_duplicate_is_grey(page: Page) -> None:
    settings(page, max_tokens=6, next=False, n=3, spreads={"temperature": [0, 0]})
    ask(page, n=3)
    expect(page.locator(".card.duplicate")).to_have_count(2)
    expect(cards(page).first).not_to_have_class("card duplicate")


def test_the_words_in_which_two_candidates_differ_are_marked(page: Page) -> None:
    settings(page, max_tokens=12, next=False, n=2)
    ask(page, n=2)
    first, second = texts(page)
    act(page, "Diff")
    marked = cards(page).nth(1)
    expect(marked.locator("ins")).not_to_have_count(0)
    gone, new = (marked.locator(kind).all_text_contents() for kind in ("del", "ins"))
    assert gone
    both = marked.locator(".text").text_content() or ""
    assert len(both) == len(second) + sum(map(len, gone))
    assert all(word in first for word in gone)
    assert all(word in second for word in new)


def test_an_empty_page_has_openings_and_a_story_is_named_by_its_first_words(page: Page) -> None:
    settings(page, max_tokens=6)
    page.locator(".opening").first.click()
    over(page, 4)
    words = value(page, "")
    assert words.startswith("Once upon a time,")
    name = page.get_by_role("heading", level=1).inner_text()
    assert len(name) > 20
    assert words.startswith(name)
    expect(page.locator(".opening")).to_have_count(0)


def test_a_story_that_begins_with_a_heading_is_named_without_its_marks(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page, "## The old fox\n\nOnce")
    expect(page.get_by_role("heading", level=1)).to_have_text("The old fox")


def test_text_is_coloured_by_its_origin(page: Page) -> None:
    settings(page, max_tokens=6, next=False, structure=ONE_LINE)
    ask(page)
    model, edited = texts(page)[0], " and a very old crow."
    page.keyboard.press("Alt+1")
    gone(page, model)
    go(page, "End")
    page.keyboard.press("Control+Enter")
    over(page, 4)
    page.get_by_role("button", name="Edit").first.click()
    page.get_by_label("Your version").fill(edited)
    page.get_by_label("Your version").press("Control+Enter")
    page.locator(".card .text").filter(has_text=edited).click()
    expect(page.locator(".origins .by-edit")).to_have_text([edited], use_inner_text=False)
    expect(page.locator(".origins .by-model")).to_have_text([model])
    colours = {
        page.locator(f".origins .by-{kind}").first.evaluate("one => getComputedStyle(one).color")
        for kind in ("user", "model", "edit")
    }
    assert len(colours) == 3


def test_a_kept_passage_is_inserted_from_the_shelf(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    kept = texts(page)[1]
    act(page, "Keep", 1)
    chosen = choose(page, 1)
    page.reload()
    page.get_by_role("button", name="Shelf").click()
    page.get_by_role("button", name="Insert").click()
    expect(editor(page)).to_have_value(chosen + kept)


def test_all_stories_are_searched_by_text_and_tag(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page, "The heron waited.")
    page.keyboard.press("Alt+1")
    page.get_by_role("button", name="Stories").click()
    page.get_by_label("Name").fill("Marsh")
    page.get_by_label("Tags").fill("birds, winter")
    page.get_by_role("button", name="New story").click()
    expect(editor(page)).to_have_value("")
    for words, text in (("heron", "The heron waited."), ("winter", "The heron waited.")):
        page.get_by_role("button", name="New story").click()
        expect(editor(page)).to_have_value("")
        page.get_by_label("Search all stories").fill(words)
        page.get_by_role("list", name="Found").get_by_role("button").first.click()
        assert value(page, "").startswith(text)
