"""Functions of source code in a text stay in one chunk if they fit."""

from __future__ import annotations

import random

from llama_srb.memory.blocks import blocks_around
from llama_srb.memory.chunks import chunks_of, cleaned
from llama_srb.memory.records import Chunking
from tests.support.memory import WordModel
from tests.support.rows import each_row

AT = "§"  # where a chunk is full
BLOCKS: dict[str, tuple[str, list[str]]] = {
    "a function": ("import a\n\ndef f(x):\n    y\n    §z\n\nw", ["def f(x):\n    y\n    z\n"]),
    "with decorators and a signature of several lines": (
        "a\n@b\n@c(1)\ndef f(\n    x,\n):\n    §y\nz", ["@b\n@c(1)\ndef f(\n    x,\n):\n    y\n"]
    ),
    "in a class": (
        "a\nclass C:\n    def f():\n        x\n        §y\n\n    z\n",
        ["class C:\n    def f():\n        x\n        y\n\n    z\n", "def f():\n        x\n        y\n"],
    ),
    "in braces": ("a\nint f(b)\n{\n  §c;\n}\nd", ["{\n  c;\n}\n"]),
    "in braces of braces": (
        "a\nx => {\n  if {\n    §c\n  } else {\n  }\n}",
        ["x => {\n  if {\n    c\n  } else {\n  }\n}", "if {\n    c\n  } else {\n  }\n"],
    ),
    "behind functions": ("def f():\n    x\ndef g():\n    y\n§z\n", []),
    "a function that goes on": ("a\ndef f():\n    b\n    §c\n" + "    d\n" * 9 + "|", []),
    "prose": ("We define\n    what a §class is\n", []),
}  # fmt: skip


@each_row(("text", "expected"), BLOCKS.values(), ids=BLOCKS)
def test_blocks_are_seen_by_first_lines_and_indentation(text: str, expected: list[str]) -> None:
    at, kept = text.index(AT), text.replace(AT, "")
    end = len(kept) - kept.endswith("|")
    assert [kept[start:stop] for start, stop in blocks_around(kept, 0, at, end)] == expected


async def test_a_function_that_fits_is_in_one_chunk() -> None:
    drawn = random.Random(1)
    functions = [
        f"def f{i}(x):\n" + "".join(f"    line {j} of {i}\n" for j in range(drawn.randint(1, 12)))
        for i in range(80)
    ]
    text = cleaned("\n\n".join(functions))
    for overlap in (0, 10):
        made = await chunks_of(text, Chunking(80, overlap), WordModel().count_tokens)
        chunks = [text[one.start : one.end] for one in made]
        assert [one for one in functions if not any(one.strip() in chunk for chunk in chunks)] == []
        assert max(len(one.split()) for one in chunks) <= 80
