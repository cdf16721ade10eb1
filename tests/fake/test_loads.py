"""Loads and unloads of models by our own paths and those of other servers, and Ollama's keep_alive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import write_adapter
from tests.support.processes import children
from tests.support.rows import each_row
from tests.support.served import Serving, bearer, frames, key_file
from tests.support.several import Several, serve
from tests.support.waiting import soon, until

SLASHED = "org/tiny:Q8_0"
ALL, USER = bearer("all"), bearer("user")
ENDLESS = {"prompt": "Once", "n": 1, "max_tokens": -1}
SLOW = ["--load-seconds", "0.3"]


@pytest.fixture
async def several(serving: Serving, tmp_path: Path) -> Several:
    """Keys: all (admin), poet (admin of one model), user (no admin)."""
    keys = key_file(
        tmp_path / "keys",
        {"name": "all", "scopes": ["admin"]},
        {"name": "poet", "scopes": ["admin"], "models": ["poem"]},
        {"name": "user", "scopes": ["complete", "chat", "embed"]},
    )
    return await serve(serving, tmp_path, tables_of(tmp_path), api_key_file=str(keys))


@pytest.fixture
async def open_to_all(serving: Serving, tmp_path: Path) -> Several:
    """A server without keys."""
    return await serve(serving, tmp_path, tables_of(tmp_path))


def tables_of(folder: Path) -> dict[str, dict[str, Any]]:
    write_adapter(folder / "pirate.gguf", "llama", 0)
    return {
        "tale": {"adapters": {"pirate": str(folder / "pirate.gguf")}, "flags": ["--endless", *SLOW]},
        "poem": {"unload_after": "1h", "aliases": [SLASHED]},
        "bad": {"flags": ["--exit-while-loading", "3"]},
    }


async def state(several: Several, name: str) -> str:
    answer = await several.get("/v1/models", **ALL)
    (found,) = (one["status"]["value"] for one in answer["data"] if one["id"] == name)
    return str(found)


async def becomes(several: Several, name: str, wanted: str) -> None:
    while await state(several, name) != wanted:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def running(several: Several, **headers: str) -> AsyncIterator[None]:
    """A request of tale that an engine has."""
    async with several.served.http.post(
        several.served.url + "/v1/events", data=json.dumps({"model": "tale", **ENDLESS}), headers=headers
    ) as response:
        while b'"stream"' not in await response.content.readline():
            pass
        yield


# Ours


async def test_a_load_waits_until_the_model_is_loaded(several: Several) -> None:
    began = time.monotonic()
    status, answer = await several.status("POST", "/v1/models/tale/load", **ALL)
    assert time.monotonic() - began >= 0.3
    assert (status, answer["id"], answer["status"]) == (200, "tale", {"value": "loaded"})
    assert await several.status("POST", "/v1/models/tale/load", **ALL) == (200, answer), "it is loaded"
    status, answer = await several.status("POST", "/v1/models/tale/unload", **ALL)
    assert (status, answer["id"], answer["status"]) == (200, "tale", {"value": "unloaded"})
    assert await several.status("POST", "/v1/models/tale/unload", **ALL) == (200, answer)
    assert several.ops("tale", "ready") == 1


async def test_a_name_with_a_slash_is_url_encoded(several: Several) -> None:
    for slash in ("%2F", "%2f"):
        path = f"/v1/models/{SLASHED.replace('/', slash)}"
        status, answer = await several.status("POST", f"{path}/load", **ALL)
        assert (status, answer.get("id")) == (200, "poem"), answer
        assert (await several.status("POST", f"{path}/unload", **ALL))[0] == 200


async def test_a_load_that_fails_has_the_reason(several: Several) -> None:
    status, answer = await several.status("POST", "/v1/models/bad/load", **ALL)
    assert status == 503
    assert "exit code 3" in answer["error"]["message"]
    assert await state(several, "bad") == "failed"
    entry = await several.get("/v1/models/bad", **ALL)
    assert entry["status"] == {"value": "failed", "failed": True, "error": answer["error"]["message"]}


async def test_a_model_with_requests_is_not_unloaded(several: Several) -> None:
    async with running(several, **USER), running(several, **USER):
        for path, body in (
            ("/v1/models/tale/unload", None),
            ("/models/unload", {"model": "tale"}),
            ("/v1/model/unload", None),
            ("/v1/internal/model/unload", {"model_name": "tale"}),
        ):
            status, answer = await several.status("POST", path, body, **ALL)
            assert (status, "2 requests" in answer["error"]["message"]) == (409, True), (path, answer)
        assert several.ops("tale", "exit") == 0
        assert await state(several, "tale") == "loaded"


async def test_a_request_that_comes_while_a_model_is_unloaded_keeps_it(several: Several) -> None:
    """The unload waits for a question of the server's own, to an engine that stands still."""
    assert (await several.status("POST", "/v1/models/tale/load", **ALL))[0] == 200
    (engine,) = (one for one in children() if b"tale.journal" in _command_of(one))
    os.kill(engine, signal.SIGSTOP)
    try:
        assert await open_requests(several) == 0  # is answered without the engine's answer
        unload = asyncio.create_task(several.status("POST", "/v1/models/tale/unload", **ALL))
        assert await state(several, "tale") == "loaded"  # the unload has come before
        request = asyncio.create_task(
            several.status("POST", "/v1/events", {"model": "tale", **ENDLESS}, **ALL)
        )
        while await open_requests(several) == 0:
            pass
    finally:
        os.kill(engine, signal.SIGCONT)
    status, refused = await soon(unload)
    assert (status, refused["error"].get("code")) == (409, "model_busy"), refused
    assert several.ops("tale", "exit") == 0
    request.cancel()


async def open_requests(several: Several) -> int:
    return int((await several.get("/v1/stats", **ALL))["models"]["tale"]["requests_open"])


def _command_of(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()


BY_NAME = [  # the paths that take a name, and their bodies
    ("/v1/models/{}/load", {}),
    ("/v1/models/{}/unload", {}),
    ("/models/load", {"model": "{}"}),
    ("/models/unload", {"model": "{}"}),
    ("/v1/model/load", {"name": "{}"}),
    ("/v1/model/load", {"model_name": "{}"}),
    ("/v1/model/unload", {"model_name": "{}"}),
    ("/v1/internal/model/load", {"model_name": "{}"}),
    ("/v1/internal/model/unload", {"model_name": "{}"}),
]


@each_row(("path", "body"), BY_NAME)
@each_row(
    ("name", "key", "status", "message"),
    [
        ("poen", "all", 404, "there is no model poen here; did you mean poem?"),
        ("tale", "poet", 403, "this key may use the models poem, not tale"),
        ("tale", "user", 403, "user has the scopes complete chat embed; this needs admin"),
    ],
)
async def test_a_name_that_is_not_a_model_of_the_caller_is_refused(
    several: Several, path: str, body: dict[str, str], name: str, key: str, status: int, message: str
) -> None:
    named = {field: value.format(name) for field, value in body.items()}
    found, answer = await several.status("POST", path.format(name), named, **bearer(key))
    assert (found, answer["error"]["message"][: len(message)]) == (status, message)


async def test_an_adapter_is_loaded_with_its_model_and_not_unloaded(several: Several) -> None:
    for path, body in BY_NAME:
        named = {field: value.format("pirate") for field, value in body.items()}
        status, answer = await several.status("POST", path.format("pirate"), named, **ALL)
        if path.endswith("/unload"):
            message = "pirate is an adapter of tale, and leaves with it: name the model"
            assert (status, answer["error"]["message"]) == (400, message), path
        else:
            assert status == 200, (path, answer)
            await becomes(several, "tale", "loaded")
            assert (await several.status("POST", "/v1/models/tale/unload", **ALL))[0] == 200


async def test_nothing_is_loaded_from_a_path(several: Several) -> None:
    file = str(tables_of(several.folder)["tale"]["adapters"]["pirate"])
    for path, body in BY_NAME[2:]:
        named = {field: value.format(file) for field, value in body.items()}
        assert (await several.status("POST", path, named, **ALL))[0] == 404, path


async def test_without_keys_everyone_loads(open_to_all: Several) -> None:
    assert (await open_to_all.status("POST", "/v1/models/poem/load"))[0] == 200
    assert (await open_to_all.status("POST", "/v1/models/poem/unload"))[0] == 200


async def test_the_only_model_is_loaded_and_unloaded_too(serving: Serving) -> None:
    served = await serving(alias="tale")
    several = Several(served, served.journal.parent)
    status, answer = await several.status("POST", "/v1/models/tale/unload")
    assert (status, answer["status"]) == (200, {"value": "unloaded"})
    assert await several.status("GET", "/health/ready") == (200, {"status": "ok"})
    assert (await several.status("POST", "/v1/completions", {"prompt": "x", "max_tokens": 2}))[0] == 200
    assert (await several.status("POST", "/v1/models/tale/load"))[0] == 200
    assert (await several.status("POST", "/v1/models/tael/load"))[0] == 404


# llama-server's router


async def test_a_router_loads_and_unloads_at_once(several: Several) -> None:
    began = time.monotonic()
    assert await several.status("POST", "/models/load", {"model": "tale"}, **ALL) == (200, {"success": True})
    assert time.monotonic() - began < 0.3
    status, answer = await several.status("POST", "/models/load", {"model": "tale"}, **ALL)
    assert (status, answer["error"]["message"]) == (400, "model is already running")
    await becomes(several, "tale", "loaded")
    assert await several.status("POST", "/models/unload", {"model": "tale"}, **ALL) == (
        200,
        {"success": True},
    )
    await becomes(several, "tale", "unloaded")
    status, answer = await several.status("POST", "/models/unload", {"model": "tale"}, **ALL)
    assert (status, answer["error"]["message"]) == (400, "model is not running")
    status, answer = await several.status("POST", "/models/load", {}, **ALL)
    assert (status, answer["error"]["message"]) == (400, "model is missing")


async def test_a_load_that_is_not_done_is_ended_by_an_unload(several: Several) -> None:
    assert (await several.status("POST", "/models/load", {"model": "tale"}, **ALL))[0] == 200
    await becomes(several, "tale", "loading")
    assert (await several.status("POST", "/models/unload", {"model": "tale"}, **ALL))[0] == 200
    await becomes(several, "tale", "unloaded")
    assert several.ops("tale", "ready") == 0


async def test_props_are_a_routers_without_a_model(several: Several) -> None:
    role = {"role": "router", "max_instances": 0, "models_autoload": True}
    props = await several.get("/props", **ALL)
    assert {name: props.get(name) for name in role} == role
    assert props["model_alias"] == "tale"
    assert not role.keys() & (await several.get("/props?model=poem", **ALL)).keys()


@contextlib.asynccontextmanager
async def events_of(several: Several, key: str) -> AsyncIterator[list[Any]]:
    """The events so far."""
    told: list[Any] = []
    async with several.served.http.get(several.served.url + "/models/sse", headers=bearer(key)) as response:
        assert response.content_type == "text/event-stream"

        async def read() -> None:
            async for line in response.content:
                if line.startswith(b"data: "):
                    told.append(json.loads(line[6:]))

        reading = asyncio.create_task(read())
        try:
            yield told
        finally:
            reading.cancel()
            await asyncio.wait({reading})


async def test_a_router_tells_of_loads_and_unloads(several: Several) -> None:
    async with events_of(several, "all") as told, events_of(several, "poet") as poets:
        await several.status("POST", "/v1/models/tale/load", **ALL)
        await several.status("POST", "/v1/models/tale/unload", **ALL)
        await several.status("POST", "/v1/models/bad/load", **ALL)
        await several.status("POST", "/v1/models/poem/load", **ALL)
        while {"model": "poem", "event": "model_status", "data": {"status": "loaded"}} not in poets:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert {event["model"] for event in poets} == {"poem"}
    assert {event["event"] for event in told} == {"model_status"}
    tale = [event["data"] for event in told if event["model"] == "tale"]
    progress = [data["progress"] for data in tale if "progress" in data]
    assert [data["status"] for data in tale if "progress" not in data] == ["loading", "loaded", "unloaded"]
    assert {(*one["stages"], one["current"]) for one in progress} == {("text_model", "text_model")}
    values = [one["value"] for one in progress]
    assert values
    assert values == sorted(set(values))
    bad = [event["data"] for event in told if event["model"] == "bad"]
    assert bad[0] == {"status": "loading"}
    assert (bad[-1]["status"], bad[-1]["exit_code"], "exit code 3" in bad[-1]["error"]) == (
        "unloaded",
        1,
        True,
    )


async def test_events_of_models_end_with_the_key(several: Several, tmp_path: Path) -> None:
    async with several.served.http.get(several.served.url + "/models/sse", headers=ALL) as response:
        key_file(tmp_path / "keys", {"name": "user", "scopes": ["complete"]})
        os.kill(os.getpid(), signal.SIGHUP)
        assert await response.content.read() == b""


# TabbyAPI, text-generation-webui


async def test_tabbys_load_is_a_stream_of_its_progress(several: Several) -> None:
    body = {
        "name": "tale",
        "max_seq_len": 4096,
        "cache_mode": None,
        "draft": {},
    }  # as SillyTavern's extension
    status, data = await several.served.post(body, "/v1/model/load", **{"X-Admin-Key": "all"})
    assert status == 200
    *steps, last = frames(data)
    assert {(one["model_type"], one["modules"], one["status"]) for one in steps} == {
        ("model", 100, "processing")
    }
    modules = [one["module"] for one in steps]
    assert modules == sorted(set(modules))
    unused = ("max_seq_len is not used: the server's settings of the model hold",)
    assert last == {
        "model_type": "model", "module": 100, "modules": 100, "status": "finished", "warnings": [*unused],
    }  # fmt: skip
    assert await several.status("POST", "/v1/model/unload", None, **{"X-Admin-Key": "all"}) == (200, None)
    assert await state(several, "tale") == "unloaded"


async def test_tabbys_load_that_fails_ends_with_the_reason(several: Several) -> None:
    status, data = await several.served.post({"model_name": "bad"}, "/v1/model/load", **ALL)
    (last,) = (frame for frame in frames(data) if frame.get("status") != "processing")
    assert (status, "exit code 3" in last["error"]["message"]) == (200, True)
    assert several.ops("bad", "loading") == 1, "it is not tried again at once"
    assert (await several.status("POST", "/v1/model/load", {}, **ALL))[0] == 400


async def test_a_client_that_leaves_ends_no_load(several: Several) -> None:
    url, data = several.served.url + "/v1/model/load", json.dumps({"name": "tale"})
    async with several.served.http.post(url, data=data, headers=ALL) as response:
        await response.content.readline()
    await becomes(several, "tale", "loaded")
    assert several.ops("tale", "loading") == 1


async def test_webui_loads_by_a_name_and_unloads_what_is_loaded(several: Several) -> None:
    body = {"model_name": "tale", "args": {}, "settings": {}}
    assert await several.status("POST", "/v1/internal/model/load", body, **ALL) == (200, "OK")
    await several.status("POST", "/v1/models/poem/load", **ALL)
    assert await several.status("POST", "/v1/internal/model/unload", None, **bearer("poet")) == (200, None)
    assert [await state(several, name) for name in ("tale", "poem")] == ["loaded", "unloaded"]
    assert await several.status("POST", "/v1/internal/model/unload", {}, **ALL) == (200, None)
    assert await state(several, "tale") == "unloaded"
    status, answer = await several.status("POST", "/v1/internal/model/load", {"model_name": "bad"}, **ALL)
    assert (status, "exit code 3" in answer["error"]["message"]) == (503, True)


# Ollama


async def leaves_in(several: Several, name: str, **headers: str) -> float | None:
    """Seconds until a model leaves, by /api/ps; None if it is not loaded."""
    for one in (await several.get("/api/ps", **headers))["models"]:
        if one["name"].removesuffix(":latest") == name:
            return datetime.fromisoformat(one["expires_at"]).timestamp() - time.time()
    return None


def generate(model: str, **more: Any) -> dict[str, Any]:
    return {"model": model, "prompt": "x", "stream": False, "options": {"num_predict": 1}, **more}


DAY = 86400  # expires_at of a model that stays as long as the server runs
NOT_USED = "keep_alive is not used: only a key with the scope admin unloads a model or keeps it"
CAPPED = "keep_alive is 7200 s; the model leaves after 3600 s (unload_after)"
STAYS: list[tuple[str, object, float | None, str | None]] = [  # key, keep_alive, seconds it stays, warning
    ("all", None, 3600, None),
    ("all", "2h", 7200, None),
    ("all", 7200, 7200, None),
    ("all", -1, DAY, None),
    ("all", "-1m", DAY, None),
    ("all", 0, None, None),
    ("user", None, 3600, None),
    ("user", "5m", 300, None),
    ("user", "2h", 3600, CAPPED),
    ("user", -1, 3600, NOT_USED),
    ("user", 0, 3600, NOT_USED),
]


@pytest.mark.parametrize(("key", "keep_alive", "seconds", "warning"), STAYS)
@pytest.mark.parametrize("path", ["/api/generate", "/api/chat", "/api/embed"])
async def test_keep_alive_is_how_long_a_model_stays(
    several: Several, path: str, key: str, keep_alive: object, seconds: float | None, warning: str | None
) -> None:
    body = generate("poem", keep_alive=keep_alive, input="x", messages=[{"role": "user", "content": "x"}])
    kept = {"/api/generate": "prompt", "/api/chat": "messages", "/api/embed": "input"}[path]
    for other in {"prompt", "messages", "input"} - {kept}:
        del body[other]
    status, answer = await several.status("POST", path, body, **bearer(key))
    assert status == 200, answer
    assert answer.get("warnings") == (None if warning is None else [warning])
    if seconds is None:
        await becomes(several, "poem", "unloaded")
    assert await leaves_in(several, "poem", **ALL) == (
        None if seconds is None else pytest.approx(seconds, abs=20)
    )


async def test_without_keys_keep_alive_of_each_request_keeps_no_model(open_to_all: Several) -> None:
    answers = [
        await open_to_all.status("POST", "/api/generate", generate("poem", keep_alive=keep_alive))
        for keep_alive in (-1, 0, "10m")
    ]
    assert [answer.get("warnings") for _, answer in answers] == [[NOT_USED], [NOT_USED], None]
    assert await leaves_in(open_to_all, "poem") == pytest.approx(600, abs=20)


@pytest.mark.parametrize("key", ["all", None])
@pytest.mark.parametrize(("path", "field", "empty"), [("generate", "response", ""), ("chat", "message", [])])
async def test_a_request_without_a_prompt_loads_or_unloads(
    serving: Serving, tmp_path: Path, path: str, field: str, empty: object, key: str | None
) -> None:
    keys = {"api_key_file": str(key_file(tmp_path / "k", {"name": key, "scopes": ["admin"]}))} if key else {}
    several = await serve(serving, tmp_path, tables_of(tmp_path), **keys)
    headers = bearer(key) if key else {}
    body = {"model": "poem", **({"messages": empty} if path == "chat" else {})}
    status, answer = await several.status("POST", f"/api/{path}", {**body, "keep_alive": -1}, **headers)
    assert (status, answer["done_reason"], answer["done"]) == (200, "load", True)
    assert await leaves_in(several, "poem", **headers) == pytest.approx(DAY, abs=20)
    for _ in range(2):
        status, answer = await several.status("POST", f"/api/{path}", {**body, "keep_alive": 0}, **headers)
        assert (status, answer["done_reason"], answer["done"]) == (200, "unload", True)
        assert answer[field] == ({"role": "assistant", "content": ""} if path == "chat" else "")
        assert await leaves_in(several, "poem", **headers) is None
    assert several.ops("poem", "ready") == 1
    await several.status("POST", f"/api/{path}", body, **headers)
    assert await leaves_in(several, "poem", **headers) == pytest.approx(3600, abs=20), (
        "-1 ended with the unload"
    )


async def test_an_unload_of_ollama_waits_for_requests(several: Several) -> None:
    async with running(several, **USER):
        status, answer = await several.status(
            "POST", "/api/generate", {"model": "tale", "keep_alive": 0}, **ALL
        )
        assert (status, answer["done_reason"]) == (200, "unload")
        assert await state(several, "tale") == "loaded"
    await becomes(several, "tale", "unloaded")


async def test_without_admin_a_request_without_a_prompt_unloads_nothing(several: Several) -> None:
    await several.status("POST", "/v1/models/poem/load", **ALL)
    body = {"model": "poem", "keep_alive": 0}
    status, answer = await several.status("POST", "/api/generate", body, **USER)
    assert (status, answer["done_reason"], answer["warnings"]) == (200, "load", [NOT_USED])
    assert await state(several, "poem") == "loaded"


async def test_a_keep_alive_that_is_no_duration_is_refused(several: Several) -> None:
    for value in ("soon", "5 m", [5], True, "1e3", ""):
        status, answer = await several.status(
            "POST", "/api/generate", generate("poem", keep_alive=value), **ALL
        )
        assert (status, answer["error"].startswith("keep_alive is ")) == (400, True), (value, answer)


async def test_keep_alive_changes_nothing_on_a_server_of_one_model(serving: Serving) -> None:
    several = Several(served := await serving(), served.journal.parent)
    for keep_alive in (-1, 0, "1s", "soon"):
        body = generate("storyteller", keep_alive=keep_alive)
        status, answer = await several.status("POST", "/api/generate", body)
        assert (status, answer.get("warnings")) == (200, None)
    assert len((await several.get("/api/ps"))["models"]) == 1


async def test_ollama_shows_the_named_model_and_lists_the_loaded_ones(several: Several) -> None:
    await several.status("POST", "/v1/models/poem/load", **ALL)
    assert [one["name"] for one in (await several.get("/api/ps", **ALL))["models"]] == ["poem:latest"]
    status, answer = await several.status("POST", "/api/show", {"model": "tale"}, **ALL)
    assert (status, answer["modelfile"]) == (200, "FROM tale")
    assert several.ops("tale", "loading") == 0


async def test_tabbys_loader_gets_all_its_lists(several: Several) -> None:
    lists = {name: await several.get(f"/v1/{name}/list", **USER) for name in ("model", "model/draft", "lora")}
    assert {name: [one["id"] for one in found["data"]] for name, found in lists.items()} == {
        "model": ["tale", "pirate", "poem", "bad"],
        "model/draft": [],
        "lora": ["pirate"],
    }


# One budget for snapshots


async def test_each_loaded_engine_has_a_share_of_the_memory_for_snapshots(
    serving: Serving, tmp_path: Path
) -> None:
    several = await serve(serving, tmp_path, {"tale": {}, "poem": {}}, cache_ram="64MiB")
    whole, half = (f"cache_ram {64 << 20 >> i}" for i in range(2))

    def told(model: str) -> list[str]:
        return [note["what"] for note in several.noted(model) if "cache_ram" in note["what"]]

    assert (await several.status("POST", "/v1/models/tale/load"))[0] == 200
    await until(lambda: told("tale") == [whole])
    assert (await several.status("POST", "/v1/models/poem/load"))[0] == 200
    await until(lambda: (told("tale"), told("poem")) == ([whole, half], [half]))
    assert (await several.status("POST", "/v1/models/poem/unload"))[0] == 200
    await until(lambda: told("tale") == [whole, half, whole])


async def test_snapshots_get_what_models_leave_of_the_memory(serving: Serving, tmp_path: Path) -> None:
    models = {name: {"flags": ("--backend", "CPU")} for name in ("tale", "poem")}
    limits = {"models_memory": "1GiB", "cache_ram": "4GiB"}
    several = await serve(serving, tmp_path, models, **limits)

    def told(model: str) -> list[int]:
        notes = [note["what"].split() for note in several.noted(model)]
        return [int(note[1]) for note in notes if note[0] == "cache_ram"]

    assert (await several.status("POST", "/v1/models/tale/load"))[0] == 200
    await until(lambda: len(told("tale")) == 1)
    assert (await several.status("POST", "/v1/models/poem/load"))[0] == 200
    await until(lambda: (len(told("tale")), len(told("poem"))) == (3, 1))
    alone, while_it_loads, shared = told("tale")
    need = (1 << 30) - alone
    assert 0 < need < alone - while_it_loads, "a load is estimated to need more than a loaded model"
    assert [shared] == told("poem")
    assert shared == pytest.approx((alone - need) / 2, abs=8 << 20), "the processes are not of one size"
