"""engine/: folders include each other in one direction."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

from tests.support.rows import each_row

ENGINE = Path(__file__).resolve().parents[2] / "engine"
FOLDERS: dict[str, set[str]] = {
    "util": set(),
    "text": {"grammar", "util"},
    "grammar": {"util"},
    "weights": {"util"},
    "model": {"util", "weights"},
    "store": {"model", "weights"},
    "cache": {"model", "store"},
    "rows": set(),
    "sampling": {"grammar", "rows", "text", "util"},
    "chat": {"grammar", "model", "text", "util"},
    "protocol": {"chat", "grammar", "model", "sampling", "text", "util"},
    "schedule": {"cache", "model", "protocol", "rows", "sampling", "text", "util"},
    "flags": set(),
    "options": {"flags", "model"},
    "main": {"flags", "model", "options", "protocol", "schedule", "store", "util", "weights"},
}
FILES = {
    path.relative_to(ENGINE).as_posix(): path for path in ENGINE.rglob("*") if path.suffix in (".h", ".cpp")
}


def folder(name: str) -> str:
    return name.partition("/")[0] if "/" in name else Path(name).stem


def included(name: str) -> set[str]:
    found = re.findall(r'^#include "(.+)"$', FILES[name].read_text(), re.MULTILINE)
    return {other for other in found if other in FILES or (ENGINE / Path(name).parent / other).exists()}


def test_the_folders_are_those_of_the_table() -> None:
    assert {folder(name) for name in FILES} == FOLDERS.keys()


@each_row("name", FILES)
def test_a_file_includes_only_along_the_arrows(name: str) -> None:
    assert included(name) <= FILES.keys(), "a header is named with its folder"
    assert {folder(other) for other in included(name)} <= FOLDERS[folder(name)] | {folder(name)}


def test_each_arrow_is_used() -> None:
    used = {(folder(name), folder(other)) for name in FILES for other in included(name)}
    assert {(a, b) for a, below in FOLDERS.items() for b in below} <= used


def test_there_is_no_circle() -> None:
    graphlib.TopologicalSorter(FOLDERS).prepare()
    headers = {name: included(name) for name in FILES if name.endswith(".h")}
    graphlib.TopologicalSorter(headers).prepare()
