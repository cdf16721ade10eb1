"""No class overrides a private member of another one; ruff sees only the uses from outside."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
OVERRIDES: dict[str, str] = {  # classes that may override a private member, with reasons
    "llama_srb.http.streaming._Stream": "aiohttp has no public way to send the head with the first events",
}


FILES = sorted((ROOT / "llama_srb").rglob("*.py"))


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


NEEDS_RAY = [ROOT / "llama_srb/ray", ROOT / "llama_srb/http/ray"]
"""CI does not install Ray: tests/ray/test_extra.py checks these files."""


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
    ours = [path for path in FILES if path.name != "__main__.py" and path.parent not in NEEDS_RAY]
    assert overriding(ours) == set(OVERRIDES)
