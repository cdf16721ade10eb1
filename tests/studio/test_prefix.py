"""The studio behind nginx, under a path of its own, at a Unix socket."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

import llama_srb
from tests.support.browser import visiting
from tests.support.proxy import documented, nginx
from tests.support.steps import ask, cards


def test_the_studio_works_under_a_prefix(browser: Browser, tmp_path: Path) -> None:
    place = tmp_path / "s"
    with (
        llama_srb.serve(host=f"unix:{place}", api_prefix="/llm"),
        nginx(tmp_path, documented(f"http://unix:{place}:")) as url,
        visiting(browser, f"{url}/llm/") as [page],
    ):
        ask(page)
        expect(cards(page)).to_have_count(4)
