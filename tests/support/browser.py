"""A real browser with pages of the studio, on a computer and on a phone. As root on Debian a missing browser
is installed.

Playwright runs an event loop, and no other can run in its thread, so the browser ends with a folder's tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.support import by_hand
from tests.support.processes import installed
from tests.support.waiting import PATIENCE

HEADLESS = "chromium-headless-shell"  # opens a page in half of the time of the whole browser
PATIENCE_MS = PATIENCE * 1000
CALM: dict[str, Any] = {"reduced_motion": "reduce", "service_workers": "block"}
DESK: dict[str, Any] = {"viewport": {"width": 1280, "height": 800}}
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str | None:
    """The system's browser; installed if it is missing and that is possible."""
    return installed(HEADLESS, HEADLESS, "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """A folder's conftest.py imports this fixture."""
    path = chromium()
    if path is None:
        pytest.skip("no chromium here; as root on Debian the tests install it")
    by_hand.require()
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@contextlib.contextmanager
def profile(browser: Browser, **options: Any) -> Iterator[BrowserContext]:
    """A new browser profile, whose pages must write nothing to their consoles."""
    context = browser.new_context(**CALM | DESK | options)
    context.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    yield context
    for routed in (context, *context.pages):  # a handler that still answers must not fail the next test
        routed.unroute_all(behavior="ignoreErrors")
    context.close()
    said = [line for line in said if "Failed to load resource" not in line]
    assert not said, said


@contextlib.contextmanager
def visiting(browser: Browser, url: str, pages: int = 1, **options: Any) -> Iterator[list[Page]]:
    """The studio's page, opened once or several times in a new browser profile."""
    with profile(browser, **options) as context:
        opened = [context.new_page() for _ in range(pages)]
        for page in opened:
            page.goto(url)
            page.get_by_label("Story", exact=True).wait_for()
        yield opened
