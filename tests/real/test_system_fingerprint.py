"""`system_fingerprint` in every answer of OpenAI's form, the same as long as model and adapters are."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import write_adapter, write_model
from tests.support.serving import Server, serving

FORM = re.compile(r"b[0-9a-f]{7,}-[0-9a-f]{8}-[0-9a-f]{8}")
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", {"prompt": "Once"}),
    ("/v1/completions", {"prompt": ["Once", "The"], "n": 2}),
    ("/openai/v1/completions", {"prompt": "Once"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    write_model(folder / "model.gguf", "qwen3")
    write_adapter(folder / "a.gguf", "qwen3", 0)
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Iterator[Server]:
    with serving("--model", str(folder / "model.gguf"), "--ctx", "2048") as server:
        yield server


def fingerprint(server: Server) -> str:
    found: str = server.json("POST", "/v1/embeddings", {"input": "Once"})[1]["system_fingerprint"]
    assert FORM.fullmatch(found)
    return found


@pytest.mark.parametrize(("path", "body"), ASKED, ids=str)
def test_bodies_and_all_chunks_have_it(plain: Server, path: str, body: dict[str, Any]) -> None:
    whole = server_json(plain, path, body | {"max_tokens": 2, "stream": False})
    assert whole["system_fingerprint"] == fingerprint(plain)
    streamed = body | {"max_tokens": 2, "stream": True, "foo": 1, "stream_options": {"include_usage": True}}
    chunks = plain.events(streamed, path)
    assert chunks[-1]["usage"]
    assert {chunk["system_fingerprint"] for chunk in chunks} == {whole["system_fingerprint"]}


def server_json(server: Server, path: str, body: dict[str, Any]) -> Any:
    status, answer = server.json("POST", path, body)
    assert status == 200
    return answer


def test_it_outlives_a_start_and_differs_with_adapters_and_with_another_file(
    plain: Server, folder: Path, tmp_path: Path
) -> None:
    model = str(folder / "model.gguf")
    with serving("--model", model, "--ctx", "2048", "--engine-mode", "per-request") as again:
        assert fingerprint(again) == fingerprint(plain)
    with serving("--model", model, "--ctx", "2048", "--lora", str(folder / "a.gguf")) as adapted:
        ours, theirs = (fingerprint(server).split("-") for server in (plain, adapted))
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True, True, False]
    shutil.copy(model, tmp_path / "model.gguf")  # with another time of change
    with serving("--model", str(tmp_path / "model.gguf"), "--ctx", "2048") as other:
        ours, theirs = (fingerprint(server).split("-") for server in (plain, other))
    assert [a == b for a, b in zip(ours, theirs, strict=True)] == [True, False, True]
