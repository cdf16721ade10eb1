"""Stories on the server: a phone and a laptop, which are two profiles of a browser, have the same ones."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Error, Page, Route, expect

from tests.support.browser import PATIENCE_MS
from tests.support.hands import compose, editor, go, into
from tests.support.serving import LASTING, Server, serving
from tests.support.steps import over, paused, saved, settings

Visit = Callable[..., Page]

MAX_BODY = 100_000  # bytes: below a long story


@pytest.fixture(scope="module")
def keeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that keeps stories."""
    folder = tmp_path_factory.mktemp("stories")
    bounds = ("--max-body", str(MAX_BODY))
    with serving("--stories", str(folder), *bounds, "--", "-t", "1", *LASTING) as server:
        yield server


@pytest.fixture(autouse=True)
def no_stories(keeper: Server) -> None:
    """Each test begins with an empty server."""
    for one in stories(keeper):
        if one["state"] != "removed":
            keeper.call("DELETE", f"/v1/stories/{one['id']}?forever=true")


def stories(server: Server) -> list[dict[str, Any]]:
    data: list[dict[str, Any]] = server.json("GET", "/v1/stories")[1]["data"]
    return data


def kept(server: Server) -> list[tuple[str, str]]:
    return sorted((one["name"], one["state"]) for one in stories(server) if one["state"] != "removed")


def until(is_so: Callable[[], bool], page: Page) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not is_so():
        if time.monotonic() > deadline:
            said = page.locator(".saved").get_attribute("title")
            pytest.fail(f"the page says {said!r}, and its text is {editor(page).input_value()[:200]!r}")
        page.wait_for_timeout(50)


def shared(page: Page) -> None:
    """Sends at once; returns when all is on the server."""
    saved(page, re.compile("^Saved in this browser"))
    page.locator(".saved").click()
    expect(page.locator(".saved")).to_have_attribute("title", "Saved in this browser and on the server")


def learn(page: Page) -> None:
    page.locator(".saved").click()


def write(page: Page, text: str) -> None:
    compose(page, text)
    shared(page)


def named(page: Page, name: str) -> None:
    page.get_by_role("button", name="Stories", exact=True).click()
    field = page.get_by_label("Name")
    field.fill(name)
    field.press("Tab")
    page.keyboard.press("Escape")


def open_story(page: Page, name: str) -> None:
    page.get_by_role("button", name="Stories", exact=True).click()
    page.locator(".panel .list button").filter(has_text=name).first.click()
    page.keyboard.press("Escape")


def two(visit: Visit, keeper: Server, text: str = "Once") -> tuple[Page, Page]:
    """A phone and a laptop, which both show a story with this text."""
    phone = visit(keeper.url)
    named(phone, "The fox")
    write(phone, text)
    laptop = visit(keeper.url)
    open_story(laptop, "The fox")
    expect(editor(laptop)).to_have_value(text)
    return phone, laptop


def test_a_story_of_the_phone_is_on_the_laptop_and_what_is_added_there_comes_back(
    visit: Visit, keeper: Server
) -> None:
    phone, laptop = two(visit, keeper)
    write(laptop, "Once upon a time")
    learn(phone)
    expect(editor(phone)).to_have_value("Once upon a time")
    assert kept(keeper) == [("The fox", "kept")]


def test_an_empty_story_waits_for_its_first_words(visit: Visit, keeper: Server) -> None:
    page = visit(keeper.url)
    saved = page.locator(".saved")
    expect(saved).to_have_attribute("title", re.compile("the server gets it with its first words$"))
    compose(page, "Once")
    expect(saved).to_have_attribute("title", "Saved in this browser and on the server")


def test_the_caret_stays_between_its_words_when_another_device_changes_what_is_before(
    visit: Visit, keeper: Server
) -> None:
    phone, laptop = two(visit, keeper, "Once upon a time")
    go(phone, "Control+Home")
    for _ in "Once upon":
        phone.keyboard.press("ArrowRight")
    write(laptop, "Listen! Once upon a time")
    learn(phone)
    expect(editor(phone)).to_have_value("Listen! Once upon a time")
    phone.keyboard.press("Escape")
    phone.keyboard.type(" x")
    shared(phone)
    phone.get_by_role("button", name="Stories", exact=True).click()
    phone.get_by_role("button", name="New story").click()
    expect(editor(phone)).to_have_value("")
    phone.keyboard.press("Escape")
    learn(laptop)
    expect(editor(laptop)).to_have_value("Listen! Once upon x a time")
    write(laptop, "Once upon x a time")
    write(phone, "Another one")
    open_story(phone, "The fox")
    expect(editor(phone)).to_have_value("Once upon x a time")
    phone.keyboard.type("y")
    expect(editor(phone)).to_have_value("Once upon xy a time")


def unheard(route: Route) -> None:
    """The server gets it, and its answer is lost."""
    route.fetch()
    with contextlib.suppress(Error):  # a reload has ended the request meanwhile
        route.abort()


def test_a_version_of_this_device_whose_answer_was_lost_is_no_other_devices(
    visit: Visit, keeper: Server
) -> None:
    phone, laptop = two(visit, keeper)
    phone.route("**/v1/stories/*", unheard)
    go(phone, "Control+Home")
    phone.keyboard.insert_text("Well. ")  # at once: the server takes nothing more while its answers are lost
    expect(editor(phone)).to_have_value("Well. Once")
    paused(phone)
    learn(phone)
    until(lambda: "Well. " in stored(keeper, "The fox"), phone)
    phone.reload()
    into(phone)
    phone.keyboard.press("Control+z")
    expect(editor(phone)).to_have_value("Once")
    phone.keyboard.press("Control+End")
    phone.keyboard.type(" upon")
    phone.unroute("**/v1/stories/*")
    shared(phone)
    expect(phone.get_by_role("alert")).to_have_count(0)
    learn(laptop)
    expect(editor(laptop)).to_have_value("Once upon")


def test_an_answer_that_never_comes_stops_only_its_own_round(visit: Visit, keeper: Server) -> None:
    """As after a sleep: the connection is dead, and nothing says so."""
    phone, laptop = two(visit, keeper)
    laptop.add_init_script(
        "const { timeout } = AbortSignal; AbortSignal.timeout = (ms) => timeout(ms / 100);"
    )
    laptop.reload()
    expect(editor(laptop)).to_have_value("Once")
    held: list[Route] = []
    laptop.route(re.compile("/v1/stories|/health"), lambda route: held.append(route), times=2)
    write(phone, "Once upon a time")
    learn(laptop)
    expect(editor(laptop)).to_have_value("Once upon a time")
    assert len(held) == 2


def without_etag(route: Route) -> None:
    """Answers as a proxy that changes bodies and knows no versions of them."""
    answer = route.fetch()
    headers = {name: value for name, value in answer.headers.items() if name != "etag"}
    route.fulfill(response=answer, headers=headers)


def test_behind_a_proxy_that_drops_the_etag_stories_arrive(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    laptop.route("**/v1/stories/*", without_etag)
    write(phone, "Once upon a time")
    learn(laptop)
    expect(editor(laptop)).to_have_value("Once upon a time")
    write(laptop, "Once upon a time, there")
    learn(phone)
    expect(editor(phone)).to_have_value("Once upon a time, there")


def test_what_was_written_without_the_server_is_sent_when_it_is_back(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    phone.context.set_offline(True)
    compose(phone, "Once, offline")
    paused(phone)
    learn(phone)
    expect(phone.locator(".saved")).to_have_attribute("title", re.compile("not on the server yet"))
    phone.context.set_offline(False)
    shared(phone)
    learn(laptop)
    expect(editor(laptop)).to_have_value("Once, offline")


@pytest.mark.parametrize("pause_ms", [0, 700], ids=["just typed", "part of the tree"])
def test_what_is_typed_while_another_version_comes_in_stays(
    visit: Visit, keeper: Server, pause_ms: int
) -> None:
    phone, laptop = two(visit, keeper)
    held: list[Route] = []
    laptop.route("**/v1/stories/*", lambda route: held.append(route), times=1)
    write(phone, "Once upon a time")
    learn(laptop)
    until(lambda: bool(held), laptop)
    compose(laptop, "Once in winter")
    laptop.wait_for_timeout(pause_ms)
    held[0].continue_()
    conflict = laptop.get_by_role("alert", name="Two versions of this story")
    expect(conflict.get_by_label("On the other device")).to_contain_text("Once upon a time")
    expect(editor(laptop)).to_have_value("Once in winter")
    conflict.get_by_role("button", name="Go on with this one").click()
    expect(conflict).to_have_count(0)
    shared(laptop)
    laptop.reload()
    expect(editor(laptop)).to_have_value("Once in winter")
    learn(phone)
    expect(editor(phone)).to_have_value("Once in winter")


@pytest.mark.parametrize("which", ["this one", "the other one"])
def test_a_conflict_shows_both_texts_and_the_writer_decides(visit: Visit, keeper: Server, which: str) -> None:
    phone, laptop = two(visit, keeper)
    phone.context.set_offline(True)
    compose(phone, "Once in spring")
    write(laptop, "Once in winter")
    phone.context.set_offline(False)
    paused(phone)
    learn(phone)
    conflict = phone.get_by_role("alert", name="Two versions of this story")
    expect(conflict.get_by_label("On this device")).to_contain_text("Once in spring")
    expect(conflict.get_by_label("On the other device")).to_contain_text("Once in winter")
    expect(conflict.locator("mark")).to_have_text(["spring", "winter"])
    expect(phone.locator(".saved")).to_have_text(
        "Saved here in this browser; another device has changed the story, too"
    )
    assert kept(keeper) == [("The fox", "kept")]
    conflict.get_by_role("button", name=f"Go on with {which}").click()
    expect(conflict).to_have_count(0)
    chosen, other = ("spring", "winter") if which == "this one" else ("winter", "spring")
    expect(editor(phone)).to_have_value(f"Once in {chosen}")
    shared(phone)
    learn(laptop)
    expect(editor(laptop)).to_have_value(f"Once in {chosen}")
    laptop.get_by_role("button", name="Branches", exact=True).click()
    expect(laptop.get_by_role("treeitem").filter(has_text=other)).to_have_count(1)


def test_a_version_that_came_first_is_asked_about_and_is_no_error(visit: Visit, keeper: Server) -> None:
    """Both devices send at once: what the server refuses is the question, in its own words."""
    phone, laptop = two(visit, keeper)
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method != "PUT" or held:
            return route.continue_()
        return held.append(route)

    phone.route("**/v1/stories/*", hold)
    compose(phone, "Once in spring")
    until(lambda: bool(held), phone)
    write(laptop, "Once in winter")
    held[0].continue_()
    conflict = phone.get_by_role("alert", name="Two versions of this story")
    expect(conflict.get_by_label("On the other device")).to_contain_text("Once in winter")
    expect(phone.get_by_role("alert")).to_have_count(1)
    expect(phone.locator("body")).not_to_contain_text("you expect")
    conflict.get_by_role("button", name="Go on with this one").click()
    shared(phone)
    expect(phone.get_by_role("alert")).to_have_count(0)


def test_the_trash_is_shared_and_a_story_comes_back_from_it(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    open_other(laptop)
    phone.get_by_role("button", name="Stories", exact=True).click()
    phone.get_by_role("button", name="Move to the trash").click()
    expect(phone.get_by_text("Trash (1)")).to_be_visible()
    learn(phone)
    until(lambda: kept(keeper) == [("The fox", "trash")], phone)
    learn(laptop)
    laptop.get_by_role("button", name="Stories", exact=True).click()
    laptop.get_by_text("Trash (1)").click()
    assert kept(keeper) == [("The fox", "trash")]
    laptop.get_by_role("button", name="Restore").click()
    expect(editor(laptop)).to_have_value("Once")
    shared(laptop)
    assert kept(keeper) == [("The fox", "kept")]


def open_other(page: Page) -> None:
    page.get_by_role("button", name="Stories", exact=True).click()
    page.get_by_role("button", name="New story").click()
    page.keyboard.press("Escape")


def test_a_story_removed_for_ever_leaves_all_devices(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    open_other(laptop)
    phone.get_by_role("button", name="Stories", exact=True).click()
    phone.get_by_role("button", name="Move to the trash").click()
    phone.get_by_text("Trash (1)").click()
    phone.once("dialog", lambda dialog: dialog.accept())
    phone.get_by_role("button", name="Remove for ever").click()
    expect(phone.get_by_text("Trash (1)")).to_have_count(0)
    learn(phone)
    until(lambda: kept(keeper) == [], phone)
    learn(laptop)
    laptop.get_by_role("button", name="Stories", exact=True).click()
    expect(laptop.locator(".panel .list").get_by_text("The fox")).to_have_count(0)


def test_two_tabs_of_a_browser_do_not_conflict_with_each_other(visit: Visit, keeper: Server) -> None:
    first = visit(keeper.url)
    named(first, "The fox")
    write(first, "Once")
    context: BrowserContext = first.context
    second = context.new_page()
    second.goto(keeper.url)
    editor(second).wait_for()
    open_other(second)
    write(second, "Twice")
    write(first, "Once upon")
    write(second, "Twice or more")
    for page in (first, second):
        expect(page.get_by_role("alert", name="Two versions of this story")).to_have_count(0)
    assert len(kept(keeper)) == 2


def test_candidates_are_shared_without_their_tokens(visit: Visit, keeper: Server) -> None:
    phone = visit(keeper.url)
    settings(phone, max_tokens=5, next=False)
    compose(phone, "Once upon a time")
    phone.keyboard.press("Control+Enter")
    expect(phone.locator(".card")).to_have_count(4)
    expect(phone.locator(".card.running")).to_have_count(0)
    shared(phone)
    (one,) = (one for one in stories(keeper) if one["state"] == "kept")
    status, _, data = keeper.call("GET", f"/v1/stories/{one['id']}")
    nodes = json.loads(data)["nodes"].values()
    assert status == 200
    assert sum(node["source"] == "model" for node in nodes) == 4
    assert not any("tokens" in node for node in nodes)
    laptop = visit(keeper.url)
    open_story(laptop, "Once upon a time")
    expect(laptop.locator(".card")).to_have_count(4)


def memory(page: Page, text: str) -> None:
    page.get_by_role("button", name="Background", exact=True).click()
    page.get_by_label("Memory").fill(text)
    page.keyboard.press("Escape")


def apart(phone: Page, laptop: Page) -> None:
    """The phone is offline; what the laptop has written is on the server; then the phone learns of it."""
    shared(laptop)
    phone.context.set_offline(False)
    paused(phone)
    learn(phone)


@pytest.mark.parametrize("which", ["this one", "the other one"])
def test_a_conflict_keeps_the_background_of_both_devices(visit: Visit, keeper: Server, which: str) -> None:
    phone, laptop = two(visit, keeper)
    phone.context.set_offline(True)
    memory(phone, "It is spring.")
    memory(laptop, "It is winter.")
    apart(phone, laptop)
    conflict = phone.get_by_role("alert", name="Two versions of this story")
    expect(conflict).to_contain_text("also differ in: memory")
    conflict.get_by_role("button", name=f"Go on with {which}").click()
    expect(conflict).to_have_count(0)
    chosen, other = ("spring", "winter") if which == "this one" else ("winter", "spring")
    phone.get_by_role("button", name="Background", exact=True).click()
    expect(phone.get_by_label("Memory")).to_have_value(f"It is {chosen}.")
    phone.keyboard.press("Escape")
    open_story(phone, "The fox (other version)")
    phone.get_by_role("button", name="Background", exact=True).click()
    expect(phone.get_by_label("Memory")).to_have_value(f"It is {other}.")


def shelf(page: Page, text: str) -> None:
    editor(page).evaluate("(e, [from, to]) => e.setSelectionRange(from, to)", text and [0, len(text)])
    page.get_by_role("button", name="Shelf", exact=True).click()
    page.get_by_role("button", name="Keep the selection").click()
    page.keyboard.press("Escape")


def test_passages_that_two_devices_keep_are_on_both_shelves(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    phone.context.set_offline(True)
    shelf(phone, "Once")
    shelf(laptop, "On")
    apart(phone, laptop)
    shared(phone)
    learn(laptop)
    for page in (phone, laptop):
        page.get_by_role("button", name="Shelf", exact=True).click()
        expect(page.locator(".panel .list .text")).to_have_count(2)


def test_a_story_that_the_server_refuses_stops_no_other(visit: Visit, keeper: Server) -> None:
    phone = visit(keeper.url)
    phone.context.set_offline(True)
    named(phone, "The fox")
    compose(phone, "Once")
    open_other(phone)
    compose(phone, "So long. " * (MAX_BODY // 9))
    paused(phone)
    phone.context.set_offline(False)
    learn(phone)
    until(lambda: kept(keeper) == [("The fox", "kept")], phone)
    refused = re.compile("not on the server yet: .*--max-body")
    expect(phone.locator(".saved")).to_have_attribute("title", refused)
    open_story(phone, "The fox")
    for _ in range(2):  # it has its first words as its name also when it is refused again
        expect(phone.locator(".saved")).to_have_attribute(
            "title", re.compile("on the server; but not “So long. So")
        )
        with phone.expect_response(lambda response: response.status == 413):
            learn(phone)


def test_a_page_sends_what_is_written_when_it_is_hidden(visit: Visit, keeper: Server) -> None:
    phone, laptop = two(visit, keeper)
    laptop.context.set_offline(True)  # it has no part in this
    compose(phone, "Once upon a time")
    phone.evaluate("""() => {
        Object.defineProperty(document, "hidden", { value: true });
        document.dispatchEvent(new Event("visibilitychange"));
    }""")
    until(lambda: "Once upon a time" in stored(keeper, "The fox"), phone)


NODES = """() => import(new URL("studio/story/session.js", document.baseURI))
    .then(({session}) => Object.keys(session.story.nodes).length)"""


def test_a_text_that_comes_in_without_the_place_of_the_candidates_is_drawn(
    visit: Visit, keeper: Server
) -> None:
    """The page's console has an error otherwise, and the preview none of its words."""
    phone, laptop = two(visit, keeper, "Once upon a time")
    go(phone, "Control+Home")
    for _ in "Once":
        phone.keyboard.press("ArrowRight")
    settings(phone, n=2, max_tokens=4, next=False)
    phone.keyboard.press("Control+Enter")
    over(phone, 2)
    shared(phone)
    learn(laptop)
    until(lambda: laptop.evaluate(NODES) > 3, laptop)
    write(laptop, "No")
    learn(phone)
    expect(editor(phone)).to_have_value("No")


def stored(server: Server, name: str) -> str:
    (one,) = (one for one in stories(server) if (one["name"], one["state"]) == (name, "kept"))
    return server.call("GET", f"/v1/stories/{one['id']}")[2].decode()


def asks(page: Page) -> None:
    """Asks for two candidates behind the text."""
    settings(page, n=2, max_tokens=4, next=False)
    go(page, "Control+End")
    page.keyboard.press("Control+Enter")
    over(page, 2)


def splits(page: Page) -> None:
    """Splits the story before its text, so that another text can begin it."""
    go(page, "Control+Home")
    page.get_by_role("button", name="Branches", exact=True).click()
    page.get_by_role("button", name="Split").click()
    expect(page.get_by_role("treeitem")).to_have_count(2)
    page.keyboard.press("Escape")


@pytest.mark.parametrize(("here", "there"), [(splits, asks), (asks, splits)], ids=["here", "there"])
def test_a_story_that_another_text_may_begin_stays_one_on_both_devices(
    visit: Visit, keeper: Server, here: Callable[[Page], None], there: Callable[[Page], None]
) -> None:
    phone, laptop = two(visit, keeper, "Once upon a time")
    phone.route("**/v1/stories**", lambda route: route.abort())
    here(phone)
    there(laptop)
    shared(laptop)
    phone.unroute("**/v1/stories**")
    shared(phone)
    expect(phone.get_by_role("alert")).to_have_count(0)
    phone.get_by_role("button", name="Branches", exact=True).click()
    expect(phone.get_by_role("treeitem", name="Once upon a time")).to_have_count(1)
