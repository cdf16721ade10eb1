"""How fast the studio is with a book of 100,000 words: keys, opening, choosing, 64 candidates that stream,
memory over an hour.

    python -m benchmarks.loads.studio_book [--url http://127.0.0.1:9090] [--chromium PATH]

Without an address it starts a server with the fake engine, whose candidates have 30 tokens a second each.
A time is CPU time of the page's main thread, from Chromium's trace, so that other programs do not count.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from tests.support.browser import chromium
from tests.support.places import FAKE_COMMAND
from tests.support.serving import serving

CHAPTERS, WORDS, PIECES = 40, 100_000, 1000  # on the path; each piece has a sibling that was not chosen
VOCABULARY = (
    "the",
    "fox",
    "wolf",
    "owl",
    "ran",
    "slept",
    "under",
    "an",
    "old",
    "tree",
    "while",
    "it",
    "rained",
)
TRACED = ["disabled-by-default-devtools.timeline", "__metadata"]
KEYS, CHOICES, HOUR = 40, 5, 120  # HOUR: rounds of a sentence and a choice, 30 s of a writer each
MANY, TOKENS, PER_SECOND = 64, 240, 30  # candidates at once, tokens of each, tokens a second of each
SETTLED = 1.0  # ms; shorter tasks are not counted in the median
TITLE, PATIENCE = "A book", 120.0  # seconds


def book() -> dict[str, Any]:
    """A story of the studio, as its export."""
    draw = random.Random(1)
    words = WORDS // PIECES
    nodes: dict[str, Any] = {"r": {"id": "r", "parent": None, "children": [], "text": "", "source": "user"}}
    at = "r"
    for i in range(PIECES):
        head = f"\n\n# Chapter {i // (PIECES // CHAPTERS) + 1}\n\n" if i % (PIECES // CHAPTERS) == 0 else ""
        text = head + "".join(f" {draw.choice(VOCABULARY)}" for _ in range(words - 1)) + ".\n" * (i % 5 == 0)
        for id, said in ((f"n{i}", text), (f"s{i}", text[::-1])):
            nodes[id] = node(at, said)
            nodes[at]["children"].append(id)
        at = f"n{i}"
    end = at
    for i in range(CHOICES):  # candidates that wait at the end, and behind the first of them
        for j in range(4):
            nodes[f"c{i}-{j}"] = node(at, f" The fox said {j}.")
            nodes[at]["children"].append(f"c{i}-{j}")
        at = f"c{i}-0"
    at = end
    story = {"name": TITLE, "kind": "story", "root": "r", "current": at, "nodes": nodes}
    return {"format": "llama-srb studio", "version": 1, "story": story}


def node(parent: str, text: str) -> dict[str, Any]:
    return {"parent": parent, "children": [], "text": text, "source": "model", "state": "stop"}


def tasks_ms(trace: bytes) -> list[float]:
    """The CPU times of the main thread's tasks."""
    events = json.loads(trace)["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in events
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [e for e in events if e["name"] == "RunTask" and (e["pid"], e["tid"]) in mains]
    return [event.get("tdur", 0) / 1000 for event in tasks]


def traced(browser: Browser, page: Page, act: Any, settle_ms: int) -> list[float]:
    browser.start_tracing(page=page, categories=TRACED)
    act()
    page.wait_for_timeout(settle_ms)
    return tasks_ms(browser.stop_tracing())


def until(page: Page, condition: str) -> None:
    """Polls from here: the page's policy forbids it to evaluate text."""
    end = time.monotonic() + PATIENCE
    while not page.evaluate(condition):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        page.wait_for_timeout(50)


def heap_mb(cdp: CDPSession) -> float:
    cdp.send("HeapProfiler.collectGarbage")
    found = cdp.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == "JSHeapUsedSize")) / 1e6


def load_book(page: Page) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "book.json"
        file.write_text(json.dumps(book()))
        page.get_by_role("button", name="Stories", exact=True).click()
        page.locator("input[type=file]").set_input_files(file)
        until(page, "document.querySelector('#editor').value.length > 1000")
        page.keyboard.press("Escape")
        page.wait_for_timeout(3000)


def at(page: Page, where: str) -> None:
    """Puts the caret at the end, in the middle or at the beginning of the text."""
    page.evaluate(
        """(part) => { const e = document.querySelector('#editor'); e.focus();
        const to = Math.floor(e.value.length * part); e.setSelectionRange(to, to); }""",
        {"beginning": 0.0, "middle": 0.5, "end": 1.0}[where],
    )


def keys(browser: Browser, page: Page, where: str) -> list[str]:
    at(page, where)
    worst = []
    for _ in range(KEYS):
        tasks = traced(browser, page, lambda: page.keyboard.press("a"), 60)
        worst.append(max(tasks))
    return [f"a key at the {where}", f"{statistics.median(worst):.0f}", f"{max(worst):.0f}", "25"]


def opening(browser: Browser, page: Page) -> list[str]:
    tasks = traced(browser, page, lambda: page.reload(wait_until="load"), 4000)
    return ["open", f"{sum(task for task in tasks if task > 5):.0f}", f"{max(tasks):.0f}", "1000"]


def choosing(browser: Browser, page: Page) -> list[str]:
    worst = []
    for _ in range(CHOICES):
        until(page, "document.querySelectorAll('.card:not(.running)').length === 4")
        worst.append(max(traced(browser, page, lambda: page.keyboard.press("Alt+1"), 1000)))
    return ["choose", f"{statistics.median(worst):.0f}", f"{max(worst):.0f}", "100"]


def many(browser: Browser, page: Page) -> list[str]:
    """A request for 64 candidates at the end of the book, from the key to the last token, while one types."""
    at(page, "end")

    def act() -> None:
        page.keyboard.press("Control+Enter")
        until(page, f"document.querySelectorAll('.card.running').length === {MANY}")
        while page.evaluate("document.querySelector('.card.running') !== null"):
            page.keyboard.press("a")
            page.wait_for_timeout(500)

    tasks = traced(browser, page, act, 1000)
    counted = [task for task in tasks if task > SETTLED]
    what = f"{MANY} candidates at {PER_SECOND} tokens/s each, and a key each half second"
    return [what, f"{statistics.median(counted):.0f}", f"{max(tasks):.0f}", "100"]


def an_hour(page: Page, cdp: CDPSession) -> list[str]:
    heaps = [heap_mb(cdp)]
    for i in range(HOUR):
        at(page, "end")
        page.keyboard.insert_text(f" The fox came back for the {i}th time, and it rained.")
        page.wait_for_timeout(450)
        if i % 20 == 19:
            heaps.append(heap_mb(cdp))
    return [
        "heap after an hour, MB",
        f"{heaps[0]:.0f}",
        f"{heaps[-1]:.0f}",
        " ".join(f"{h:.0f}" for h in heaps),
    ]


@contextlib.contextmanager
def server(url: str | None) -> Iterator[str]:
    """The server at an address, or one of its own."""
    if url:
        yield url
        return
    with tempfile.TemporaryDirectory() as folder:
        engine = Path(folder) / "engine"
        fake = f"{FAKE_COMMAND} --parallel {MANY} --token-delay {1 / PER_SECOND}"
        engine.write_text(f'#!/bin/sh\nexec {fake} "$@"\n')
        engine.chmod(0o755)
        with serving("--engine", str(engine)) as own:
            yield own.url


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", help="default: a server of its own, with the fake engine")
    parser.add_argument("--chromium", default=chromium(), help="default: the one that the tests use")
    parser.add_argument("--only", default="choose,keys,open,many,hour")
    options = parser.parse_args()
    only = options.only.split(",")
    with server(options.url) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=options.chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        page.goto(url)
        page.evaluate(
            "settings => localStorage.setItem('studio.settings', JSON.stringify(settings))",
            {"next": False, "max_tokens": TOKENS, "n": MANY, "values": {"ignore_eos": True}},
        )
        page.reload()
        page.get_by_label("Story", exact=True).wait_for()
        cdp = page.context.new_cdp_session(page)
        cdp.send("Performance.enable")
        began = time.monotonic()
        load_book(page)
        print(f"imported in {time.monotonic() - began:.1f} s, heap {heap_mb(cdp):.0f} MB", flush=True)
        print("| what | median ms | worst ms | bound |\n|---|---|---|---|")
        rows: dict[str, Any] = {
            "keys": lambda: [keys(browser, page, where) for where in ("end", "middle", "beginning")],
            "open": lambda: [opening(browser, page)],
            "choose": lambda: [choosing(browser, page)],
            "many": lambda: [many(browser, page)],
            "hour": lambda: [an_hour(page, cdp)],
        }
        for name in only:
            for row in rows[name]():
                print(f"| {' | '.join(row)} |", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
