"""A page that is a file on the disk, as mikupad is, calls the server from a real browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.support.serving import serving

ASK = """async ([url, key]) => {
    try {
        const answer = await fetch(url + "/completion", {
            method: "POST",
            headers: { "Content-Type": "application/json", "Authorization": "Bearer " + key },
            body: JSON.stringify({ prompt: "Once", n_predict: 2 }),
        });
        return [answer.status, await answer.json()];
    } catch (error) {
        return [0, String(error)];
    }
}"""


def ask(browser: Browser, folder: Path, url: str, key: str) -> tuple[int, Any]:
    """Status and answer that the script of a file gets; 0 if the browser keeps the answer from it."""
    file = folder / "page.html"
    file.write_text("<!doctype html><title>A file</title>")
    page = browser.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("origin") == "null"
    status, answer = page.evaluate(ASK, [url, key])
    page.close()
    return status, answer


@pytest.mark.parametrize(
    ("cors", "key", "status"),
    [("localhost null", "k1", 200), ("localhost null", "no", 401), ("localhost", "k1", 0)],
)
def test_a_page_of_a_file_needs_cors_null_and_the_key(
    browser: Browser, tmp_path: Path, cors: str, key: str, status: int
) -> None:
    with serving("--ctx", "2048", "--cors", cors, "--api-key", "k1") as server:
        got, answer = ask(browser, tmp_path, server.url, key)
    assert got == status, answer
    assert ("content" in answer) == (status == 200)
