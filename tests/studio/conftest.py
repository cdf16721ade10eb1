"""The studio's pages in a real browser, with the real server and the bundled model."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.studio.tuning import EXACT, TASKS
from tests.support.browser import browser, visiting
from tests.support.serving import LASTING, Server, serving
from tests.support.steps import afresh

__all__ = ["browser"]


@pytest.fixture(scope="package")
def server() -> Iterator[Server]:
    """A server with long streams that leaves a core for the browser."""
    with serving("--", "-t", "1", *LASTING) as server:
        yield server


@pytest.fixture(scope="package")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Equal requests have equal texts: each has an engine of its own, whose sums are those of a row alone."""
    file = tmp_path_factory.mktemp("exact") / "srb.toml"
    file.write_text(TASKS)
    with serving("--config", str(file), *EXACT) as server:
        yield server


class Shared:
    """A page for the tests of a module, since to open one takes half of a short test. Each begins a story."""

    def __init__(self, browser: Browser, url: str) -> None:
        self._opened = contextlib.ExitStack()
        self._page: Page | None = None
        self._open = functools.partial(visiting, browser, url)

    def page(self) -> Page:
        if self._page is None:
            [self._page] = self._opened.enter_context(self._open())
        afresh(self._page)
        self._page.evaluate(REMOVE_OTHERS)
        return self._page

    def close(self) -> None:
        self._page = None
        self._opened.close()


REMOVE_OTHERS = """async () => {
    const load = (name) => import(new URL(`studio/story/${name}.js`, document.baseURI));
    const [{ session }, { removeForever }] = await Promise.all(["session", "library"].map(load));
    const all = [...session.stories, ...session.trash];
    await removeForever(all.filter(({ id }) => id !== session.story.id));
}"""


@pytest.fixture(scope="module")
def shared(browser: Browser, server: Server) -> Iterator[Shared]:
    found = Shared(browser, server.url)
    yield found
    found.close()


@pytest.fixture
def alone() -> None:
    """A test that uses this has a page and a browser profile of its own: it changes more than a story."""


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Browser, server: Server) -> Iterator[Page]:
    """The page that the module's tests share, with a new story and the usual settings."""
    if "alone" in request.fixturenames:
        with visiting(browser, server.url) as [page]:
            yield page
        return
    shared = request.getfixturevalue("shared")
    page, failed = shared.page(), request.session.testsfailed
    yield page
    page.unroute_all(behavior="ignoreErrors")  # a handler that still answers must not fail the next test
    if request.session.testsfailed > failed:
        shared.close()  # nobody knows what is left


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
