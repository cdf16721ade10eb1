"""The prefix cache: prompts, candidates and beginnings are computed once; preemption changes no text."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_laws import check_complete, check_idle, n_preempted, random_request
from tests.support.lines import Answer, Lines
from tests.support.long import amount
from tests.support.paced import COUNTED, Paced, cells_used
from tests.support.processes import status
from tests.support.serving import LASTING

Request = dict[str, Any]

WORDS = (
    "once upon a time there was little dog who liked to play in the park with his friend Tim one day",
    "big cat came and said hello she very sad because lost her red ball so they looked under tree until",
)


def words(seed: int, n: int) -> str:
    return " ".join(random.Random(seed).choices(" ".join(WORDS).split(), k=n))


LONG = words(1, 600)  # 602 tokens; no part of it is repeated
SMALL_STEPS = ("-c", "4096", "-np", "4", "-ub", "64", "-t", "1")  # a long prompt takes ten steps
FLAGS = ("-c", "8192", "-np", "8", "-t", "1")


def story(prompt: str = LONG, **fields: Any) -> Request:
    request = {"prompt": prompt, "n": 8, "max_tokens": 20, "min_tokens": 20, "logprobs": 0}
    return request | {"sampling": {"seed": 7}} | fields


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Paced]:
    with Paced(tmp_path / "log", *FLAGS) as engine:
        yield engine
        check_idle(engine)


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Paced]:
    with Paced(tmp_path / "log", *SMALL_STEPS) as engine:
        yield engine
        check_idle(engine)


def n_tokens(engine: Lines, text: str) -> int:
    return len(engine.ask("tokenize", text=text, add_special=True)["tokens"])


def n_computed(answer: Answer) -> int:
    computed: int = answer.start["prompt_tokens"] - answer.start["cached_tokens"]
    return computed


# Choosing a candidate and continuing it


def test_an_identical_prompt_is_not_computed_again(engine: Paced) -> None:
    n = n_tokens(engine, LONG)
    assert n >= 600
    starts = [engine.generate(**story()).start for _ in range(3)]
    assert [(start["prompt_tokens"], start["cached_tokens"]) for start in starts] == [
        (n, 0),
        (n, n),
        (n, n),
    ]


def test_the_first_tokens_of_a_known_prompt_need_no_decode(engine: Paced) -> None:
    first = engine.generate(**story(max_tokens=1, min_tokens=1, logprobs=5))
    n_steps = engine.ask("status")["steps"]
    again = engine.generate(**story(max_tokens=1, min_tokens=1, logprobs=5))
    assert engine.ask("status")["steps"] == n_steps
    assert again.tokens == first.tokens, "the logits are those of the first time, to the last bit"


def test_kept_logits_serve_only_the_same_prompt_and_settings(engine: Paced) -> None:
    engine.generate(**story())
    shorter = engine.generate(**story(" ".join(LONG.split()[:-1])))
    assert n_computed(shorter) == 1, "its cells are there, and no logits of its last token"
    greedy = engine.generate(**story(n=2, sampling={"temperature": 0}))
    assert n_computed(greedy) == 0
    assert greedy.tokens[0] == greedy.tokens[1]


def test_kept_logits_are_those_of_the_cached_prompt(tmp_path: Path) -> None:
    with Paced(tmp_path / "log", *FLAGS, "--cache-cells", "0", "--cache-ram", "0") as engine:
        answers = []
        for _ in range(2):
            answers += [engine.generate(**story())]
            engine.wait_for_trim(0)
        check_idle(engine)
    assert [answer.start["cached_tokens"] for answer in answers] == [0, 0]
    assert answers[0].ids == answers[1].ids


def test_later_sequences_draw_their_first_token_from_the_same_logits(engine: Paced) -> None:
    together = engine.generate(**story(n=5, logprobs=1000))
    id = engine.begin(**story(max_tokens=60, min_tokens=60, n=2, logprobs=1000))
    engine.read_until(id, "stream", n=2)
    engine.send_amid({"op": "extend", "id": id, "add": 3})
    (answer,) = engine.answers([id])
    assert answer.lengths == [60] * 5
    assert [tokens[0] for tokens in answer.tokens] == [tokens[0] for tokens in together.tokens]


CHOICES: dict[str, Request] = {  # how candidate 5 of 8 is continued; "": by its text
    "by text": {},
    "by text, and more": {"further": " and then they"},
    "by name": {"named": {"index": 5}},
    "by name, and more": {"named": {"index": 5}, "further": " and then they"},
    "by name, up to a token": {"named": {"index": 5, "at": 7}},
    "by name, up to none": {"named": {"index": 5, "at": 0}},
    "by name, up to more than there are": {"named": {"index": 5, "at": 1000}},
}


@pytest.mark.parametrize("choice", CHOICES.values(), ids=CHOICES)
def test_a_chosen_candidate_is_not_computed_again(engine: Paced, choice: Request) -> None:
    source = engine.generate(**story(), id="source")
    further = choice.get("further", "")
    if named := choice.get("named"):
        request = story(further, n=8) | {"continue": {"id": "source"} | named}
    else:
        request = story(LONG + source.texts[5] + further)
    answer = engine.generate(**request)
    n_more = n_tokens(engine, further) - 1
    n_kept = min(choice.get("named", {}).get("at", 20), 20)
    assert answer.start["prompt_tokens"] == source.start["prompt_tokens"] + n_kept + n_more
    assert n_computed(answer) <= 3 + n_more


def test_a_continued_candidate_can_be_continued(engine: Paced) -> None:
    ids = [engine.send({"op": "generate"} | story())[0]]
    for index in (3, 0, 7):
        engine.answers(ids)
        ids += engine.send({"op": "generate"} | story("") | {"continue": {"id": ids[-1], "index": index}})
    answers = engine.answers(ids)
    n = answers[0].start["prompt_tokens"]
    assert [answer.start["prompt_tokens"] for answer in answers] == [n, n + 20, n + 40, n + 60]
    assert [n_computed(answer) <= 2 for answer in answers[1:]] == [True] * 3


UNKNOWN: dict[str, tuple[Request, str]] = {
    "request": ({"id": "nobody", "index": 0}, "nobody"),
    "sequence": ({"id": "source", "index": 8}, "8"),
}


@pytest.mark.parametrize(("named", "what"), UNKNOWN.values(), ids=UNKNOWN)
def test_continuing_an_unknown_sequence_is_an_error_that_names_it(
    engine: Paced, named: Request, what: str
) -> None:
    engine.generate(**story("Once", n=8), id="source")
    (error,) = engine.generate(**story("", id="asked") | {"continue": named}).events
    assert (error["event"], error["id"], error["param"]) == ("error", "asked", "continue")
    assert what in error["message"]


def test_a_text_that_was_sampled_in_another_split_is_found(tmp_path: Path) -> None:
    """With enough sequence ids: otherwise idle candidates are evicted in each pause."""
    wild = {"seed": 3, "temperature": 2, "top_k": 0, "top_p": 1, "min_p": 0}
    with Paced(tmp_path / "log", "-c", "8192", "-np", "64", "-t", "1") as engine:
        source = engine.generate(**story("Once upon a time", n=24, sampling=wild))
        n_found = 0
        for text, ids in zip(source.texts, source.ids, strict=True):
            own = engine.ask("tokenize", text="Once upon a time" + text, add_special=True)["tokens"]
            if own[-len(ids) :] == ids or "\ufffd" in text:
                continue
            request = story("Once upon a time" + text, n=2)
            assert n_computed(engine.generate(**request)) <= 3
            n_found += 1
        assert n_found > 0
        assert n_computed(engine.generate(**request)) == 0


def test_a_prompt_that_differs_from_its_middle_on_shares_the_beginning(engine: Paced) -> None:
    engine.generate(**story())
    for n_same in (500, 120, 260):
        same = " ".join(LONG.split()[:n_same])
        answer = engine.generate(**story(f"{same}. Then {words(n_same, 50)}", n=2))
        assert 0 <= n_tokens(engine, same) - answer.start["cached_tokens"] <= 2


@pytest.mark.parametrize("index", [None, 5], ids=["all", "one"])
def test_a_cancelled_candidate_is_cached_too(engine: Paced, index: int | None) -> None:
    id = engine.begin(**story(max_tokens=40, min_tokens=40, logprobs=1000))
    engine.read_until(id, "stream", index=5, n=10)
    engine.send_amid({"op": "cancel", "id": id} | ({} if index is None else {"index": index}))
    (source,) = engine.answers([id])
    assert source.stops[5]["finish_reason"] == "cancelled"
    assert n_computed(engine.generate(**story(LONG + source.texts[5]))) <= 3


def test_a_request_without_cache_uses_no_cells_of_others_and_leaves_none(engine: Paced) -> None:
    engine.generate(**story(cache=False))
    assert engine.ask("status")["cells_used"] == 0
    engine.generate(**story())
    before = engine.ask("status")["cells_used"]
    assert engine.generate(**story(cache=False)).start["cached_tokens"] == 0
    assert engine.ask("status")["cells_used"] == before


def test_the_prompt_of_running_sequences_is_not_idle(tmp_path: Path) -> None:
    with Paced(tmp_path / "log", "-c", "2048", "-np", "4", "-t", "1") as engine:
        id = engine.begin(**story(max_tokens=400, min_tokens=400, n=2))
        engine.read_until(id, "stream", n=4)
        running = engine.ask("status")
        (answer,) = engine.answers([id])
        check_idle(engine)
    assert running["sequences"] == 2
    assert running["cells_idle"] == 0  # evicting the prompt would free no cell
    assert n_computed(answer) == answer.start["prompt_tokens"]


# Two at once


def test_a_request_waits_for_a_prefill_that_it_shares(slow: Paced) -> None:
    first, second, longer = slow.generate_all(story(n=1), story(n=2), story(LONG + words(2, 40), n=1))
    n = first.start["prompt_tokens"]
    assert first.start["cached_tokens"] == 0
    assert n_computed(second) <= 64  # it does not wait for less than a chunk of the prompt
    assert n - longer.start["cached_tokens"] <= 64


def test_a_waiting_request_computes_the_prompt_if_the_first_is_cancelled_in_prefill(tmp_path: Path) -> None:
    request = {"op": "generate"} | story(words(1, 6000), n=2, max_tokens=60, min_tokens=60)
    with Paced(tmp_path / "log", *SMALL_STEPS, "-c", "16384", *LASTING) as slow:
        first, second = slow.send(request, request)
        slow.read_until(first, "start")
        slow.send({"op": "cancel", "id": first})
        cancelled, other = slow.answers([first, second])
        check_idle(slow)
    assert [stop["finish_reason"] for stop in cancelled.stops] == ["cancelled"] * 2
    assert other.lengths == [60, 60]
    assert 0 < other.start["cached_tokens"] < other.start["prompt_tokens"]


def test_a_request_without_cache_shares_nothing_with_a_running_one(slow: Paced) -> None:
    answers = slow.generate_all(*(story(n=1, cache=cache) for cache in (True, False, False)))
    assert [answer.start["cached_tokens"] for answer in answers] == [0, 0, 0]


# Prefixes


def test_after_a_prefix_its_prompt_is_not_computed(engine: Paced) -> None:
    done = engine.ask("prefix", prompt=LONG)
    assert (done["event"], done["count"], done["completion_tokens"]) == ("done", 0, 0)
    assert n_computed(engine.generate(**story())) == 0


def test_a_newer_prefix_supersedes_an_older_one(slow: Paced) -> None:
    prompts = [words(seed, 500) for seed in (5, 6, 7)]
    ids = slow.send(*({"op": "prefix", "prompt": prompt} for prompt in prompts))
    answers = slow.answers(ids)
    assert [answer.done["line"] for answer in answers] == sorted(answer.done["line"] for answer in answers)
    assert n_computed(slow.generate(**story(prompts[2], n=1))) == 0
    assert slow.generate(**story(prompts[0], n=1)).start["cached_tokens"] < 500  # never finished


def test_a_newer_prefix_of_another_client_supersedes_nothing(slow: Paced) -> None:
    prompts = [words(seed, 500) for seed in (5, 6, 7)]
    clients = ("ann", "bob", "ann")
    commands = zip(prompts, clients, strict=True)
    slow.answers(slow.send(*({"op": "prefix", "prompt": text, "client": name} for text, name in commands)))
    assert [n_computed(slow.generate(**story(prompt, n=1))) for prompt in prompts[1:]] == [0, 0]
    assert slow.generate(**story(prompts[0], n=1)).start["cached_tokens"] < 500  # never finished


def test_a_prefix_yields_to_a_request(slow: Paced) -> None:
    prefix, id = slow.send({"op": "prefix", "prompt": LONG}, {"op": "generate"} | story("Once", n=2))
    request, later = slow.answers([id, prefix])
    assert request.named("stream")[0]["line"] < later.done["line"]
    assert request.lengths == [20, 20]


def test_a_prefix_longer_than_the_context_is_an_error(engine: Paced) -> None:
    error = engine.ask("prefix", prompt=LONG * 2)
    assert (error["event"], error["code"], error["param"]) == ("error", "context_exceeded", "prompt")
    assert error["n_prompt_tokens"] + 1 > error["n_ctx"]


# More sequences for a running request

RUNNING = story(
    "Once upon a time", n=4, max_tokens=300, min_tokens=300, logprobs=20
)  # more than a pipe holds


def test_added_sequences_are_those_of_a_larger_request(engine: Paced) -> None:
    id = engine.begin(**RUNNING)
    engine.read_until(id, "start")
    engine.send_amid({"op": "extend", "id": id, "add": 3})
    (answer,) = engine.answers([id])
    (extend,) = answer.named("extend")
    assert (extend["first"], extend["count"], answer.done["count"]) == (4, 7, 7)
    assert answer.lengths == [300] * 7
    larger = engine.generate(**RUNNING | {"n": 7})
    assert [ids[:5] for ids in larger.ids] == [
        ids[:5] for ids in answer.ids
    ]  # rounding may change later ones


def test_an_extended_limit_is_that_of_all_running_sequences(engine: Paced) -> None:
    id = engine.begin(**RUNNING)
    engine.read_until(id, "start")
    engine.send_amid({"op": "extend", "id": id, "add": 0, "max_tokens": 250})
    (answer,) = engine.answers([id])
    assert answer.lengths == [250] * 4


@pytest.mark.parametrize("at", [9, None, 0])
def test_a_fork_continues_from_the_shared_tokens(engine: Paced, at: int | None) -> None:
    greedy = RUNNING | {"sampling": {"temperature": 0}}
    id = engine.begin(**greedy)
    engine.read_until(id, "stream", index=2, n=15)
    fork = {"index": 2} | ({} if at is None else {"at": at})
    engine.send_amid({"op": "extend", "id": id, "add": 2, "fork": fork})
    (answer,) = engine.answers([id])
    assert answer.lengths == [300] * 6
    for index in (4, 5):
        own = answer.tokens[index]
        n_shared = 300 - len(own)
        assert n_shared == at if at is not None else n_shared >= 15
        for ours, theirs in zip(own, answer.tokens[2][n_shared:], strict=True):
            if ours["id"] != theirs["id"]:
                gap = ours["logprob"] - theirs["logprob"]
                assert abs(gap) < 0.2  # a near tie (law 3, with the bundled Q8_0 weights)
                break
            assert ours["logprob"] == pytest.approx(theirs["logprob"], abs=0.2)


def test_a_fork_of_a_finished_sequence(engine: Paced) -> None:
    lengths = [{"max_tokens": 12, "min_tokens": 12}, {}]
    id = engine.begin(**RUNNING | {"n": 2, "sequences": lengths})
    engine.read_until(id, "stop", index=0)
    engine.send_amid({"op": "extend", "id": id, "fork": {"index": 0, "at": 6}, "max_tokens": 30})
    (answer,) = engine.answers([id])
    assert answer.lengths[0] == 12
    assert (answer.lengths[2], len(answer.tokens[2])) == (30, 24)


FAULTY: dict[str, Request] = {
    "unknown id": {"id": "nobody"},
    "fork of a sequence that is not there": {"fork": {"index": 4}},
    "fork of nothing": {"fork": {}},
    "negative": {"add": -1},
    "unknown field": {"n": 3},
}


@pytest.mark.parametrize("fields", FAULTY.values(), ids=FAULTY)
def test_an_invalid_extend_affects_no_request(engine: Paced, fields: Request) -> None:
    id = engine.begin(**RUNNING)
    engine.read_until(id, "start")
    engine.send_amid({"op": "extend", "id": id} | fields)
    while (error := engine.read())["event"] != "error":
        pass
    assert error["id"] == ""
    (answer,) = engine.answers([id])
    assert answer.lengths == [300] * 4


# Running out of cells


def test_requests_that_need_three_times_the_context_all_finish(tmp_path: Path) -> None:
    requests = [story(words(seed, 60), n=4, max_tokens=80, min_tokens=80) for seed in range(6)]
    with Paced(tmp_path / "log", "-c", "768", "-np", "24", "-t", "1") as engine:
        answers = engine.generate_all(*requests)  # 6 prompts of 62 tokens and 24 texts of 80
        check_idle(engine)
    assert [answer.lengths for answer in answers] == [[80] * 4] * 6
    assert n_preempted(answers) > 0


def test_one_request_larger_than_the_pool_finishes(tmp_path: Path) -> None:
    with Paced(tmp_path / "log", "-c", "256", "-np", "8", "-t", "1") as engine:
        answer = engine.generate(**story(words(1, 60), n=8, max_tokens=120, min_tokens=120))
        check_idle(engine)
    assert answer.lengths == [120] * 8


def test_a_preempted_prefix_is_computed_later(bigram: Path, tmp_path: Path) -> None:
    """The prefix and seven sequences need more cells than there are, and the prefix is the youngest request.

    Long unread lines block the engine, so that the seven still run when the prefix arrives."""
    with Paced(tmp_path / "log", "-c", "256", "-np", "8", "-t", "1", model=bigram) as engine:
        older = engine.begin(**story("Once", n=7, max_tokens=60, min_tokens=60, logprobs=200))
        engine.read_until(older, "stream", n=21)
        ids = [older, *engine.send({"op": "prefix", "tokens": [*range(100, 345)]})]
        story_, prefix = engine.answers(ids)
        check_idle(engine)
    assert story_.lengths == [60] * 7
    assert prefix.done["line"] > story_.done["line"]


def test_cells_take_memory_with_their_first_use() -> None:
    with Lines("-c", "262144", "-np", "8", "-t", "1") as engine:
        assert engine.generate(**story("once")).lengths == [20] * 8
        assert status(engine.pid, "VmHWM") < 600 << 10  # KiB; the cells are 1 GiB


@pytest.mark.parametrize("n_context", [1024, 256], ids=["of the model", "of the pool"])
def test_at_the_limit_of_a_sequence_it_stops_with_length(tmp_path: Path, n_context: int) -> None:
    flags = ("-c", str(max(n_context, 256) * (4 if n_context == 1024 else 1)), "-np", "4", "-t", "1")
    with Paced(tmp_path / "log", *flags) as engine:
        answer = engine.generate(**story(words(1, 100), n=2, max_tokens=-1, min_tokens=5000))
        check_idle(engine)
    n_prompt = answer.start["prompt_tokens"]
    assert [stop["finish_reason"] for stop in answer.stops] == ["length"] * 2
    assert answer.lengths == [n_context - n_prompt] * 2


POOLS = [  # flags, and how many cells may be idle
    (("-c", "256", "-np", "8"), 64),
    (("-c", "512", "-np", "4", "--cache-cells", "0"), 0),
    (("-c", "1024", "-np", "16", "-ub", "64", "--cache-ram", "100K"), 256),
    (("-c", "512", "-np", "6", "--cache-cells", "512", "--cache-ram", "0"), 512),
]


@pytest.mark.parametrize("seed", range(len(POOLS)), ids=[" ".join(pool) for pool, _ in POOLS])
def test_random_commands_lose_no_cell(bigram: Path, tmp_path: Path, seed: int) -> None:
    """Random requests, cancels, extends, forks, prefixes, continuations: llama.cpp counts the same cells."""
    choose = random.Random(seed)
    requests: dict[str, Request] = {}
    prefixes: list[str] = []
    pool, most_idle = POOLS[seed]
    flags = (*pool, "-t", "1", "-lv", "5", "--prefix-cache", str(tmp_path / "cache"))
    with Paced(tmp_path / "log", *flags, model=bigram, **COUNTED) as engine:
        for _ in range(amount(3, 10)):
            for _ in range(choose.randint(2, 6)):
                request = random_request(choose, words=100)
                if requests and choose.random() < 0.3:
                    named = {"id": choose.choice([*requests]), "index": choose.randrange(3)}
                    request |= {"continue": named | choose.choice([{}, {"at": choose.randrange(20)}])}
                requests[engine.begin(**request)] = request
                if choose.random() < 0.3:
                    prefixes += engine.send({"op": "prefix", "prompt": random_request(choose, 100)["prompt"]})
                if choose.random() < 0.5:
                    engine.send(random_change(choose, [*requests]))
            engine.answers(id for id in requests if choose.random() < 0.5)
            engine.answers([*requests, *prefixes])
            check_idle(engine)
            engine.wait_for_trim(most_idle)
            counts = []
            for _ in range(4):  # steps that take a cell and free it; in a full pool the first one finds none
                engine.generate(tokens=[choose.randrange(1, 2000)], max_tokens=1, cache=False)
                counts.append(engine.ask("status")["cells_used"])
            engine.wait_for_log(lambda log, counts=counts: cells_used(log)[-3:] == counts[-3:])
    for id, request in requests.items():
        answer = engine.answer(id)
        if answer.events[-1]["event"] == "error":
            assert answer.events[-1]["code"] in ("invalid_request", "context_exceeded")
            assert "continue" in request
        elif not answer.named("extend") and "continue" not in request:
            check_complete(answer, request)


def random_change(choose: random.Random, ids: list[str]) -> Request:
    id = choose.choice(ids[-3:])
    index = choose.choice([{}, {"index": choose.randrange(9)}])
    fork = choose.choice([{}, {"fork": {"index": choose.randrange(5), "at": choose.randrange(30)}}])
    limit = choose.choice([{}, {"max_tokens": choose.randrange(60)}])
    return choose.choice(
        [
            {"op": "cancel", "id": id} | index,
            {"op": "extend", "id": id, "add": choose.randrange(4)} | fork | limit,
        ]
    )
