"""docs/samplers.md describes each sampling field with a picture, which scripts/sampler_pictures draws."""

from __future__ import annotations

import re
import runpy

from llama_srb.request.fields import SAMPLING_ROWS
from tests.support.places import ROOT
from tests.support.rows import each_row

PAGE = (ROOT / "docs/samplers.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
PICTURES = ROOT / "docs/samplers"


def test_the_page_has_each_field_once_and_in_the_tables_order() -> None:
    assert re.findall(r"^### `(\w+)`$", PAGE, re.MULTILINE) == list(SAMPLING_ROWS)


@each_row("name", SAMPLING_ROWS)
def test_a_field_has_a_text_and_a_picture(name: str) -> None:
    *text, picture = SECTIONS[name].strip().split("\n\n")
    assert text
    assert picture == f"![{name}](samplers/{name}.svg)"
    assert (PICTURES / f"{name}.svg").read_text().startswith("<svg ")


def test_the_script_draws_exactly_the_pages_pictures() -> None:
    drawn = runpy.run_path(str(ROOT / "scripts/sampler_pictures"))["PICTURES"]
    assert list(drawn) == list(SAMPLING_ROWS)
    assert {path.stem for path in PICTURES.iterdir()} == set(drawn)


def test_the_pictures_are_small() -> None:
    assert sum(path.stat().st_size for path in PICTURES.iterdir()) < 500_000
