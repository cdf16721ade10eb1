"""A text's headings are known, those above a chunk are searched with it, and an answer names them."""

from __future__ import annotations

import asyncio
import sqlite3
from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from llama_srb.memory.chunks import chunks_of, cleaned
from llama_srb.memory.headings import AT_ONCE, MOST, HeadingPath, Headings, headings
from llama_srb.memory.one_memory import Memory
from llama_srb.memory.records import NO_MODEL, Chunk, Chunking, FileStore, MemorySettings
from tests.support.memory import WordModel
from tests.support.rows import each_row

TEXTS: dict[str, tuple[str, list[tuple[int, str]]]] = {
    "Markdown": ("# One\ntext\n\n### Three ##\n\n## C#\n", [(1, "One"), (3, "Three"), (2, "C#")]),
    "not a heading of Markdown": ("#one\n#\n####### Seven\n# ---\n text # two\n", []),
    "a line below": ("One\n===\n\ntext\n\nTwo\n---\ntext", [(1, "One"), (2, "Two")]),
    "a table, a list, a break": ("| a\n---\n\n- a\n---\n\ntext\n\n---\ntext\nmore\n---\n", []),
    "code": ("~~~ sh\n# a\n```\n# b\n~~~\n# c\n  ```\n# d\n```x\n# e\n  ````\n# f", [(1, "c"), (1, "f")]),
    "a manual page": (
        "TAR(1)        GNU TAR Manual        TAR(1)\n\nNAME\n    tar\n\nSEE ALSO\n    cpio",
        [(1, "TAR(1)"), (2, "NAME"), (2, "SEE ALSO")],
    ),
    "a German manual page": ("ÜBERSICHT\n    ps", [(2, "ÜBERSICHT")]),
    "capitals that are no heading": ("a\nEOF\nb\n\nNO, NO!\nc\n\n漢字\nd\n\nTHE END", []),
    "a long line": ("# " + "a" * 300, [(1, "a" * 100)]),
}


@each_row(("text", "expected"), TEXTS.values(), ids=TEXTS)
def test_headings_are_lines_of_some_forms(text: str, expected: list[tuple[int, str]]) -> None:
    found = list(headings(text))
    assert [(one.level, one.title) for one in found] == expected
    assert all(one.at == 0 or text[one.at - 1] == "\n" for one in found)


def test_all_headings_of_a_long_text_are_found() -> None:
    parts = [f"{'line ' * (i % 90)}\n\n# Section {i}\n\nTitle {i}\n---" for i in range(900)]
    text = "\n".join(parts)
    assert len(text) > 10 * AT_ONCE
    expected = [one for i in range(900) for one in (f"Section {i}", f"Title {i}")]
    assert [one.title for one in headings(text)] == expected


def test_a_chunk_has_the_headings_above_it_and_its_own() -> None:
    text = "# A\none\n## B\ntwo\n### C\nthree\n## D\nfour\n# E\nfive"
    at = {word: text.index(word) for word in ("one", "two", "three", "# A", "## D", "five")}
    path = HeadingPath(text)
    expected = {
        (0, at["one"]): Headings((), ("A",)),
        (at["one"], at["three"]): Headings(("A",), ("B", "C")),
        (at["three"], at["## D"]): Headings(("A", "B", "C"), ()),
        (at["## D"], len(text)): Headings(("A",), ("D", "E")),  # which ends B and C
        (at["five"], len(text)): Headings(("E",), ()),
    }
    assert {span: path.of(Chunk(*span, 1)) for span in expected} == expected


def test_the_headings_of_a_chunk_are_bounded() -> None:
    text = "\n".join(f"{'#' * i} {i}{'x' * 90}" for i in range(1, 7)) + "\nend"
    above = HeadingPath(text).of(Chunk(len(text) - 3, len(text), 1)).above
    assert [one[0] for one in above] == ["1", "6"]
    assert sum(map(len, above)) <= MOST


@given(st.lists(st.sampled_from(["# A", "## B", "### C", "```", "one two three.", "DDD", "", "E\n--"])))
async def test_headings_do_not_depend_on_which_chunks_are_asked_for(lines: list[str]) -> None:
    text = cleaned("\n".join(lines))
    chunks = await chunks_of(text, Chunking(8, 2), WordModel().count_tokens)
    path = HeadingPath(text)
    assert [path.of(one) for one in chunks] == [HeadingPath(text).of(one) for one in chunks]


SENTENCES = ["One two three four.", "Five six seven eight nine."]


@given(st.lists(st.sampled_from([*SENTENCES, *(f"# A b\n{one}" for one in SENTENCES)]), max_size=40))
async def test_no_chunk_ends_with_a_heading(lines: list[str]) -> None:
    text = cleaned("\n".join(lines))
    for overlap in (0, 6):
        chunks = await chunks_of(text, Chunking(14, overlap), WordModel().count_tokens)
        assert not [one for one in chunks if text[: one.end].endswith("# A b")]
        assert all(b.start <= a.end + 1 and b.end > a.end for a, b in pairwise(chunks)), "nothing is left out"


MANUAL = "# Harbour\n\n## Mooring\n\n" + " ".join(f"Rope {i} is tied to a ring there." for i in range(9))


async def test_a_chunk_is_found_by_the_words_of_the_headings_above_it(memory: Memory) -> None:
    await memory.put("manual", MANUAL)
    await memory.put("other", "Rope 7 is sold at the market.")
    first, *others = await memory.search("mooring", 9, by="words")
    assert first.text.startswith("# Harbour")
    assert first.headings == ()
    assert others
    assert {(one.document, one.headings) for one in others} == {("manual", ("Harbour", "Mooring"))}
    best = (await memory.search("rope 7, mooring", 1, by="words"))[0]
    assert best.text_with_headings == f"Harbour\nMooring\n{best.text}"
    (wide,) = await memory.search("rope 7, mooring", 1, by="words", around=5)
    assert (wide.start, wide.headings) == (0, ())


async def test_chunks_of_a_page_know_its_headings(memory: Memory) -> None:
    ropes = " ".join(f"Rope {i} is tied to a ring there." for i in range(9))
    page = f"<h1>Harbour</h1><h2>Mooring</h2><p>{ropes}</p><pre># Rope 9\nis code</pre>"
    await memory.put_body("page", page.encode(), "text/html")
    first, *others = await memory.search("mooring", 9, by="words")
    assert (first.text.startswith("# Harbour\n\n## Mooring\n\nRope"), first.headings) == (True, ())
    assert {one.headings for one in others} == {("Harbour", "Mooring")}


async def test_chunks_of_an_earlier_file_are_found_by_their_headings_later(tmp_path: Path) -> None:
    file = FileStore(tmp_path / "a.db")
    settings = MemorySettings("a", None, file, Chunking(12, 2))
    memory = await Memory.open(settings, NO_MODEL)
    for i in range(40):
        await memory.put(f"{i}", MANUAL.replace("Mooring", f"Mooring{i}"))
    await memory.close()
    db = sqlite3.connect(file.path)
    db.executescript("DROP INDEX chunks_without_headings; ALTER TABLE chunks DROP COLUMN headings;")
    db.execute("UPDATE chunks SET words = zeroblob(0)")
    db.commit()
    db.close()
    memory = await Memory.open(settings, NO_MODEL)
    assert memory.search_by == "words", "also before"
    async with asyncio.timeout(20):
        while not (found := await memory.search("mooring7", 9)):
            pass
    assert {one.document for one in found} == {"7"}
    assert {one.headings for one in found} == {(), ("Harbour", "Mooring7")}
    await memory.close()
