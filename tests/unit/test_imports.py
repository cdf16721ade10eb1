"""Imports between packages go one way, few modules use aiohttp and the like, folders are bounded."""

from __future__ import annotations

import ast
import functools
import graphlib
from dataclasses import dataclass
from pathlib import Path

from tests.support.rows import each_row

PACKAGE = Path(__file__).resolve().parents[2] / "llama_srb"
PLAIN = {
    "request",
    "background",
    "bundled",
}  # leaves, which every package may import
ROOMS: dict[str, set[str]] = {
    "cli": {"http", "client", "engine", "models", "memory", "tasks", "config", "flags", "batch"} | PLAIN,
    "http": {"dialects", "engine", "models", "memory", "tasks", "config", "batch", "studio"} | PLAIN,
    "client": {"config"},
    "dialects": {"engine", "request"},
    "engine": PLAIN,
    "batch": {"request"},
    "config": {"bundled", "flags"},
    "memory": {"config", "engine", "models", "request"},
    "models": {"config", "engine", "request", "background"},
    "tasks": {"config", "request"},
    **{leaf: set() for leaf in ("flags", "request", "studio", "background", "bundled")},
}
FLOORS, MOST_ROOMS, MOST_FLAT, MOST_IN_A_FOLDER = 6, 15, 8, 12
ONLY = {  # names that only these modules may use
    "aiohttp": {"http", "batch.servers"},
    "subprocess": {
        "cli.cluster.programs",
        "cli.doctor.checks",
        "engine.process",
        "client.server_process",
        "memory.documents",
    },
    "argv": {"config", "memory.documents.child"},  # of its own process
    "create_task": {"background", "http.server", "batch.run", "cli.cluster", "cli.cluster.programs"},
    # all but the first await them
    "ensure_future": {"engine.process"},  # process.py awaits its task
    "environ": {"config"},
}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"}


@dataclass(frozen=True)
class Facts:
    """What the tests ask of a module, read in one pass over its tree."""

    imported: frozenset[str]  # modules of llama_srb
    names: frozenset[str]  # attributes, and the words of imports


@functools.cache
def facts(module: str) -> Facts:
    imported, names = set[str](), set[str]()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(ast.unparse(node).split())
            imported |= modules_of(node, module)
    return Facts(frozenset(imported & MODULES.keys() - {module}), frozenset(names))


def modules_of(node: ast.Import | ast.ImportFrom, module: str) -> set[str]:
    """The modules of llama_srb that a statement in this module imports."""
    if isinstance(node, ast.Import):
        assert "llama_srb" not in ast.unparse(node)
        return set()
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    base = f"llama_srb.{package}" + f".{node.module}" * bool(node.module) if node.level else node.module or ""
    if base.split(".")[0] != "llama_srb":
        return set()
    inner = base.removeprefix("llama_srb").lstrip(".")
    named = {f"{inner}.{alias.name}".lstrip(".") for alias in node.names}
    return {name if name in MODULES else inner for name in named}


def imported(module: str) -> frozenset[str]:
    return facts(module).imported


def room(module: str) -> str:
    return module.split(".")[0]


def test_the_packages_are_those_of_the_table() -> None:
    assert {room(module) for module in MODULES} == ROOMS.keys()
    assert len(ROOMS) <= MOST_ROOMS


@each_row("module", MODULES)
def test_a_module_imports_only_along_the_arrows(module: str) -> None:
    assert {room(other) for other in imported(module)} <= ROOMS[room(module)] | {room(module)}


def test_each_arrow_is_used() -> None:
    used = {(room(a), room(b)) for a in MODULES for b in imported(a)}
    assert {(a, b) for a, below in ROOMS.items() for b in below} <= used


def test_there_is_no_circle() -> None:
    graphlib.TopologicalSorter({module: imported(module) for module in MODULES}).prepare()


def test_imports_have_few_levels() -> None:
    floors: dict[str, int] = {}
    for name in graphlib.TopologicalSorter(ROOMS).static_order():
        floors[name] = 1 + max((floors[below] for below in ROOMS[name]), default=0)
    assert max(floors.values()) <= FLOORS


def test_no_folder_is_crowded() -> None:
    assert len(list(PACKAGE.glob("*.py"))) <= MOST_FLAT
    for folder in {path.parent for path in MODULES.values()} - {PACKAGE}:
        assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= MOST_IN_A_FOLDER


@each_row(("word", "knowing"), ONLY.items(), ids=ONLY)
def test_a_name_is_used_only_where_it_may_be(word: str, knowing: set[str]) -> None:
    found = {module for module in MODULES if word in facts(module).names}
    assert found == {module for module in found if {module, room(module)} & knowing}
