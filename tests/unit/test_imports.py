"""Who may import whom: the arrows of docs/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "llama_srb"
VOCABULARY = {"values", "request", "protocol"}  # plain data: whoever stands above may speak it
ARROWS: dict[str, set[str]] = {
    "cli": {"reading", "server", "client", "pool", "config", "model_info", "keys", "logs", "doctor"}
    | {"bundled"},
    "doctor": {"access", "config", "model_info", "bundled"},
    "server": {"handlers", "access", "admission", "connections", "limits", "pool", "config", "model_info"}
    | {"bundled", "freed_memory", "presets", "tasks", "terms"},
    "handlers": {"routes", "openapi", "dialects", "ranking", "fitting", "websocket", "pool", "limits"}
    | {
        "admission",
        "terms",
        "reading",
        "spellings",
        "watched",
        "middleware",
        "access",
        "connections",
        "keys",
        "metrics",
        "studio",
        "config",
        "model_info",
        "presets",
        "tasks",
    },
    "middleware": {"routes", "dialects", "pool", "access", "logs", "metrics"},
    "access": {"config", "foreign", "keys", "routes", "sessions", "tokens"},
    "connections": {"config", "limits", "tasks"},
    "limits": {"keys"},
    "admission": {"engine", "keys", "limits", "metrics", "pool", "sessions", "terms"},
    "terms": {"engine"},
    "several": {"engine", "tasks"},
    "metrics": {"protocol"},
    "freed_memory": set(),
    "logs": set(),
    "tasks": set(),
    "tokens": {"keys"},
    "sessions": {"keys"},
    "keys": set(),
    "config": {"bundled", "pool"},
    "dialects": {"dialects", "reading"},
    "openapi": {"routes", "foreign", "reading", "spellings"},
    "routes": {"foreign"},
    "foreign": set(),
    "presets": {"reading"},
    "fitting": {"request"},
    "watched": {"dialects", "pool"},
    "websocket": {"admission", "dialects", "keys", "limits", "pool", "ranking", "sessions", "tasks"},
    "ranking": {"request", "protocol"},
    "pool": {"bundled", "engine", "first_steps", "several", "tasks", "terms"},
    "first_steps": {"bundled"},
    "engine": {"bundled", "protocol", "tasks"},
    "protocol": {"values", "request"},
    "reading": {"values", "request", "spellings"},
    "spellings": {"values"},
    "request": {"values"},
    "values": set(),
    "bundled": set(),
    "model_info": set(),
    "studio": set(),
    "client": set(),
    "serving": {"client", "config"},
}
ONLY = {
    "aiohttp": {"server", "handlers", "middleware", "websocket", "access", "connections"},
    "subprocess": {"doctor", "engine", "serving"},
    "argv": {"config"},
    "create_task": {"tasks", "server"},  # whose result server.py asks for
    "ensure_future": {"engine"},  # which awaits it
    "environ": {"config"},
}


def part(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def modules() -> list[Path]:
    return [path for path in PACKAGE.rglob("*.py") if not part(path).startswith("__")]


def imported(path: Path) -> set[str]:
    """The parts of llama_srb that a module imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    names += [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [
        f"llama_srb.{alias.name}"
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module == "llama_srb"
        for alias in node.names
        if not alias.name.startswith("__")
    ]
    return {name.split(".")[1] for name in names if name.startswith("llama_srb.")}


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_only_along_the_arrows(path: Path) -> None:
    leaf = not ARROWS[part(path)] or part(path) in {*VOCABULARY, "spellings", "reading", "routes"}
    assert imported(path) <= ARROWS[part(path)] | (set() if leaf else VOCABULARY)


@pytest.mark.parametrize(("word", "parts"), ONLY.items(), ids=ONLY)
def test_only_one_module_knows(word: str, parts: set[str]) -> None:
    def knows(path: Path) -> bool:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        return any(
            (isinstance(node, ast.Attribute) and node.attr == word)
            or (isinstance(node, ast.Import | ast.ImportFrom) and word in ast.unparse(node).split())
            for node in nodes
        )

    assert {part(path) for path in PACKAGE.rglob("*.py") if knows(path)} <= parts
