"""engine/: folders include each other in one direction; sizes of folders, files, classes are bounded."""

from __future__ import annotations

import graphlib
import re
from pathlib import Path

from tests.support.rows import each_row
from tests.unit.cpp import Function, Type, parts

ENGINE = Path(__file__).resolve().parents[2] / "engine"
FOLDERS: dict[str, set[str]] = {
    "util": set(),
    "text": {"util"},
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
MOST_FLAT, MOST_IN_A_FOLDER = (
    6,
    12,
)  # files in engine/ itself; modules (header and source) in a folder
MOST_LINES, MOST_IN_A_FUNCTION, MOST_METHODS, MOST_MEMBERS = 400, 60, 20, 12

# Larger items, each with its reason. The test fails for an exception that is not needed any more.
EXCEPTIONS = {
    "members of generate_command": "data: the fields of one line that is read",
    "members of status_report": "data: the fields of one line that is written",
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


def test_no_folder_is_crowded() -> None:
    assert len([path for path in ENGINE.iterdir() if path.is_file()]) <= MOST_FLAT
    for where in FOLDERS.keys() - {"main", "options"}:
        modules = {Path(name).stem for name in FILES if folder(name) == where}
        assert len(modules) <= MOST_IN_A_FOLDER


def too_large(name: str, source: str) -> dict[str, int]:
    """The items above a bound, with their sizes."""
    functions, types = parts(source)
    sizes = [(f"lines of {name}", source.count("\n"), MOST_LINES)]
    sizes += [(f"lines of {f.name}()", f.n_lines, MOST_IN_A_FUNCTION) for f in functions]
    sizes += [(f"methods of {t.name}", len(t.methods), MOST_METHODS) for t in types]
    sizes += [(f"members of {t.name}", len(t.members), MOST_MEMBERS) for t in types]
    return {what: n for what, n, most in sizes if n > most}


def test_no_file_function_or_class_is_too_large() -> None:
    found = {what: n for name, path in FILES.items() for what, n in too_large(name, path.read_text()).items()}
    assert {what: n for what, n in found.items() if what not in EXCEPTIONS} == {}
    assert EXCEPTIONS.keys() - found.keys() == set(), "an exception that is not needed any more"


def test_each_bound_notices_one_too_many() -> None:
    lines = "int f() {\n" + "    g();\n" * (MOST_IN_A_FUNCTION - 2)
    members = "struct s {\n" + "int a;\n" * MOST_MEMBERS
    methods = "class c {\n" + "void f();\n" * MOST_METHODS
    assert too_large("x.cpp", lines + "}\n" + members + "};\n" + methods + "};\n") == {}
    assert too_large("x.cpp", lines + "g();\n}\n") == {"lines of f()": 61}
    assert too_large("x.cpp", members + "int b;\n};\n") == {"members of s": 13}
    assert too_large("x.cpp", methods + "void g();\n};\n") == {"methods of c": 21}
    assert too_large("x.cpp", "\n" * 401) == {"lines of x.cpp": 401}


def class_c(methods: str, members: str) -> tuple[list[Function], list[Type]]:
    return [], [Type("c", methods.split(), members.split())]


@each_row(
    ("source", "found"),
    [
        ("class c { int a, b = f(1), *d; std::map<int, int> e; };", class_c("", "a b *d e")),
        ("struct c { std::function<void(int)> f; int g[3] = {1, 2}; x h{f()}; };", class_c("", "f g h")),
        ("struct c : d<int> { static int n; using x = int; enum e { y, z }; e w = y; };", class_c("", "w")),
        ("struct c { c(const c &) = delete; c() = default; virtual int f() = 0; };", class_c("c f", "")),
        ("struct c { bool operator==(c o) const; int operator()(int); };", class_c("operator operator", "")),
        ("class c { public: static int f(int x = 1); private: a<int> & g() const; };", class_c("f g", "")),
        ("class c;\nstruct d f(e x);\nenum class g : int { a };\nstatic const h i[] = {{1}, {2}};", ([], [])),
        ("// class a {\n#define b {\nx d = \"{\"; char e = '{'; x f = R\"(}})\";", ([], [])),
        ("struct c { struct { int a; } b; };", class_c("", "b")),
    ],
)  # fmt: skip
def test_declarations_are_read(source: str, found: tuple[list[Function], list[Type]]) -> None:
    assert parts(source) == found


@each_row(
    ("source", "name", "n_lines"),
    [
        ("static int f(int a) {\n  return [a] { return a; }();\n}", "f", 3),
        ("namespace {\n\nvoid f() {}\n\n}", "f", 1),
        ("c::c(int a)\n    : x(a), y{a},\n      z{} {\n}", "c::c", 4),
        ("template <typename T>\nT c<T>::f(T a = {}) const {\n}", "c::f", 3),
        ("bool c::operator<(const c & o) const {\n}", "c::operator", 2),
        ('extern "C" {\nvoid f() {\n}\n}', "f", 2),
    ],
)
def test_functions_are_read(source: str, name: str, n_lines: int) -> None:
    functions, _ = parts(source)
    assert functions == [Function(name, n_lines)]
