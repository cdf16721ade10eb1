"""On a phone: title, large targets, panels that close each other; an app that opens without the server."""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from llama_srb.studio import files
from tests.studio.test_files import WIDE
from tests.studio.test_reading import DARKEST
from tests.support.browser import PATIENCE_MS, PHONE, visiting
from tests.support.hands import compose, editor, go
from tests.support.serving import Server, serving
from tests.support.steps import ask, cards, drawn, settings

SMALL = """least => [...document.querySelectorAll("button, select, summary, input, a[href]")]
    .filter(one => one.checkVisibility({visibilityProperty: true}) && !one.matches(".token, .alternatives *"))
    .map(one => one.closest("label.check") ?? one)
    .filter(one => one.offsetWidth < least || one.offsetHeight < least)
    .map(one => `${one.outerHTML.slice(0, 100)} ${one.offsetWidth} x ${one.offsetHeight}`)"""
TARGET = 44  # pixels
EDGE = 12  # pixels


@pytest.fixture
def phone(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url, **PHONE) as [page]:
        yield page


def test_a_phone_shows_the_title(phone: Page) -> None:
    expect(phone.get_by_role("heading", level=1)).to_be_in_viewport()
    expect(phone.get_by_role("heading", level=1)).to_have_text("Untitled")


def test_targets_are_44_pixels_large(phone: Page) -> None:
    assert phone.evaluate(SMALL, TARGET) == []
    settings(phone, max_tokens=6, next=False)
    ask(phone)
    assert phone.evaluate(SMALL, TARGET) == []
    cards(phone).first.get_by_role("button", name="Actions").tap()
    assert phone.evaluate(SMALL, TARGET) == []
    phone.keyboard.press("Escape")
    for panel, use in PANELS.items():
        phone.get_by_role("button", name=panel, exact=True).tap()
        expect(phone.get_by_role("complementary", name=panel)).to_be_visible()
        use(phone)
        drawn(phone)
        assert phone.evaluate(SMALL, TARGET) == []
        assert not phone.evaluate(WIDE)


def seek(phone: Page) -> None:
    phone.get_by_label("Find", exact=True).tap()
    phone.keyboard.type("fox")
    phone.get_by_role("button", name="Next", exact=True).tap()
    expect(phone.locator(".look")).to_be_visible()


def search(phone: Page) -> None:
    phone.get_by_label("Search all stories").tap()
    phone.keyboard.type("fox")
    expect(phone.get_by_role("list", name="Found").get_by_role("button").first).to_be_visible()


def add_lore(phone: Page) -> None:
    phone.get_by_role("button", name="Add an entry").tap()


def ban(phone: Page) -> None:
    phone.get_by_label("Phrases banned in").first.tap()
    phone.keyboard.type("suddenly")


def nothing(_phone: Page) -> None:
    pass


PANELS: dict[str, Callable[[Page], None]] = {
    "Outline": seek,
    "Background": add_lore,
    "Stories": search,
    "Settings": ban,
    "Branches": nothing,
    "Shelf": nothing,
}


def test_the_bar_shows_that_more_panels_follow(phone: Page) -> None:
    """What stands at the edge fades, so that a writer swipes; at the end nothing does."""
    bar = phone.get_by_role("navigation", name="Panels")
    assert bar.evaluate("one => one.scrollWidth > one.clientWidth")
    box = bar.bounding_box()
    assert box
    edge = {"x": box["x"] + box["width"] - EDGE, "y": box["y"], "width": EDGE, "height": box["height"]}
    png = base64.b64encode(phone.screenshot(clip=edge)).decode()
    assert 120 < phone.evaluate(DARKEST, [png, 0, 1]) < 240, "a word that fades"
    bar.evaluate("one => one.scrollLeft = one.scrollWidth")
    last = bar.get_by_role("button").last.bounding_box()
    assert last
    assert last["x"] + last["width"] <= edge["x"]


def test_the_sheet_of_keys_is_for_a_keyboard_and_opens_at_its_top(phone: Page) -> None:
    expect(phone.get_by_role("button", name="Settings", exact=True)).to_be_visible()
    expect(phone.get_by_role("button", name="Keys")).to_have_count(0)
    phone.locator("#candidates").focus()
    phone.keyboard.press("?")
    sheet = phone.get_by_role("dialog", name="Keys")
    expect(sheet.get_by_role("heading", name="Keys")).to_be_in_viewport()
    expect(sheet.get_by_text("Ctrl+Enter", exact=True)).to_be_in_viewport()
    sheet.get_by_role("button", name="Close").tap()
    expect(sheet).to_be_hidden()


def test_panels_close_each_other(phone: Page) -> None:
    for panel in ("Stories", "Settings", "Shelf"):
        phone.get_by_role("button", name=panel, exact=True).tap()
        expect(phone.get_by_role("complementary")).to_have_count(1)
        expect(phone.get_by_role("complementary", name=panel)).to_be_in_viewport()
    phone.get_by_role("button", name="Shelf", exact=True).tap()
    expect(phone.get_by_role("complementary")).to_have_count(0)
    expect(editor(phone)).to_be_in_viewport()


def test_a_story_that_is_opened_is_seen(phone: Page) -> None:
    compose(phone, "The first one.")
    stories = phone.get_by_role("complementary", name="Stories")
    for opens in ("New story", "The first one.", "New chat"):
        phone.get_by_role("button", name="Stories", exact=True).tap()
        stories.get_by_role("button", name=opens).tap()
        expect(stories).to_have_count(0)
        assert phone.evaluate("document.activeElement === document.body"), "no keyboard covers the page"


# ---- the app -------------------------------------------------------------------------------------------


@pytest.fixture
def app(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(service_workers="allow")
    context.set_default_timeout(PATIENCE_MS)
    yield context
    context.close()


def test_the_page_can_be_installed_as_an_app(app: BrowserContext, server: Server) -> None:
    page = app.new_page()
    page.goto(server.url)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    devtools = app.new_cdp_session(page)
    manifest = devtools.send("Page.getAppManifest")
    assert manifest["errors"] == []
    assert manifest["url"] == f"{server.url}/studio/manifest.webmanifest"
    errors = [one["errorId"] for one in devtools.send("Page.getInstallabilityErrors")["installabilityErrors"]]
    assert [error for error in errors if error != "in-incognito"] == []


def write_in_the_app(page: Page, server: Server) -> None:
    """Writes a story, when the page's worker keeps its files."""
    page.goto(server.url)
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    compose(page, "A heron waited.")
    expect(page.locator(".saved")).to_contain_text("Saved")
    page.reload()


def test_without_the_server_the_app_opens_with_the_story(app: BrowserContext) -> None:
    page = app.new_page()
    with serving() as server:
        write_in_the_app(page, server)
    page.reload()
    expect(editor(page)).to_have_value("A heron waited.")
    expect(page.get_by_role("alert")).to_contain_text("Can't reach the server.")
    go(page, "Control+End")
    page.keyboard.type(" It rained.")
    page.reload()
    expect(editor(page)).to_have_value("A heron waited. It rained.")


class Away(BaseHTTPRequestHandler):
    """A proxy whose server is away."""

    def do_GET(self) -> None:
        self.send_error(502)


def test_an_error_of_a_proxy_does_not_take_the_place_of_the_page(app: BrowserContext) -> None:
    page = app.new_page()
    with serving() as server:
        write_in_the_app(page, server)
    with ThreadingHTTPServer(("127.0.0.1", int(server.url.rsplit(":", 1)[1])), Away) as proxy:
        threading.Thread(target=proxy.serve_forever).start()
        page.reload()
        expect(editor(page)).to_have_value("A heron waited.")
        proxy.shutdown()


def test_a_change_of_any_file_makes_another_worker() -> None:
    data = files()["worker.js"].data
    assert re.match(rb'const VERSION = "[0-9a-f]{32}";\n// The service worker', data)
