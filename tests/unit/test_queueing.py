"""The queue that benchmarks/capacity.py simulates, where theory or a pencil knows the answer."""

from __future__ import annotations

import random
import statistics

import pytest

from benchmarks.queueing import Costs, Job, arrivals, quantile, simulate

COSTS = Costs(steps=((1, 0.010), (2, 0.012), (4, 0.020)), token=0.001, step=0.005, outside=0.004)


def test_one_request() -> None:
    (seen,) = simulate([Job(1.0, 600, 2, 3)], COSTS, 8)
    prompt = 2 * 0.005 + 600 * 0.001  # 512 and 88 tokens
    assert seen.first == pytest.approx(0.004 + prompt)
    assert seen.whole == pytest.approx(0.004 + prompt + 2 * 0.012)


def test_beside_running_sequences_a_prompt_gets_a_tenth_of_a_second_of_each_step() -> None:
    seen = simulate([Job(0.0, 10, 1, 4), Job(0.001, 250, 1, 1)], COSTS, 8)
    begin = 0.002 + 0.005 + 10 * 0.001  # the first one's prompt; meanwhile the second one arrives
    steps = (0.010 + 100 * 0.001, 0.010 + 100 * 0.001, 0.010 + 50 * 0.001)
    assert seen[1].first == pytest.approx(begin + sum(steps) - 0.001 + 0.002)


def test_what_finds_no_slot_starts_when_one_is_free() -> None:
    (seen,) = simulate([Job(0.0, 1, 3, 2)], COSTS, 2)
    assert seen.whole == pytest.approx(0.004 + 0.005 + 0.001 + 0.012 + 2 * 0.010)


@pytest.mark.parametrize(("rows", "seconds"), [(1, 0.010), (3, 0.016), (8, 0.036)])
def test_steps_between_and_beyond_the_measured_ones(rows: int, seconds: float) -> None:
    assert COSTS.decode(rows) == pytest.approx(seconds)


@pytest.mark.parametrize("load", [0.3, 0.8])
def test_one_slot_is_the_queue_of_pollaczek_and_khinchine(load: float) -> None:
    costs = Costs(steps=((1, 1.0), (2, 1.0)), token=0.001, step=0.9, outside=0.0)
    jobs = [Job(at, 100, 1, 1) for at in arrivals(100_000, load, random.Random(3))]  # a second each
    seen = simulate(jobs, costs, 1)
    waited = statistics.mean(one.whole - 1.0 for one in seen)
    assert waited == pytest.approx(load / (2 * (1 - load)), rel=0.05)


def test_quantiles() -> None:
    assert [quantile([3, 1, 2, 4], share) for share in (0.0, 0.5, 0.99)] == [1, 3, 4]
