"""A real browser, the real server, the bundled model. As root on Debian a missing browser is installed.

Playwright runs an event loop, and no other can run in its thread, so it ends with this folder's tests.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.studio.tuning import EXACT, TASKS
from tests.support.processes import installed
from tests.support.serving import LASTING, Server, serving

HEADLESS = "chromium-headless-shell"  # opens a page in half of the time of the whole browser
PATIENCE_MS = 30_000
expect.set_options(timeout=PATIENCE_MS)


def chromium() -> str | None:
    """The system's browser; installed if it is missing and that is possible."""
    return installed(HEADLESS, HEADLESS, "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        pytest.skip("no chromium here; as root on Debian the tests install it")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A server with long streams that leaves a core for the browser."""
    with serving("--", "-t", "1", *LASTING) as server:
        yield server


@pytest.fixture(scope="package")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Each request has an engine of its own, so that equal requests have equal texts."""
    file = tmp_path_factory.mktemp("exact") / "srb.toml"
    file.write_text(TASKS)
    with serving("--config", str(file), *EXACT) as server:
        yield server


@contextlib.contextmanager
def visiting(browser: Browser, url: str, pages: int = 1) -> Iterator[list[Page]]:
    """Pages of a new browser profile; they must write nothing to their consoles."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion="reduce", service_workers="block"
    )
    context.set_default_timeout(PATIENCE_MS)
    said: list[str] = []
    context.on("weberror", lambda error: said.append(str(error.error)))
    context.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    opened = [context.new_page() for _ in range(pages)]
    for page in opened:
        page.goto(url)
        page.get_by_label("Story", exact=True).wait_for()
    yield opened
    context.close()
    assert [line for line in said if "Failed to load resource" not in line] == []


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    with visiting(browser, server.url) as [page]:
        yield page


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Opens a given server's page with a new browser profile."""
    with contextlib.ExitStack() as stack:
        yield lambda url: stack.enter_context(visiting(browser, url))[0]


@pytest.fixture
def tabs(browser: Browser, server: Server) -> Iterator[list[Page]]:
    """Two tabs of one browser."""
    with visiting(browser, server.url, pages=2) as pages:
        yield pages
