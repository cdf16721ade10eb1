"""`llama-srb perplexity` with the real engine and the bundled model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.bench import Bench, plain
from tests.support.places import ROOT
from tests.support.serving import Server, serving

TALE = (
    "Once upon a time, there was a little girl named Lily. She liked to play in the park with her dog. "
    "One day the dog ran away, and Lily was sad. Her mom said: we will look for him. They found the dog "
    "by the pond, and all were happy. "
)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.unlink()
    bench.engine.symlink_to(ROOT / "build/bin/llama-batched")
    (tmp_path / "tale.txt").write_text(TALE * 5 + "\n")
    return bench


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--ctx", "256") as server:
        yield server


def figures(bench: Bench, *arguments: str) -> dict[str, Any]:
    done = bench.run("perplexity", "tale.txt", "--json", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def logprobs(server: Server, ids: list[int]) -> list[float | None]:
    """Of each token, behind those before it."""
    body = {"prompt": ids, "echo": True, "logprobs": 0, "max_tokens": 0, "n": 1, "stream": False}
    status, answer = server.json("POST", "/v1/completions", body)
    assert status == 200, answer
    found: list[float | None] = answer["choices"][0]["logprobs"]["token_logprobs"]
    return found


def ids_of(server: Server, text: str, *, special: bool) -> list[int]:
    _, answer = server.json("POST", "/v1/token/encode", {"text": text, "add_bos_token": special})
    found: list[int] = answer["tokens"]
    return found


def test_the_figure_is_that_of_llama_cpp_s_formula(bench: Bench, server: Server) -> None:
    size, ids = 64, ids_of(server, TALE * 5, special=True)
    begin = ids[: len(ids) - len(ids_of(server, TALE * 5, special=False))]
    assert begin  # the tokenizer puts a token before a text
    nll: list[float] = []
    for at in range(0, len(ids) - size + 1, size):
        chunk = [*begin, *ids[at + len(begin) : at + size]]
        nll += [-one for one in logprobs(server, chunk)[size // 2 + 1 :] if one is not None]
    found = figures(bench, "--llama-cpp", "--window", str(size), "--url", server.url)
    mean = sum(nll) / len(nll)
    assert found["tokens"] == len(nll) == (size - size // 2 - 1) * (len(ids) // size)
    assert found["perplexity"] == pytest.approx(math.exp(mean), rel=0.01)
    spread = sum(one * one for one in nll) / len(nll) - mean * mean
    assert found["error"] == pytest.approx(math.exp(mean) * math.sqrt(spread / (len(nll) - 1)), rel=0.02)


def test_a_short_text_has_the_figures_of_its_score(bench: Bench, server: Server) -> None:
    (bench.folder / "tale.txt").write_text(TALE.strip())
    _, answer = server.json("POST", "/v1/score", {"texts": [TALE.strip()], "certainty": True})
    (score,) = answer["data"]
    found = figures(bench)  # by a server of its own
    assert (found["windows"], found["tokens"]) == (1, score["count"])
    for name in ("sum", "mean", "perplexity", "certainty"):
        assert found[name] == pytest.approx(score[name], rel=0.01)


def test_a_long_text_is_read_in_windows_and_more_context_predicts_better(
    bench: Bench, server: Server
) -> None:
    short, long = (
        figures(bench, "--url", server.url, "--window", str(size), "--stride", "16") for size in (24, 200)
    )
    assert short["tokens"] == long["tokens"]
    assert long["perplexity"] < short["perplexity"]


def test_a_bar_is_shown_on_a_terminal_alone(bench: Bench, server: Server) -> None:
    code, output = bench.on_terminal("perplexity", "tale.txt", "--url", server.url, "--window", "32")
    assert code == 0
    assert "windows" in plain(output).split("perplexity")[0]
    done = bench.run("perplexity", "tale.txt", "--url", server.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("perplexity\t")


def test_a_refusal_says_what_is_wrong(bench: Bench, server: Server) -> None:
    (bench.folder / "empty.txt").write_text("")
    (bench.folder / "bytes.bin").write_bytes(b"\xff")
    for arguments, said in (
        (["none.txt"], "cannot read none.txt"),
        (["bytes.bin"], "bytes.bin is not UTF-8 (byte 0)"),
        (["empty.txt"], "no token behind another one"),
        (["tale.txt", "--window", "9999"], "--window is 9999; it must be at most 256"),
        (["tale.txt", "--stride", "999"], "--stride is 999; it must be at most 255"),
        (["empty.txt", "--llama-cpp"], "needs as many as a window has, 256"),
        (["tale.txt", "--llama-cpp", "--stride", "3"], "has no --stride"),
    ):
        done = bench.run("perplexity", *arguments, "--url", server.url)
        assert (done.returncode, said in done.stderr) == (2, True), done.stderr
