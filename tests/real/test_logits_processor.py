"""One's own logits processor: what it makes of rows holds; what is wrong with it ends its requests only."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.config import load
from tests.support.lines import Answer, Lines
from tests.support.places import BINARY, STORYTELLER
from tests.support.waiting import PATIENCE

PROMPT = "Once upon a time there was a fox. "
MODULE = """
import os, time
import numpy as np

class Own:
    def __init__(self, vocabulary):
        assert len(vocabulary.pieces) > 100 and b"fox" in b"".join(vocabulary.pieces) and vocabulary.ends
        self.vocabulary = vocabulary

    def apply(self, rows, sequences):
        for row, one in zip(rows, sequences):
            wish = one.arguments
            assert b"".join(self.vocabulary.pieces[i] for i in one.prompt).endswith(b"there was a fox. ")
            if "fails" in wish and len(one.output) >= wish["fails"]:
                raise ValueError("not " + one.request)
            if "forks" in wish and os.fork() == 0:  # the child has the socket, too
                time.sleep(wish["forks"])
                os._exit(0)
            if "raises" in wish:
                raise ValueError(wish["raises"].encode().decode("unicode_escape"))
            if "dies" in wish:
                os.kill(os.getpid(), 9)
            time.sleep(wish.get("sleeps", 0))
            if "only" in wish:
                kept = row[wish["only"]].copy()
                row[:] = -np.inf
                row[wish["only"]] = kept
            if "writes" in wish:
                row[5] = wish["writes"] if wish["writes"] is not None else np.nan
        if any("returns" in one.arguments for one in sequences):
            return np.zeros(sequences[0].arguments["returns"], np.float32)

def make(vocabulary):
    return Own(vocabulary)

def nothing(vocabulary):
    return 7
"""


def flags(name: str, *more: str) -> list[str]:
    """The engine's flags of a server with this processor."""
    command = load({"logits_processor": name}, environ={}).engine_command
    first = command.index("--logits-processor")
    return [*command[first:], *more]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_rows.py").write_text(MODULE)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield


@pytest.fixture(scope="module")
def engine(place: None) -> Iterator[Lines]:
    more = ("--logits-processor-timeout", "2", "-np", "8", "-c", "4096")
    with Lines(*flags("own_rows:make", *more)) as engine:
        yield engine


def asked(wish: object, **fields: Any) -> dict[str, Any]:
    return {"op": "generate", "prompt": PROMPT, "n": 3, "max_tokens": 8, "logits_processor": wish} | fields


def children_of(engine: Lines) -> list[int]:
    """Of all its threads."""
    lists = Path(f"/proc/{engine.pid}/task").glob("*/children")
    return [int(pid) for one in lists for pid in one.read_text().split()]


def wait_for_end(pid: int) -> None:
    """Of all its threads; also where nobody has waited for it yet."""
    place, deadline = Path(f"/proc/{pid}"), time.monotonic() + PATIENCE
    while place.exists() and not has_ended(place):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def has_ended(place: Path) -> bool:
    state = (place / "stat").read_text().rpartition(")")[2].split()[0]
    return state == "Z" and len(list((place / "task").iterdir())) == 1


def error_of(answer: Answer) -> str:
    assert answer.events[-1]["event"] == "error", answer.events[-1]
    assert answer.events[-1]["param"] == "logits_processor"
    message: str = answer.events[-1]["message"]
    return message


def test_tokens_are_drawn_from_the_rows_that_it_leaves(engine: Lines) -> None:
    ids = engine.ask("tokenize", text=" the")["tokens"][-1:]
    answer = engine.generate(**asked({"only": ids}, logprobs=0))
    assert answer.ids == [ids * 8] * 3
    assert answer.done["timings"]["logits_processor_ms"] > 0
    logprobs = [token["logprob"] for token in answer.tokens[0]]
    assert min(logprobs) < -1  # of the model, as without it
    own = [{"logits_processor": {"only": ids}}, {}, {"logits_processor": False}]
    answer = engine.generate(**asked({"only": [ids[0] + 1]}, logprobs=0, sequences=own))
    assert [set(tokens) for tokens in answer.ids[:2]] == [set(ids), {ids[0] + 1}]
    assert len(set(answer.ids[2])) > 1


def n_alike(one: str, other: str) -> int:
    """Characters before the first difference."""
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 20, "max_tokens": 12, "logprobs": 2},
        {"sampling": {"guidance_scale": 1.5}, "negative_prompt": "Once upon a time there was an owl. "},
        {"draft": 16, "regex": "(The fox ran[.] ){3}", "max_tokens": 40},
        {"finish": {"first": 2}, "prune": {"at": [4], "keep": 2}, "banned_strings": ["and"]},
        {"diversity": "arithmetic", "first_token": "distinct", "then": {"text": " So:", "max_tokens": 4}},
    ],
)
def test_rows_that_it_leaves_as_they_are_change_nothing(engine: Lines, fields: dict[str, Any]) -> None:
    """Texts of a seed are the same, up to where a row that another step computed differs in its last bits.

    How many texts have such a place depends on the processor and on when requests' sequences begin. With the
    rows of other sequences the first tokens would be others already.
    """
    seeded = fields | {"sampling": {"seed": 7, "temperature": 0.5, **fields.get("sampling", {})}}
    ours, plain = (engine.generate(**asked(wish, **seeded)) for wish in (True, False))
    alike = sum(n_alike(*texts) for texts in zip(ours.texts, plain.texts, strict=True))
    assert alike >= sum(map(len, plain.texts)) * 3 / 4
    assert "logits_processor_ms" not in plain.done["timings"]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"fails": 3}, "ValueError: not "),
        ({"dies": True}, "its process has ended (signal 9)"),
        ({"sleeps": 9}, "no answer within 2 seconds; it was ended"),
        ({"writes": None}, "made the logit of token 5 of sequence "),
        ({"only": []}, "left no token to sequence "),
        ({"forks": 5, "dies": True}, "its process has ended (signal 9)"),
        ({"raises": "\\ud800"}, "ValueError: ?"),
        ({"returns": [2, 3]}, "ValueError: apply returned an array of the shape (2, 3)"),
    ],
)
def test_what_is_wrong_with_it_ends_its_request_only(engine: Lines, wish: dict[str, Any], said: str) -> None:
    """Others go on while it is slow, and the next one that asks for it is served."""
    bad, plain, later = engine.generate_all(
        asked(wish), asked(False, n=2, max_tokens=60), asked(True, client="other")
    )
    assert said in error_of(bad)
    assert [len(answer.stops) for answer in (plain, later)] == [2, 3]
    if "sleeps" in wish:
        assert plain.done["line"] < bad.events[-1]["line"] < later.done["line"]


def test_what_other_fields_ban_of_what_it_leaves_is_said(engine: Lines) -> None:
    end = engine.ask("tokenize", text="</s>")["tokens"][0]
    for more in ({"logit_bias": [[end, False]]}, {"regex": "fox"}):
        fields = {"sampling": more} if "logit_bias" in more else more
        answer = engine.generate(**asked({"only": [end]}, n=1, **fields))
        assert error_of(answer).startswith("nothing may be drawn of what the logits processor has left: ")


def test_one_that_has_ended_while_nothing_was_asked_is_started_anew(engine: Lines) -> None:
    assert len(engine.generate(**asked(True)).stops) == 3
    (own,) = children_of(engine)
    os.kill(own, signal.SIGKILL)
    wait_for_end(own)
    assert len(engine.generate(**asked(True)).stops) == 3


def test_sequences_whose_rows_are_away_leave_their_slots_to_others(engine: Lines) -> None:
    """All slots are taken by those that sleep; they go on where they were."""
    slow = asked({"sleeps": 0.2}, n=8, max_tokens=3, client="slow")
    plain = asked(False, n=8, max_tokens=20, client="plain")
    (away,) = engine.send(slow)
    while engine.read()["event"] != "start":
        pass
    other = engine.generate(**plain)
    (answer,) = engine.answers([away])
    assert other.done["line"] < answer.done["line"]
    assert [stop["length"] for stop in answer.stops] == [3] * 8
    status = engine.ask("status")
    assert status["cells_used"] == status["cells_idle"]


def test_a_cancelled_request_ends_although_it_has_its_rows(engine: Lines) -> None:
    (id,) = engine.send(asked({"sleeps": 0.3}))
    engine.send({"op": "cancel", "id": id})
    assert engine.answers([id])[0].done["count"] == 3
    assert len(engine.generate(**asked(True)).stops) == 3


@pytest.mark.parametrize("more", [("-np", "8", "-c", "256"), ("-np", "3", "-c", "2048")])
def test_sequences_whose_rows_are_away_may_lose_their_cells(place: None, more: tuple[str, ...]) -> None:
    with Lines(*flags("own_rows:make", *more)) as small:
        slow = [asked({"sleeps": 0.002}, n=8, max_tokens=40) for _ in range(3)]
        for answer in small.generate_all(*slow, asked(False)):
            assert {stop["finish_reason"] for stop in answer.stops} <= {"length", "stop"}


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_rows:nothing", "own_rows:nothing returned 7, which has no method apply(rows, sequences)"),
        ("own_rows:missing", "has no attribute 'missing'"),
        ("no_such_module:make", "No module named 'no_such_module'"),
    ],
)
def test_one_that_cannot_be_made_is_told_at_the_start(place: None, name: str, said: str) -> None:
    argv = (BINARY, "-m", STORYTELLER, "-c", "256", *flags(name))
    run = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    assert run.returncode == 1
    assert "the logits processor does not start: " in run.stderr
    assert said in run.stderr


def test_its_process_ends_with_the_engine(place: None) -> None:
    with Lines(*flags("own_rows:make", "-c", "256")) as engine:
        children = children_of(engine)
        os.kill(engine.pid, signal.SIGKILL)
    (own,) = children
    wait_for_end(own)
