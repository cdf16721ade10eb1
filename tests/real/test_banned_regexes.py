"""Regular expressions in banned_strings: beside Python's re, and in texts of the bundled model."""

from __future__ import annotations

import json
import random
import re
import subprocess
from typing import Any

import pytest

from tests.support.lines import Lines
from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.serving import Server
from tests.support.waiting import PATIENCE

PROGRAM = ROOT / "build/bin/engine-tests"
LONGEST = 1024  # bytes of a match
ATOMS = ("a", "b", "ä", "[ab]", "[^a]", ".", r"\w", r"\s", "(?:ab|ba)", "(?:a|bä|b)", r"\.", r"[^\w ]")
COUNTS = ("", "", "", "?", "{2}", "{0,2}", "{1,3}", "{2,4}?")


def expression(draw: random.Random) -> str:
    parts = [draw.choice(ATOMS) + draw.choice(COUNTS) for _ in range(draw.randint(1, 4))]
    joined = "".join(parts)
    return f"{joined}|{draw.choice(ATOMS)}b{{3}}" if draw.random() < 0.2 else joined


def guarded(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [PROGRAM, "--guards"], input="".join(json.dumps(line) + "\n" for line in lines),
        capture_output=True, text=True, timeout=PATIENCE, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]


class ByRe:
    """What is to happen: a match that a piece completes takes back all pieces from its first one on."""

    def __init__(self, regexes: list[str], strings: list[str]) -> None:
        words = (re.escape(word) for word in strings)
        self.any = [re.compile(one, re.ASCII) for one in regexes]
        self.any += [re.compile(one, re.ASCII | re.IGNORECASE) for one in words]
        self.pieces: list[str] = []

    def feed(self, piece: str) -> int:
        before = "".join(self.pieces)
        self.pieces.append(piece)
        text = before + piece
        starts = [
            start
            for one in self.any
            for end in range(len(before) + 1, len(text) + 1)
            for start in range(end)
            if one.fullmatch(text, start, end)
        ]
        if not starts:
            return 0
        kept, place = 0, 0
        while place + len(self.pieces[kept]) <= min(starts):
            place += len(self.pieces[kept])
            kept += 1
        n_back = len(self.pieces) - kept
        del self.pieces[kept:]
        return n_back


def test_a_guard_takes_back_what_pythons_re_finds() -> None:
    draw = random.Random(65)
    lines = []
    while len(lines) < 400:
        regexes = [expression(draw) for _ in range(draw.randint(1, 3))]
        if any(re.fullmatch(one, "") for one in regexes):
            continue
        strings = draw.choice(([], [], ["ab."], ["a b", "bb"]))
        pieces = ["".join(draw.choices("aabbä. \nA", k=draw.choice((0, 1, 1, 2, 3)))) for _ in range(30)]
        lines.append({"regexes": regexes, "strings": strings, "pieces": pieces})
    n_back = n_held = 0
    for line, found in zip(lines, guarded(lines), strict=True):
        expected, clear = ByRe(line["regexes"], line["strings"]), ""
        for piece, back, more in zip(line["pieces"], found["back"], found["clear"], strict=True):
            assert expected.feed(piece) == back, line
            clear += more
            held = "".join(expected.pieces).removeprefix(clear)
            assert clear + held == "".join(expected.pieces)  # what has been sent is never taken back
            n_back, n_held = n_back + back, n_held + bool(held)
        assert clear + found["rest"] == "".join(expected.pieces)
    assert n_back > 1000
    assert n_held > 1000


def test_only_what_may_go_on_is_held_back() -> None:
    pieces = ["xa", "b", "x", "abc", "aa", "ab", "d"]
    (found,) = guarded([{"regexes": ["ab{1,2}c", "aad"], "strings": [], "pieces": pieces}])
    assert found["back"] == [0, 0, 0, 1, 0, 0, 0]
    assert found["clear"] == ["", "", "xabx", "", "", "", "aaabd"]  # "ab" may go, and d follow


REFUSED = [
    ("a+", "[0].regex has no longest match, so text would be held back for ever"),
    ("(a|b{2,})c", "[0].regex has no longest match"),
    ("(?:[ab]{1,600}c){2}", "[0].regex may match 1202 bytes; it may match 1024"),
    (".{0,256}x", "[0].regex may match 1025 bytes; it may match 1024"),
    ("a?", "[0].regex matches the empty text, which is a part of each text"),
    ("a||b", "[0].regex matches the empty text"),
    ("^a", '[0].regex: line 1, column 1: "^" is not possible: a match may stand anywhere in the text'),
    ("a$", '[0].regex: line 1, column 2: "$" is not possible: a match may stand anywhere in the text'),
    (r"\bcat\b", r"[0].regex: line 1, column 1: expected d, w, s, D, W, S"),
    (r"(a)\1", "[0].regex: line 1, column 4: expected d, w, s, D, W, S"),
    ("(?=a)b", "[0].regex: line 1, column 1: a group is (…) or (?:…); no look-around, no names, no flags"),
    ("(?i)a", "[0].regex: line 1, column 1: a group is (…) or (?:…)"),
    ("(a", "[0].regex: line 1, column 1: the group has no closing )"),
    ("(?:[ab]{0,20}a[ab]{20}){1,9}", "s of banned_strings: they are too large"),
]  # fmt: skip


@each_row(("regex", "message"), REFUSED, ids=lambda value: str(value)[:30])
def test_what_has_no_longest_match_or_no_exact_meaning_is_refused(regex: str, message: str) -> None:
    (found,) = guarded([{"regexes": [regex], "strings": [], "pieces": []}])
    assert message.partition(";")[0] in found["error"], found
    assert "banned_strings" in found["error"]


# In texts

ASKED: dict[str, Any] = {"prompt": "Once upon a time,", "n": 32, "max_tokens": 48, "stream": False, "seed": 3}
NAMES = r" (?:L[a-z]{1,6}|T(?:im|om)[a-z]{0,3})[ ,.]"
SAID = r"[.!] (?:One|He|She|They) [a-z]{1,12} "


def answer(server: Server, path: str = "/v1/completions", **fields: Any) -> dict[str, Any]:
    status, found = server.json("POST", path, ASKED | fields)
    assert status == 200, found
    return found


def texts(server: Server, **fields: Any) -> list[str]:
    return [choice["text"] for choice in answer(server, **fields)["choices"]]


def test_no_text_has_a_match(server: Server) -> None:
    plain = texts(server)
    assert sum(bool(re.search(NAMES, text)) for text in plain) > 10
    assert sum(bool(re.search(SAID, text)) for text in plain) > 3
    for more in (
        {},
        {"diversity": "arithmetic"},
        {"stop": ["Sue"], "banned_strings": [{"regex": NAMES}, "was"]},
    ):
        found = texts(server, **{"banned_strings": [{"regex": NAMES}, {"regex": SAID}]} | more)
        assert not any(re.search(NAMES, text) for text in found)
        assert "banned_strings" in more or not any(re.search(SAID, text) for text in found)
        assert len(set(found)) > 16
    assert not any("was" in text.lower() for text in found)


def test_sequences_have_their_own_and_ids_are_those_of_the_text(server: Server) -> None:
    own = [{"banned_strings": [{"regex": " [a-m][a-z]{0,30}"}]}, {}, {"banned_strings": []}]
    found = answer(server, n=3, sequences=own, banned_strings=[{"regex": NAMES}], return_token_ids=True)
    first, second, third = (choice["text"] for choice in found["choices"])
    assert not re.search(" [a-m]", first)
    assert re.search(" [a-m]", second)
    assert re.search(" [a-m]", third)
    for choice in found["choices"]:
        status, told = server.json("POST", "/detokenize", {"tokens": choice["token_ids"]})
        assert (status, told["content"].strip()) == (200, choice["text"].strip())


def test_a_match_of_many_tokens_is_taken_back_to_where_it_began() -> None:
    greedy = {"prompt": "Once upon a time,", "sampling": {"temperature": 0}, "max_tokens": 24}
    with Lines() as engine:
        (plain,) = engine.generate(**greedy).texts
        assert plain.startswith(" there was a little girl named Lily.")
        banned = [{"regex": "there was a.{0,20}named [A-Z]"}]
        (found,) = engine.generate(**greedy, banned_strings=banned).texts
        same = engine.generate(**greedy, banned_strings=[" there was a little girl named L"]).texts[0]
    assert not found.startswith(" there")
    assert not same.startswith(" there")


@pytest.mark.parametrize("value", [{"regex": "a+"}, {"regex": "("}])
def test_the_engines_reason_is_the_clients(server: Server, value: dict[str, str]) -> None:
    status, found = server.json("POST", "/v1/completions", ASKED | {"banned_strings": ["x", value]})
    assert (status, found["error"]["param"]) == (400, "banned_strings")
    assert found["error"]["message"].startswith("banned_strings[1].regex")
