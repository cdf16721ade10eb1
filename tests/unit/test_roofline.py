"""The least time of a step, by hand for models of one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.roofline.run import Least, Model, least_of_prompt, least_of_step, table
from benchmarks.run import Row

PEAKS = {"f32": 1.0, "int8": 10.0, "int8, AMX": 100.0, "bytes": 1.0}  # 10^9 a second
DENSE = Model(
    weights=1000,
    products=2000,
    expert_weights=0,
    expert_products=0,
    experts=0,
    used=0,
    layers=2,
    windowed=0,
    window=0,
    cell=8,
    queries=4,
    vocabulary=10,
    output=500,
)
ROW = Row("some", 100, 4, 20)


def test_a_step_reads_weights_cells_and_logits_once_and_multiplies_each() -> None:
    # tails of 10 on average: 2 layers of 16 bytes a cell, 100 cells for all and 10 for each sequence
    read = 1000 + 2 * 16 * (100 + 4 * 10) + 4 * 10 * 4
    multiply = 4 * 2 * 2000 / 10 + 4 * 2 * 4 * (100 + 10) * 4
    least = least_of_step(DENSE, ROW, PEAKS, "int8")
    assert least == Least(pytest.approx(read / 1e9), pytest.approx(multiply / 1e9))
    assert least.whole == least.multiply


def test_a_layer_with_a_window_reads_only_that() -> None:
    seen = [
        least_of_step(replace(DENSE, windowed=w, window=20), ROW, PEAKS, "int8").read * 1e9 for w in (0, 1)
    ]
    assert seen[0] - seen[1] == pytest.approx(16 * 80)


def test_experts_are_read_as_often_as_a_step_is_expected_to_need_them() -> None:
    experts = replace(DENSE, expert_weights=8000, expert_products=100, experts=8, used=2)
    more = [least_of_step(experts, replace(ROW, n=n), PEAKS, "int8") for n in (1, 4)]
    plain = [least_of_step(DENSE, replace(ROW, n=n), PEAKS, "int8") for n in (1, 4)]
    read = [1e9 * (one.read - other.read) for one, other in zip(more, plain, strict=True)]
    assert read == pytest.approx([2000, 8000 * (1 - 0.75**4)])
    assert 1e9 * (more[1].multiply - plain[1].multiply) == pytest.approx(4 * 2 * 100 / 10)


def test_each_peak_of_8_bits_has_a_line() -> None:
    lines = table("step", least_of_step, [(ROW, DENSE, 0.001)], PEAKS).splitlines()[2:]
    assert [line.split(" | ")[0] for line in lines] == ["| some, 100, 4", "| some, 100, 4, AMX"]
    assert lines[0].endswith("| 1.00 | 0.02 |")


def test_a_prompt_multiplies_all_its_tokens_and_of_the_output_only_the_last() -> None:
    # 2 layers, in which each of 100 tokens attends to half of them on average
    multiply = 2 * (100 * 1500 + 500) / 10 + 4 * 2 * 100 * 50 * 4
    assert least_of_prompt(DENSE, ROW, PEAKS, "int8") == Least(
        pytest.approx(1e-6), pytest.approx(multiply / 1e9)
    )


def test_a_window_bounds_what_a_prompt_attends_to() -> None:
    plain, windowed = (
        least_of_prompt(replace(DENSE, windowed=w, window=20), ROW, PEAKS, "int8").multiply * 1e9
        for w in (0, 1)
    )
    assert plain - windowed == pytest.approx(4 * 4 * (100 * 50 - (20 * 10 + 80 * 20)))
