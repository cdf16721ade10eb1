"""Comments of source code are no headings, whether its type, its name or its lines say what it is."""

from __future__ import annotations

import pytest

from llama_srb.memory.chunks import SHORT
from llama_srb.memory.source_code import looks_like_source
from tests.memory.conftest import Opening
from tests.support.memory import WordModel
from tests.support.rows import each_row

PYTHON = "# The harbour's rules\n\nLEAST = 2\n\n# Boats\ndef come(name: str) -> None:\n    print(name)\n"
SHELL = '#!/bin/sh\n# Moor all boats\nset -e\nfor boat in *; do\n    moor "$boat"\ndone\n'
TOML = '# The harbour\n[harbour]\nname = "Oxley"\n\n# Boats\nboats = [\n  "Iris",\n]\n'
YAML = "# The harbour\nharbour:\n  name: Oxley\n# Boats\nboats:\n- Iris\n- Heron\n"
PROSE = (
    "# Harbour\n\nBoats come and go. The log says when:\n\n## Arrivals\n\n- Iris, at noon\n- Heron (late)\n"
)
README = f"{PROSE}\nWrite it down:\n\n```python\n{PYTHON}```\n\nOr let the harbour do it.\n"
POEM = "# Sea\n\nThe boats, the boats;\nthey come and go,\nfor all is well:\nthe wind is low;\n"
LISTED = "# Boats\n\nIris: blue\nHeron: white\n\n# Gates\n\nNorth: open\nSouth: closed\n"


@each_row(
    ("text", "expected"),
    [(PYTHON, True), (SHELL, True), (TOML, True), (PROSE, False), (README, False), (POEM, False),
     (LISTED, False), ("# One\n\nx = 1\n", False), ("# One\n", False), (f"{PROSE * 900}{PYTHON}", False)],
)  # fmt: skip
def test_source_code_is_known_by_many_of_its_lines(text: str, expected: bool) -> None:
    assert looks_like_source(text) is expected


def test_no_text_takes_long_to_look_at() -> None:
    for part in ("a.", "a: ", "```\n", "if ", "(", "def a", "a\n", " "):
        looks_like_source(part * (1 << 20))


CODE, KEYS = PYTHON + "limit = 1\n" * 40, YAML + "- Iris, of Oxley\n" * 40
CASES: dict[str, tuple[str, str, str, bool]] = {  # id, content type, text, whether it has headings
    "its type": ("rules", "text/x-python", KEYS, False),
    "its name": ("rules.yaml", "text/plain; charset=utf-8", KEYS, False),
    "neither": ("rules", "text/plain", KEYS, True),
    "its lines": ("rules", "text/plain", CODE, False),
    "its lines, long": ("rules", "text/plain", CODE + "limit = 1\n" * (SHORT // 10), False),
    "Markdown by its type": ("rules.py", "text/markdown", CODE, True),
    "Markdown by its name": ("rules.md", "text/plain", CODE, True),
    "a page": ("rules.py", "text/html", f"<h1>The rules</h1><pre>{CODE}</pre>", True),
}


@pytest.mark.parametrize(("id", "content_type", "text", "has"), CASES.values(), ids=CASES)
async def test_chunks_of_source_code_have_no_headings(
    opening: Opening, id: str, content_type: str, text: str, has: bool
) -> None:
    memory = await opening()
    await memory.put_body(id, text.encode(), content_type)
    wanted = [bool(one.headings) for one in await memory.search("boats", 1000)]
    await memory.close()
    rebuilt = await opening(WordModel(64, "other"), rebuilding=True)
    await rebuilt.rebuild()
    again = [bool(one.headings) for one in await rebuilt.search("boats", 1000)]
    assert (any(wanted), any(again)) == (has, has)
