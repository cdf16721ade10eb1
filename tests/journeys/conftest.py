"""The first ten minutes with llama-srb: real server, real engine, real browser, real clients.

These files run before all others (tests/conftest.py). Each test is one thing that a person does.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.support.browser import PHONE, browser, visiting
from tests.support.serving import LASTING, Server, lasting, server, serving

__all__ = ["browser", "lasting", "server"]


@pytest.fixture(scope="package")
def studio() -> Iterator[Server]:
    """A server with long streams that leaves a core for the browser."""
    with serving("--", "-t", "1", *LASTING) as server:
        yield server


@pytest.fixture
def page(browser: Browser, studio: Server) -> Iterator[Page]:
    with visiting(browser, studio.url) as [page]:
        yield page


@pytest.fixture
def phone(browser: Browser, studio: Server) -> Iterator[Page]:
    with visiting(browser, studio.url, **PHONE) as [page]:
        yield page


@pytest.fixture
def tabs(browser: Browser, studio: Server) -> Iterator[list[Page]]:
    """Two tabs of one browser."""
    with visiting(browser, studio.url, pages=2) as pages:
        yield pages
