"""Stories: what is cut, what stands at the top, which lore is called, errors; by a tokenizer of words."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest

from llama_srb.request.parse import request_from
from llama_srb.request.story.assembly import assembled
from llama_srb.request.story.cut import border_in
from llama_srb.request.story.lore import called
from llama_srb.request.story.meaning import Vectors, with_near
from llama_srb.request.story.parts import Assembled, Call
from llama_srb.request.story.ruler import MAX_KNOWN, Counts, blocks_of, places_of
from llama_srb.request.story.shape import LoreEntry, Note, Story, read_story
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

TOKEN = re.compile(r" ?\w{1,6}|\s|[^\w\s]")
ROOM = 400


async def by_words(op: str, **arguments: Any) -> Mapping[str, Any]:
    """An engine whose tokens are up to six letters."""
    if op == "count_tokens":
        return {"counts": [len(TOKEN.findall(text)) for text in arguments["texts"]]}
    assert op == "tokenize"
    return {"pieces": [list(piece.encode()) for piece in TOKEN.findall(arguments["text"])]}


def tokens(text: str) -> int:
    return len(TOKEN.findall(text))


def book(paragraphs: int, *, first: int = 0) -> str:
    sentences = "Then {0} went to the river. It was cold there, and nobody spoke. "
    return "".join(sentences.format(f"Number{i}") * 3 + "\n" for i in range(first, first + paragraphs))


async def made(story: Story, text: str, room: int = ROOM) -> Assembled:
    return await assembled(story, text, room, Counts(), by_words)


def top_of(one: Assembled) -> str:
    """The prompt up to the first text."""
    names = [part.name for part in one.parts]
    return "".join(part.text for part in one.parts[: names.index("text")])


# ----------------------------------------------------------------------------------------------------
# The prompt
# ----------------------------------------------------------------------------------------------------


async def test_a_short_story_is_sent_as_it_is() -> None:
    one = await made(Story(), "Once upon a time")
    assert (one.prompt, one.begins, one.cut_tokens) == ("Once upon a time", 0, 0)


async def test_the_parts_stand_in_their_order() -> None:
    lore = (LoreEntry("The river is deep.", keys=("river",)), LoreEntry("All is calm.", always=True))
    one = await made(Story("A tale.", Note("Sad.", 20), lore, "Much was."), book(60))
    assert [part.name for part in one.parts] == ["memory", "lore", "lore", "summary", "text", "note", "text"]
    assert one.prompt.startswith("A tale.\nThe river is deep.\nAll is calm.\nMuch was.\nThen Number")
    assert "\nSad.\n" in one.prompt
    assert one.prompt.endswith(book(60)[-40:])
    assert tokens(one.parts[-1].text) <= 20


@each_row("paragraphs", range(1, 60, 3))
async def test_what_is_sent_fits_and_fills_half(paragraphs: int) -> None:
    story = Story("A tale.", Note("Sad.", 30), summary="Much was.")
    text = book(paragraphs)
    one = await made(story, text)
    assert tokens(one.prompt) <= ROOM
    assert tokens(one.prompt) >= min(tokens(text), ROOM // 2)
    assert "".join(part.text for part in one.parts if part.name == "text").replace("\n", "") == text[
        one.begins :
    ].replace("\n", "")
    assert sum(part.tokens for part in one.parts) == pytest.approx(tokens(one.prompt), abs=len(one.parts))


async def test_the_cut_moves_in_steps_of_a_quarter_and_the_top_only_with_it() -> None:
    lore = tuple(LoreEntry(f"Number{i} is kind.", keys=(f"Number{i}",), search=400) for i in range(0, 80, 2))
    story, text = Story("A tale.", None, lore, budget=60), book(80)
    tops, moves = dict[int, set[str]](), list[int]()
    for end in range(0, len(text), 37):
        one = await made(story, text[:end])
        tops.setdefault(one.begins, set()).add(top_of(one) if end else "")
        if not moves or moves[-1] != one.cut_tokens:
            moves.append(one.cut_tokens)
    assert len(moves) > 20
    assert moves == sorted(moves)
    assert all(75 <= b - a <= 125 for a, b in pairwise(moves))
    assert {len(top) for begins, top in tops.items() if begins} == {1}


async def test_a_cut_is_at_a_paragraph() -> None:
    text = book(80)
    one = await made(Story(), text)
    assert one.begins
    assert text[one.begins - 1] == "\n"


@each_row(
    ("text", "low", "border"),
    [
        ("one two.\nthree four", 2, 9),
        ('one "two." three four', 2, 11),
        ("one two three", 2, 4),
        ("onetwothree", 2, 2),
        ("one\n\n\ntwo", 5, 6),
        ("他说。她走了", 1, 3),
        ("one. two", 5, 5),
    ],
)
def test_the_border_is_a_paragraph_else_a_sentence_else_a_word_else_anything(
    text: str, low: int, border: int
) -> None:
    assert border_in(text, low, len(text)) == border


async def test_what_always_stays_may_have_half_of_the_room() -> None:
    with pytest.raises(
        RequestError, match=r"story.memory, summary and note have 252 tokens; they may have 192"
    ):
        await made(Story(memory="word " * 250), "Once")


async def test_a_note_without_text_before_it_stands_first() -> None:
    one = await made(Story(note=Note("Sad.", 50)), "Once upon")
    assert one.prompt == "Sad.\nOnce upon"


async def test_the_separator_may_be_empty() -> None:
    assert (await made(Story(memory="Once", separator=""), " upon")).prompt == "Once upon"


# ----------------------------------------------------------------------------------------------------
# Lore
# ----------------------------------------------------------------------------------------------------


@each_row(
    ("entry", "text", "why"),
    [
        (LoreEntry("", ("Lily",)), "then lily came", "key"),
        (LoreEntry("", ("Lily",)), "the lilypad", "no_key"),
        (LoreEntry("", ("lily",)), "a waterlily", "no_key"),
        (LoreEntry("", ("old man",)), "The Old Man's house", "key"),
        (LoreEntry("", ("cat", "dog")), "a dog", "key"),
        (LoreEntry("", ("猫",)), "那只猫来了", "key"),
        (LoreEntry("", ("ß",)), "STRASSE", "no_key"),
        (LoreEntry("", ("!",)), "stop!", "key"),
        (LoreEntry("", ("cat",), also=("dog",)), "a cat", "no_second_key"),
        (LoreEntry("", ("cat",), also=("dog",)), "a cat, a dog", "key"),
        (LoreEntry("", ("cat",), search=5), "a cat was here", "no_key"),
        (LoreEntry("", ()), "a cat", "no_key"),
        (LoreEntry("", (), always=True), "a cat", "always"),
        (LoreEntry("", ("/c[au]t/",)), "the CUT", "no_key"),
        (LoreEntry("", ("/c[au]t/i",)), "the CUT", "key"),
        (LoreEntry("", ("/^x/m",)), "a\nx", "key"),
    ],
)
async def test_keys(entry: LoreEntry, text: str, why: str) -> None:
    (call,) = await called(Story(lore=(entry,)), text, len(text))
    assert call.why == why


async def test_an_entry_near_in_meaning_comes_without_a_key_and_each_text_is_embedded_once() -> None:
    """Vectors here: the shares of the letters a and b."""
    asked, vectors = list[str](), Vectors()

    async def embed(texts: Sequence[str]) -> list[list[float]]:
        asked.extend(texts)
        counts = [(text.count("a"), text.count("b")) for text in texts]
        return [[a / math.hypot(a, b), b / math.hypot(a, b)] for a, b in counts]

    lore = (
        LoreEntry("aaa", meaning=0.9),
        LoreEntry("b", meaning=0.9),
        LoreEntry("ab", ("x",), meaning=0.1),
        LoreEntry("a", ("dog",), also=("cat",), meaning=0.1),
        LoreEntry("a"),
    )
    text = "b" * 1000 + "a" * 492 + " x dog"
    story = Story(lore=lore)

    async def near(calls: Sequence[Call], end: str) -> list[Call]:
        return await with_near(calls, story, end, 300, vectors, embed)

    for _ in range(2):
        calls = await called(story, text, len(text), near)
        assert [call.why for call in calls] == ["meaning", "no_key", "key", "no_second_key", "no_key"]
        assert [call.nearness for call in calls] == [1, 0, None, None, None]
    assert asked == ["a" * 286 + " x dog", "aaa", "b"], (
        "the end, as long as the model reads, and each entry once"
    )


async def test_a_call_names_the_place_of_the_key() -> None:
    (call,) = await called(Story(lore=(LoreEntry("", ("dog", "cat")),), search=30), "cat " * 20, 80)
    assert (call.key, call.at) == ("cat", 52)


async def test_the_place_of_a_key_is_one_of_the_clients_text() -> None:
    text = "\u0130" * 5 + " cat"  # a letter that has two small ones
    (call,) = await called(Story(lore=(LoreEntry("", ("cat",)),)), text, len(text))
    assert call.at == text.index("cat")


async def test_keys_within_words_are_looked_at_a_bounded_number_of_times() -> None:
    text, keys = "a" * 1_000_000 + " b", ("b", "a", "aa")
    (call,) = await called(Story(lore=(LoreEntry("", keys, search=1000),)), text, len(text))
    assert call.key == "b"
    with pytest.raises(
        RequestError, match="keys that stand within longer words at 1000000 places: send longer"
    ):
        await called(Story(lore=(LoreEntry("", ("a", "aa"), search=1_000_000),)), text, len(text))


async def test_counts_that_are_forgotten_while_others_are_counted_are_kept_for_their_request() -> None:
    counts, inner = Counts(), list[int]()

    async def slow(op: str, **arguments: Any) -> Mapping[str, Any]:
        if arguments["texts"] == ["new"]:  # meanwhile another request counts many texts
            inner.extend(await counts.of([f"text {i}" for i in range(MAX_KNOWN + 1)], by_words))
        return await by_words(op, **arguments)

    await counts.of(["old one"], by_words)
    assert await counts.of(["old one", "new"], slow) == [2, 1]
    assert len(inner) == MAX_KNOWN + 1


async def test_a_small_room_is_named() -> None:
    with pytest.raises(
        RequestError, match="the prompt may have 31 tokens beside the answer; a story needs 32"
    ):
        await made(Story(), "x", 31)


async def test_an_expression_that_other_engines_never_finish_is_searched() -> None:
    text, story = "a" * 5000 + "!", Story(lore=(LoreEntry("", ("/(a+)+$/",)),), search=6000)
    assert [call.why for call in await called(story, text, 5000)] == ["key"]
    assert [call.why for call in await called(story, text, 5001)] == ["no_key"]


async def test_a_faulty_expression_is_named() -> None:
    with pytest.raises(RequestError, match=r"story.lore\[0\].keys\[1\] is no regular expression: missing \)"):
        await called(Story(lore=(LoreEntry("", ("x", "/(a/")),)), "text", 4)


@pytest.mark.parametrize("key", ["cat", "/((a{100}){9})+b/"])
async def test_a_search_that_would_take_seconds_is_refused(key: str) -> None:
    lore = tuple(LoreEntry("", (key,) * 100, search=1_000_000) for _ in range(3))
    text = "a" * 900_000
    with pytest.raises(RequestError, match=r"story.lore searches \d+ characters, .* it may search 100000000"):
        await called(Story(lore=lore), text, len(text))
    few = Story(lore=lore[:1] if key == "cat" else (LoreEntry("", (key,)),))
    assert [call.why for call in await called(few, text, 90_000)] == ["no_key"]


async def test_expressions_are_bounded() -> None:
    lore = tuple(LoreEntry("", tuple(f"/{i}{k}/" for k in range(50))) for i in range(11))
    with pytest.raises(RequestError, match=r"story.lore has 550 expressions; it may have 500"):
        await called(Story(lore=lore), "x", 1)


async def test_lore_of_a_higher_order_stays_in_a_small_budget_and_stands_behind() -> None:
    lore = tuple(LoreEntry(f"Lore {i}.", ("cat",), order=i) for i in (1, 3, 2))
    one = await made(Story(lore=lore, budget=8), "The cat.")
    assert one.prompt == "Lore 2.\nLore 3.\nThe cat."
    assert [(report.place, report.call.why) for report in one.lore] == [
        (None, "budget"),
        ("note", "key"),
        ("note", "key"),
    ]


async def test_an_entry_is_cut_to_its_own_budget() -> None:
    entry = LoreEntry("One two three. Four five six. Seven", always=True, budget=8)
    assert (await made(Story(lore=(entry,)), "x")).prompt == "One two three. Four five six.\nx"


# ----------------------------------------------------------------------------------------------------
# Blocks
# ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [book(40), "word " * 3000, "x" * 9000, "\n" * 5000, "語" * 5000])
def test_a_text_that_grows_keeps_its_blocks(text: str) -> None:
    before: list[int] = [0]
    for end in range(1, len(text), 97):
        starts = blocks_of(text[:end])
        assert starts[: len(before)] == before
        before = starts
    assert len(before) > 2


def test_places_of_tokens_are_counted_in_characters() -> None:
    pieces = ["é".encode(), b" a", "語".encode()[:1], "語".encode()[1:], b"!"]
    assert places_of("é a語!", pieces) == [0, 1, 3, 4, 4]
    assert places_of("ab", [b" a", b"b"]) == [0, 1]


# ----------------------------------------------------------------------------------------------------
# The field
# ----------------------------------------------------------------------------------------------------


def test_the_field_is_read() -> None:
    value = {"memory": "M", "note": {"text": "N"}, "lore": [{"text": "L", "keys": "cat"}], "budget": 10}
    assert read_story(value) == Story("M", Note("N"), (LoreEntry("L", ("cat",)),), budget=10)


@each_row(
    ("value", "message"),
    [
        (7, "story is 7; it must be an object: memory, note, lore, summary, budget, search, separator"),
        ({"memry": "x"}, 'story has no field "memry", only memory'),
        ({"memory": 7}, "story.memory is 7; it must be a text"),
        ({"note": {}}, "story.note.text is missing"),
        ({"note": {"text": "x", "depth": -1}}, "story.note.depth is -1; it must be between 0 and 2147483647"),
        (
            {"lore": [{"text": "x"}, {"text": "x", "keys": [7]}]},
            r"story.lore[1].keys is [7]; it must be a text",
        ),
        ({"lore": [{"keys": ["x"]}]}, "story.lore[0].text is missing"),
        ({"lore": [{"text": ""}] * 1001}, "story.lore has 1001 entries; it may have 1000"),
        (
            {"lore": [{"text": "", "search": 0}]},
            "story.lore[0].search is 0; it must be between 1 and 1000000",
        ),
        ({"lore": [{"text": "", "always": 1}]}, "story.lore[0].always is 1; it must be true or false"),
        ({"separator": "a" * 101}, "story.separator has 101 characters; it may have 100"),
        ({"budget": -1}, "story.budget is -1; it must be between 0"),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_bound(value: object, message: str) -> None:
    with pytest.raises(RequestError, match=re.escape(message)):
        request_from({"prompt": "x", "story": value})


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"messages": [{"role": "user", "content": "x"}]}, "only one of messages and story may be given"),
        ({"prompt": [1, 2]}, "story is given with a prompt of token ids or parts"),
        ({"prompt": [{"text": "x"}]}, "story is given with a prompt of token ids or parts"),
    ],
)
def test_a_story_is_one_text(body: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        request_from({**body, "story": {}})


# ----------------------------------------------------------------------------------------------------
# The prompt behind the next cut
# ----------------------------------------------------------------------------------------------------


async def test_the_prompt_behind_the_next_cut_is_known_before_the_cut_moves() -> None:
    lore = tuple(LoreEntry(f"Number{i} is kind.", keys=(f"Number{i}",), search=400) for i in range(0, 80, 2))
    story, text = Story("A tale.", Note("Sad.", 20), lore, budget=60), book(60)
    ahead, begins, moves = "", 0, 0
    for end in range(0, len(text), 37):
        one = await made(story, text[:end])
        if one.begins != begins:
            assert ahead, "it was there before"
            assert one.prompt.startswith(ahead)
            begins, moves = one.begins, moves + 1
        ahead = one.ahead
    assert moves > 10
