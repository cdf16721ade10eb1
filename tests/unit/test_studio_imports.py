"""The studio's modules import each other one way."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter

from tests.support.places import ROOT

FILES = {file.name: file.read_text() for file in (ROOT / "llama_srb/studio").glob("*.js")}
NAMED = r'(?:(?:from |import\()"\./|register\("studio/)(\w+\.js)"'
IMPORTS = {name: set(re.findall(NAMED, text)) for name, text in FILES.items()}


def test_no_modules_import_each_other_in_a_circle() -> None:
    order = list(TopologicalSorter(IMPORTS).static_order())
    assert order[-1] == "app.js"


def test_each_imported_module_exists() -> None:
    assert {name for names in IMPORTS.values() for name in names} <= FILES.keys()


def test_the_page_reaches_every_module() -> None:
    reached, left = {"app.js", "worker.js"}, ["app.js"]  # the browser runs the worker beside the page
    while left:
        new = IMPORTS[left.pop()] - reached
        reached |= new
        left += new
    assert reached == FILES.keys()
