"""Vectors of texts equal those that numpy and llama.cpp's tool compute of the same tokens, in any batch."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFReader

from tests.reference.results import Reference
from tests.support.encoder import CONTEXT, POOLING, encoded, pooled, write_encoder
from tests.support.lines import Answer, Event, Lines
from tests.support.models import write_model
from tests.support.places import STORYTELLER
from tests.support.serving import serving

Vector = np.ndarray[Any, np.dtype[np.float64]]

CLOSE = 5e-3  # a bound for the distance of two vectors of length 1; measured: 1e-3 (GELU by a table of F16)
TEXTS = [
    "Once upon a time, there was a little dog.",
    "The cat",
    "He liked to play in the park with his friend Tim. " * 8,
    "a",
]


def vectors(answer: Answer) -> list[Vector]:
    found = answer.named("embedding")
    assert [event["index"] for event in found] == list(range(answer.done["count"]))
    assert answer.done["prompt_tokens"] == sum(event["count"] for event in found)
    made = [np.array(event["embedding"]) for event in found]
    assert all(abs(np.linalg.norm(vector) - 1) < 1e-5 for vector in made)
    return made


def embed(engine: Lines, *texts: str | list[int]) -> list[Vector]:
    (answer,) = engine.answers(engine.send({"op": "embed", "input": texts}))
    return vectors(answer)


def distance(one: Vector, other: Vector) -> float:
    return float(np.linalg.norm(one - other))


def tokens_of(engine: Lines, text: str) -> list[int]:
    tokens: list[int] = engine.ask("tokenize", text=text, add_special=True)["tokens"]
    return tokens


# Encoders


@pytest.fixture(scope="module", params=POOLING)
def encoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    path = tmp_path_factory.mktemp(request.param) / "encoder.gguf"
    write_encoder(path, request.param)
    return path, request.param


def test_an_encoder_computes_the_same_as_numpy(encoder: tuple[Path, str]) -> None:
    path, pooling = encoder
    with Lines("-t", "1", model=path) as engine:
        for text, vector in zip(TEXTS, embed(engine, *TEXTS), strict=True):
            expected = pooled(encoded(tokens_of(engine, text)), pooling)
            assert distance(vector, expected) <= CLOSE
            changed = pooled(encoded([*tokens_of(engine, text)[:-1], 300]), pooling)
            assert distance(vector, changed) > 10 * CLOSE


def test_an_encoder_without_work_uses_no_cpu(encoder: tuple[Path, str]) -> None:
    path, _ = encoder
    with Lines("-t", "1", "-np", "64", model=path) as engine:
        assert len(embed(engine, "a")) == 1
        engine.wait_for_sleep()


def test_an_encoder_reports_itself_as_one_and_refuses_to_generate(encoder: tuple[Path, str]) -> None:
    path, pooling = encoder
    with Lines("-t", "1", model=path) as engine:
        for op, fields in (
            ("generate", {"prompt": "x"}),
            ("prefix", {"prompt": "x"}),
            ("score", {"texts": ["x"]}),
        ):
            error = engine.ask(op, **fields)
            assert (error["event"], error["code"]) == ("error", "invalid_request")
            assert f"embedding model (pooling: {pooling})" in error["message"]
        assert len(embed(engine, [5] * CONTEXT)) == 1
        error = engine.ask("embed", input=["a", [5] * (CONTEXT + 1)])
        assert (error["code"], error["param"]) == ("context_exceeded", "input")
        assert f"input[1] has {CONTEXT + 1} tokens; it exceeds the available context size" in error["message"]
        assert (error["n_prompt_tokens"], error["n_ctx"]) == (CONTEXT + 1, CONTEXT)


# Models that generate


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("generating")
    write_model(folder / "model.gguf", "qwen3")
    write_model(folder / "written_as_ids.gguf", "qwen3", written_as_ids=True)
    return folder


@pytest.fixture
def engine(folder: Path) -> Iterator[Lines]:
    with Lines("-t", "1", "-c", "4096", "-np", "4", model=folder / "model.gguf") as engine:
        yield engine


def hidden(reference: Reference, model: Path, tokens: list[int]) -> Vector:
    """Solves logits = output matrix · row for the rows. The matrix's row 0 is zero, and so is logit 0."""
    output = next(t.data for t in GGUFReader(model).tensors if t.name == "output.weight").astype(np.float64)
    logprobs = reference.logprobs(tokens)
    rows: Vector = np.linalg.lstsq(output, (logprobs - logprobs[:, :1]).T, rcond=None)[0].T
    return rows


def test_a_generating_model_gives_the_mean_of_what_llama_cpp_computes(engine: Lines, folder: Path) -> None:
    reference = Reference(folder)
    for text, vector in zip(TEXTS, embed(engine, *TEXTS), strict=True):
        rows = hidden(reference, folder / "model.gguf", tokens_of(engine, text))
        assert distance(vector, pooled(rows, "mean")) <= CLOSE
        assert distance(vector, pooled(rows[1:], "mean")) > 2 * CLOSE or len(rows) > 50


def test_a_vector_does_not_depend_on_its_neighbours_or_running_requests(engine: Lines) -> None:
    """The third text has more tokens than the chunk beside a stream; forty texts have more than a batch."""
    alone = [embed(engine, text)[0] for text in TEXTS]
    story = {"op": "generate", "prompt": "Once", "n": 4, "max_tokens": 150, "min_tokens": 150}
    many = TEXTS * 10
    answers = engine.answers(engine.send(story, *[{"op": "embed", "input": many}] * 2))
    assert answers[0].lengths == [150] * 4
    for answer in answers[1:]:
        for expected, vector in zip(alone * 10, vectors(answer), strict=True):
            assert distance(expected, vector) <= CLOSE
    assert min(distance(a, b) for i, a in enumerate(alone) for b in alone[:i]) > 10 * CLOSE


def test_streams_go_on_while_a_long_text_is_embedded(engine: Lines) -> None:
    story, vector = engine.answers(
        engine.send(
            {"op": "generate", "prompt": "Once", "max_tokens": 300, "min_tokens": 300},
            {"op": "embed", "input": [[300] * 1000]},
        )
    )
    (done,) = vector.named("embedding")
    before = [event for event in story.named("stream") if event["line"] < done["line"]]
    assert len(before) >= 10, "chunks of 64 tokens"


def test_a_cancelled_embedding_is_done_and_leaves_no_cells(engine: Lines) -> None:
    (id,) = engine.send({"op": "embed", "input": [[300] * 1000] * 20})
    engine.send({"op": "cancel", "id": id})
    (answer,) = engine.answers([id])
    assert len(answer.named("embedding")) < 20
    assert distance(embed(engine, TEXTS[0])[0], embed(engine, TEXTS[0])[0]) <= CLOSE


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {  # fields, param, part of the message
    "no texts": ({}, "input", "input is missing"),
    "none": ({"input": []}, "input", "input has 0 entries; 1 to 2048 are allowed"),
    "a number": ({"input": [7]}, "input", "input holds 7"),
    "no tokens": ({"input": [[]]}, "input", "input[0] has 0 tokens"),
    "no token": ({"input": [[99999]]}, "input", "99999"),
    "pooling": ({"input": ["a"], "pooling": "cls"}, "pooling", "no field"),
}


@pytest.mark.parametrize(("fields", "param", "message"), WRONG.values(), ids=WRONG)
def test_invalid_embeddings_are_refused(
    engine: Lines, fields: dict[str, Any], param: str, message: str
) -> None:
    error: Event = engine.ask("embed", **fields)
    assert (error["event"], error["param"]) == ("error", param)
    assert message in error["message"]


# Over HTTP


def test_the_route_speaks_openais_form() -> None:
    with serving() as server:
        status, answer = server.json(
            "POST", "/v1/embeddings", {"input": TEXTS[:2], "model": STORYTELLER.stem}
        )
        assert status == 200
        assert [(one["object"], one["index"]) for one in answer["data"]] == [
            ("embedding", 0),
            ("embedding", 1),
        ]
        assert answer["usage"]["prompt_tokens"] == answer["usage"]["total_tokens"] > 8
        whole = np.array(answer["data"][0]["embedding"])
        _, single = server.json("POST", "/v1/embeddings", {"input": TEXTS[0], "encoding_format": "base64"})
        decoded = np.frombuffer(base64.b64decode(single["data"][0]["embedding"]), "<f4")
        assert distance(decoded, whole) < 0.05, "Q8_0 rounds what it multiplies"
        _, short = server.json("POST", "/v1/embeddings", {"input": TEXTS[0], "dimensions": 8})
        expected = whole[:8] / np.linalg.norm(whole[:8])
        assert distance(np.array(short["data"][0]["embedding"]), expected) < 0.1
        meta = server.json("GET", "/v1/models")[1]["data"][0]["meta"]["embedding"]
        assert (meta["only"], meta["pooling"], meta["dimensions"]) == (False, "mean", len(whole))
        for body, param in (
            ({}, "input"), ({"input": []}, "input"), ({"input": ""}, "input"), ({"input": [1.5]}, "input"),
            ({"input": "x", "encoding_format": "int8"}, "encoding_format"),
            ({"input": "x", "dimensions": 0}, "dimensions"),
            ({"input": "x", "dimensions": 10**6}, "dimensions"),
            ({"input": "dog " * 1100}, "input"),
        ):  # fmt: skip
            status, refused = server.json("POST", "/v1/embeddings", body)
            assert (status, refused["error"]["param"]) == (400, param), refused


def test_an_embedding_model_is_served_and_generation_is_a_400(encoder: tuple[Path, str]) -> None:
    path, pooling = encoder
    with serving("--model", str(path)) as server:
        status, answer = server.json("POST", "/v1/embeddings", {"input": TEXTS})
        assert (status, len(answer["data"])) == (200, len(TEXTS))
        for stream in (True, False):
            body = {"prompt": "Once", "stream": stream}
            status, refused = server.json("POST", "/v1/completions", body)
            assert status == 400
            assert f"embedding model (pooling: {pooling})" in refused["error"]["message"]
        assert server.json("GET", "/v1/models")[1]["data"][0]["meta"]["embedding"]["only"] is True
