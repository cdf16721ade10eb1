"""What a task locks stays as it is: by every route, in every form in which a client can write a field."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from llama_srb.request.aliases import CONVERTED
from llama_srb.request.fields import CANONICAL, OVERRIDE_ROWS
from llama_srb.tasks.tables import NOT_HERE
from tests.fake.test_models_by_name import NAMED, body_of
from tests.support.long import amount
from tests.support.served import Served, Serving
from tests.support.several import Several, engine_of
from tests.support.sockets import connected
from tests.support.waiting import PATIENCE

Json: TypeAlias = dict[str, Any]
SAID = "is set by the task shut"
NO_TOOLS = "a turn of this chat has only text"
LOCKED = sorted({name for name in CANONICAL.values() if name not in NOT_HERE})
CHAT = {"messages": [{"role": "user", "content": "hi"}]}
SCHEMA = {"type": "json_schema", "schema": {}}

DIRECT: list[Json] = [{name: 1} for name, field in CANONICAL.items() if field in LOCKED]
TEMPERATURES = (("dynatemp_low", "dynatemp_high"), ("dynatemp_min", "dynatemp_max"), ("min_temp", "max_temp"))
BY_CONVERSION: Mapping[str, Json] = {
    **{name: {low: 0, high: 1} for low, high in TEMPERATURES for name in (low, high)},
    "dynamic_temperature": {"dynamic_temperature": True, "min_temp": 0, "max_temp": 1},
    "temp_exponent": {"temp_exponent": 2},
    "banned_tokens": {"banned_tokens": ["a"]},
    "custom_token_bans": {"custom_token_bans": "5"},
    "sampler_order": {"sampler_order": [0]},
    "sampler_priority": {"sampler_priority": "top_k"},
    "post_sampling_probs": {"post_sampling_probs": True},
    "response_format": {"response_format": {"type": "json_object"}},
    "reasoning_effort": {"reasoning_effort": "none"},
    "reasoning": {"reasoning": {"max_tokens": 5, "effort": "low"}},
    "structured_outputs": {"structured_outputs": {"regex": "a"}},
    "preset": {"preset": "creative"},
}
IN_SEQUENCES: list[Json] = [{"sequences": [{name: 1}]} for name in OVERRIDE_ROWS]
FORMS = [*DIRECT, *BY_CONVERSION.values(), *IN_SEQUENCES]
OWN: list[tuple[str, Json]] = [  # path, a form that only its dialect has, or has failed there
    *(("/api/generate", {"options": form}) for form in (*DIRECT, *BY_CONVERSION.values())),
    *(("/complete", {"configuration": form}) for form in (*DIRECT, *BY_CONVERSION.values())),
    *((path, BY_CONVERSION["reasoning_effort"]) for path in ("/apply-template", "/v1/internal/chat-prompt")),
    *(("/v1/internal/logits", form) for form in (*BY_CONVERSION.values(), *IN_SEQUENCES)),
    ("/api/generate", {"format": "json"}),
    ("/api/generate", {"logprobs": True}),
    ("/api/chat", {"think": True}),
    ("/v1/responses", {"max_output_tokens": 5}),
    ("/v1/responses", {"text": {"format": SCHEMA}}),
    ("/v1/responses", {"reasoning": {"effort": "low"}}),
    ("/v1/responses", {"top_logprobs": 2}),
    ("/v1/messages", {"stop_sequences": ["a"]}),
    ("/v1/messages", {"thinking": {"type": "disabled"}}),
    ("/v1/messages", {"output_config": {"format": SCHEMA}}),
    ("/v1/messages", {"output_config": {"effort": "low"}}),
    ("/v1/fim/completions", {"random_seed": 5}),
    ("/api/v1/generate", {"memory": "a"}),
    ("/api/v1/generate", {"logprobs": True}),
]
TASK = "/v1/tasks/shut"
OF_TASKS = {  # routes that are only for tasks
    TASK + "/completions": {"prompt": "x"}, TASK + "/chat": CHAT, "/v1/trials": {"prompt": "x"},
    "/v1/trials/prompt": {"prompt": "x"},
}  # fmt: skip
NO_REQUEST = {  # handlers that make no request of the body: they know fields by their names only
    "load_lora_adapter", "unload_lora_adapter", "pull", "ask", "embeddings", "vectors", "score",
    "rerank",
}  # fmt: skip


def _free(body: Mapping[str, Any]) -> Json:
    """A body without what can be locked."""
    inner = ("options", "configuration")
    return {
        name: one for name, one in body.items() if CANONICAL.get(name) not in LOCKED and name not in inner
    }


ROUTES = {route.path: route for route in NAMED if not route.handler.__name__.endswith("lora_adapter")}
FREE = {path: _free(body_of(route)) | {"model": "shut"} for path, route in ROUTES.items()}
FREE |= {path: body | {"model": "shut"} for path, body in OF_TASKS.items()}
ACCEPTED = dict.fromkeys(FREE, FORMS) | {
    path: DIRECT
    for path, route in ROUTES.items()
    if route.handler.__name__ in NO_REQUEST or path == "/infill"
}
"""By path: the forms in which it reads fields."""
STEP = amount(8, 1)  # in the gate each form goes to an eighth of the routes


@pytest.fixture
async def shut(serving: Serving, tmp_path: Path) -> Several:
    """A server whose task locks every field that can be locked."""
    file = tmp_path / "srb.toml"
    locked = json.dumps(LOCKED)
    engine = engine_of(tmp_path, "tale")
    file.write_text(f'engine = "{engine}"\n[tasks.shut]\nn = 1\nprefix = "<u>"\nlocked = {locked}\n')
    return Several(await serving(config=str(file)), tmp_path)


def bodies() -> Iterator[tuple[str, Json]]:
    """Path and body of each request."""
    for i, (path, forms) in enumerate(ACCEPTED.items()):
        yield from ((path, FREE[path] | form) for form in forms[i % STEP :: STEP])
    yield from ((path, FREE[path] | form) for path, form in OWN)


def test_each_field_that_is_converted_is_here() -> None:
    assert BY_CONVERSION.keys() == CONVERTED.keys()


async def test_what_a_task_does_not_lock_is_free(shut: Several) -> None:
    """Also when a dialect itself sets a field that is locked, unless the answer is nothing else."""
    refused = [path for path, body in FREE.items() if SAID in str(await shut.status("POST", path, body))]
    assert refused == ["/v1/internal/logits"]


async def test_no_route_lets_a_client_set_what_a_task_locks(shut: Several) -> None:
    passed = []
    for path, body in bodies():
        status, answer = await shut.status("POST", path, body)
        if status != 400 or SAID not in str(answer):
            passed.append((path, body, status, answer))
    passed += [one async for one in by_query(shut.served)]
    passed += [one async for one in by_socket(shut.served)]
    assert passed == []
    assert [shut.ops("tale", op) for op in ("generate", "chat", "prefix", "template")] == [0] * 4


async def by_query(served: Served) -> AsyncIterator[object]:
    """What passes in the query of the one path that generates by GET."""
    for form in FORMS[::STEP]:
        query = {"prompt": "x", **{name: json.dumps(value) for name, value in form.items()}}
        async with served.http.get(served.url + TASK + "/live", params=query) as response:
            text = await response.text()
            if response.status != 400 or SAID not in text:
                yield query, response.status, text


async def by_socket(served: Served) -> AsyncIterator[object]:
    """What passes on both kinds of WebSocket."""
    for path, message in (
        ("/v1/ws", {"op": "generate", "prompt": "x", "model": "shut"}),
        (TASK + "/ws", {"op": "turn", "text": "x"}),
    ):
        async with connected(served, path) as socket:
            for i, form in enumerate(FORMS[::STEP]):
                await socket.send_json({"id": str(i), **message, **form})
                answer = await socket.receive_json(timeout=PATIENCE)
                if answer["event"] != "error" or not any(
                    said in answer["message"] for said in (SAID, NO_TOOLS)
                ):
                    yield path, form, answer
