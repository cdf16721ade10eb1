"""The functions and classes of source code in a text, by their first lines and the indentation below. Pure.

A block begins with a line of `def`, `class` or a decorator, or one that ends with an opening brace. To it
belong the lines below that are indented more, and those with the same indentation that begin with a closing
bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = re.compile(r"^([ \t]*)([^ \t\n][^\n]*)\n?", re.MULTILINE)
_FIRST = re.compile(r"(?P<decorator>@\w)|(?:async +)?def |class |[^\n]*\{$")
_MAYBE = re.compile(r"^[ \t]*(?:(?:async +)?def |class )|\{$", re.MULTILINE)


def blocks_around(text: str, begin: int, at: int, end: int) -> Iterator[tuple[int, int]]:
    """The blocks that begin behind `begin` and go on at `at`, from their first sign on; the outermost first.

    Those that do not end before `end` are left out.
    """
    if _MAYBE.search(text, begin, at) is None:
        return
    opened = list[tuple[int, int, bool]]()  # indentation, begin; whether decorators alone have come
    closed, last = dict[int, int](), begin
    for line in _LINE.finditer(text, begin, end):
        indent, start = len(line[1]), line.start(2)
        while opened and _is_closed(opened[-1], indent, line[2]):
            closed[opened.pop()[1]] = last
        if start < at and (first := _FIRST.match(line[2])) is not None:
            if opened and opened[-1][0] == indent:  # behind its decorators
                start = opened.pop()[1]
            opened.append((indent, start, first["decorator"] is not None))
        elif start >= at and not opened:
            break
        last = line.end()
    if end == len(text):
        closed |= {start: end for _, start, _ in opened}
    yield from sorted((start, stop) for start, stop in closed.items() if start < at < stop)


def _is_closed(block: tuple[int, int, bool], indent: int, line: str) -> bool:
    """Whether this line is the first one behind a block."""
    of, _, is_decorator = block
    return indent < of or (indent == of and not is_decorator and line[0] not in ")]}")
