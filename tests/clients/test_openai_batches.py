"""The real openai client's files and batches, with the real server and the real engine."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import APIStatusError, ConflictError, NotFoundError, OpenAI
from openai.types import Batch

from tests.support.batches import ids, line, write
from tests.support.serving import serving
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="module", params=["/v1", "/openai/v1"])
def openai(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    folder = tmp_path_factory.mktemp("files")
    with (
        serving("--ctx", "8192", "--files-dir", str(folder)) as server,
        OpenAI(base_url=server.url + request.param, api_key="-", max_retries=0) as client,
    ):
        yield client


def begun(openai: OpenAI, folder: Path, lines: list[dict[str, Any]], endpoint: Any, **more: Any) -> Batch:
    with write(folder / "in.jsonl", lines).open("rb") as opened:
        file = openai.files.create(file=opened, purpose="batch")
    return openai.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", metadata={"of": "tests"}, **more
    )


def ended(openai: OpenAI, id: str) -> Batch:
    deadline = time.monotonic() + PATIENCE
    while True:
        batch = openai.batches.retrieve(id)
        if batch.status in ("completed", "failed", "expired", "cancelled"):
            return batch
        assert time.monotonic() < deadline, batch
        time.sleep(0.05)


CHAT = [{"role": "user", "content": "A story!"}]
LINES: dict[str, list[dict[str, Any]]] = {
    "/v1/chat/completions": [
        line(f"{i}", "/v1/chat/completions", model="gpt-4o", messages=CHAT, n=2, max_tokens=4, stream=True)
        for i in range(5)
    ],
    "/v1/completions": [line(f"{i}", model="gpt-4o", prompt="Once", n=3, max_tokens=4) for i in range(5)],
    "/v1/embeddings": [line(f"{i}", "/v1/embeddings", model="x", input=["cat", "dog"]) for i in range(5)],
    "/v1/responses": [
        line(f"{i}", "/v1/responses", model="gpt-4o", input="Hi", max_output_tokens=4) for i in range(5)
    ],
}  # fmt: skip
OBJECTS = dict(zip(LINES, ("chat.completion", "text_completion", "list", "response"), strict=True))


@pytest.mark.parametrize("endpoint", LINES)
def test_a_batch_of_each_endpoint(openai: OpenAI, tmp_path: Path, endpoint: str) -> None:
    lines = LINES[endpoint]
    batch = begun(openai, tmp_path, lines, endpoint)
    assert (batch.status, batch.endpoint, batch.metadata) == ("validating", endpoint, {"of": "tests"})
    batch = ended(openai, batch.id)
    assert (batch.status, batch.errors, batch.error_file_id) == ("completed", None, None)
    assert batch.request_counts
    assert (batch.request_counts.total, batch.request_counts.completed) == (5, 5)
    assert batch.output_file_id
    answers = [json.loads(one) for one in openai.files.content(batch.output_file_id).text.splitlines()]
    assert sorted(ids(answers)) == ids(lines)
    assert {one["response"]["status_code"] for one in answers} == {200}
    assert {one["response"]["body"]["object"] for one in answers} == {OBJECTS[endpoint]}
    kept = [one["response"]["body"].get("store", False) for one in answers]
    assert kept == [False] * 5, "a batch's responses would push out all others"
    choices = [len(one["response"]["body"].get("choices", ())) for one in answers]
    assert set(choices) == {lines[0]["body"].get("n", 0)}


def test_files_are_listed_read_and_deleted(openai: OpenAI, tmp_path: Path) -> None:
    text = b'{"custom_id": "1"}\n'
    expires: Any = {"anchor": "created_at", "seconds": 7200}
    made = [
        openai.files.create(file=(f"{i}.jsonl", text), purpose="batch", expires_after=expires)
        for i in range(3)
    ]
    assert (made[0].filename, made[0].bytes, made[0].purpose, made[0].object) == (
        "0.jsonl",
        19,
        "batch",
        "file",
    )
    assert made[0].expires_at == made[0].created_at + 7200
    listed = [
        one.id for one in openai.files.list(purpose="batch", limit=2)
    ]  # asks for further pages by itself
    assert [one.id for one in made] == [id for id in listed[::-1] if id in {one.id for one in made}]
    assert openai.files.retrieve(made[0].id) == made[0]
    assert openai.files.content(made[0].id).read() == text
    deleted = openai.files.delete(made[0].id)
    assert (deleted.id, deleted.deleted, deleted.object) == (made[0].id, True, "file")
    with pytest.raises(NotFoundError, match="you have no file"):
        openai.files.retrieve(made[0].id)


def test_a_batch_is_cancelled_and_listed(openai: OpenAI, tmp_path: Path) -> None:
    lines = [line(f"{i}", model="x", prompt="Once", max_tokens=400, ignore_eos=True) for i in range(300)]
    before = begun(openai, tmp_path, lines[:1], "/v1/completions")
    batch = begun(openai, tmp_path, lines, "/v1/completions")
    assert openai.batches.cancel(batch.id).status in ("cancelling", "cancelled")
    last = ended(openai, batch.id)
    assert (last.status, last.cancelled_at is not None) == ("cancelled", True)
    assert next(iter(openai.batches.list(limit=1))).id == batch.id
    assert before.id in {one.id for one in openai.batches.list(limit=1)}, "the client asks for all pages"
    with pytest.raises(ConflictError, match="the batch is cancelled"):
        openai.batches.cancel(batch.id)


def test_errors_of_the_file_are_those_of_the_batch(openai: OpenAI, tmp_path: Path) -> None:
    wrong = [line("a", model="x", prompt="x"), {"custom_id": "b", "method": "GET"}]
    batch = ended(openai, begun(openai, tmp_path, wrong, "/v1/completions").id)
    assert batch.status == "failed"
    assert batch.errors
    assert batch.errors.data
    (error,) = batch.errors.data
    assert (error.code, error.line, error.param) == ("invalid_method", 2, "method")


def test_refusals_are_the_packages_errors(openai: OpenAI) -> None:
    with pytest.raises(NotFoundError):
        openai.batches.retrieve("batch_none")
    with pytest.raises(APIStatusError, match='it must be "batch"'):
        openai.files.create(file=b"x", purpose="fine-tune")
    with pytest.raises(NotFoundError):
        openai.batches.create(input_file_id="x", endpoint="/v1/completions", completion_window="24h")
