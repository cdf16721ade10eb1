"""scripts/long runs every test that has a long form, and the gate's forms are the short ones."""

from __future__ import annotations

import re
import subprocess

from tests.support.places import ROOT
from tests.support.waiting import PATIENCE

SCRIPT = ROOT / "scripts/long"
OWN = ("LONG", "LIFE", "TWO_KEYS_SECONDS", "TWO_KEYS_SCALE", "MEMORY_REQUESTS", "CLUSTER_DRAIN_SECONDS")


def test_each_test_with_a_long_form_is_named_by_the_script() -> None:
    script = SCRIPT.read_text()
    named = re.findall(r"tests/[\w/.]+", script)
    assert [name for name in named if not (ROOT / name).exists()] == []
    asked = re.compile(rf'(?<!def )\bamount\(|environ\.get\("(?:{"|".join(OWN[1:])})"')
    long = [path for path in ROOT.glob("tests/*/test_*.py") if asked.search(path.read_text())]
    places = [str(path.relative_to(ROOT)) for path in long if path.name != "test_long.py"]
    assert [place for place in places if not place.startswith(tuple(named))] == []
    assert len(places) >= 6
    assert [name for name in OWN if f" {name}=" not in script] == []


def test_an_unknown_part_is_refused_before_anything_runs() -> None:
    ended = subprocess.run(
        [SCRIPT, "soak", "pools"], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("scripts/long: no part is called 'pools'; there are: bodies stalls")
