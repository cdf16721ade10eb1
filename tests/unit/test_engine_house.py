"""The house of the engine: its folders include one another one way, and none is crowded."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

import pytest

ENGINE = Path(__file__).resolve().parents[2] / "engine"
FOLDERS: dict[str, set[str]] = {
    "util": set(),
    "grammar": {"util"},
    "model": {"util"},
    "cache": {"model"},
    "sampling": {"grammar", "util"},
    "chat": {"grammar", "util"},
    "protocol": {"chat", "grammar", "model", "sampling", "util"},
    "schedule": {"cache", "model", "protocol", "sampling", "util"},
    "options": {"model"},
    "main": {"cache", "model", "options", "protocol", "schedule", "util"},
}
MOST_FLAT, MOST_IN_A_FOLDER = 6, 12  # files of the first; modules, a header and its source, of the others
FILES = {
    path.relative_to(ENGINE).as_posix(): path for path in ENGINE.rglob("*") if path.suffix in (".h", ".cpp")
}


def folder(name: str) -> str:
    return name.partition("/")[0] if "/" in name else Path(name).stem


def included(name: str) -> set[str]:
    found = re.findall(r'^#include "(.+)"$', FILES[name].read_text(), re.MULTILINE)
    return {other for other in found if other in FILES or (ENGINE / Path(name).parent / other).exists()}


def test_the_folders_are_those_of_the_plan() -> None:
    assert {folder(name) for name in FILES} == FOLDERS.keys()


@pytest.mark.parametrize("name", FILES)
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


def test_no_folder_is_crowded() -> None:
    assert len([path for path in ENGINE.iterdir() if path.is_file()]) <= MOST_FLAT
    for where in FOLDERS.keys() - {"main", "options"}:
        modules = {Path(name).stem for name in FILES if folder(name) == where}
        assert len(modules) <= MOST_IN_A_FOLDER
