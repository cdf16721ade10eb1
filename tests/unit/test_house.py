"""Sizes in the Python code have bounds, and no class overrides a private member of another one.

`EXCEPTIONS` lists items above a bound, with reasons. An exception that is not needed any more fails.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from types import ModuleType

from tests.support.rows import each_row

ROOT = Path(__file__).resolve().parents[2]
NO_CODE = {"studio", "__pycache__"}  # the studio is JavaScript
BOUNDS = {
    "lines of a file": 400,
    "methods of a class": 20,
    "lines of a function": 60,
    "modules of a folder": 12,
}
EXCEPTIONS: dict[tuple[str, str], str] = {  # by bound and place
    ("lines of a file", "llama_srb/request/fields.py"): "a table of data: a row a field",
}
OVERRIDES: dict[str, str] = {  # classes that may override a private member, with reasons
    "llama_srb.http.streaming._Stream": "aiohttp has no public way to send the head with the first events",
}


def is_python(path: Path) -> bool:
    if path.suffix:
        return path.suffix == ".py"
    return path.is_file() and "python" in path.read_text().split("\n", 1)[0]


FILES = [
    path
    for top in ("llama_srb", "scripts", "benchmarks")
    for path in sorted((ROOT / top).rglob("*"))
    if not NO_CODE & set(path.relative_to(ROOT).parts) and is_python(path)
]


@functools.cache
def sizes() -> list[tuple[str, str, int]]:
    return list(measured())


def measured() -> Iterator[tuple[str, str, int]]:
    """Every bounded size: the bound's name, the place, the size."""
    folders: dict[Path, int] = {}
    for path in FILES:
        place, text = str(path.relative_to(ROOT)), path.read_text()
        yield "lines of a file", place, len(text.splitlines())
        folders[path.parent] = folders.get(path.parent, 0) + (path.name != "__init__.py")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef):
                methods = [
                    one for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
                ]
                yield "methods of a class", f"{place}: {node.name}", len(methods)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield "lines of a function", f"{place}: {node.name}", node.end_lineno - node.lineno + 1
    for folder, count in folders.items():
        yield "modules of a folder", str(folder.relative_to(ROOT)), count


@each_row("bound", BOUNDS)
def test_nothing_is_above_a_bound_but_the_exceptions(bound: str) -> None:
    above = {place for what, place, size in sizes() if what == bound and size > BOUNDS[bound]}
    assert above == {place for what, place in EXCEPTIONS if what == bound}


def rows_of_the_map() -> Iterator[str]:
    """The files and folders of llama_srb in docs/architecture.md's table; a{b,c} stands for two."""
    for row in re.findall(r"`(llama_srb/[^`]*)`", (ROOT / "docs/architecture.md").read_text()):
        before, brace, rest = row.partition("{")
        names, _, after = rest.partition("}")
        yield from (before + name + after for name in names.split(",")) if brace else (row,)


def test_the_map_names_every_module_and_no_other() -> None:
    rows = set(rows_of_the_map())
    assert {row for row in rows if not (ROOT / row).exists()} == set()
    places = {str(path.relative_to(ROOT)) for path in FILES if not path.name.startswith("__")}
    folders = tuple(row for row in rows if row.endswith("/"))
    modules = {place for place in places if place.startswith("llama_srb/")}
    assert {place for place in modules - rows if not place.startswith(folders)} == set()


# Private members


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@functools.cache
def definitions(module: str) -> dict[str, ast.ClassDef]:
    """The classes of a module by their qualified names; none if it is written in C."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError):
        return {}
    found: dict[str, ast.ClassDef] = {}
    inside: list[tuple[str, ast.AST]] = [("", tree)]
    for prefix, node in inside:
        for inner in ast.iter_child_nodes(node):
            if isinstance(inner, ast.ClassDef):
                found[prefix + inner.name] = inner
                inside.append((f"{prefix}{inner.name}.", inner))
            elif isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                inside.append((f"{prefix}{inner.name}.<locals>.", inner))
            else:
                inside.append((prefix, inner))
    return found


@functools.cache
def private_members(found: type) -> Set[str]:
    """The private members that a class defines in its body or assigns as self.x."""
    tree = definitions(found.__module__).get(found.__qualname__)
    if tree is None:
        return set(filter(is_private, vars(found)))
    names = {
        one.name
        for one in tree.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    }
    targets = [one.targets if isinstance(one, ast.Assign) else [one.target] for one in tree.body
               if isinstance(one, ast.Assign | ast.AnnAssign)]  # fmt: skip
    names |= {one.id for some in targets for one in some if isinstance(one, ast.Name)}
    names |= {
        one.attr
        for one in ast.walk(tree)
        if isinstance(one, ast.Attribute)
        and isinstance(one.ctx, ast.Store)
        and ast.unparse(one.value) == "self"
    }
    return set(filter(is_private, names))


def classes_of(module: ModuleType) -> Iterator[type]:
    return (
        one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
    )


NEEDS_RAY = ROOT / "llama_srb/http/ray"  # CI does not install Ray: tests/ray/test_extra.py checks these files


def overriding(paths: Iterable[Path]) -> set[str]:
    """The classes that override a private member of another class."""
    names = set()
    for path in paths:
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for found in classes_of(importlib.import_module(name)):
            theirs = {member for base in found.__mro__[1:-1] for member in private_members(base)}
            if private_members(found) & theirs:
                names.add(f"{name}.{found.__name__}")
    return names


def test_no_class_overrides_a_private_member_of_another() -> None:
    ours = [path for path in FILES if path.is_relative_to(ROOT / "llama_srb") and path.name != "__main__.py"]
    assert overriding(path for path in ours if not path.is_relative_to(NEEDS_RAY)) == set(OVERRIDES)
