"""A line of a batch is read, or refused with the reason; what is sent of it."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
from typing import Any

import pytest

from llama_srb.batch.lines import ENDPOINTS, LineError, parse
from llama_srb.http.routes import ROUTES
from tests.support.batches import line
from tests.support.rows import each_row

GOOD = line("a")
WRONG: list[tuple[Any, str, str | None, str]] = [
    (b"{", "invalid_json_line", None, "it is not JSON: "),
    (b"\xff\xfe", "invalid_json_line", None, "it is not JSON: "),
    (b"[]", "invalid_json_line", None, "it is []; it must be an object"),
    (b'{"a": NaN}', "invalid_json_line", None, "it is not JSON: "),
    (b"[" * 100_000, "invalid_json_line", None, "the line is nested over 300 levels deep; it must be at most 65"),
    ({"custom_id": "a"}, "missing_required_parameter", "method", "it has no method; custom_id, method, url and"),
    ({**GOOD, "custom_id": 7}, "invalid_custom_id", "custom_id", "is 7; it must be a text of 1 to 512 characters"),
    ({**GOOD, "custom_id": ""}, "invalid_custom_id", "custom_id", 'is "" of 0 characters; it must be a text of 1'),
    ({**GOOD, "custom_id": "x" * 513}, "invalid_custom_id", "custom_id", "of 513 characters; it must be a text of"),
    ({**GOOD, "method": "GET"}, "invalid_method", "method", 'method is "GET"; it must be "POST"'),
    ({**GOOD, "url": "/v1/moderations"}, "invalid_url", "url", 'is "/v1/moderations"; it must be one of /v1/chat'),
    ({**GOOD, "url": ["/v1/completions"]}, "invalid_url", "url", "it must be one of /v1/chat/completions"),
    ({**GOOD, "body": "x"}, "invalid_body", "body", 'body is "x"; it must be an object'),
]  # fmt: skip


@each_row(("given", "code", "param", "message"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_line_is_refused_with_its_number(
    given: Any, code: str, param: str | None, message: str
) -> None:
    with pytest.raises(LineError) as refused:
        parse(given if isinstance(given, bytes) else json.dumps(given).encode(), 7)
    assert (refused.value.code, refused.value.param) == (code, param)
    assert str(refused.value).startswith("line 7: ")
    assert message in refused.value.message


def test_a_batch_of_one_endpoint_refuses_others() -> None:
    with pytest.raises(LineError, match=r"it must be the batch's endpoint, /v1/embeddings") as refused:
        parse(json.dumps(GOOD).encode(), 1, "/v1/embeddings")
    assert refused.value.code == "mismatched_endpoint"


def test_the_server_has_each_endpoint() -> None:
    assert ENDPOINTS.keys() <= {route.path for route in ROUTES if route.method == "POST"}


def sent(one: dict[str, Any], model: str | None = None) -> Any:
    return json.loads(parse(json.dumps(one).encode()).content(model))


def test_a_body_is_sent_so_that_its_answer_is_one_object() -> None:
    asked = {"prompt": "x", "stream": True, "stream_options": {"include_usage": True}, "n": 3}
    assert sent(line("a", **asked)) == {"prompt": "x", "stream": False, "n": 3}
    assert sent(line("a", "/v1/embeddings", input="x")) == {"input": "x"}, "it has no field stream"


def test_a_model_is_for_bodies_that_name_none() -> None:
    assert sent(line("a", prompt="x"), "poet")["model"] == "poet"
    assert sent(line("a", prompt="x", model="gpt"), "poet")["model"] == "gpt"


@each_row(
    ("body", "count"),
    [
        ({"prompt": "x"}, 1),
        ({"prompt": "x", "n": 8}, 8),
        ({"prompt": "x", "n": 2, "best_of": 8}, 8),
        ({"prompt": ["x", "y"], "n": 8}, 16),
        ({"prompt": [1, 2, 3], "n": 2}, 2),
        ({"prompt": [[1], [2]], "n": 2}, 4),
        ({"prompt": [], "n": "many"}, 1),
        ({"prompt": None, "n": True, "best_of": -5}, 1),
    ],
)
def test_the_sequences_of_a_line_are_counted(body: dict[str, Any], count: int) -> None:
    assert parse(json.dumps(line("a", **body)).encode()).sequences == count


def test_the_beginning_of_a_chat_is_what_its_prompt_begins_with() -> None:
    def beginning(**body: Any) -> bytes:
        return parse(json.dumps(line("a", "/v1/chat/completions", **body)).encode()).beginning()

    system = {"role": "system", "content": "You are a cat."}
    one, other = ([system, {"role": "user", "content": text}] for text in ("Hi", "Bye"))
    same = len(json.dumps(system))
    assert beginning(messages=one, n=2)[:same] == beginning(n=3, messages=other)[:same]
    assert beginning(messages=one, model="a")[:30] != beginning(messages=one, model="b")[:30]
