"""The text field: what browsers, input methods, fingers and screen readers do in it."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Request, expect

from benchmarks.loads.studio_book import CHAPTERS
from tests.studio.test_book import open_book
from tests.support.browser import PHONE, visiting
from tests.support.hands import compose, double_click, editor, go, into, place, selected
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.steps import ONE_LINE, OPENING, afresh, ask, drawn, over, paused, settings, shown, texts

PAUSE_MS = 1500  # longer than the pauses after which typing is a step of undo, and the prompt is sent
UNDO = "button[aria-label='Undo']"

# ---- input methods ------------------------------------------------------------------------------------

# what stands there meanwhile, and the word
COMPOSED = (
    (("n", "ni", "ni h", "你好"), "你好"),  # Chinese
    (("k", "か", "かn", "かな", "仮名"), "仮名"),  # Japanese
)


def composing(devtools: CDPSession, steps: tuple[str, ...]) -> None:
    for step in steps:
        devtools.send(
            "Input.imeSetComposition", {"text": step, "selectionStart": len(step), "selectionEnd": len(step)}
        )


@each_row("steps, word", COMPOSED)
def test_a_word_of_an_input_method_enters_once_and_nothing_is_sent_before(
    page: Page, steps: tuple[str, ...], word: str
) -> None:
    settings(page, max_tokens=6, next=False)
    before, behind = "The fox said ", " and ran."
    with page.expect_request("**/v1/prefix"):
        compose(page, before + behind)
    paused(page)
    for _ in behind:
        page.keyboard.press("ArrowLeft")
    sent: list[Request] = []
    page.on("request", lambda one: sent.append(one))
    devtools = page.context.new_cdp_session(page)
    composing(devtools, steps)
    page.wait_for_timeout(PAUSE_MS)
    expect(editor(page)).to_have_value(before + steps[-1] + behind)
    assert [one.url for one in sent if "/v1/prefix" in one.url or "/v1/events" in one.url] == []
    devtools.send("Input.insertText", {"text": word})
    expect(editor(page)).to_have_value(before + word + behind)
    with page.expect_request("**/v1/events") as asked:
        page.keyboard.press("Control+Enter")
    assert asked.value.post_data_json["prompt"] == before + word
    over(page, 4)
    into(page)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(before + behind)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value("")
    afresh(page)


@each_row("select", [False, True])
def test_a_word_of_an_input_method_that_is_given_up_changes_nothing_else(page: Page, select: bool) -> None:
    compose(page, "One two three")
    paused(page)
    if select:
        double_click(page, "two")
    left = "One  three" if select else "One two three"
    composing(page.context.new_cdp_session(page), ("x", "xy", ""))
    expect(editor(page)).to_have_value(left)
    paused(page)
    page.keyboard.press("Control+End")
    page.keyboard.type("abc")
    expect(editor(page)).to_have_value(left + "abc")
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value(left)
    afresh(page)


def test_a_word_that_is_still_composed_counts_when_the_writer_asks(page: Page) -> None:
    """A phone's keyboard composes each word until the next space."""
    settings(page, max_tokens=6, next=False)
    into(page)
    page.keyboard.type("The little ")
    devtools = page.context.new_cdp_session(page)
    composing(devtools, ("f", "fo", "fox"))
    with page.expect_request("**/v1/events") as asked:
        page.get_by_role("button", name="Continue").click()
    assert asked.value.post_data_json["prompt"] == "The little fox"
    over(page, 4)
    expect(editor(page)).to_have_value("The little fox")


def test_keys_neither_choose_nor_ask_while_a_word_is_composed(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page, "The fox ran")
    before = shown(page)
    composing(page.context.new_cdp_session(page), ("s", "so"))
    for key in ("Alt+1", "Control+Enter", "Control+Enter"):
        page.keyboard.press(key)
        assert shown(page) == before
    expect(editor(page)).to_have_value("The fox ranso")


def test_a_change_of_the_text_while_a_word_is_composed_loses_neither(page: Page) -> None:
    """As when another device's version comes in."""
    compose(page, OPENING)
    paused(page)
    devtools = page.context.new_cdp_session(page)
    composing(devtools, ("n", "ni"))
    page.evaluate(REFRESH, "Listen! " + OPENING)
    expect(editor(page)).to_have_value("Listen! " + OPENING + "ni")
    devtools.send("Input.insertText", {"text": "你"})
    expect(editor(page)).to_have_value("Listen! " + OPENING + "你")
    assert page.evaluate(STATE)[0] == "Listen! " + OPENING + "你"


Way = tuple[Callable[[Page], None], str, str]
# what the writer does, the text with the caret behind it, and the text after the next words are undone
WAYS: dict[str, Way] = {
    "a click elsewhere": (
        lambda page: page.mouse.click(*place(page, "The")[:2]),
        "|The fox 仮名",
        "The fox 仮名",
    ),
    "the button Undo": (lambda page: page.locator(UNDO).click(), "The fox |", "The fox "),
    "a key": (lambda page: page.keyboard.press("Alt+1"), "The fox 仮名|", "The fox "),
}


@each_row("way", WAYS)
def test_a_word_whose_end_the_browser_does_not_tell_hides_nothing_that_comes_behind(
    page: Page, way: str
) -> None:
    """It tells none when the caret goes elsewhere, or when the page changes the text."""
    leave, text, undone = WAYS[way]
    into(page)
    page.keyboard.type("The fox ")
    paused(page)
    composing(page.context.new_cdp_session(page), ("k", "か", "仮名"))
    leave(page)
    expect(editor(page)).to_have_value(text.replace("|", ""))
    page.keyboard.type("He ran.")
    paused(page)
    page.reload()
    expect(editor(page)).to_have_value(text.replace("|", "He ran."))
    for _ in "He", "ran.":
        go(page, "Control+z")
    expect(editor(page)).to_have_value(undone)
    afresh(page)


def test_a_word_that_is_still_composed_when_the_page_is_closed_is_kept(page: Page) -> None:
    into(page)
    page.keyboard.type("The ")
    composing(page.context.new_cdp_session(page), ("f", "fo", "fox"))
    page.reload()
    expect(editor(page)).to_have_value("The fox")


# ---- fingers ------------------------------------------------------------------------------------------


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url, **PHONE) as [page]:
        yield page


def tap_twice(phone: Page, word: str) -> None:
    left, y, right, _ = place(phone, word)
    devtools = phone.context.new_cdp_session(phone)
    for points in ([{"x": (left + right) / 2, "y": y}], []) * 2:
        kind = "touchStart" if points else "touchEnd"
        devtools.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})


# as a browser does after a long press, which the emulated phone does not have, or by its handles
HANDLES = """([from, to]) => {
    const text = document.querySelector("#editor .cm-line span").firstChild;
    getSelection().setBaseAndExtent(text, from, text, to);
}"""


def test_a_word_is_selected_by_a_finger_and_typing_takes_its_place(phone: Page) -> None:
    compose(phone, "The fox ran away.")
    expect(phone.locator(UNDO)).to_be_enabled()
    tap_twice(phone, "ran")
    expect(phone.get_by_role("button", name="Rewrite")).to_be_visible()
    assert selected(phone) == "ran"
    phone.evaluate(HANDLES, [4, 11])
    expect(phone.locator("#editor")).to_have_js_property("selectionStart", 4)
    assert selected(phone) == "fox ran"
    phone.keyboard.type("owl")
    expect(editor(phone)).to_have_value("The owl away.")
    expect(phone.get_by_role("button", name="Continue")).to_be_visible()


# ---- the clipboard ------------------------------------------------------------------------------------

WRITE = """parts => navigator.clipboard.write([new ClipboardItem(
    Object.fromEntries(Object.entries(parts).map(([type, text]) => [type, new Blob([text], {type})])))])"""
READ = "navigator.clipboard.readText()"
HEADINGS = """navigator.clipboard.read().then(([one]) => one.getType("text/html")).then((html) => html.text())
    .then((html) => html.match(/<h[1-6]/g).length)"""


@pytest.fixture
def clipboard(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url) as [page]:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield page


def test_what_is_pasted_is_plain_text_with_plain_line_breaks(clipboard: Page) -> None:
    clipboard.evaluate(
        WRITE, {"text/plain": "a\r\nb\rc", "text/html": "<img src='data:,'><script>1</script>"}
    )
    into(clipboard)
    clipboard.keyboard.press("Control+v")
    expect(editor(clipboard)).to_have_value("a\nb\nc")
    expect(clipboard.locator("#editor :is(img, script)")).to_have_count(0)


def test_a_whole_book_is_copied_and_without_a_selection_nothing(clipboard: Page, tmp_path: Path) -> None:
    open_book(clipboard, tmp_path)
    go(clipboard, "Control+a")
    clipboard.keyboard.press("Control+c")
    book = editor(clipboard).input_value()
    assert len(book) > 400_000
    assert clipboard.evaluate(READ) == book
    assert clipboard.evaluate(HEADINGS) == CHAPTERS
    clipboard.keyboard.press("Control+Home")
    for key in ("Control+c", "Control+x"):
        clipboard.keyboard.press(key)
    assert clipboard.evaluate(READ) == book
    expect(editor(clipboard)).to_have_value(book)


# ---- the text and its places --------------------------------------------------------------------------

PIECES = [
    *"ab \t\n",
    "\n\n",
    "\u2028",
    "\u2029",
    "\u0085",
    "\v",
    "\f",
    "\r",
    "\r\n",
    "\x01",
    "é",
    "🦊",
    "שלום",
]
STATE = """async () => {
    const {session} = await import(new URL("studio/story/session.js", document.baseURI));
    return [session.text, session.at];
}"""
REFRESH = """async text => {
    const {typed, commit} = await import(new URL("studio/text/history.js", document.baseURI));
    typed(text, 0);
    commit();
}"""


def units(text: str) -> int:
    """The length of a text as the page counts it."""
    return len(text.encode("utf-16-le")) // 2


def test_the_field_and_the_page_have_the_same_text_and_place_whatever_is_in_it(page: Page) -> None:
    """The page puts a text into the field, a key goes anywhere into it: both agree, and undo, too."""
    into(page)
    for seed in range(30):
        draw = random.Random(seed)
        parts = draw.choices(PIECES, k=draw.randrange(40))
        text = "".join(parts)
        page.evaluate(REFRESH, text)
        drawn(page)
        assert editor(page).input_value() == text, seed
        at = draw.randrange(len(parts) + 1)
        before, behind = "".join(parts[:at]), "".join(parts[at:])
        editor(page).evaluate("(e, at) => e.setSelectionRange(at, at)", units(before))
        page.keyboard.type("x")
        assert editor(page).input_value() == before + "x" + behind, seed
        assert page.evaluate(STATE) == [before + "x" + behind, units(before) + 1], seed
        drawn(page)
        parted = (before + "x" + behind).replace("\u0085", "_").replace("\x1c", "_").split()
        count = sum(any(sign.isalnum() for sign in word) for word in parted)
        words = f"{count} {'word' if count == 1 else 'words'}"
        expect(page.locator(".count")).to_have_text(re.compile(rf"^{words}( · by the model: 0 %)?$"))


def test_undo_after_a_reload_and_by_the_browsers_own_way(page: Page) -> None:
    compose(page, "The fox")
    expect(page.locator(UNDO)).to_be_enabled()
    page.keyboard.press("Control+End")
    page.keyboard.type(" ran")
    paused(page)
    page.reload()
    expect(editor(page)).to_have_value("The fox ran")
    into(page)
    page.keyboard.press("Control+z")
    expect(editor(page)).to_have_value("The fox")
    native = "(e, inputType) => e.dispatchEvent(new InputEvent('beforeinput', {inputType, cancelable: true}))"
    assert not editor(page).evaluate(native, "historyRedo"), "the browser's own is prevented"
    expect(editor(page)).to_have_value("The fox ran")
    editor(page).evaluate(native, "historyUndo")
    expect(editor(page)).to_have_value("The fox")


def test_escape_leads_from_the_cards_back_to_the_caret(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    for key in ("Tab", "j", "Escape", "x"):
        page.keyboard.press(key)
    expect(editor(page)).to_have_value(OPENING[:-3] + "x" + OPENING[-3:])


NATIVE = """([text, at]) => {
    const area = document.querySelector("textarea.native") ?? document.createElement("textarea");
    area.className = "native";
    area.style = "position: fixed; inset: 0 0 auto 0; height: 9em; z-index: 9";
    document.body.append(area);
    area.value = text;
    area.focus();
    area.setSelectionRange(at, at);
}"""
AREA = "one => [one.value, one.selectionStart, one.selectionEnd]"


@each_row("key", ["Backspace", "Shift+Backspace", "Delete", "Home", "Shift+Home", "End", "Shift+End"])
def test_a_key_does_where_a_line_begins_with_blanks_what_it_does_in_a_text_area(page: Page, key: str) -> None:
    """CodeMirror is made for programs, too, where blanks at the begin of a line mean something else."""
    text = "One.\n   two\n\n\t 3\n  "
    for at in range(len(text) + 1):
        compose(page, text)
        editor(page).evaluate("(one, at) => one.setSelectionRange(at, at)", at)
        page.keyboard.press(key)
        found = editor(page).evaluate(AREA)
        page.evaluate(NATIVE, [text, at])
        page.keyboard.press(key)
        assert found == page.locator("textarea.native").evaluate(AREA), f"{text[:at]}|{text[at:]}"
        page.evaluate("document.querySelector('textarea.native').remove()")


def test_what_is_sought_goes_into_its_field_also_from_a_caret_where_a_line_wraps(page: Page) -> None:
    """There CodeMirror sets the caret again a moment later, and that would take the focus back."""
    text = "The owl woke and the fox slept. " * 20
    page.get_by_role("button", name="Outline", exact=True).click()
    compose(page, text)
    for key in ("Control+Home", "End"):
        page.keyboard.press(key)
    assert 20 < editor(page).evaluate("one => one.selectionStart") < 300
    page.keyboard.press("Control+f")
    page.wait_for_timeout(100)
    page.keyboard.type("owl")
    expect(page.get_by_label("Find", exact=True)).to_have_value("owl")
    expect(editor(page)).to_have_value(text)


CARET = """one => {
    const {anchorNode, anchorOffset} = getSelection();
    return [anchorNode.data, anchorOffset, one.selectionStart];
}"""


def test_a_caret_that_the_page_moves_while_a_button_has_the_focus_is_there_for_the_next_key(
    page: Page,
) -> None:
    """The browser has a caret of its own, which it would bring back with the focus."""
    compose(page, "One small and")
    page.locator(".saved").focus()
    editor(page).evaluate("one => one.setSelectionRange(3, 3)")
    page.keyboard.press("Escape")
    assert editor(page).evaluate(CARET) == ["One small and", 3, 3]


# ---- what is seen -------------------------------------------------------------------------------------


def test_words_typed_among_a_models_are_the_writers_at_once(page: Page) -> None:
    settings(page, max_tokens=12, next=False, structure=ONE_LINE)
    ask(page)
    [first] = texts(page)[:1]
    page.keyboard.press("Alt+1")
    expect(page.locator("#editor .by-model")).to_have_text([first], use_inner_text=False)
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("x")
    models = page.locator("#editor .by-model").all_text_contents()
    assert models == [first[:-3], first[-3:]]
    paused(page)
    page.reload()
    expect(page.locator("#editor .by-model").first).to_have_text(first[:-3], use_inner_text=False)


def test_emphasis_is_drawn_and_its_signs_are_dimmed(page: Page) -> None:
    compose(page, "# One\nA *small* and **big** _fox_ is 2 * 3")
    line = page.locator(".origins .cm-line")
    for kind, style, wanted in (
        ("em", "fontStyle", ["italic"]),
        ("strong", "fontWeight", ["700"]),
        ("heading", "fontWeight", ["700"]),
    ):
        found = line.locator(f".{kind}").evaluate_all(
            "(all, style) => all.map(e => getComputedStyle(e)[style])", style
        )
        assert found == wanted, kind
    assert line.locator(".em").all_text_contents() == ["small"]
    assert line.locator(".sign").all_text_contents() == ["# ", "*", "*", "**", "**"]


def test_the_editors_own_styles_apply_without_a_style_element(page: Page) -> None:
    """The page's policy forbids style elements; what it refuses would be an error in the console."""
    assert page.locator("style").count() == 0
    assert page.evaluate("document.adoptedStyleSheets.length") == 1
    assert editor(page).evaluate("one => getComputedStyle(one).whiteSpace") == "break-spaces"


def test_the_browser_spells_the_text_and_knows_its_language(page: Page) -> None:
    wanted = {"spellcheck": "true", "autocapitalize": "sentences", "lang": ""}
    for name, value in wanted.items():
        expect(editor(page)).to_have_attribute(name, value)


def test_a_screen_reader_has_the_text_around_the_caret(page: Page, tmp_path: Path) -> None:
    open_book(page, tmp_path)
    go(page, "Control+End")
    page.keyboard.type("\nThe owl woke.")
    drawn(page)
    devtools = page.context.new_cdp_session(page)
    nodes = devtools.send("Accessibility.getFullAXTree")["nodes"]
    [box] = [one for one in nodes if one.get("name", {}).get("value") == "Story"]
    properties = {one["name"]: one["value"].get("value") for one in box["properties"]}
    assert box["role"]["value"] == "textbox"
    assert properties["multiline"] is True
    assert properties["focused"] is True
    assert properties["editable"] == "plaintext" or properties["editable"] == "richtext"
    assert box["value"]["value"].endswith("\nThe owl woke.")


def test_ctrl_f_opens_the_pages_own_find(page: Page) -> None:
    compose(page, "The owl woke. The fox slept.")
    page.keyboard.press("Control+f")
    expect(page.get_by_role("searchbox", name="Find", exact=True)).to_be_focused()
    page.keyboard.type("fox")
    expect(page.get_by_text("1 found")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.locator("#editor .found")).to_have_text("fox")
    assert selected(page) == "fox"


AT_ONCE = """keys => keys.map(([key, ctrlKey]) => {
    const event = new KeyboardEvent("keydown", { key, ctrlKey, bubbles: true, cancelable: true });
    document.activeElement.dispatchEvent(event);
    return [document.activeElement.getAttribute("aria-label"), document.activeElement.type];
})"""


def test_a_key_that_opens_or_leaves_a_field_has_moved_the_focus_before_the_next_key(page: Page) -> None:
    compose(page, "The owl woke. The fox slept.")
    double_click(page, "owl")
    for keys in ([["f", True], ["Escape", False]], [["Escape", False], ["f", True], ["f", True]]):
        focused = page.evaluate(AT_ONCE, keys)
        assert focused == [["Story", None] if key == "Escape" else [None, "search"] for key, _ in keys]
    expect(page.get_by_label("Find", exact=True)).to_have_value("owl")


@each_row("begin", ["", "a", "a\n", " é kpu\n\n", "*a*\n# b\n"])
def test_lines_that_come_at_once_are_in_the_text_as_they_are(page: Page, begin: str) -> None:
    """As of a dictated text; of these the browser loses empty lines at the end of the text."""
    compose(page, begin)
    for lines in ("\n", "x", "\n\nJup", "\n\n\n", "y\n", "z"):
        page.keyboard.press("Control+End")
        page.keyboard.insert_text(lines)
        begin += lines
        expect(editor(page)).to_have_value(begin)
    page.keyboard.press("Control+a")
    page.keyboard.insert_text("One\n\ntwo\n")
    expect(editor(page)).to_have_value("One\n\ntwo\n")
