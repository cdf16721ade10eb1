"""The texts of the model that adds (models/train/sums.py): right in each step, and without held-out sums."""

from __future__ import annotations

import re

from models.train.sums import columns, held_out, is_held_out, texts
from tests.support.rows import each_row

MADE = texts(2000, seed=5)


def numbers(question: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", question))


@each_row("text", MADE[:200])
def test_each_step_is_right_and_the_last_one_is_the_answer(text: str) -> None:
    question, steps = text.split(":")
    *equations, so, answer = steps.split()
    assert (so, int(answer)) == ("so", sum(numbers(question)))
    for equation in equations:
        left, right = equation.split("=")
        assert sum(numbers(left)) == int(right)
    assert equations[-1].endswith("=" + answer)


def test_columns_carry() -> None:
    assert columns(59, 186) == ["9+6=15", "5+8+1=14", "0+1+1=2"]


def test_texts_differ_in_their_steps() -> None:
    assert {text.count("=") for text in MADE} == {2, 4, 5, 6, 7}


def test_no_text_is_of_a_question_that_is_held_out_in_any_order() -> None:
    asked = {tuple(sorted(numbers(question))) for question, _ in held_out(500, seed=6)}
    assert all(map(is_held_out, asked))
    assert not asked & {tuple(sorted(numbers(text.split(":")[0]))) for text in MADE}


def test_questions_are_different_ones_with_their_answers() -> None:
    found = held_out(300, seed=7)
    assert len(dict(found)) == 300
    assert all(sum(numbers(question)) == int(answer) for question, answer in found)
