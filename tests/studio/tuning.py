"""Steps on the studio's page of tasks, and the tasks of its tests."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from tests.support.steps import drawn

TASKS = '''
[memories.tales]
store = { file = "tales.db" }
chunk_tokens = 48
chunk_overlap = 0
[tasks.story]
about = "Goes on with a story of one sentence."
prelude = """
Once upon a time, there was a little girl who liked stories. \\
One day she told her friends a new one."""
prefix = "\\n"
postfix = " Then"
n = 3
max_tokens = 16
temperature = 0.9
stop = ["\\n"]
locked = ["n"]
private_tokens = ["<|secret|>"]
[tasks.judge]
n = 2
max_tokens = 8
bias_prompt = " It was"
choice = [" good", " bad"]
[tasks.recalls]
prefix = "\\n"
max_tokens = 4
recall = { memory = "tales", retrieve = 1, store_prompts = true }
[tasks.endless]
max_tokens = 7000
ignore_eos = true
n = 2
'''
CONTROL = "<|endoftext|>"
PROMPT = "A cat found a red ball."
FACT = "The old lighthouse keeper hides his silver key below the third step."
EXACT = ("--engine-mode", "per-request", "--", "-t", "1", "--flash-attn", "off")
STATES = re.compile("complete|stopped|failed")
SIDES = ("As configured", "Edited")


def tuning(page: Page, task: str = "story") -> None:
    """Opens the page of tasks."""
    button = page.get_by_role("button", name="Tasks", exact=True)
    if button.get_attribute("aria-pressed") != "true":
        button.click()
    chooser(page).select_option(task)
    expect(page.get_by_label("Name", exact=True)).to_have_value(task)


def chooser(page: Page) -> Locator:
    return page.get_by_role("combobox", name="Task", exact=True)


def view(page: Page, name: str) -> None:
    page.get_by_role("navigation", name="Views").get_by_role("button", name=name).click()


def side(page: Page, name: str, trial: int = 1) -> Locator:
    return page.get_by_label(f"Trial of prompt {trial}").get_by_label(name, exact=True)


def run(page: Page, prompt: str = PROMPT, seed: int | None = 7) -> None:
    """Runs both sides with a prompt; returns when they have ended."""
    page.get_by_label("Prompt 1", exact=True).fill(prompt)
    if seed is not None:
        page.get_by_label("Seed of both").fill(str(seed))
    page.get_by_label("Prompt 1", exact=True).press("Control+Enter")
    ended(page)


def ended(page: Page, trial: int = 1) -> None:
    drawn(page)  # what the trial before has left says that it has ended, too
    expect(page.get_by_role("button", name="Run both")).to_be_visible()
    for name in SIDES:
        expect(side(page, name, trial).locator("> .facts")).to_contain_text(STATES)


def texts(page: Page, name: str, trial: int = 1) -> list[str]:
    return side(page, name, trial).locator(".text").all_text_contents()


def alert(page: Page, text: str) -> Locator:
    return page.get_by_role("alert").filter(has_text=text)


def toml_of(page: Page) -> str:
    view(page, "TOML")
    return str(page.get_by_label("TOML of the draft").text_content())
