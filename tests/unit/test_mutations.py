"""tests/support/mutations.py, by which scripts/mutants changes files."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.mutations import chosen, mutants
from tests.support.places import ROOT

SOURCE = '''"""A docstring."""
LIMIT: "int" = 3


def f(x: int = 1) -> "str":
    """Another."""
    if 0 < x <= LIMIT and x:
        g(x)
    return f"{x == 2}" if x else "a text with spaces"
'''
CHANGES = {
    ("constant", "3", "4"),
    ("constant", "1", "2"),
    ("constant", "0", "1"),
    ("comparison", "0 < x <= LIMIT", "0 <= x <= LIMIT"),
    ("comparison", "0 < x <= LIMIT", "0 < x < LIMIT"),
    ("condition", "0 < x <= LIMIT and x", "(0 < x <= LIMIT or x)"),
    ("condition", "0 < x <= LIMIT and x", "not (0 < x <= LIMIT and x)"),
    ("condition", "x", "not (x)"),
    ("statement", "g(x)", "pass"),
    ("return", 'f"{x == 2}" if x else "a text with spaces"', "None"),
}


def test_a_mutant_changes_code_and_no_wording(tmp_path: Path) -> None:
    file = tmp_path / "f.py"
    file.write_text(SOURCE)
    assert {(mutant.kind, mutant.old, mutant.new) for mutant in mutants(file)} == CHANGES


def test_a_mutant_is_valid_python_with_one_change(tmp_path: Path) -> None:
    original = (ROOT / "llama_srb/serving/limits.py").read_text()
    for mutant in mutants(ROOT / "llama_srb/serving/limits.py"):
        (tmp_path / "limits.py").write_text(original)
        mutant.apply(tmp_path / "limits.py")
        changed = (tmp_path / "limits.py").read_text()
        assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse(original)), mutant


def test_a_seed_chooses_the_same_mutants() -> None:
    files = list((ROOT / "llama_srb/request").glob("*.py"))
    assert chosen(files, 20, seed=1) == chosen(reversed(files), 20, seed=1) != chosen(files, 20, seed=2)
