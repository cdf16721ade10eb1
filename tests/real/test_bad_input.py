"""Every bad input, with the real engine and the fake one, gets its answer and disturbs no stream."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.bad_input import CASES, Case
from tests.support.places import FAKE_ENGINE
from tests.support.serving import Server, serving

STORY: dict[str, Any] = {
    "prompt": "Once upon a time,",
    "n": 4,
    "max_tokens": 150,
    "seed": 7,
    "ignore_eos": True,
}


@pytest.fixture(scope="module", params=["real", "fake"])
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(*(["--engine", _fake(tmp_path_factory)] if request.param == "fake" else [])) as server:
        yield server


def _fake(folders: pytest.TempPathFactory) -> str:
    program = folders.mktemp("engine") / "engine"
    Path(program).write_text(f'#!/bin/sh\nexec {" ".join(FAKE_ENGINE)} "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> list[Case]:
    fake = request.node.callspec.params["server"] == "fake"
    return [case for case in CASES if not (fake and case.code)]  # they depend on the real engine's model


def refusal(server: Server, case: Case) -> tuple[int, Any]:
    status, headers, data = server.call(case.method, case.path, case.data)
    assert headers.get_content_type() == "application/json", case.what
    return status, json.loads(data)


def expected(case: Case) -> tuple[int, Any]:
    error: dict[str, Any] = {"message": case.message, "param": case.param, "code": case.code}
    kind, sizes = "invalid_request_error", {}
    if case.size is not None:
        kind, sizes = (
            "exceed_context_size_error",
            dict(zip(("n_prompt_tokens", "n_ctx"), case.size, strict=True)),
        )
    return case.status, {"error": error | {"type": kind} | sizes}


def lengths(events: list[dict[str, Any]]) -> dict[int, int]:
    return {event["index"]: event["length"] for event in events if event["event"] == "stop"}


def test_every_bad_input_gets_its_answer_while_others_stream_undisturbed(
    server: Server, cases: list[Case]
) -> None:
    with ThreadPoolExecutor(1) as executor:
        story = executor.submit(server.events, STORY)
        answers = {case.what: refusal(server, case) for case in cases}
    assert answers == {case.what: expected(case) for case in cases}
    assert story.result()[-1]["event"] == "done"
    assert lengths(story.result()) == dict.fromkeys(range(STORY["n"]), STORY["max_tokens"])


def test_the_table_names_each_case_once() -> None:
    assert len({case.what for case in CASES}) == len(CASES)
    assert sys.getrecursionlimit() < 20_000, "what is 20,000 levels deep is deep for Python"
