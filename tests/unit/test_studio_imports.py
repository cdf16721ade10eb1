"""The studio's modules import each other one way."""

from __future__ import annotations

import re
from graphlib import TopologicalSorter
from posixpath import dirname, join, normpath

from tests.support.places import ROOT

STUDIO = ROOT / "llama_srb/studio"
FILES = {str(file.relative_to(STUDIO)): file.read_text() for file in STUDIO.rglob("*.js")}
NAMED = r'(?:from ?|import\()"(\.{1,2}/[\w/]+\.js)"'


def imports(name: str) -> set[str]:
    """The modules that a module imports, and the worker that the page registers, by their paths.

    What comments import are types.
    """
    code = re.sub(r"/\*.*?\*/", "", FILES[name], flags=re.DOTALL)
    named = {normpath(join(dirname(name), path)) for path in re.findall(NAMED, code)}
    return named | set(re.findall(r'register\("studio/(\w+\.js)"', code))


IMPORTS = {name: imports(name) for name in FILES}


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
