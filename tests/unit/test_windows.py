"""How a long text is scored: which tokens count, and what stands before them."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from llama_srb.cli.windows import Figures, halves, strided


@given(st.data())
def test_each_token_is_scored_once_with_enough_before_it(data: st.DataObject) -> None:
    begin = data.draw(st.sampled_from([[], [-1]]))
    size = data.draw(st.integers(len(begin) + 2, 12))
    stride = data.draw(st.integers(1, size - len(begin)))
    tokens = list(range(data.draw(st.integers(1, 60))))
    windows = list(strided(tokens, begin, size, stride))
    assert [token for window in windows for token in window.scored] == tokens
    for number, window in enumerate(windows):
        whole = [*window.before, *window.scored]
        assert len(whole) <= size
        assert whole[: len(begin)] == begin
        inner = whole[len(begin) :]
        assert inner == tokens[inner[0] : inner[0] + len(inner)]
        if number:
            assert len(whole) == size
            assert len(window.before) >= size - stride


@given(st.sampled_from([[], [-1]]), st.integers(4, 12), st.integers(1, 60))
def test_of_llama_cpp_s_windows_the_second_halves_count(begin: list[int], size: int, count: int) -> None:
    tokens = [*begin, *range(count)]  # as its tokenizer gives them
    chunks = [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, size)]
    expected = [([*begin, *chunk[len(begin) :]], size // 2 + 1) for chunk in chunks]
    made = halves(list(range(count)), begin, size)
    assert [([*one.before, *one.scored], len(one.before)) for one in made] == expected


def test_figures_are_those_of_all_tokens() -> None:
    figures = Figures()
    tokens = [
        {"id": 1, "logprob": -1.0, "top": [{"id": 1}]},
        {"id": 2, "logprob": -3.0, "top": [{"id": 7}]},
        {"id": 3, "logprob": None, "top": []},
    ]
    figures.take({"tokens": tokens[:1], "count": 1, "certainty": 0.25})
    figures.take({"tokens": tokens[1:], "count": 1, "certainty": 0.75})
    assert figures.told(8) == {
        "perplexity": math.exp(2),
        "error": math.exp(2),  # the variance is 1, of 2 tokens
        "mean": -2.0,
        "sum": -4.0,
        "tokens": 2,
        "greedy": 0.5,
        "certainty": 0.5,
        "bits_per_byte": 4 / math.log(2) / 8,
    }
