"""Loads as other servers' clients see them: the router's events, Ollama's keep_alive."""

from __future__ import annotations

import math
from typing import Any

import pytest

from llama_srb.dialects.llamacpp import Seen, changes
from llama_srb.dialects.ollama import only_loads, stay_asked, stay_of
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

RELOAD = {"model": "*", "event": "models_reload"}


def status(**data: Any) -> dict[str, Any]:
    return {"model": "a", "event": "model_status", "data": data}


def progress(value: float) -> dict[str, Any]:
    stage = {"stages": ["text_model"], "current": "text_model", "value": value}
    return status(status="loading", progress=stage)


IDLE, LOADS, LOADED = Seen("unloaded"), Seen("loading"), Seen("loaded")
EVENTS: list[tuple[Seen | None, Seen | None, list[dict[str, Any]]]] = [  # before, now; None: it is not here
    (IDLE, IDLE, []),
    (IDLE, LOADS, [status(status="loading")]),
    (LOADS, LOADS, []),
    (LOADS, Seen("loading", 0.5), [progress(0.5)]),
    (IDLE, Seen("loading", 0.5), [progress(0.5)]),
    (Seen("loading", 0.5), Seen("loading", 0.5), []),
    (Seen("loading", 0.5), LOADED, [status(status="loaded")]),
    (LOADED, IDLE, [status(status="unloaded", exit_code=0)]),
    (LOADS, Seen("failed", error="no"), [status(status="unloaded", exit_code=1, error="no")]),
    (Seen("failed", error="no"), Seen("failed", error="no"), []),
    (LOADED, None, [{"model": "a", "event": "model_remove"}, RELOAD]),
    (None, IDLE, [RELOAD]),
    (None, LOADED, [RELOAD, status(status="loaded")]),
]


@each_row(("before", "now", "events"), EVENTS)
def test_events_are_the_differences_between_two_moments(
    before: Seen | None, now: Seen | None, events: list[dict[str, Any]]
) -> None:
    one, other = ({"a": seen} if seen else {} for seen in (before, now))
    assert list(changes({**one, "b": LOADED}, {**other, "b": LOADED})) == events


DURATIONS: list[tuple[object, float | None]] = [
    (None, None), (0, 0), (1.5, 1.5), (-1, math.inf), ("0", 0), ("-0", 0), ("90", 90), ("-1", math.inf),
    ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), ("+.5s", 0.5), ("250ms", 0.25), ("1m0.5s", 60.5),
    ("3us", 3e-6), ("3µs", 3e-6), ("-1ns", math.inf), ("2h", 7200),
]  # fmt: skip


@each_row(("value", "seconds"), DURATIONS)
def test_keep_alive_is_seconds_or_a_duration(value: object, seconds: float | None) -> None:
    asked = stay_asked({"keep_alive": value})
    assert asked == (None if seconds is None else pytest.approx(seconds))


@each_row(
    "value", ["", " ", "m", "1x", "1m 2s", "1 m", "--1", "1e9", "٣s", "1" * 200, True, [], {}, math.nan]
)
def test_another_keep_alive_is_refused(value: object) -> None:
    with pytest.raises(RequestError, match=r"keep_alive is .*; it must be seconds, or a duration"):
        stay_asked({"keep_alive": value})


@each_row(
    ("asked", "unload_after", "is_admin", "stay", "warning"),
    [
        (None, 60, False, None, ""),
        (None, 60, True, None, ""),
        (0.0, 60, True, 0.0, ""),
        (math.inf, 60, True, math.inf, ""),
        (90.0, 60, True, 90.0, ""),
        (0.0, None, False, None, "keep_alive is not used"),
        (math.inf, None, False, None, "keep_alive is not used"),
        (60.0, 60, False, 60.0, ""),
        (90.0, 60, False, 60.0, "keep_alive is 90 s; the model leaves after 60 s"),
        (90.0, None, False, 90.0, ""),
    ],
)
def test_without_admin_a_model_stays_at_most_as_long_as_the_operator_says(
    asked: float | None, unload_after: float | None, is_admin: bool, stay: float | None, warning: str
) -> None:
    found, told = stay_of(asked, unload_after, is_admin=is_admin)
    assert (found, (told or "")[: len(warning)], told is None) == (stay, warning, not warning)


@each_row(
    ("path", "body", "only"),
    [
        ("/api/generate", {}, True),
        ("/api/generate", {"prompt": "", "suffix": None}, True),
        ("/api/generate", {"prompt": "x"}, False),
        ("/api/generate", {"suffix": "x"}, False),
        ("/api/generate", {"prompt": 0}, False),
        ("/api/chat", {"messages": []}, True),
        ("/api/chat", {}, False),
        ("/api/chat", {"messages": [{}]}, False),
        ("/api/embed", {"input": ""}, False),
    ],
)
def test_a_request_without_a_prompt_only_loads(path: str, body: dict[str, Any], only: bool) -> None:
    assert only_loads(path, body) == only
