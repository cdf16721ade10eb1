"""The studio's pages in a real browser, with the real server and the bundled model."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.studio.tuning import EXACT, TASKS
from tests.support.browser import browser, visiting
from tests.support.serving import LASTING, Server, serving

__all__ = ["browser"]


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A server with long streams that leaves a core for the browser."""
    with serving("--", "-t", "1", *LASTING) as server:
        yield server


@pytest.fixture(scope="package")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Equal requests have equal texts: each has an engine of its own and no flash attention."""
    file = tmp_path_factory.mktemp("exact") / "srb.toml"
    file.write_text(TASKS)
    with serving("--config", str(file), *EXACT) as server:
        yield server


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
