"""Texts are cut at the ends of sentences, by the model's tokens, and each chunk is a part of the text."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_srb.memory.chunks import COUNTED_AT_ONCE, chunks_of, cleaned
from llama_srb.memory.records import Chunking
from llama_srb.request.values import RequestError
from tests.support.memory import WordModel
from tests.support.rows import each_row

SENTENCES = [f"Sentence number {i} has seven words here." for i in range(50)]


async def bytes_as_tokens(texts: Sequence[str]) -> list[int]:
    return [len(text.encode()) for text in texts]


async def parts(text: str, chunking: Chunking, model: WordModel | None = None) -> list[str]:
    made = await chunks_of(text, chunking, (model or WordModel()).count_tokens)
    return [text[one.start : one.end] for one in made]


async def test_chunks_are_whole_sentences_and_overlap_by_some() -> None:
    made = await parts(" ".join(SENTENCES), Chunking(21, 7))
    assert made[0] == " ".join(SENTENCES[:3])
    assert made[1] == " ".join(SENTENCES[2:5])
    assert made[-1].endswith(SENTENCES[-1])
    assert await parts(" ".join(SENTENCES[:6]), Chunking(21, 0)) == [
        " ".join(SENTENCES[:3]),
        " ".join(SENTENCES[3:6]),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One two three four five six. Seven!", ["One two three four five six. Seven!"]),
        ("He said: “No.” Then he left the house at once. It was late.",
         ["He said: “No.”", "Then he left the house at once.", "It was late."]),
        ("The value 3.14 is near pi. Next one is here.", ["The value 3.14 is near pi.", "Next one is here."]),
        ("# Title\n\nA first line without end\nand a second line.\n",
         ["# Title\n\nA first line without end", "and a second line."]),
    ],
)  # fmt: skip
async def test_a_chunk_ends_with_a_sentence_or_a_line(text: str, expected: list[str]) -> None:
    assert await parts(cleaned(text), Chunking(8, 0)) == expected


async def test_sentences_without_spaces_between_them_are_cut_too() -> None:
    text = "猫は屋根の上で寝ている。魚の夢を見る！船は海を渡る？"  # noqa: RUF001
    made = await chunks_of(text, Chunking(40, 0), bytes_as_tokens)
    assert [text[one.start : one.end] for one in made] == [
        "猫は屋根の上で寝ている。",
        "魚の夢を見る！",  # noqa: RUF001
        "船は海を渡る？",  # noqa: RUF001
    ]


async def test_given_separators_are_the_only_borders_of_texts_that_fit() -> None:
    text = "alpha. beta|gamma. delta|epsilon. zeta eta theta iota"
    assert await parts(text, Chunking(8, 0, ("|",))) == [
        "alpha. beta|gamma. delta|",
        "epsilon. zeta eta theta iota",
    ]


async def test_a_long_sentence_is_cut_at_clauses_or_words() -> None:
    words = [f"word{i}" for i in range(100)]
    made = await parts(", ".join(words) + ".", Chunking(10, 0))
    assert all(len(part.split()) <= 10 for part in made)
    assert " ".join(made).split() == (", ".join(words) + ".").split()


async def test_texts_are_counted_in_few_calls_and_equal_ones_once() -> None:
    model = WordModel()
    text = "\n".join(f"Line number {i % 3000} of it." for i in range(9000))
    await parts(text, Chunking(50, 10), model)
    assert len(model.counted) == -(-3000 // COUNTED_AT_ONCE) + 1, "the last line has no end"
    assert sum(map(len, model.counted)) == 3001


@each_row(
    "text",
    ["x" * 200_000, "a " * 100_000, "\n".join("ab" * (i % 50) for i in range(5000)), "." * 50_000,
     "".join("a" + " " * i for i in range(1500)), "".join("a" + "\n" * i for i in range(1500)), "🙂" * 20_000,
     ("(" * 20_000) + (")" * 20_000), "a\tb" * 30_000, "word" * 30_000 + "."],
    ids=lambda text: f"{text[:6]!r}",
)  # fmt: skip
async def test_hostile_texts_are_cut_within_the_bound(text: str) -> None:
    kept = cleaned(text)
    made = await chunks_of(kept, Chunking(32, 8), bytes_as_tokens)
    assert all(len(kept[one.start : one.end].encode()) <= 32 for one in made)
    assert all(0 <= one.start < one.end <= len(kept) for one in made)


def covered(kept: str, spans: list[tuple[int, int]]) -> bool:
    """Whether everything but space is in a chunk."""
    last = 0
    for start, end in spans:
        if kept[last : max(last, start)].strip():
            return False
        last = max(last, end)
    return not kept[last:].strip()


@given(st.text(st.sampled_from("ab .!?\n\t,;。é\"'()-🙂"), max_size=300), st.integers(8, 40), st.randoms())
async def test_all_of_a_text_is_in_some_chunk(text: str, tokens: int, drawn: random.Random) -> None:
    kept = cleaned(text)
    chunking = Chunking(tokens, drawn.randint(0, tokens // 2), ("!", "b a") if drawn.random() < 0.3 else ())
    made = await chunks_of(kept, chunking, bytes_as_tokens)
    spans = [(one.start, one.end) for one in made]
    assert covered(kept, spans)
    assert spans == sorted(set(spans))
    assert all(kept[start:end].strip() == kept[start:end] != "" for start, end in spans)
    assert all(one.tokens <= tokens for one in made)


def test_a_kept_text_has_no_control_characters_and_no_long_runs() -> None:
    assert cleaned("\ufeffa\x00b\r\nc\x0cd   \n\n\n\n e" + " " * 50 + "f\t") == "ab\nc\nd\n\n e        f"
    assert cleaned("Daten\u00adschutz Wort\u200btrenner") == "Datenschutz Worttrenner"


@pytest.mark.parametrize(
    ("tokens", "overlap", "says"),
    [
        (7, 0, "chunk_tokens is 7; it must be between 8 and 8192"),
        (200, 101, "chunk_overlap is 101; it must be between 0 and 100"),
    ],
)
def test_settings_have_bounds(tokens: int, overlap: int, says: str) -> None:
    with pytest.raises(RequestError) as error:
        Chunking(tokens, overlap)
    assert error.value.message == says
