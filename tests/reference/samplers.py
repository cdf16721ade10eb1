"""The samplers of engine/sampling/added.cpp and a few of llama.cpp's, in NumPy, written from their papers.

Each takes rows of logits, with the tokens before each row, and returns rows; minus infinity is a token that
is out. Without its settings it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

Rows: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]
Which: TypeAlias = np.ndarray[Any, np.dtype[np.bool_]]
Texts: TypeAlias = Sequence[Sequence[int]]
OUT = -np.inf


def softmax(rows: Rows) -> Rows:
    weights = np.exp(rows - rows.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def order_of(rows: Rows) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.argsort(-rows, axis=-1, kind="stable")


def _kept(rows: Rows, keep: Which, min_keep: int) -> Rows:
    keep = keep.copy()
    np.put_along_axis(keep, order_of(rows)[:, : max(min_keep, 1)], True, axis=-1)
    return np.where(keep, rows, OUT)


def _from_order(rows: Rows, keep_in_order: Which, min_keep: int) -> Rows:
    keep = np.zeros(rows.shape, bool)
    np.put_along_axis(keep, order_of(rows), keep_in_order, axis=-1)
    return _kept(rows, keep, min_keep)


def top_k(rows: Rows, texts: Texts, top_k: int = 0, **_: Any) -> Rows:
    return rows if top_k <= 0 else _kept(rows, np.zeros(rows.shape, bool), top_k)


def top_p(rows: Rows, texts: Texts, top_p: float = 1, min_keep: int = 0, **_: Any) -> Rows:
    if top_p >= 1:
        return rows
    chances = np.take_along_axis(softmax(rows), order_of(rows), axis=-1)
    return _from_order(rows, np.cumsum(chances, axis=-1) - chances < top_p, min_keep)


def _at_least(rows: Rows, least: Callable[[Rows, Rows], Any], min_keep: int) -> Rows:
    """Those whose probability is at least what the function makes of all and of the largest."""
    chances = softmax(rows)
    return _kept(rows, chances >= least(chances, chances.max(axis=-1, keepdims=True)), min_keep)


def min_p(rows: Rows, texts: Texts, min_p: float = 0, min_keep: int = 0, **_: Any) -> Rows:
    return _at_least(rows, lambda _, best: min_p * best, min_keep) if min_p else rows


def top_a(rows: Rows, texts: Texts, top_a: float = 0, min_keep: int = 0, **_: Any) -> Rows:
    return _at_least(rows, lambda _, best: top_a * best**2, min_keep) if top_a else rows


def epsilon_cutoff(rows: Rows, texts: Texts, epsilon_cutoff: float = 0, min_keep: int = 0, **_: Any) -> Rows:
    return _at_least(rows, lambda *_: epsilon_cutoff * 1e-4, min_keep) if epsilon_cutoff else rows


def eta_cutoff(rows: Rows, texts: Texts, eta_cutoff: float = 0, min_keep: int = 0, **_: Any) -> Rows:
    def least(chances: Rows, _: Rows) -> Rows:
        surprise = chances * np.log(np.where(chances > 0, chances, 1))
        entropy = -surprise.sum(axis=-1, keepdims=True)
        return np.minimum(eta_cutoff * 1e-4, np.sqrt(eta_cutoff * 1e-4) * np.exp(-entropy))

    return _at_least(rows, least, min_keep) if eta_cutoff else rows


def temperature(rows: Rows, texts: Texts, temperature: float = 1, **_: Any) -> Rows:
    return rows / temperature if temperature else _kept(rows, np.zeros(rows.shape, bool), 1)


def tfs(rows: Rows, texts: Texts, tfs: float = 1, min_keep: int = 0, **_: Any) -> Rows:
    if tfs >= 1:
        return rows
    keep = np.ones(rows.shape, bool)
    chances = np.take_along_axis(softmax(rows), order_of(rows), axis=-1)
    for i, n in enumerate((rows > OUT).sum(axis=-1)):
        if n >= 3:
            bends = np.abs(np.diff(chances[i, :n], n=2))
            keep[i, 1 : n - 1] = np.cumsum(bends) / bends.sum() <= tfs
            keep[i, n - 1] = False
    return _from_order(rows, keep, min_keep)


def smoothing(
    rows: Rows, texts: Texts, smoothing_factor: float = 0, smoothing_curve: float = 1, **_: Any
) -> Rows:
    if not smoothing_factor:
        return rows
    best = rows.max(axis=-1, keepdims=True)
    d = np.where(rows > OUT, rows - best, 0)
    k, s = (3 - smoothing_curve) / 2, (smoothing_curve - 1) / 2
    return np.where(rows > OUT, best - smoothing_factor * (k * d**2 - s * d**3), OUT)


def encoder_repetition_penalty(
    rows: Rows, texts: Texts, encoder_repetition_penalty: float = 1, **_: Any
) -> Rows:
    """Each whole text is the prompt of the token that follows it."""
    rows = rows.copy()
    for row, text in zip(rows, texts, strict=True):
        own = sorted(set(text))
        raised = np.where(row < 0, row / encoder_repetition_penalty, row * encoder_repetition_penalty)
        row[own] = raised[own]
    return rows


def no_repeat_ngram(rows: Rows, texts: Texts, no_repeat_ngram_size: int = 0, **_: Any) -> Rows:
    rows, n = rows.copy(), no_repeat_ngram_size
    for row, text in zip(rows, texts, strict=True) if n else ():
        begun = list(text[len(text) - n + 1 :])
        had = [list(text[i : i + n]) for i in range(len(text) - n + 1)]
        without = row.copy()
        without[[run[-1] for run in had if run[:-1] == begun]] = OUT
        if without.max() > OUT:  # else all would be banned
            row[:] = without
    return rows


def penalties(
    rows: Rows,
    texts: Texts,
    repeat_penalty: float = 1,
    repeat_last_n: int = 64,
    presence_penalty: float = 0,
    frequency_penalty: float = 0,
    repetition_decay: int = 0,
    rep_pen_slope: float = 1,
    **_: Any,
) -> Rows:
    rows = rows.copy()
    reduced = 1 + (repeat_penalty - 1) * (rep_pen_slope if 0 < rep_pen_slope < 1 else 1)
    for row, text in zip(rows, texts, strict=True):
        full = text[max(0, len(text) - repeat_last_n) :]
        near = set(full[len(full) // 2 :])
        strengths: dict[int, list[float]] = {}
        for age, token in enumerate(reversed(text[-repeat_last_n - repetition_decay :])):
            strength = 1.0 if age < repeat_last_n else 1 - (age - repeat_last_n) / repetition_decay
            strengths.setdefault(token, []).append(strength)
        for token, found in strengths.items():
            repeat = 1 + ((repeat_penalty if token in near else reduced) - 1) * found[0]
            row[token] = row[token] * repeat if row[token] <= 0 else row[token] / repeat
            row[token] -= frequency_penalty * sum(found) + presence_penalty * found[0]
    return rows


STEPS: dict[str, Callable[..., Rows]] = {
    "penalties": penalties, "encoder_repetition_penalty": encoder_repetition_penalty,
    "no_repeat_ngram": no_repeat_ngram, "top_k": top_k, "top_a": top_a, "tfs": tfs,
    "epsilon_cutoff": epsilon_cutoff, "eta_cutoff": eta_cutoff, "top_p": top_p, "min_p": min_p,
    "temperature": temperature, "smoothing": smoothing,
}  # fmt: skip
"""By their names in `samplers`, in the usual order."""


Step: TypeAlias = str | dict[str, Any]
"""A name, or {name, FIELD: value, …} with settings of its own."""


def left_of(rows: Rows, texts: Texts, settings: dict[str, Any], steps: Sequence[Step]) -> Rows:
    """The probabilities of what the steps leave of each row."""
    for step in steps:
        own = {"name": step} if isinstance(step, str) else step
        rows = STEPS[own["name"]](rows, texts, **settings | own)
    return softmax(rows)


def skewed_part(chances: Rows, token: int, skew: float) -> tuple[float, float]:
    """Where the token's part of [0, 1) begins and ends when a draw from one row has this skew."""
    order = order_of(chances)
    ends = np.minimum(np.cumsum(chances[order]), 1) ** np.exp(skew)
    at = int(np.flatnonzero(order == token)[0])
    return float(ends[at - 1]) if at else 0.0, float(ends[at])
