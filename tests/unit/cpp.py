"""Reads the functions and classes of a C++ file, as far as the bounds on their sizes need them.

It knows comments, string literals, brackets and declarations, but neither types nor macros. A lambda or a
class inside of a function is part of the function.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

BLANKED = re.compile(
    r"(?P<gone>//[^\n]*|/\*.*?\*/|^[ \t]*#(?:\\\n|[^\n])*)"
    r'|R"(?P<end>[^(\s]*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9A-Fa-f])'(?:\\.|[^'\\\n])+'",
    re.DOTALL | re.MULTILINE,
)
OPERATOR = re.compile(r"\boperator\s*(?:\(\)|\[\]|[^\s\w(]+)")
TYPE = re.compile(r"(?<!enum )\b(?:class|struct|union)\s+(\w+)[^;(){}=]*$")
SCOPE = re.compile(r"\s*(?:inline\s+)?(?:namespace|extern)\b[^(){}=;]*$")
LABELS = re.compile(r"(?:\s*(?:public|private|protected)\s*:(?!:))+")
NO_MEMBER = re.compile(r"\s*(?:using|typedef|friend|static_assert|enum|(?:class|struct|union)\s+\w+\s*$)\b")


@dataclass
class Function:
    name: str
    n_lines: int


@dataclass
class Type:
    """A class or struct; its members are its non-static data."""

    name: str
    methods: list[str] = field(default_factory=list)
    members: list[str] = field(default_factory=list)


@dataclass
class Item:
    """A declaration, or a definition with a body in braces."""

    head: str
    at: int  # offset of the head
    body: tuple[int, int] | None = None  # offsets of the body's text


def parts(source: str) -> tuple[list[Function], list[Type]]:
    text = blanked(source)
    functions: list[Function] = []
    types: list[Type] = []
    scopes: list[tuple[int, int, Type | None]] = [(0, len(text), None)]
    for begin, end, owner in scopes:
        for item in items(text, begin, end):
            made = TYPE.search(item.head)
            if item.body and made:
                types.append(Type(made[1]))
                scopes.append((*item.body, types[-1]))
            elif item.body and SCOPE.match(item.head):
                scopes.append((*item.body, None))
            elif item.body:
                functions.append(Function(name_of(item.head), text.count("\n", item.at, item.body[1]) + 1))
            if owner and not (item.body and made):
                add_to(owner, item)
    return functions, types


def blanked(source: str) -> str:
    """Blanks comments, string literals and preprocessor lines; everything else keeps its place."""
    return BLANKED.sub(lambda found: re.sub(r"[^\n]", " " if found["gone"] else "_", found[0]), source)


def items(text: str, begin: int, end: int) -> Iterator[Item]:
    """The declarations of a namespace or class, in order."""
    start, depth, at = begin, 0, begin
    while at < end:
        c = text[at]
        depth += (c == "(") - (c == ")")
        if c == "{":
            stop = closing(text, at)
            item = trimmed(text, start, at)
            after = text[stop + 1 : end].lstrip()[:1]
            if depth == 0 and after not in (",", "{") and has_body(item.head):
                yield Item(item.head, item.at, (at + 1, stop))
                start = stop + 1
            at = stop
        elif c == ";" and depth == 0:
            yield trimmed(text, start, at)
            start = at + 1
        at += 1


def trimmed(text: str, start: int, end: int) -> Item:
    labels = LABELS.match(text, start, end)
    start = labels.end() if labels else start
    head = text[start:end]
    return Item(head.strip(), start + len(head) - len(head.lstrip()))


def has_body(head: str) -> bool:
    """Whether a brace after this head begins a body, not a value."""
    return bool(SCOPE.match(head) or TYPE.search(head) or is_function(head))


def is_function(head: str) -> bool:
    plain = without("{}", without("<>", OPERATOR.sub("operator", head).replace("->", "")))
    return "(" in plain and "=" not in without("()", plain)


def name_of(head: str) -> str:
    found = re.search(r"([\w:~]+)\s*\(", without("<>", OPERATOR.sub("operator", head)))
    return found[1] if found else head


def add_to(owner: Type, item: Item) -> None:
    plain = without("{}", without("<>", OPERATOR.sub("operator", item.head).replace("->", "")))
    declared = plain.partition("=")[0]
    if not item.head or NO_MEMBER.match(item.head) or plain.endswith("= delete"):
        return
    if item.body or "(" in declared:
        owner.methods.append(name_of(plain))
    elif not re.search(r"\bstatic\b", declared):
        for one in without("[]", without("()", plain)).split(","):
            owner.members.append(re.split(r"=|(?<!:):(?!:)", one)[0].split()[-1])


def without(pair: str, text: str) -> str:
    """Removes these brackets and everything between them."""
    pattern = re.compile(rf"\{pair[0]}[^\{pair[0]}\{pair[1]}]*\{pair[1]}")
    while (shorter := pattern.sub("", text)) != text:
        text = shorter
    return text


def closing(text: str, at: int) -> int:
    """The place of the brace that closes the one at `at`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.start()
    raise ValueError(f"line {text.count(chr(10), 0, at) + 1}: the brace is not closed")
