"""The studio with a server that wants a key, is killed in mid-stream, is busy or has several models."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Callable

from playwright.sync_api import Page, Route, expect

from tests.support.hands import compose, editor
from tests.support.serving import LASTING, serving
from tests.support.steps import LONG, OPENING, ask, over, settings, streaming, texts

Visit = Callable[[str], Page]


def test_asks_for_the_key_that_the_server_wants(visit: Visit) -> None:
    with serving("--api-key", "sesame") as server:
        page = visit(server.url)
        field = page.get_by_label("This server wants a key")
        field.fill("wrong")
        field.press("Enter")
        field = page.get_by_label("does not know this key")
        field.fill("sesame")
        page.get_by_role("button", name="Use it").click()
        expect(field).to_have_count(0)
        expect(page.locator(".status")).to_contain_text("storyteller")
        settings(page, max_tokens=6, next=False)  # reloads the page: the key is kept
        ask(page)
        expect(page.get_by_label("wants a key")).to_have_count(0)


def test_a_server_that_is_killed_in_mid_stream_loses_nothing(visit: Visit) -> None:
    with contextlib.ExitStack() as first:
        server = first.enter_context(serving("--", *LASTING))
        page = visit(server.url)
        settings(page, **LONG)
        streaming(page)
        os.kill(server.pid, signal.SIGKILL)
        expect(
            page.get_by_role("alert").filter(has_text="Your writing is safe in this browser")
        ).to_be_visible()
        expect(page.locator(".facts", has_text="interrupted")).to_have_count(4)
        before = texts(page)
    with serving("--port", server.url.rsplit(":", 1)[1]):
        expect(page.get_by_role("alert")).to_have_count(0)
        assert texts(page) == before
        settings(page, max_tokens=5)
        page.get_by_role("button", name="Resume 4 interrupted").click()
        expect(page.locator(".facts", has_text="interrupted")).to_have_count(0)
        over(page, 4)
        assert all(now.startswith(then) and now > then for now, then in zip(texts(page), before, strict=True))


def test_without_a_network_the_page_says_so_and_writing_goes_on(page: Page) -> None:
    page.context.set_offline(True)
    expect(page.get_by_role("alert").filter(has_text="reach the server")).to_be_visible()
    compose(page, "Still here")
    page.context.set_offline(False)
    expect(page.get_by_role("alert")).to_have_count(0)
    assert editor(page).input_value() == "Still here"


ENDLESS_BODY = """{
  const read = ReadableStreamDefaultReader.prototype.read;
  ReadableStreamDefaultReader.prototype.read = async function () {
    const found = await read.call(this);
    return found.done ? new Promise(() => {}) : found;
  };
}"""


def test_the_last_event_ends_a_request_even_if_its_body_does_not_end(page: Page) -> None:
    page.add_init_script(ENDLESS_BODY)
    settings(page, max_tokens=6)
    page.reload()
    ask(page)
    page.keyboard.press("Escape")  # while a request runs, Escape would stop it
    expect(editor(page)).to_be_focused()


def test_cells_used_and_shared_are_in_the_status(page: Page) -> None:
    settings(page, max_tokens=6, next=False)
    ask(page)
    status = page.locator(".status")
    expect(status).to_contain_text(re.compile(r"[1-9]\d* of \d+ cells, [1-9]\d* saved by sharing"))


def test_a_waiting_request_shows_its_place_in_the_queue(visit: Visit) -> None:
    with serving("--parallel", "1", "--ctx", "768") as server:
        first = visit(server.url)
        settings(first, **LONG, n=8)
        compose(first, OPENING)
        first.keyboard.press("Control+Enter")
        expect(first.locator(".status")).to_contain_text("tokens/s")
        second = visit(server.url)
        settings(second, max_tokens=5)
        compose(second, "A dog ran through the long grass. " * 12)
        second.keyboard.press("Control+Enter")
        expect(second.locator(".status")).to_contain_text("in the queue")
        first.keyboard.press("Escape")
        over(second, 4)


def test_with_several_models_one_can_be_chosen(page: Page) -> None:
    """The server has one model; the test adds another name to its list."""

    def two(route: Route) -> None:
        answer = route.fetch()
        listed = answer.json()
        route.fulfill(response=answer, json={**listed, "data": [{"id": "other"}, *listed["data"]]})

    expect(page.locator(".status")).to_contain_text("storyteller")
    expect(page.get_by_label("Model")).to_have_count(0)
    page.route("**/v1/models", two)
    settings(page, max_tokens=5, next=False)
    page.reload()
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Model").select_option("storyteller")
    with page.expect_request("**/v1/events") as sent:
        ask(page)
    assert sent.value.post_data_json["model"] == "storyteller"
    page.reload()
    page.get_by_role("button", name="Settings").click()
    expect(page.get_by_label("Model")).to_have_value("storyteller")
