"""Overrides over HTTP: of the settings, and of TabbyAPI's paths; they hold for all clients by all routes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.fake.test_models_by_name import NAMED, body_of
from tests.support.served import Serving, bearer, key_file
from tests.support.several import Several, engine_of, serve
from tests.support.sockets import connected
from tests.support.waiting import PATIENCE

Json = dict[str, Any]
LIST, SWITCH, UNLOAD = (f"/v1/sampling/override/{name}" for name in ("list", "switch", "unload"))
WAYS: list[Json] = [  # to ask for another temperature
    {"temperature": 1.5}, {"temp": 1.5}, {"dynatemp_low": 1, "dynatemp_high": 2}, {"preset": "hot"},
    {"options": {"temperature": 1.5}}, {"configuration": {"temperature": 1.5}},
    {"sequences": [{"temperature": 1.5}]},
]  # fmt: skip
NOT_FORCED = {"/v1/internal/logits"}  # gets the model's own probabilities


def notes_of(several: Several, model: str = "tale") -> list[Json]:
    return [note for note in several.noted(model) if note["what"] in ("generate", "chat")]


def temperature(note: Mapping[str, Any]) -> Any:
    own = [one.get("temperature") for one in note.get("sequences", [])]
    return (own and own[0]) or note.get("sampling", {}).get("temperature")


@pytest.fixture
async def firm(serving: Serving, tmp_path: Path) -> Several:
    """A server whose settings have overrides, with a task that has others."""
    file = tmp_path / "srb.toml"
    file.write_text(
        f'engine = "{engine_of(tmp_path, "tale")}"\n'
        '[override]\ntemperature = 0.25\nstop = { override = ["##"], additive = true }\n'
        "top_k = { override = 33, force = false }\n"
        "[tasks.hot]\ntemperature = 1.9\ntop_k = 3\n"
    )
    return Several(await serving(config=str(file)), tmp_path)


async def test_no_route_gets_another_value(firm: Several) -> None:
    wrong, n = [], 0
    for route in NAMED:
        for way in WAYS:
            before = len(notes_of(firm))
            await firm.status("POST", route.path, body_of(route, n=1) | way)
            made = notes_of(firm)[before:]
            n += len(made)
            wrong += [(route.path, way, note) for note in made if temperature(note) != 0.25]
    assert wrong == []
    assert n > 100
    async with connected(firm.served, "/v1/ws") as socket:
        await socket.send_json(
            {"op": "generate", "id": "a", "prompt": "x", "temperature": 1.5, "max_tokens": 1}
        )
        await socket.receive_json(timeout=PATIENCE)
    assert temperature(notes_of(firm)[-1]) == 0.25


async def test_a_client_is_told_and_the_rest_is_its_own(firm: Several) -> None:
    body = {"prompt": "x", "n": 2, "max_tokens": 1, "stream": False, "temp": 1.5, "stop": "a", "top_k": 9}
    status, answer = await firm.status("POST", "/v1/completions", body)
    assert (status, answer["warnings"]) == (
        200,
        ["temperature is not used: by the operator's override it is 0.25"],
    )
    assert notes_of(firm)[-1]["sampling"] == {"temperature": 0.25, "top_k": 9}
    await firm.status("POST", "/v1/completions", {"prompt": "x", "stream": False, "model": "hot"})
    assert notes_of(firm)[-1]["sampling"] == {"temperature": 0.25, "top_k": 3}
    rows = {row["name"]: row["default"] for row in (await firm.get("/v1/samplers"))["samplers"]}
    assert (rows["temperature"], rows["top_k"]) == (0.25, 33)


async def test_an_extend_may_not_set_what_is_forced(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    file.write_text(
        f'engine = "{engine_of(tmp_path, "tale", "--stall-after", "1")}"\n[override]\nmax_tokens = 200\n'
    )
    firm = Several(await serving(config=str(file)), tmp_path)
    async with firm.served.http.post(
        firm.served.url + "/v1/events", json={"prompt": "x", "n": 1, "max_tokens": 3}
    ) as stream:
        first = json.loads((await stream.content.readuntil(b"\n\n")).split(b"data: ")[1])
        status, refused = await firm.status(
            "POST", f"/v1/completions/{first['id']}/extend", {"max_tokens": 9}
        )
    assert (status, refused["error"]["message"]) == (
        400,
        "max_tokens is set by the operator's override; leave it out",
    )


async def test_tabby_switches_lists_and_unloads_them(firm: Several) -> None:
    async def sampling(**fields: Any) -> Json:
        await firm.status("POST", "/v1/completions", {"prompt": "x", "stream": False, **fields})
        return dict(notes_of(firm)[-1].get("sampling", {}))

    held = {
        "temperature": {"override": 0.25, "force": True, "additive": False},
        "stop": {"override": ["##"], "force": False, "additive": True},
        "top_k": {"override": 33, "force": False, "additive": False},
    }
    listed = await firm.get(LIST)
    assert (listed["selected_preset"], listed["overrides"]) == (None, held)
    assert "hot" in listed["presets"]
    assert await firm.get("/v1/sampling/overrides") == listed
    overrides = {
        "min_p": {"override": 0.5, "force": True},
        "top_k": {"override": 7},
        "temperature": {"override": 2, "force": True},
        "typical": {"override": None},
    }
    assert await firm.status("POST", SWITCH, {"overrides": overrides}) == (200, None)
    assert await sampling(min_p=0.1) == {"temperature": 0.25, "min_p": 0.5, "top_k": 7}
    assert await sampling(top_k=1) == {"temperature": 0.25, "min_p": 0.5, "top_k": 1}
    more = {"min_p": {"override": 0.5, "force": True, "additive": False}}
    assert (await firm.get(LIST))["overrides"].items() >= more.items()
    assert await firm.status("POST", SWITCH, {"preset": "hot"}) == (200, None)
    assert (await firm.get(LIST))["selected_preset"] == "hot"
    assert (await sampling(min_p=0.1))["min_p"] == 0.1
    assert (await sampling())["top_n_sigma"] == 1
    assert await firm.status("POST", UNLOAD) == (200, None)
    assert (await firm.get(LIST))["overrides"] == held
    assert await sampling() == {"temperature": 0.25, "top_k": 33}


async def test_a_wrong_switch_changes_nothing(firm: Several) -> None:
    before = await firm.get(LIST)
    wrong = (
        7,
        {"top_q": {"override": 1}},
        {"top_k": {"override": -9, "force": True}},
        {"prompt": {"override": "a"}},
        {"min_p": {"override": 1}, "top_k": {"override": "x"}},
    )
    others: tuple[Json, ...] = ({}, {"preset": "none"}, {"preset": 7}, {"preset": "hot", "model": "hot"})
    for body in (*others, *({"overrides": one} for one in wrong)):
        status, refused = await firm.status("POST", SWITCH, body)
        assert (status, refused["error"]["type"]) == (400, "invalid_request_error"), body
    assert await firm.get(LIST) == before


async def test_each_model_has_its_own_and_a_key_those_of_its_models(serving: Serving, tmp_path: Path) -> None:
    keys = key_file(
        tmp_path / "keys",
        {"name": "all", "scopes": ["admin"]},
        {"name": "poet", "scopes": ["admin"], "models": ["poem"]},
        {"name": "writer", "scopes": ["complete"]},
    )
    models = {"tale": {"override": {"top_k": 5}}, "poem": {}}
    several = await serve(serving, tmp_path, models, api_key_file=str(keys))

    async def held(model: str) -> Json:
        answer = await several.get(f"{LIST}?model={model}", **bearer("all"))
        return {name: one["override"] for name, one in answer["overrides"].items()}

    async def switch(key: str, **body: Any) -> int:
        return (await several.status("POST", SWITCH, body, **bearer(key)))[0]

    one = {"min_p": {"override": 0.5, "force": True}}
    assert await switch("writer", overrides=one) == 403
    assert await switch("poet", overrides=one) == 200
    assert (await held("tale"), await held("poem")) == ({"top_k": 5}, {"min_p": 0.5})
    assert await switch("poet", overrides=one, model="tale") in (403, 404)
    assert await switch("all", overrides={"n": {"override": 3, "force": True}}) == 200
    assert (await held("tale"), await held("poem")) == ({"top_k": 5, "n": 3}, {"n": 3})
    assert await switch("all", preset="plain", model="poem") == 200
    assert (await held("tale"), (await held("poem"))["top_k"]) == ({"top_k": 5, "n": 3}, 0)
    body = {"prompt": "x", "n": 1, "model": "tale", "stream": False, "top_k": 9}
    _, answer = await several.status("POST", "/v1/completions", body, **bearer("all"))
    assert len(answer["choices"]) == 3
    body = {"messages": [{"role": "user", "content": "x"}], "model": "tale", "max_tokens": 1}
    assert (await several.status("POST", "/v1/messages", body, **bearer("all")))[0] == 200, "an answer is one"


async def test_templates_are_refused_by_name(firm: Several) -> None:
    for method, name in (("GET", "list"), ("POST", "switch"), ("POST", "unload")):
        status, refused = await firm.status(
            method, f"/v1/template/{name}", {"name": "x"} if method == "POST" else None
        )
        assert status == 501
        assert "--chat-template" in refused["error"]["message"]
