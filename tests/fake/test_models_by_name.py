"""Routing by `model`: every route with a body, each dialect's errors, keys with models, requests by id."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jwt
import pytest
from prometheus_client.parser import text_string_to_metric_families

from llama_srb.http.routes import ROUTES, Route
from tests.fake.test_scopes import BODIES, BODY, CHAT
from tests.support.models import write_adapter
from tests.support.served import SECRET, Serving, bearer, key_file
from tests.support.several import Several, serve
from tests.support.sockets import connected, event, until

LOADS = (  # have their own tests
    "load_model", "unload_model", "router_load", "router_unload", "tabby_load", "webui_load",
    "unload_loaded", "switch_overrides", "unload_overrides", "no_templates",
)  # fmt: skip
NO_MODEL = {  # handlers of bodies that name no model: they act on requests, or on the server
    "drain", "extend", "cancel", "kobold_check", "kobold_abort", "kobold_logprobs", "stop_generation",
    "abort",
    "create_file", "create_batch", "cancel_batch",
    "task_completions", "task_chat", "trial", "trial_prompt", "search_memory", *LOADS,
}  # fmt: skip
GENERATES_NOTHING = {"/api/show", "/api/pull", "/v1/lora/unload"}
NO_ADAPTER = {"embeddings", "vectors", "rerank"}
NAMED = [route for route in ROUTES if route.method == "POST" and route.handler.__name__ not in NO_MODEL]
OF_A_CHAT = {
    "/v1/messages", "/v1/messages/count_tokens", "/chat/completions/input_tokens",
    "/v1/chat/completions/input_tokens",
}  # fmt: skip
OPS = ("generate", "chat", "score", "embed", "rerank", "prefix", "tokenize", "detokenize", "template")
REFUSED = {"/v1/load_lora_adapter": 403, "/v1/unload_lora_adapter": 404,
           "/v1/lora/load": 403}  # fmt: skip # no folder, no such adapter
NO_INFILL = {"/infill"}  # the fake engine's model has no infill tokens


def table_of(folder: Path) -> dict[str, dict[str, Any]]:
    write_adapter(folder / "pirate.gguf", "llama", 0)
    adapters = {"pirate": str(folder / "pirate.gguf")}
    return {"tale": {"aliases": ["gpt"], "adapters": adapters}, "poem": {"sampling": {"temperature": 0.5}}}


@pytest.fixture
async def several(serving: Serving, tmp_path: Path) -> Several:
    keys = key_file(
        tmp_path / "keys",
        {"name": "all", "scopes": ["admin"]},
        {"name": "poet", "scopes": ["admin"], "models": ["poem"]},
    )
    return await serve(serving, tmp_path, table_of(tmp_path), api_key_file=str(keys))


def body_of(route: Route, **more: Any) -> dict[str, Any]:
    known = CHAT if route.path in OF_A_CHAT else BODIES.get(route.path, BODY)
    body = {"stream": False, **known, **more}
    return {name: value for name, value in body.items() if value is not None}


def commands(several: Several, model: str) -> list[dict[str, Any]]:
    return [note for note in several.noted(model) if note["what"] in OPS]


NAMES: list[tuple[str | None, str, str]] = [  # asked, the model that answers, its name in answers
    (None, "tale", "tale"),
    ("", "tale", "tale"),
    ("tale", "tale", "tale"),
    ("gpt", "tale", "gpt"),
    ("pirate", "tale", "pirate"),
    ("poem", "poem", "poem"),
]


@pytest.mark.parametrize(("asked", "own", "answered"), NAMES)
async def test_on_every_route_a_name_finds_its_model(
    several: Several, asked: str | None, own: str, answered: str
) -> None:
    other, wrong = {"tale": "poem", "poem": "tale"}[own], []
    for route in NAMED:
        before = len(commands(several, own)), len(commands(several, other))
        status, answer = await several.status(
            "POST", route.path, body_of(route, model=asked), **bearer("all")
        )
        told = commands(several, own)[before[0] :]
        expected = expected_of(route, asked)
        asks_engine = expected == 200 and route.path not in GENERATES_NOTHING
        if status != expected or bool(told) != asks_engine or len(commands(several, other)) != before[1]:
            wrong.append((route.path, status, answer, told))
        if asks_engine and asked == "pirate" and not _has_adapter(told):
            wrong.append((route.path, "without the adapter", told))
        named = answer.get("model", answered) if isinstance(answer, dict) else answered
        if status == 200 and named != answered and route.dialect != "llamacpp":
            wrong.append((route.path, named))
    assert wrong == []


def expected_of(route: Route, asked: str | None) -> int:
    """The status of a known name."""
    if asked == "pirate" and route.handler.__name__ in NO_ADAPTER:
        return 400
    if route.path == "/api/pull" and not asked:
        return 400
    return 501 if route.path in NO_INFILL else REFUSED.get(route.path, 200)


def _has_adapter(told: list[dict[str, Any]]) -> bool:
    """Whether all commands that may have adapters have this one; a tokenizer needs none."""
    may = [note for note in told if note["what"] in ("generate", "chat", "score", "prefix")]
    return all(note.get("lora") == [{"id": 0, "scale": 1.0}] for note in may)


NOT_FOUND: Mapping[str, str] = {"ollama": "model 'poet' not found; did you mean poem?"}
UNKNOWN = "there is no model poet here; did you mean poem?"
MAY = "this key may use the models poem, not tale"


def told(dialect: str, status: int, message: str, code: str) -> Any:
    """The error in a dialect's form, as its clients read it."""
    kinds = {404: "not_found_error", 403: "permission_error"}
    match dialect:
        case "ollama":
            return {"error": message}
        case "koboldai":
            return {"detail": {"msg": message, "type": "bad_input"}}
        case "anthropic":
            return {"type": "error", "error": {"type": kinds[status], "message": message}}
        case "llamacpp":
            return {"error": {"code": status, "message": message, "type": kinds[status]}}
    return {
        "error": {"message": message, "type": "invalid_request_error", "param": "model", "code": code},
    }


async def test_on_every_route_an_unknown_name_is_404_in_its_dialect_s_form(several: Several) -> None:
    wrong = []
    for route in NAMED:
        found = await several.status("POST", route.path, body_of(route, model="poet"), **bearer("all"))
        if found != (404, told(route.dialect, 404, NOT_FOUND.get(route.dialect, UNKNOWN), "model_not_found")):
            wrong.append((route.path, found))
        asked = await several.status("POST", route.path + "?model=poet", body_of(route), **bearer("all"))
        if asked != found and "model" not in body_of(route):
            wrong.append((route.path, "?model=", asked))
    assert wrong == []
    assert commands(several, "tale") + commands(several, "poem") == []


async def test_on_every_route_a_key_is_refused_another_model(several: Several) -> None:
    wrong = []
    for route in NAMED:
        found = await several.status("POST", route.path, body_of(route, model="tale"), **bearer("poet"))
        if found != (403, told(route.dialect, 403, MAY, "model_not_allowed")):
            wrong.append((route.path, found))
        body = {name: value for name, value in body_of(route).items() if name != "model"}
        status, answer = await several.status("POST", route.path, body, **bearer("poet"))
        if status in (403, 404) and route.path not in REFUSED:
            wrong.append((route.path, "without a name", answer))
    assert wrong == []
    assert commands(several, "tale") == []
    assert commands(several, "poem") != []


LISTS: Mapping[str, Any] = {  # path: the names in its answer
    "/v1/models": lambda answer: [one["id"] for one in answer["data"]],
    "/models": lambda answer: [one["id"] for one in answer["data"]],
    "/v1/model/list": lambda answer: [one["id"] for one in answer["data"]],
    "/v1/internal/model/list": lambda answer: answer["model_names"],
    "/api/tags": lambda answer: [one["name"].removesuffix(":latest") for one in answer["models"]],
}


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_has_all_models_and_adapters_that_the_key_may_use(several: Several, path: str) -> None:
    assert LISTS[path](await several.get(path, **bearer("all"))) == ["tale", "pirate", "poem"]
    assert LISTS[path](await several.get(path, **bearer("poet"))) == ["poem"]


async def test_a_model_is_described_with_its_state_and_parent(several: Several) -> None:
    model = await several.get("/v1/models/gpt", **bearer("all"))
    assert (model["id"], model["aliases"], model["status"]) == ("tale", ["gpt"], {"value": "unloaded"})
    assert (model["meta"]["n_ctx"], model["meta"]["context"]) == (None, 1024)
    assert model["size_bytes"] == model["meta"]["size_bytes"] > 1e6
    adapter = await several.get("/v1/models/pirate", **bearer("all"))
    assert (adapter["id"], adapter["parent"], adapter["aliases"]) == ("pirate", "tale", [])
    assert (await several.status("GET", "/v1/models/other", **bearer("all")))[0] == 404
    assert (await several.status("GET", "/v1/models/tale", **bearer("poet")))[0] == 403
    assert (await several.get("/api/ps", **bearer("all"))) == {"models": []}
    await several.served.post({"prompt": "x", "max_tokens": 1, "model": "tale"}, **bearer("all"))
    assert (await several.get("/v1/models/tale", **bearer("all")))["status"] == {"value": "loaded"}
    loaded = await several.get("/api/ps", **bearer("all"))
    assert [one["name"] for one in loaded["models"]] == ["tale:latest"]
    assert (await several.get("/api/ps", **bearer("poet"))) == {"models": []}


ASKING: Mapping[str, Any] = {  # paths without a body: what is the model's in the answer
    "/props": lambda answer: answer["model_alias"],
    "/api/v1/model": lambda answer: answer["result"].removeprefix("koboldcpp/"),
    "/v1/internal/model/info": lambda answer: answer["model_name"],
    "/v1/model": lambda answer: answer["id"],
}


@pytest.mark.parametrize("path", ASKING)
async def test_a_path_without_a_body_speaks_of_the_model_in_its_query(several: Several, path: str) -> None:
    for query, name in (("", "tale"), ("?model=", "tale"), ("?model=gpt", "tale"), ("?model=poem", "poem")):
        assert ASKING[path](await several.get(path + query, **bearer("all"))) == name
    assert ASKING[path](await several.get(path, **bearer("poet"))) == "poem"
    assert (await several.status("GET", path + "?model=poet", **bearer("all")))[0] == 404
    assert (await several.status("GET", path + "?model=tale", **bearer("poet")))[0] == 403


async def test_a_model_has_its_own_defaults(several: Several) -> None:
    for model, temperature in (("tale", 0.8), ("poem", 0.5)):
        props = await several.get(f"/props?model={model}", **bearer("all"))
        assert props["default_generation_settings"]["params"]["temperature"] == temperature
        await several.served.post({"prompt": "x", "max_tokens": 1, "model": model}, **bearer("all"))
    assert commands(several, "poem")[-1]["sampling"] == {"temperature": 0.5}


async def test_default_model_answers_for_unknown_names_with_a_warning(
    serving: Serving, tmp_path: Path
) -> None:
    several = await serve(serving, tmp_path, table_of(tmp_path), default_model="poem")
    warning = "model is 'gpt-4', which is not here; poem answers (--default-model)"
    unwarned = {"/tokenize"}  # answers of engine commands have no warnings
    for path in ("/v1/completions", "/v1/chat/completions", "/v1/messages", "/api/generate", "/completion",
                 "/v1/score", "/v1/embeddings", "/api/embed", "/api/v1/generate", "/tokenize"):  # fmt: skip
        route = next(one for one in NAMED if one.path == path)
        status, answer = await several.status("POST", path, body_of(route, model="gpt-4"))
        assert (status, answer.get("warnings", [None])[0]) == (200, None if path in unwarned else warning), (
            path
        )
        assert answer.get("model", "poem") in ("poem",)
    assert commands(several, "tale") == []


async def test_ollamas_names_may_have_a_tag(several: Several) -> None:
    for name, status in (("tale:latest", 200), ("gpt:7b", 200), ("poet:latest", 404)):
        body = {"model": name, "prompt": "x", "stream": False, "options": {"num_predict": 1}}
        found, answer = await several.status("POST", "/api/generate", body, **bearer("all"))
        assert (found, answer.get("model", name)) == (status, name)
    assert (await several.status("POST", "/api/show", {"name": "poem:latest"}, **bearer("all")))[0] == 200


async def test_a_wrong_type_is_named(several: Several) -> None:
    _, answer = await several.status("POST", "/completion", {"prompt": "x", "model": 7}, **bearer("all"))
    assert answer["error"]["message"] == "model is 7; it must be a text"


async def test_an_adapters_name_is_added_to_the_adapters_of_the_body(
    serving: Serving, tmp_path: Path
) -> None:
    table = table_of(tmp_path)
    table["tale"]["adapters"]["second"] = str(tmp_path / "pirate.gguf")
    several = await serve(serving, tmp_path, table)
    for given, sent in (
        ([{"id": 1, "scale": 0.5}], [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 0.5}]),
        ([{"id": 0, "scale": 0.25}], [{"id": 0, "scale": 0.25}]),
        ([], [{"id": 0, "scale": 1.0}]),
    ):
        body = {"prompt": "x", "max_tokens": 1, "model": "pirate", "lora": given}
        assert (await several.served.post(body))[0] == 200
        assert commands(several, "tale")[-1]["lora"] == sent
    status, data = await several.served.post(
        {"prompt": "x", "model": "pirate", "lora": "all", "stream": False}
    )
    assert (status, json.loads(data)["error"]["param"]) == (400, "lora")


async def test_a_request_of_another_model_is_not_continued(several: Several) -> None:
    body = {"prompt": "x", "n": 1, "max_tokens": 1}
    _, data = await several.served.post(body | {"model": "tale"}, "/v1/events", **bearer("all"))
    id = json.loads(data.split(b"\n", 1)[0].removeprefix(b"data: "))["id"]
    named = {"continue": {"id": id, "index": 0}, "n": 1, "max_tokens": 1}
    for path in ("/v1/events", "/completion", "/v1/completions"):
        right = await several.served.post({**named, "model": "tale"}, path, **bearer("all"))
        assert right[0] == 200
        status, answer = await several.status("POST", path, {**named, "model": "poem"}, **bearer("all"))
        assert status == 400
        assert f"continue.id is {id}, a request of the model tale; this one is for poem" in str(answer)


@pytest.fixture
async def endless(serving: Serving, tmp_path: Path) -> Several:
    flags = ["--endless", "--token-delay", "0.01"]
    keys = key_file(
        tmp_path / "keys", {"name": "all", "scopes": ["admin"]}, {"name": "poet", "models": ["poem"]}
    )
    return await serve(
        serving, tmp_path, {"tale": {"flags": flags}, "poem": {"flags": flags}}, api_key_file=str(keys)
    )


async def test_requests_of_all_models_are_extended_and_ended_by_id(endless: Several) -> None:
    http, url = endless.served.http, endless.served.url
    for model in ("poem", "tale"):
        body = {"prompt": "x", "n": 1, "max_tokens": -1, "model": model}
        async with http.post(url + "/v1/events", json=body, headers=bearer("all")) as stream:
            while b'"event": "start"' not in (line := await stream.content.readline()):
                pass
            id = json.loads(line.removeprefix(b"data: "))["id"]
            path = f"/v1/completions/{id}"
            status, answer = await endless.status("POST", path + "/extend", {"add": 1}, **bearer("all"))
            assert (status, answer) == (200, {"id": id, "first": 1, "count": 2})
            found = await endless.status("POST", path + "/extend", {"add": 1}, **bearer("poet"))
            assert found[0] == (200 if model == "poem" else 403)
            assert await endless.status("DELETE", path, **bearer("all")) == (
                200,
                {"id": id, "cancelled": True},
            )
            await stream.read()
    assert (await endless.status("DELETE", path, **bearer("all")))[0] == 404


async def test_kobolds_clients_end_generations_of_every_model(endless: Several) -> None:
    http, url = endless.served.http, endless.served.url
    body = {"prompt": "x", "max_length": 10**6, "genkey": "K", "model": "poem"}
    async with http.post(url + "/api/extra/generate/stream", json=body, headers=bearer("all")) as stream:
        await stream.content.readany()
        _, answer = await endless.status("POST", "/api/extra/abort", {"genkey": "K"}, **bearer("all"))
        assert answer["success"] == "true"
        await stream.read()


async def test_each_message_of_a_websocket_names_its_model(serving: Serving, tmp_path: Path) -> None:
    several = await serve(serving, tmp_path, table_of(tmp_path))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    chat = {"messages": [{"role": "user", "content": "x"}], "tools": tools}
    async with connected(several.served) as socket:
        for id, fields in (
            ("a", {"prompt": "x", "model": "poem"}),
            ("b", {"prompt": "x", "model": "pirate"}),
            ("c", {"model": "gpt", **chat}),
        ):
            await socket.send_json({"op": "generate", "id": id, "n": 1, "max_tokens": 1, **fields})
            told = await until(socket, event("done", id=id))
            assert not [message for message in told if message["event"] == "error"]
        await socket.send_json({"op": "generate", "id": "d", "prompt": "x", "model": "poet"})
        error = (await until(socket, event("error")))[-1]
        assert (error["code"], error["id"], error["param"]) == ("model_not_found", "d", "model")
        named = {"continue": {"id": "a", "index": 0}, "model": "tale"}
        await socket.send_json({"op": "generate", "id": "e", **named})
        assert "a request of the model poem" in (await until(socket, event("error")))[-1]["message"]
    assert [note["what"] for note in commands(several, "poem")] == ["generate"]
    tale = [note["what"] for note in commands(several, "tale")]
    assert tale == ["generate", "template", "chat"]


async def test_a_request_with_tools_is_cancelled_while_its_model_loads(
    serving: Serving, tmp_path: Path
) -> None:
    """The socket reads on while the model is asked whether it knows tools."""
    several = await serve(serving, tmp_path, {"slow": {"flags": ["--load-seconds", "2"]}, "poem": {}})
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    chat = {"messages": [{"role": "user", "content": "x"}], "tools": tools, "max_tokens": 5, "n": 1}
    async with connected(several.served) as socket:
        await socket.send_json({"op": "generate", "id": "a", "model": "slow", **chat})
        await socket.send_json({"op": "extend", "id": "a", "add": 1})
        told = await until(socket, event("error", id="a"))
        assert "has not begun" in told[-1]["message"]
        await socket.send_json({"op": "cancel", "id": "a"})
        await socket.send_json({"op": "generate", "id": "b", "model": "poem", "prompt": "x", "max_tokens": 1})
        told = await until(socket, event("done", id="b"))
        assert not [message for message in told if message.get("id") == "a"], "it waits for its model"
        told = await until(socket, event("done", id="a"))
        assert {one["finish_reason"] for one in told if one["event"] == "stop"} == {"cancelled"}
    assert [note["what"] for note in commands(several, "slow")] == ["template"]


async def test_a_jwt_may_have_models(serving: Serving, tmp_path: Path) -> None:
    several = await serve(serving, tmp_path, table_of(tmp_path), jwt_secret=SECRET)
    claims = {"sub": "ann", "exp": time.time() + 60, "scope": "complete", "models": ["poem"]}
    key = bearer(jwt.encode(claims, SECRET, "HS256"))
    assert (await several.served.post({"prompt": "x", "max_tokens": 1}, **key))[0] == 200
    assert (await several.served.post({"prompt": "x", "model": "gpt"}, **key))[0] == 403
    wrong = bearer(jwt.encode({**claims, "models": "poem"}, SECRET, "HS256"))
    assert (await several.served.post({"prompt": "x"}, **wrong))[0] == 401


async def test_a_key_with_models_is_checked_on_a_server_of_one_model(
    serving: Serving, tmp_path: Path
) -> None:
    keys = key_file(
        tmp_path / "keys", {"name": "a", "models": ["other"]}, {"name": "b", "models": ["storyteller"]}
    )
    served = await serving(api_key_file=str(keys))
    for key, status in (("a", 403), ("b", 200)):
        for model in ({}, {"model": "gpt-4"}, {"model": "storyteller"}):
            found, _ = await served.post({"prompt": "x", "max_tokens": 1, **model}, **bearer(key))
            assert found == status


# Health, metrics, start


async def test_metrics_and_stats_are_by_model(several: Several) -> None:
    for model, n in (("tale", 1), ("poem", 2), ("gpt", 1)):
        body = {"prompt": "one two", "max_tokens": 3, "n": n, "model": model, "stream": False}
        await several.served.post(body, **bearer("all"))
    stats = await several.get("/v1/stats", **bearer("all"))
    counts = {name: one["completion_tokens"] for name, one in stats["models"].items()}
    assert counts == {"tale": 6, "poem": 6}
    assert stats["completion_tokens"] == 12
    assert {one["engine_starts"] for one in stats["models"].values()} == {1}

    async def sample(query: str = "") -> dict[str, Any]:
        async with several.served.http.get(
            several.served.url + "/metrics" + query, headers=bearer("all")
        ) as response:
            text = await response.text()
        return {family.name: family.samples for family in text_string_to_metric_families(text)}

    found = await sample()
    for name in (
        "completion_tokens",
        "engine_starts",
        "engine_memory_bytes",
        "engine_ready",
        "engine_cells_used",
    ):
        samples = {one.labels["model"] for one in found[f"llama_srb_{name}"]}
        assert samples == {"tale", "poem"}, name
    assert found["llamacpp:tokens_predicted"][0].value == 12
    assert (await sample("?model=gpt"))["llamacpp:tokens_predicted"][0].value == 6
    assert (await several.status("GET", "/metrics?model=poet", **bearer("all")))[0] == 404


async def test_with_one_model_no_metric_has_a_label_of_it(serving: Serving) -> None:
    served = await serving()
    await served.post({"prompt": "x", "max_tokens": 1})
    async with served.http.get(served.url + "/metrics") as response:
        text = await response.text()
    assert 'model="' not in text
    assert "llama_srb_completion_tokens_total " in text
    async with served.http.get(served.url + "/v1/stats") as response:
        assert "models" not in json.loads(await response.read())


async def test_health_is_200_while_a_model_can_be_loaded(serving: Serving, tmp_path: Path) -> None:
    models = {"bad": {"preload": True, "flags": ["--exit-while-loading", "3"]}, "poem": {}}
    several = await serve(serving, tmp_path, models)
    status, answer = await several.status("GET", "/health")
    assert (status, answer["status"], list(answer["failed"])) == (200, "ok", ["bad"])
    listed = (await several.get("/v1/models"))["data"]
    assert [one["status"]["value"] for one in listed] == ["failed", "unloaded"]
    status, answer = await several.status(
        "POST", "/v1/completions", {"prompt": "x", "model": "bad", "stream": False}
    )
    assert status == 503
    assert (await several.served.post({"prompt": "x", "max_tokens": 1, "model": "poem"}))[0] == 200


async def test_health_is_503_when_all_models_have_failed(serving: Serving, tmp_path: Path) -> None:
    bad = {"preload": True, "flags": ["--exit-while-loading", "3"]}
    several = await serve(serving, tmp_path, {"a": bad, "b": bad})
    for path in ("/health", "/health/ready"):
        status, answer = await several.status("GET", path)
        assert (status, answer["status"], sorted(answer["failed"])) == (503, "failed", ["a", "b"])
    assert (await several.status("GET", "/health/live"))[0] == 200


async def test_preloaded_models_are_loaded_before_the_server_is_ready(
    serving: Serving, tmp_path: Path
) -> None:
    several = await serve(serving, tmp_path, {"a": {"preload": True}, "b": {}, "c": {"preload": True}})
    states = {one["id"]: one["status"]["value"] for one in (await several.get("/v1/models"))["data"]}
    assert states == {"a": "loaded", "b": "unloaded", "c": "loaded"}


async def test_a_prompt_with_a_suffix_loads_its_model_first(several: Several) -> None:
    """Whether a model has infill tokens is known only then."""
    body = {"prompt": "a", "suffix": "b", "max_tokens": 1, "stream": False, "model": "poem"}
    status, data = await several.served.post(body, "/openai/v1/completions", **bearer("all"))
    assert status == 200
    assert json.loads(data)["warnings"] == ["suffix is not used: the model has no infill tokens"]
    assert [note["what"] for note in commands(several, "poem")] == ["tokenize", "generate"]


async def test_queued_requests_of_all_models_are_counted_together(serving: Serving, tmp_path: Path) -> None:
    slow = {"flags": ["--load-seconds", "30"]}
    several = await serve(serving, tmp_path, {"a": slow, "b": slow}, max_queue=2)
    waiting = [
        asyncio.create_task(several.served.post({"prompt": "x", "model": model})) for model in ("a", "b")
    ]
    while (await several.get("/v1/stats"))["requests_open"] < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    status, answer = await several.status("POST", "/v1/completions", {"prompt": "x", "stream": False})
    assert (status, answer["error"]["code"]) == (503, "queue_full")
    for one in waiting:
        one.cancel()
    await asyncio.wait(waiting)
