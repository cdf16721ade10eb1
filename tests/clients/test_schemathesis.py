"""schemathesis calls every operation of /openapi.json with what it thinks up: no 500, nothing undescribed.

Examples are few and always the same; generations are kept short by the engine's small context.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from tests.serving import Server, serving

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
UNKNOWN = "/v1/ws"  # answers with another protocol


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving("--ctx", "512", "--n", "2", "--max-n", "4", "--parallel", "4") as server:
        yield server


@pytest.fixture
def described(server: Server) -> Any:
    return schemathesis.openapi.from_url(server.url + "/openapi.json")


schema = schemathesis.pytest.from_fixture("described").exclude(path=UNKNOWN)


@schema.parametrize()
@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_operation_fails_or_answers_what_is_not_described(case: Any) -> None:
    case.call_and_validate(checks=CHECKS, timeout=20)
