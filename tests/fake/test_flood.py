"""A flood of events arrives completely and in order, and benchmarks/server.py would notice if not."""

from __future__ import annotations

import pytest

from benchmarks.server import Case, ask, check, read_all, serving

MAX_TOKENS = 300
CASES = [Case(dialect, n=8, requests=2) for dialect in ("events", "openai")]


@pytest.fixture(scope="module", params=CASES, ids=lambda case: case.dialect)
def flood(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, bytes]:
    """A case, and one of the answers to its simultaneous requests."""
    case = request.param
    with serving("--engine", case.engine(tmp_path_factory.mktemp("flood"))) as server:
        first, second = read_all([ask(server, case.body(MAX_TOKENS)) for _ in range(case.requests)])
    check(case, MAX_TOKENS, second)
    return case, first


def test_a_flood_of_events_arrives_completely_and_in_order(flood: tuple[Case, bytes]) -> None:
    case, answer = flood
    check(case, MAX_TOKENS, answer)


def test_an_event_in_the_wrong_place_is_noticed(flood: tuple[Case, bytes]) -> None:
    case, answer = flood
    colon = b": " if case.dialect == "events" else b":"
    astray = answer.replace(b'"index"' + colon + b"1", b'"index"' + colon + b"2", 1)
    assert astray != answer
    with pytest.raises(SystemExit, match="sequence 1 is not what the engine wrote"):
        check(case, MAX_TOKENS, astray)


def test_a_missing_event_is_noticed(flood: tuple[Case, bytes]) -> None:
    case, answer = flood
    with pytest.raises(SystemExit, match="300 events"):
        check(case, MAX_TOKENS + 1, answer)
