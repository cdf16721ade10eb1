"""Makes small random changes to Python files: a comparison, condition, constant, statement or returned value.

It knows nothing of tests. It leaves alone wording (strings with a space, docstrings, f-strings), annotations,
and statements outside of functions, without which a module cannot be imported.
"""

from __future__ import annotations

import ast
import copy
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.Lt: ast.LtE,
    ast.Gt: ast.GtE,
    ast.Is: ast.IsNot,
    ast.In: ast.NotIn,
}
SWAPPED |= {new: old for old, new in SWAPPED.items()}
STATEMENTS = (
    ast.Expr,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.Raise,
    ast.Delete,
    ast.Break,
    ast.Continue,
)
Change = tuple[str, ast.AST, str]  # kind, the node that is replaced, its replacement


@dataclass(frozen=True)
class Mutant:
    """A file with one change: the bytes from begin to end are replaced by new."""

    path: Path
    lines: tuple[int, ...]  # the lines that are changed
    statement: int  # the line in which the changed statement begins
    kind: str
    begin: int
    end: int
    old: str
    new: str

    def apply(self, file: Path) -> None:
        source = file.read_bytes()
        file.write_bytes(source[: self.begin] + self.new.encode() + source[self.end :])

    def name(self, root: Path) -> str:
        place = f"{self.path.relative_to(root)}:{self.lines[0]}"
        return f"{place} {self.kind}: {' '.join(self.old.split())} -> {self.new}"


def chosen(files: Iterable[Path], count: int, seed: int) -> list[Mutant]:
    """Draws changes at random: each kind is equally likely, and each place of a kind."""
    dice = random.Random(seed)
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for path in sorted(files):
        for mutant in mutants(path):
            kinds[mutant.kind].append(mutant)
    for places in kinds.values():
        dice.shuffle(places)
    return [kinds[dice.choice(sorted(kinds))].pop() for _ in range(count)]


def mutants(path: Path) -> Iterator[Mutant]:
    """All possible changes of a file."""
    source = path.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for (kind, node, new), statement in _walk(ast.parse(source), None, False):
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        lines = tuple(range(node.lineno, node.end_lineno + 1))
        yield Mutant(path, lines, statement.lineno, kind, begin, end, source[begin:end].decode(), new)


def _walk(node: ast.AST, statement: ast.AST | None, in_function: bool) -> Iterator[tuple[Change, ast.AST]]:
    """Yields each change in a node, with its statement."""
    if isinstance(node, ast.JoinedStr) or _is_for_readers(node):
        return
    statement = node if isinstance(node, ast.stmt) else statement
    if statement is not None:
        for change in _changes(node, in_function):
            yield change, statement
    in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    for name, value in ast.iter_fields(node):
        if name not in ("annotation", "returns"):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _walk(child, statement, in_function)


def _is_for_readers(node: ast.AST) -> bool:
    """Whether it is a docstring, or only for type checkers."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, ast.Expr) and isinstance(getattr(node.value, "value", None), str)


def _changes(node: ast.AST, in_function: bool) -> Iterator[Change]:
    match node:
        case ast.Compare():
            for i, operator in enumerate(node.ops):
                changed = copy.deepcopy(node)
                changed.ops[i] = SWAPPED[type(operator)]()
                yield "comparison", node, ast.unparse(changed)
        case ast.BoolOp():
            changed = copy.deepcopy(node)
            changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "condition", node, f"({ast.unparse(changed)})"
        case ast.If() | ast.While() | ast.IfExp() | ast.Assert():
            yield "condition", node.test, f"not ({ast.unparse(node.test)})"
        case ast.comprehension():
            for test in node.ifs:
                yield "condition", test, f"not ({ast.unparse(test)})"
        case ast.Constant(value=bool(value)):
            yield "constant", node, repr(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "constant", node, repr(value + 1)
        case ast.Constant(value=str(value)) if value and " " not in value:
            yield "constant", node, repr(value + "x")
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) != "None":
            text = ast.unparse(value)
            yield "return", value, f"not {text}" if text in ("True", "False") else "None"
    if isinstance(node, STATEMENTS) and in_function:
        yield "statement", node, "pass"
