"""Writes lore in SillyTavern's real page, and keeps what its export buttons write for tests/studio.

    python -m tests.clients.capture.world_info --folder /tmp/st

By hand: it installs SillyTavern from npm, and takes two minutes. It knows nothing of our import.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.clients.capture.page import SillyTavern, fresh, install, started
from tests.support.browser import chromium
from tests.support.places import CHARACTER, WORLD

NAME, OWNER = "Tower", "Mara"
SAVED_MS = 3000  # the page saves a second after the last change


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a world, in the page's words; its keys have commas between them."""

    title: str
    keys: str
    content: str
    order: int
    second_keys: str = ""
    logic: str = "AND ANY"
    status: str = "normal"
    on: bool = True


ENTRIES = (
    Entry("The tower", "tower, keep", "The tower has no door.", 120, second_keys="night"),
    Entry("The king", "king", "The king never sleeps.", 90, "dead", logic="NOT ANY", status="constant"),
    Entry("The well", "well", "The well is dry.", 80, second_keys="rain", logic="NOT ANY"),
    Entry("The old gate", "gate", "Not used.", 100, on=False),
)


def _add(page: Page, i: int, entry: Entry) -> None:
    page.click("#world_popup_new")
    form = page.locator(f"#world_popup_entries_list .world_entry[uid='{i}']")
    form.locator(".inline-drawer-toggle").first.click()
    form.locator("textarea[name=key]").fill(entry.keys)
    form.locator("textarea[name=keysecondary]").fill(entry.second_keys)
    form.locator("[name=entryLogicType]").select_option(entry.logic)
    form.locator("[name=content]").fill(entry.content)
    form.locator("[name=comment]").fill(entry.title)
    form.locator("[name=order]").fill(str(entry.order))
    form.locator("[name=entryStateSelector]").select_option(entry.status)
    if not entry.on:
        form.locator("[name=entryKillSwitch]").click()


def _write_world(tavern: SillyTavern, file: Path) -> None:
    page = tavern.page
    with tavern.drawer("WI-SP-button"):
        page.click("#world_create_button")
        page.fill("dialog[open] .popup-input", NAME)
        page.click("dialog[open] .popup-button-ok")
        page.locator("dialog[open]").wait_for(state="detached")
        page.locator("#world_info_pagination .paginationjs-nav").wait_for()
        for i, entry in enumerate(ENTRIES):
            _add(page, i, entry)
        page.wait_for_timeout(SAVED_MS)
        with page.expect_download() as loading:
            page.click("#world_popup_export")
    loading.value.save_as(file)


def _write_character(tavern: SillyTavern, file: Path) -> None:
    """A character whose book is that world; the page is not used after."""
    page = tavern.page
    page.click("#rightNavHolder > .drawer-toggle")
    page.click("#rm_button_create")
    page.fill("#character_name_pole", OWNER)
    page.select_option("#char-management-dropdown", label="Link to World Info")
    page.locator("dialog[open] .character_world_info_selector").select_option(NAME)
    page.click("dialog[open] .popup-button-ok")
    page.locator("dialog[open]").wait_for(state="detached")
    page.click("#create_button_label")
    page.locator(".character_select", has_text=OWNER).first.click()
    page.locator("#avatar_controls #export_button:visible").click()
    with page.expect_download() as loading:
        page.click(".export_format[data-format=json]")
    loading.value.save_as(file)


def main() -> None:
    parser = argparse.ArgumentParser(description="World info and a character, as SillyTavern writes them.")
    parser.add_argument("--folder", type=Path, required=True, help="where SillyTavern is installed")
    folder: Path = parser.parse_args().folder.resolve()
    package = install(folder)
    if not (folder / "prepared").exists():
        with started(package, folder / "prepared"):
            pass
    with (
        sync_playwright() as playwright,
        playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"]) as browser,
        fresh(package, folder / "prepared", folder / "data") as url,
        SillyTavern.opened(browser, url) as tavern,
    ):
        try:
            _write_world(tavern, WORLD)
            _write_character(tavern, CHARACTER)
        finally:
            tavern.picture(folder / "world_info.png")


if __name__ == "__main__":
    main()
