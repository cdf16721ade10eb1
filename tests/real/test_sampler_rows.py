"""Samplers that llama.cpp lacks leave what NumPy leaves of random and real rows; in scripts/long 1,000."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_srb.request import steps
from llama_srb.request.fields import DEFAULT_SAMPLERS
from tests.reference import samplers
from tests.reference.results import Reference
from tests.support.lines import Lines
from tests.support.long import amount
from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.waiting import PATIENCE

PROGRAM = ROOT / "build/bin/engine-tests"
N_ROWS = amount(250, 1000)
OFF: dict[str, Any] = {
    "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_last_n": 64, "repeat_penalty": 1.0,
}  # fmt: skip
Vector = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Rows:
    """Logits, and the tokens before them: row i comes after those up to i."""

    file: Path
    logits: Vector
    tokens: list[int]

    @property
    def texts(self) -> list[list[int]]:
        return [self.tokens[: i + 1] for i in range(len(self.tokens))]

    def left(self, **more: Any) -> tuple[Vector, list[int]]:
        """The log probabilities of what the engine's samplers leave, and the drawn tokens."""
        out, (_, n_vocab) = self.file.with_suffix(".out"), self.logits.shape
        line = {"n_vocab": n_vocab, "logits": str(self.file), "tokens": self.tokens, "out": str(out), **more}
        done = subprocess.run(
            [PROGRAM, "--rows"], input=json.dumps(line) + "\n", capture_output=True, text=True,
            timeout=PATIENCE, check=True,
        )  # fmt: skip
        found = np.fromfile(out, np.float32).reshape(self.logits.shape)
        return found, json.loads(done.stdout)["drawn"]


def _rows(folder: Path, logits: Vector, tokens: list[int]) -> Rows:
    file = folder / "logits"
    logits = logits.astype(np.float32)
    logits.tofile(file)
    return Rows(file, logits.astype(np.float64), tokens)


def random_rows(folder: Path) -> Rows:
    """Flat rows and steep ones, a few likely tokens that came before."""
    rng = np.random.default_rng(65)
    deviations = rng.uniform(0.5, 5, (N_ROWS, 1))
    tokens = rng.integers(0, 40, N_ROWS).tolist()
    logits = rng.normal(0, deviations, (N_ROWS, 4096))
    logits[:, :40] += rng.uniform(0, 4 * deviations, (N_ROWS, 40))
    return _rows(folder, logits, tokens)


def real_rows(folder: Path) -> Rows:
    """The bundled model's, along five of its own texts; the logits of a row are known but for a constant."""
    kv = ("-fa", "off", "-ctk", "f32", "-ctv", "f32")
    with Lines() as engine:
        prompt = engine.ask("tokenize", text="Lily and Tom went to the", add_special=True)["tokens"]
        own = engine.generate(
            tokens=prompt, n=5, max_tokens=N_ROWS // 5 - len(prompt), logprobs=0,
            sampling={"seed": 3, "ignore_eos": True},
        ).ids  # fmt: skip
    texts = [[*prompt, *tokens] for tokens in own if tokens]
    reference = Reference(folder, *kv)
    logits = np.concatenate([reference.logprobs(text) for text in texts]) + 9
    return _rows(folder, logits, [token for text in texts for token in text])


@pytest.fixture(scope="module", params=[random_rows, real_rows], ids=["random", "real"])
def rows(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    make: Callable[[Path], Rows] = request.param
    made = make(tmp_path_factory.mktemp("rows"))
    assert made.logits.shape[0] == len(made.tokens) == N_ROWS
    return made


WHOLE_CHAIN: dict[str, Any] = {
    "repeat_penalty": 1.3, "repetition_decay": 20, "rep_pen_slope": 0.5, "encoder_repetition_penalty": 1.1,
    "no_repeat_ngram_size": 3, "top_k": 300, "top_a": 0.05, "tfs": 0.98, "epsilon_cutoff": 3,
    "eta_cutoff": 5, "top_p": 0.98, "min_p": 0.02, "temperature": 1.3, "smoothing_factor": 0.3,
    "smoothing_curve": 2,
}  # fmt: skip


def twice(chain: str) -> list[samplers.Step]:
    """The engine's form of a chain."""
    return [*steps.step_fields(steps.samplers(chain))]


ALONE: list[dict[str, Any]] = [
    {"smoothing_factor": 0.2},
    {"smoothing_factor": 2.0, "smoothing_curve": 3.5},
    {"top_a": 0.001}, {"top_a": 1.0},
    {"tfs": 0.99}, {"tfs": 0.3},
    {"epsilon_cutoff": 3}, {"epsilon_cutoff": 5000},
    {"eta_cutoff": 3}, {"eta_cutoff": 900},
    {"no_repeat_ngram_size": 1}, {"no_repeat_ngram_size": 3},
    {"encoder_repetition_penalty": 1.3},
    {"repeat_penalty": 1.4, "presence_penalty": 0.7, "repetition_decay": 50, "repeat_last_n": 20},
    {"frequency_penalty": 0.4, "repetition_decay": 33, "repeat_last_n": 0},
    {"repeat_penalty": 1.4, "rep_pen_slope": 0.3, "repeat_last_n": 31},
    {"top_a": 0.5, "min_keep": 7}, {"tfs": 0.3, "min_keep": 7},
]  # fmt: skip
TOGETHER: list[tuple[dict[str, Any], list[Any]]] = [
    (WHOLE_CHAIN, list(samplers.STEPS)),
    (WHOLE_CHAIN, list(reversed(samplers.STEPS))),
    (WHOLE_CHAIN | {"temperature": 0.0}, list(samplers.STEPS)),
    ({"temperature": 0.7, "top_a": 0.01, "tfs": 0.97}, ["temperature", "tfs", "top_a"]),
    ({"temperature": 2, "eta_cutoff": 2, "smoothing_factor": 1}, ["temperature", "eta_cutoff", "smoothing"]),
    ({"no_repeat_ngram_size": 2, "min_p": 0.1, "top_k": 5}, ["no_repeat_ngram", "top_k", "min_p"]),
    ({"temperature": 0.6}, twice("temp:1.8 > top_k:60 > temp > top_p:0.9 > top_k:4 > top_p:0.7")),
    ({"top_k": 90}, twice("temp:0.5 > top_k > temp:3 > min_p:0.02 > temp:0 > min_p:0.3")),
    ({}, twice("penalties:1.3:8 > tfs:0.9 > penalties:1:40:0.2:0.5 > tfs:0.6")),
    ({"repetition_decay": 20, "rep_pen_slope": 0.5}, twice("penalties:1.3:8 > penalties:1.2:30:0.1")),
    (
        {},
        twice("no_repeat_ngram:4 > top_a:0.01 > smoothing:0.3:2 > no_repeat_ngram:1 > top_a:0.3 > "
              "smoothing:0.2"),
    ),
    (
        {"min_keep": 5, "encoder_repetition_penalty": 1.1},
        twice("encoder_repetition_penalty > eta_cutoff:2 > epsilon_cutoff:3 > "
              "encoder_repetition_penalty:0.8 > eta_cutoff:90 > epsilon_cutoff:50"),
    ),
]  # fmt: skip
CASES = [*((settings, list(samplers.STEPS)) for settings in ALONE), *TOGETHER]


@each_row(("settings", "chain"), CASES, ids=lambda value: repr(value)[:60])
def test_the_samplers_leave_what_the_reference_leaves(
    rows: Rows, settings: dict[str, Any], chain: list[samplers.Step]
) -> None:
    found, _ = rows.left(sampling=OFF | settings | {"samplers": chain})
    expected = samplers.left_of(rows.logits, rows.texts, OFF | settings, chain)
    np.testing.assert_allclose(np.exp(found), expected, rtol=1e-3, atol=1e-6)
    assert np.exp(found[expected == 0]).max(initial=0) < 1e-30  # it is out


OWN = {  # by step: values that do something, and values that do nothing
    "penalties": ("1.4:30:0.1:0.3", "1:0:0:0"), "dry": ("2:1.5:1:50", "0"), "top_n_sigma": ("0.9", "-1"),
    "top_k": ("7", "0"), "typ_p": ("0.4", "1"), "top_p": ("0.6", "1"), "min_p": ("0.2", "0"),
    "xtc": ("1:0.05", "0"), "temperature": ("1.7:0.5:1.2", "1"), "encoder_repetition_penalty": ("1.3", "1"),
    "no_repeat_ngram": ("2", "0"), "top_a": ("0.5", "0"), "tfs": ("0.5", "1"), "epsilon_cutoff": ("90", "0"),
    "eta_cutoff": ("90", "0"), "smoothing": ("0.5:2", "0"),
}  # fmt: skip


@each_row("name", OWN)
@pytest.mark.parametrize("arithmetic", [False, True])
def test_values_of_a_step_do_what_fields_do(rows: Rows, name: str, arithmetic: bool) -> None:
    values, nothing = OWN[name]
    assert {*OWN} == {*steps.SAMPLER_NAMES} - {"adaptive_p", "infill"}
    fields = OFF | steps.values_of(f"{name}:{values}")
    more = [] if name == "temperature" else ["temperature"]
    expected = rows.left(sampling=fields | {"samplers": [name, *more]}, arithmetic=arithmetic)
    for chain in (f"{name}:{values} > {name}:{nothing}", f"{name}:{nothing} > {name}:{values}"):
        found = rows.left(sampling=OFF | {"samplers": [*twice(chain), *more]}, arithmetic=arithmetic)
        np.testing.assert_allclose(np.exp(found[0]), np.exp(expected[0]), rtol=1e-3, atol=1e-6, err_msg=chain)


def test_the_order_without_samplers_is_the_one_that_fields_tell(rows: Rows) -> None:
    settings = OFF | WHOLE_CHAIN | {"xtc_probability": 1, "xtc_threshold": 0.05}
    told, _ = rows.left(sampling=settings | {"samplers": list(DEFAULT_SAMPLERS)})
    found, _ = rows.left(sampling=settings)
    assert (found == told).all()


@pytest.mark.parametrize("arithmetic", [False, True])
@pytest.mark.parametrize(
    "settings", [{"skew": 1.5}, {"skew": -0.7, "top_k": 20, "temperature": 2.0}], ids=str
)
def test_a_skew_bends_the_draws(rows: Rows, settings: dict[str, Any], arithmetic: bool) -> None:
    """A number that is even within the drawn token's part of [0, 1) is even in [0, 1)."""
    _, drawn = rows.left(sampling=OFF | settings, arithmetic=arithmetic)
    rng = np.random.default_rng(1)
    all_chances = samplers.left_of(rows.logits, rows.texts, OFF | settings, ["top_k", "temperature"])
    parts = [samplers.skewed_part(chances, token, settings["skew"])
             for chances, token in zip(all_chances, drawn, strict=True)]  # fmt: skip
    places = [rng.uniform(*part) for part in parts]
    counts, _ = np.histogram(places, bins=20, range=(0, 1))
    assert ((counts - N_ROWS / 20) ** 2 / (N_ROWS / 20)).sum() < 48  # 1 in 4,000 of chi-square
