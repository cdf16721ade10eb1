"""Adapters by request: each set computes what a model with the set merged computes, in any batch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.real.test_laws import check_idle
from tests.real.test_scores import BOUND, KV, scores, values
from tests.support.lines import Answer, Lines
from tests.support.models import write_adapter, write_model
from tests.support.places import BINARY
from tests.support.serving import Server, serving

Scales = dict[int, float]  # by id; the adapter of id i is that of seed i
SETS: list[Scales] = [{}, {0: 1.0}, {1: 1.0}, {0: 0.5, 1: -0.7}]
PROMPT = "Once upon a time there was a little dog who liked to play in the park with his friend Tim. " * 3
TEXTS = [
    "One day a big cat came to see the dog, and she was very sad.",
    " dog",
    "He gave her a red ball. " * 4,
]
DIFFERENT = 0.2  # the least |Δlogprob| between two sets; measured: 3


def lora(scales: Scales) -> list[dict[str, Any]]:
    return [{"id": id, "scale": scale} for id, scale in scales.items()]


def score(scales: Scales | None, prompt: str = PROMPT) -> dict[str, Any]:
    given = {} if scales is None else {"lora": lora(scales)}
    return {"op": "score", "prompt": prompt, "texts": TEXTS} | given


def all_values(answer: Answer) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([value for one in scores(answer) for value in values(one)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    write_model(folder / "model.gguf", "qwen3")
    for seed in (0, 1):
        write_adapter(folder / f"{seed}.gguf", "qwen3", seed)
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """For each set the logprobs of a model into which it was merged."""
    found = []
    for scales in SETS:
        write_model(folder / "merged.gguf", "qwen3", merged=scales)
        with Lines(*KV, "-c", "2048", "-np", "4", model=folder / "merged.gguf") as engine:
            (answer,) = engine.answers(engine.send(score(None)))
            found.append(all_values(answer))
    for i, one in enumerate(found):
        assert all(np.abs(one - other).max() > DIFFERENT for other in found[:i])
    return found


@pytest.fixture
def flags(folder: Path) -> tuple[str, ...]:
    return (*KV, "-c", "4096", "-np", "8", "--lora", f"{folder / '0.gguf'},{folder / '1.gguf'}")


@pytest.fixture
def engine(folder: Path, flags: tuple[str, ...]) -> Iterator[Lines]:
    with Lines(*flags, model=folder / "model.gguf") as engine:
        yield engine
        check_idle(engine)


def test_alone_and_one_after_another_each_set_has_the_merged_models_logprobs(
    engine: Lines, expected: list[Any]
) -> None:
    """The second time the prompt's cells are cached, as are those of the other sets."""
    for n_cached in (0, 1):
        for scales, merged in zip(SETS, expected, strict=True):
            (answer,) = engine.answers(engine.send(score(scales)))
            assert np.abs(all_values(answer) - merged).max() <= BOUND
            assert answer.done["cached_tokens"] == answer.done["prompt_tokens"] * n_cached


@pytest.mark.parametrize("cells", ["4096", "768"], ids=["roomy", "tiny"])
def test_at_the_same_time_each_set_has_the_merged_models_logprobs(
    folder: Path, flags: tuple[str, ...], expected: list[Any], cells: str
) -> None:
    """Scores, streams and prefixes of four sets at once, twice, with cells for two of them or for all."""
    write = {"op": "generate", "prompt": PROMPT, "n": 3, "max_tokens": 30, "min_tokens": 30, "logprobs": 0}
    with Lines(*flags, "-c", cells, model=folder / "model.gguf") as engine:
        stories = [write | {"lora": lora(scales)} for scales in SETS]
        for _ in range(3):
            answers = engine.answers(engine.send(*stories, *(score(scales) for scales in SETS * 2)))
            for answer, merged in zip(answers[4:], expected * 2, strict=True):
                assert np.abs(all_values(answer) - merged).max() <= BOUND
            for answer in answers[:4]:
                assert answer.lengths == [30] * 3
            replayed = [replay(engine, scales, answer) for scales, answer in zip(SETS, answers, strict=False)]
            assert max(replayed) <= BOUND
        check_idle(engine)


def replay(engine: Lines, scales: Scales, story: Answer) -> float:
    """The largest |Δlogprob| between a story's stream and its tokens, scored alone."""
    prompt = engine.ask("tokenize", text=PROMPT, add_special=True)["tokens"]
    command = {
        "op": "score",
        "tokens": prompt,
        "texts": [ids for ids in story.ids if ids],
        "lora": lora(scales),
    }
    (answer,) = engine.answers(engine.send(command))
    told = [token["logprob"] for tokens in story.tokens for token in tokens]
    return float(np.abs(all_values(answer) - told).max())


def test_stories_with_different_adapters_progress_at_the_same_time(engine: Lines) -> None:
    """Steps alternate between the two sets, so neither story waits for the other's end."""
    write = {"op": "generate", "prompt": "Once", "max_tokens": 60, "min_tokens": 60}
    both = engine.answers(engine.send(*(write | {"lora": lora(scales)} for scales in SETS[:2])))
    lines = [[event["line"] for event in answer.named("stream")] for answer in both]
    assert max(line[0] for line in lines) < min(line[len(line) // 2] for line in lines)


def test_without_the_field_all_adapters_are_on_as_they_were_loaded(folder: Path, expected: list[Any]) -> None:
    files = f"{folder / '0.gguf'}:0.5,{folder / '1.gguf'}:-0.7"
    with Lines(*KV, "-c", "2048", "--lora-scaled", files, model=folder / "model.gguf") as engine:
        (answer,) = engine.answers(engine.send(score(None)))
        assert np.abs(all_values(answer) - expected[3]).max() <= BOUND
        (answer,) = engine.answers(engine.send(score({})))
        assert answer.done["cached_tokens"] == 0
        assert np.abs(all_values(answer) - expected[0]).max() <= BOUND


def test_a_set_is_the_same_in_any_order_and_with_scales_of_0(engine: Lines) -> None:
    names = [
        [{"id": 0}],
        [{"scale": 1, "id": 0}, {"id": 1, "scale": 0}],
        [{"id": 1, "scale": 0.0}, {"id": 0}],
    ]
    cached = []
    for name in names:
        (answer,) = engine.answers(engine.send(score(None) | {"lora": name}))
        cached.append(answer.done["cached_tokens"])
    assert cached[0] == 0 < cached[1] == cached[2]


def test_on_disk_prompts_of_different_sets_are_separate(
    folder: Path, flags: tuple[str, ...], expected: list[Any], tmp_path: Path
) -> None:
    stored = (*flags, "--prefix-cache", str(tmp_path))
    for again in (False, True):
        with Lines(*stored, model=folder / "model.gguf") as engine:
            for scales, merged in zip(SETS, expected, strict=True):
                (answer,) = engine.answers(engine.send(score(scales)))
                assert np.abs(all_values(answer) - merged).max() <= BOUND
                assert again or answer.done["cached_tokens"] == 0, "the files of other sets are misses"
            assert len(list(tmp_path.glob("*.kv"))) <= len(SETS)
    assert answer.done["cached_tokens"] > 32, "the second process has found it"
    assert len(list(tmp_path.glob("*.kv"))) == len(SETS)


def test_a_prefix_is_computed_with_its_adapters(engine: Lines) -> None:
    engine.ask("prefix", prompt=PROMPT, lora=lora(SETS[1]))
    answers = engine.answers(engine.send(score(SETS[2]), score(SETS[1])))
    assert [answer.done["cached_tokens"] > 0 for answer in answers] == [False, True]


WRONG: dict[str, tuple[Any, str, str]] = {  # lora, param, part of the message
    "no list": ({"id": 0}, "lora", "a list of {id, scale}"),
    "no object": ([0], "lora", "lora holds 0"),
    "no id": ([{"scale": 1}], "lora", "lora.id is missing"),
    "another field": ([{"id": 0, "weight": 1}], "lora", "weight"),
    "no such": ([{"id": 2}], "lora.id", "between 0 and 1"),
    "too much": ([{"id": 0, "scale": 1000}], "lora.scale", "between -100 and 100"),
}


@pytest.mark.parametrize(("given", "param", "message"), WRONG.values(), ids=WRONG)
def test_an_invalid_lora_field_is_refused(engine: Lines, given: Any, param: str, message: str) -> None:
    error = engine.ask("generate", prompt="x", lora=given)
    assert (error["event"], error["param"]) == ("error", param)
    assert message in error["message"]


def test_over_http_they_are_listed_and_named(folder: Path, expected: list[Any]) -> None:
    files = [str(folder / name) for name in ("0.gguf", "1.gguf")]
    engine = ("--", *KV)
    with serving(
        "--model", str(folder / "model.gguf"), "--ctx", "2048", "--lora", ",".join(files), *engine
    ) as server:
        status, listed = server.json("GET", "/v1/adapters")
        assert status == 200
        assert [(one["id"], one["name"], one["path"], one["scale"]) for one in listed["data"]] == [
            (i, str(i), file, 1) for i, file in enumerate(files)
        ]
        assert server.json("GET", "/lora-adapters") == (200, listed["data"])
        body = {"prompt": PROMPT, "texts": TEXTS, "lora": lora(SETS[3])}
        status, scored = server.json("POST", "/v1/score", body)
        found = [token["logprob"] for one in scored["data"] for token in one["tokens"]]
        assert np.abs(np.array(found) - expected[3]).max() <= BOUND
        for wrong, param in (([{"id": 7}], "lora.id"), ([{"id": 0, "scale": "x"}], "lora")):
            for path, more in (("/v1/score", {"texts": ["x"]}), ("/v1/completions", {})):
                status, refused = server.json("POST", path, {"prompt": "x", "lora": wrong} | more)
                assert (status, refused["error"]["param"]) == (400, param), json.dumps(refused)


def test_a_file_that_is_no_adapter_of_the_model_ends_the_start(folder: Path, tmp_path: Path) -> None:
    write_adapter(tmp_path / "other.gguf", "llama", 0)
    command = [BINARY, "-m", folder / "model.gguf", "--lora", tmp_path / "other.gguf"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "other.gguf cannot be loaded" in done.stderr


def tell(server: Server, path: str, **body: Any) -> tuple[int, str]:
    status, _, data = server.call("POST", path, body)
    return status, data.decode()


def read(server: Server, **body: Any) -> tuple[list[float], str, int]:
    """The log-probabilities of the texts, the fingerprint, and the cached tokens of the prompt."""
    status, scored = server.json("POST", "/v1/score", {"prompt": PROMPT, "texts": TEXTS} | body)
    assert status == 200, scored
    found = [token["logprob"] for one in scored["data"] for token in one["tokens"]]
    _, made = server.json("POST", "/v1/completions", {"prompt": "x", "max_tokens": 1, "stream": False})
    return found, made["system_fingerprint"], scored["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_over_http_they_are_loaded_reloaded_and_unloaded(
    folder: Path, expected: list[Any], tmp_path: Path
) -> None:
    """A reload takes the new weights and no cells of the old ones; a killed engine's successor has them."""
    for name, source in (("a", "0"), ("b", "1"), ("wrong", "model")):
        (tmp_path / f"{name}.gguf").write_bytes((folder / f"{source}.gguf").read_bytes())
    flags = ("--model", str(folder / "model.gguf"), "--ctx", "2048", "--adapters-dir", str(tmp_path))
    with serving(*flags, "--", *KV) as server:
        plain = read(server)
        assert tell(server, "/v1/load_lora_adapter", lora_name="a", lora_path="a.gguf")[0] == 200
        one = read(server, lora=[{"name": "a"}])
        (tmp_path / "a.gguf").write_bytes((folder / "1.gguf").read_bytes())
        again = {"lora_name": "a", "lora_path": "a.gguf", "load_inplace": True}
        assert tell(server, "/v1/load_lora_adapter", **again)[0] == 200
        other = read(server, model="a")
        for found, merged in ((plain, 0), (one, 1), (other, 2)):
            assert np.abs(np.array(found[0]) - expected[merged]).max() <= BOUND
        assert len({fingerprint for _, fingerprint, _ in (plain, one, other)}) == 3
        assert one[2] == other[2] == 0, "nothing is cached of another adapter"

        (engine,) = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        os.kill(int(engine), signal.SIGKILL)
        deadline = time.monotonic() + 30
        while (
            Path(f"/proc/{engine}").exists() and time.monotonic() < deadline
        ):  # until the server has noticed
            time.sleep(0.02)
        after = read(server, lora=[{"id": 1}])
        assert np.abs(np.array(after[0]) - expected[2]).max() <= BOUND
        assert after[1] == other[1]
        assert server.json("GET", "/v1/adapters")[1]["data"] == [
            {"id": 1, "name": "a", "path": str(tmp_path / "a.gguf"), "scale": 0}
        ]

        status, refused = tell(server, "/v1/load_lora_adapter", lora_name="c", lora_path="wrong.gguf")
        assert status == 400
        assert "general.type" in refused
        assert tell(server, "/v1/unload_lora_adapter", lora_name="a")[0] == 200
        for body in ({"lora": [{"name": "a"}]}, {"lora": [{"id": 1}]}):
            status, _ = server.json("POST", "/v1/score", {"prompt": PROMPT, "texts": TEXTS} | body)
            assert status == 400
        assert tell(server, "/v1/unload_lora_adapter", lora_name="a")[0] == 404
