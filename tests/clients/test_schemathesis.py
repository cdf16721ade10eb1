"""schemathesis calls every operation of /openapi.json with generated input: no 500, no undescribed answer.

The examples are few and always the same; the engine's small context keeps generations short.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from llama_srb.http.openapi import document
from llama_srb.http.routes import ROUTES
from llama_srb.request.parse import Defaults
from tests.support.long import amount
from tests.support.rows import each_row
from tests.support.serving import Server, serving
from tests.support.waiting import PATIENCE


def no_500(ctx: Any, response: Any, case: Any) -> None:
    """501 and 503 are allowed. 500 is described for every route, but must never be answered."""
    assert response.status_code != 500, response.text


CHECKS = [no_500, status_code_conformance, content_type_conformance]
ELSEWHERE = ["/v1/ws", "/models/sse"]  # a WebSocket, and a stream without an end
FEW = settings(
    max_examples=amount(4, 25), derandomize=True, deadline=None, database=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
DOCUMENT = json.loads(json.dumps(document(ROUTES, Defaults(n=2, max_n=4), "1")))


def operations() -> list[Any]:
    described = schemathesis.openapi.from_dict(DOCUMENT).exclude(path=ELSEWHERE)
    return [found.ok() for found in described.get_all_operations()]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--ctx", "512", "--n", "2", "--max-n", "4", "--parallel", "4") as server:
        yield server


@each_row("operation", operations, ids=lambda operation: operation.label)
def test_no_operation_fails_or_has_an_undescribed_answer(server: Server, operation: Any) -> None:
    right, wrong = (operation.as_strategy(generation_mode=mode) for mode in GenerationMode)

    @FEW
    @given(case=st.one_of(right, wrong))
    def call(case: Any) -> None:
        case.call_and_validate(base_url=server.url, checks=CHECKS, timeout=PATIENCE)

    call()
