"""A real browser, the real server, the bundled model. As root on Debian what is missing is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.serving import Server, serving

SKIPPED = "the studio's tests are skipped: no chromium here, and only as root on Debian they install it"
PATIENCE_MS = 15_000
expect.set_options(timeout=PATIENCE_MS)
skipped: list[str] = []


def chromium() -> str | None:
    """The system's browser, installed if that is possible."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found or os.geteuid() != 0 or not shutil.which("apt-get"):
        return found
    for command in (["update"], ["install", "-y", "--no-install-recommends", "chromium"]):
        subprocess.run(["apt-get", "-qq", *command], stdout=subprocess.DEVNULL, check=False)
    return shutil.which("chromium")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in skipped[:1]:
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = chromium()
    if path is None:
        skipped.append(SKIPPED)
        pytest.skip(SKIPPED)
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with serving() as server:
        yield server


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Page]:
    """A page of a browser that has never been here; it must say nothing on its console."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    said: list[str] = []
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("console", lambda line: said.append(line.text) if line.type == "error" else None)
    page.goto(server.url)
    page.get_by_label("Story", exact=True).wait_for()
    yield page
    context.close()
    assert [line for line in said if "Failed to load resource" not in line] == []
