"""Tasks over HTTP: names in each dialect, keys, locked fields, what the engine gets, chats on a WebSocket."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from llama_srb.http.routes import ROUTES
from tests.fake.test_models_by_name import LISTS, NO_MODEL, body_of
from tests.support.rows import each_row
from tests.support.served import SECRET, Served, Serving, bearer, frames, key_file
from tests.support.several import MODEL, engine_of
from tests.support.sockets import connected, event, until

TASKS = """
[models.tale]
path = "{model}"
engine = "{tale}"
aliases = ["gpt"]

[models.poem]
path = "{model}"
engine = "{poem}"

[tasks.story]
model = "poem"
prelude = "<p>"
prefix = "<u>"
postfix = "<a>"
n = 3
max_tokens = 4
temperature = 0.5
locked = ["n", "temperature"]
private_tokens = ["<|secret|>"]

[tasks.brief]
prelude = "Be brief."
"""
KEYS: tuple[dict[str, Any], ...] = (
    {"name": "all", "scopes": ["admin"]},
    {"name": "tale", "models": ["tale"]},
    {"name": "story", "models": [], "tasks": ["story"]},
    {"name": "two", "max_n": 2},
)
STORY, BRIEF = "/v1/tasks/story", "/v1/tasks/brief"
USER = [{"role": "user", "content": "hi"}]


class Asked:
    """The server, and what the engines got."""

    def __init__(self, served: Served, folder: Path) -> None:
        self.served, self.folder = served, folder

    async def json(
        self, method: str, path: str, body: Any = None, key: str = "all", **headers: str
    ) -> tuple[int, Any]:
        url, headers = self.served.url + path, bearer(key) | headers
        async with self.served.http.request(method, url, json=body, headers=headers) as response:
            data, is_json = await response.read(), response.content_type == "application/json"
            return response.status, json.loads(data) if is_json else data

    def got(self, model: str) -> list[dict[str, Any]]:
        """The commands that generate, of a model's engine."""
        journal = self.folder / f"{model}.journal"
        lines = journal.read_text().splitlines() if journal.exists() else []
        return [
            note for line in lines if (note := json.loads(line))["what"] in ("generate", "chat", "prefix")
        ]


@pytest.fixture
async def asked(serving: Serving, tmp_path: Path) -> Asked:
    engines = {name: engine_of(tmp_path, name) for name in ("tale", "poem")}
    file = tmp_path / "srb.toml"
    file.write_text(TASKS.replace("{model}", str(MODEL)).format(**engines))
    keys = key_file(tmp_path / "keys", *KEYS)
    return Asked(await serving(config=str(file), api_key_file=str(keys)), tmp_path)


def parts_of(note: Mapping[str, Any]) -> str:
    """The parts that an engine got, as one text: those with control tokens in brackets."""
    return "".join(f"({one['text']})" if one["special"] else one["text"] for one in note["parts"])


async def test_a_task_puts_its_texts_around_the_prompt(asked: Asked) -> None:
    status, answer = await asked.json("POST", STORY + "/completions", {"prompt": "hi", "stream": False})
    assert (status, answer["model"], len(answer["choices"])) == (200, "story", 3)
    (note,) = asked.got("poem")
    assert parts_of(note) == "(<p>)(<u>)hi(<a>)"
    assert (note["sampling"], note["private_tokens"]) == ({"temperature": 0.5}, ["<|secret|>"])
    assert asked.got("tale") == []


CONFIGURED = {"/complete": {"prompt": "hi"}, "/chat": {"message": "hi"}, "/embed": {"input": "hi"}}


@pytest.mark.parametrize("path", CONFIGURED)
async def test_the_model_in_a_configuration_is_the_one_that_answers(asked: Asked, path: str) -> None:
    def of(model: str, **fields: Any) -> dict[str, Any]:
        return {**CONFIGURED[path], "configuration": {"model": model, **fields}}

    status, answer = await asked.json("POST", path, of("nonsense"))
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert (await asked.json("POST", path, of("poem"), key="tale"))[0] == 403
    assert (await asked.json("POST", path, of("poem")))[0] == 200
    assert (await asked.json("POST", path, {**of("poem"), "model": "nonsense"}))[0] == 200
    assert asked.got("tale") == []
    if path == "/embed":
        return
    status, answer = await asked.json("POST", path, of("story", n=2))
    assert (status, answer["error"]["code"], answer["error"]["param"]) == (400, "locked", "n")
    status, answer = await asked.json("POST", path, of("story"))
    assert (status, len(answer["choices"]), type(answer["choices"][0])) == (200, 3, str)
    assert parts_of(asked.got("poem")[-1]) == "(<p>)(<u>)hi(<a>)"


async def test_the_form_of_an_answer_follows_the_rules_of_completions(asked: Asked) -> None:
    for path, body in (("/completions", {"prompt": "hi"}), ("/chat", {"messages": USER})):
        for more, kinds in (({}, ("loading", "start")), ({"stream": True}, ("chunk",))):
            async with asked.served.http.post(
                asked.served.url + STORY + path, json={**body, **more}, headers=bearer("all")
            ) as response:
                first = frames(await response.read())[0]
                assert response.status == 200
                assert first.get("event", "chunk") in kinds
        status, answer = await asked.json(
            "POST", STORY + path, body, Accept="application/json", **bearer("all")
        )
        assert (status, answer["object"].endswith("completion")) == (200, True)


async def test_a_chat_has_the_tasks_own_turns_or_those_of_the_template(asked: Asked) -> None:
    messages = [*USER, {"role": "assistant", "content": "ho"}, {"role": "user", "content": "so"}]
    for path in (STORY, BRIEF):
        status, answer = await asked.json("POST", path + "/chat", {"messages": messages, "stream": False})
        assert (status, answer["object"]) == (200, "chat.completion")
    assert parts_of(asked.got("poem")[0]) == "(<p>)(<u>)hi(<a>)ho(<u>)so(<a>)"
    (note,) = asked.got("tale")
    assert (note["what"], note["plain_content"]) == ("chat", True)
    assert (await asked.json("POST", STORY + "/chat", {"prompt": "hi"}))[0] == 400


NAMED = [route for route in ROUTES if route.method == "POST" and route.handler.__name__ not in NO_MODEL]
OF_A_MODEL = {  # handlers that need the model alone
    "load_lora_adapter", "unload_lora_adapter", "embeddings", "vectors", "ask", "pull", "rerank",
    "count_tokens", "response_input_tokens", "exact_prompt", "trial_prompt",
}  # fmt: skip


async def test_a_tasks_name_is_valid_as_model_in_each_dialect(asked: Asked) -> None:
    wrong = []
    for route in NAMED:
        before = len(asked.got("poem"))
        body = body_of(route, model="story", n=None)
        status, answer = await asked.json("POST", route.path, body)
        notes = asked.got("poem")[before:]
        refused = {"/infill": 501, "/v1/score": 400, "/v1/internal/logits": 400}.get(route.path, 200)
        if route.handler.__name__.endswith("lora_adapter"):
            continue
        if status != refused:
            wrong.append((route.path, status, answer))
        generates = status == 200 and route.handler.__name__ not in OF_A_MODEL
        if bool(notes) != generates or any("<p>" not in parts_of(note) for note in notes):
            wrong.append((route.path, notes))
        named = answer.get("model", "story") if isinstance(answer, dict) else "story"
        if status == 200 and named not in ("story", "story:latest"):
            wrong.append((route.path, "named", named))
    assert wrong == []
    assert asked.got("tale") == []


@pytest.mark.parametrize("path", LISTS)
async def test_a_list_of_models_has_the_tasks_that_a_key_may_use(asked: Asked, path: str) -> None:
    async def names(key: str) -> list[str]:
        found = LISTS[path]((await asked.json("GET", path, key=key))[1])
        return [one for one in found if one in ("story", "brief")]

    assert await names("all") == ["story", "brief"]
    assert await names("tale") == ["brief"]
    assert await names("story") == ["story"]


async def test_the_list_of_tasks_has_what_each_is(asked: Asked) -> None:
    _, listed = await asked.json("GET", "/v1/tasks")
    assert [one["id"] for one in listed["data"]] == ["story", "brief"]
    assert listed["data"][0] == {
        "id": "story", "object": "task", "about": "", "model": "poem", "named_model": "poem",
        "prelude": "<p>", "prefix": "<u>", "postfix": "<a>",
        "fields": {"n": 3, "max_tokens": 4, "temperature": 0.5},
        "locked": ["n", "temperature"], "recall": None, "private_tokens": ["<|secret|>"],
    }  # fmt: skip
    _, own = await asked.json("GET", "/v1/tasks", key="story")
    assert [one["id"] for one in own["data"]] == ["story"]
    assert "private_tokens" not in own["data"][0]
    status, entry = await asked.json("GET", "/v1/models/story", key="story")
    assert (status, entry["id"], entry["parent"]) == (200, "story", "poem")


REFUSED: list[tuple[str, Any, str, int, str]] = [  # path, body, key, status, the error's code or param
    ("/v1/tasks/stori/completions", {"prompt": "x"}, "all", 404, "task_not_found"),
    (STORY + "/completions", {"prompt": "x"}, "tale", 403, "model_not_allowed"),
    (BRIEF + "/completions", {"prompt": "x"}, "story", 403, "task_not_allowed"),
    (STORY + "/completions", {"prompt": "x", "n": 2}, "all", 400, "locked"),
    (STORY + "/completions", {"prompt": "x", "temp": 1}, "all", 400, "locked"),
    (STORY + "/completions", {"prompt": "x", "model": "tale"}, "all", 400, "model"),
    (STORY + "/completions", {"prompt": [1, 2]}, "all", 400, "prompt"),
    (STORY + "/completions", {"prompt": "a<|secret|>"}, "all", 400, "prompt"),
    (STORY + "/completions", {"prompt": "a", "suffix": "b"}, "all", 400, "suffix"),
    (STORY + "/live?n=2&prompt=x", None, "all", 400, "locked"),
    (STORY + "/live", None, "all", 400, "prompt"),
    (STORY + "/live?prompt=" + "x" * 9000, None, "all", 400, "prompt"),
    (STORY + "/live?prompt=" + "x" * 500_000, None, "all", 400, "prompt"),
    ("/v1/completions", {"prompt": "x", "model": "tale"}, "story", 403, "model_not_allowed"),
    ("/v1/completions", {"prompt": "x", "model": "stry"}, "all", 404, "model_not_found"),
]  # fmt: skip


@each_row(("path", "body", "key", "status", "why"), REFUSED)
async def test_what_is_refused(asked: Asked, path: str, body: Any, key: str, status: int, why: str) -> None:
    found, answer = await asked.json("GET" if body is None else "POST", path, body, key)
    assert (found, why in (answer["error"]["code"], answer["error"]["param"])) == (status, True), answer
    if "xxxx" in path:
        assert "POST" in answer["error"]["message"]
    if "stry" in str(body):
        assert "did you mean story?" in answer["error"]["message"]


async def test_a_key_of_tasks_needs_no_model(asked: Asked) -> None:
    """It may use the task's model only by the task, which is what it gets without a name."""
    for body in ({"prompt": "x", "model": "story"}, {"prompt": "x"}):
        status, answer = await asked.json("POST", "/v1/completions", {**body, "stream": False}, "story")
        assert (status, answer["model"]) == (200, "story")
    assert all(parts_of(note) == "(<p>)(<u>)x(<a>)" for note in asked.got("poem"))


async def test_each_prompt_of_a_list_gets_the_texts(asked: Asked) -> None:
    body = {"prompt": ["a", "b"], "stream": False}
    status, answer = await asked.json("POST", STORY + "/completions", body)
    assert (status, len(answer["choices"])) == (200, 6)
    assert [parts_of(note) for note in asked.got("poem")] == ["(<p>)(<u>)a(<a>)", "(<p>)(<u>)b(<a>)"]


async def test_a_web_token_may_name_tasks(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    file.write_text(f'engine = "{engine_of(tmp_path, "tale")}"\n[tasks.story]\n[tasks.brief]\n')
    served = await serving(config=str(file), jwt_secret=SECRET)
    claims = {"sub": "ann", "scope": "complete", "exp": time.time() + 60, "tasks": ["story"], "models": []}
    token = jwt.encode(claims, SECRET, algorithm="HS256")
    for task, status in (("story", 200), ("brief", 403)):
        found, _ = await served.post({"prompt": "x", "max_tokens": 1}, f"/v1/tasks/{task}/completions",
                                     **bearer(token))  # fmt: skip
        assert found == status


async def test_the_n_of_a_task_is_at_most_that_of_the_key(asked: Asked) -> None:
    status, answer = await asked.json("POST", STORY + "/completions", {"prompt": "x", "stream": False}, "two")
    assert (status, len(answer["choices"])) == (200, 2)


async def test_an_extend_cannot_change_what_is_locked(serving: Serving, tmp_path: Path) -> None:
    engine = engine_of(tmp_path, "tale", "--endless", "--token-delay", "0.01")
    file = tmp_path / "srb.toml"
    file.write_text(f'engine = "{engine}"\n[tasks.story]\nn = 2\nmax_tokens = -1\nlocked = ["n"]')
    served = await serving(config=str(file))
    async with served.http.post(served.url + STORY + "/completions", json={"prompt": "x"}) as response:
        id = json.loads((await response.content.readuntil(b"\n\n")).removeprefix(b"data: "))["id"]
        status, answer = await served.post({"add": 1}, f"/v1/completions/{id}/extend")
        assert (status, json.loads(answer)["error"]["code"]) == (400, "locked")
        status, _ = await served.post({"max_tokens": 5000}, f"/v1/completions/{id}/extend")
        assert status == 200


async def test_a_browser_that_connects_again_generates_nothing(asked: Asked) -> None:
    url = asked.served.url + STORY + "/live?prompt=hi&api_key=story"
    async with asked.served.http.get(url) as response:
        data = await response.read()
        assert (response.status, response.content_type) == (200, "text/event-stream")
    assert data.startswith(b"id: live\ndata: {")
    events = [json.loads(line[6:])["event"] for line in data.decode().splitlines() if line[:6] == "data: "]
    assert (events[0], events[-1]) == ("loading", "done")
    async with asked.served.http.get(url, headers={"Last-Event-ID": "live"}) as response:
        assert (response.status, await response.read()) == (204, b"")
    assert len(asked.got("poem")) == 1
    async with asked.served.http.get(url.replace("api_key=story", "api_key=other")) as response:
        assert response.status == 401


async def test_a_prefix_of_a_task_has_no_postfix(asked: Asked) -> None:
    for body in ({"prompt": "hi"}, {"messages": USER}):
        status, answer = await asked.json("POST", "/v1/prefix", {"model": "story", **body})
        assert status == 200, answer
    assert [parts_of(note) for note in asked.got("poem")] == ["(<p>)(<u>)hi"] * 2


async def test_a_websocket_may_name_a_task_too(asked: Asked) -> None:
    async with connected(asked.served, **bearer("all")) as socket:
        await socket.send_json({"op": "generate", "id": "a", "model": "story", "prompt": "hi"})
        messages = await until(socket, event("done", id="a"))
    assert next(one for one in messages if one["event"] == "start")["count"] == 3
    assert parts_of(asked.got("poem")[0]) == "(<p>)(<u>)hi(<a>)"


# ----------------------------------------------------------------------------------------------------
# Chats
# ----------------------------------------------------------------------------------------------------

TURN = {"op": "turn", "text": "hi"}


def texts_of(messages: list[dict[str, Any]]) -> dict[int, str]:
    texts: dict[int, str] = {}
    for one in messages:
        if one["event"] == "stream":
            texts[one["index"]] = texts.get(one["index"], "") + one["text"]
    return texts


async def test_a_chat_goes_on_from_the_chosen_candidate(asked: Asked) -> None:
    async with connected(asked.served, STORY + "/ws?api_key=story") as socket:
        await socket.send_json(TURN)
        first = texts_of(await until(socket, event("done", turn=0)))
        for index in (1, 2):  # the last choice counts
            await socket.send_json({"op": "choose", "index": index})
            assert await socket.receive_json() == {"event": "chosen", "turn": 0, "index": index}
        await socket.send_json(TURN | {"text": "so", "max_tokens": 2})
        second = texts_of(await until(socket, event("done", turn=1)))
        await socket.send_json(TURN | {"text": "and"})
        await until(socket, event("done", turn=2))
    assert len(first) == 3
    assert [parts_of(note) for note in asked.got("poem")] == [
        "(<p>)(<u>)hi(<a>)",
        f"(<p>)(<u>)hi(<a>){first[2]}(<u>)so(<a>)",
        f"(<p>)(<u>)hi(<a>){first[2]}(<u>)so(<a>){second[0]}(<u>)and(<a>)",
    ]


async def test_a_turn_that_is_refused_is_no_part_of_the_chat(asked: Asked) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"op": "turn"}, "text"),
        ({"op": "tur", "text": "x"}, "op"),
        (TURN | {"n": 2}, "n"),
        (TURN | {"messages": USER}, "messages"),
        (TURN | {"text": "<|secret|>"}, "prompt"),
        ({"op": "choose", "index": 0}, "op"),
        ({"op": "cancel"}, "op"),
    ]
    async with connected(asked.served, STORY + "/ws", **bearer("all")) as socket:
        for message, param in wrong:
            await socket.send_json(message)
            (*_, error) = await until(socket, event("error"))
            assert error["param"] == param, error
        await socket.send_json(TURN)
        await until(socket, event("done", turn=0))
        await socket.send_json({"op": "choose", "index": 3})
        assert (await socket.receive_json())["message"] == "index is 3; it must be between 0 and 2"
    assert [parts_of(note) for note in asked.got("poem")] == ["(<p>)(<u>)hi(<a>)"]


async def test_an_unknown_task_is_an_error_before_the_handshake(asked: Asked) -> None:
    for path, key, status in (("/v1/tasks/stori/ws", "all", 404), (BRIEF + "/ws", "story", 403)):
        with pytest.raises(aiohttp.WSServerHandshakeError) as raised:
            async with connected(asked.served, path, **bearer(key)):
                pass
        assert raised.value.status == status


@pytest.fixture
async def slow(serving: Serving, tmp_path: Path) -> Served:
    """A task of a slow engine."""
    engine = engine_of(tmp_path, "tale", "--endless", "--token-delay", "0.01")
    file = tmp_path / "srb.toml"
    file.write_text(f'engine = "{engine}"\n[tasks.story]\nprefix = "<u>"\nn = 2')
    return await serving(config=str(file))


LONG = TURN | {"max_tokens": 100_000}


async def test_a_candidate_may_be_chosen_while_others_run(slow: Served) -> None:
    async with connected(slow, STORY + "/ws") as socket:
        await socket.send_json(LONG)
        await until(socket, event("stream", index=1))
        await socket.send_json({"op": "cancel", "index": 0})
        await until(socket, event("stop", index=0))
        await socket.send_json({"op": "choose", "index": 1})
        (*_, error) = await until(socket, event("error"))
        assert error["message"].startswith("sequence 1 of turn 0 is running")
        await socket.send_json(TURN)
        (*_, error) = await until(socket, event("error"))
        assert error["message"].startswith("turn 0 is running")
        await socket.send_json({"op": "choose", "index": 0})
        messages = await until(socket, event("chosen", turn=0, index=0))
        assert [one["finish_reason"] for one in messages if one["event"] == "stop"] == ["cancelled"]
        await socket.send_json(TURN | {"max_tokens": 1})
        await until(socket, event("done", turn=1))


async def test_a_cancelled_turn_keeps_its_texts(slow: Served) -> None:
    async with connected(slow, STORY + "/ws") as socket:
        await socket.send_json(LONG)
        await until(socket, event("stream", index=1))
        for index in (1, 0):
            await socket.send_json({"op": "cancel", "index": index})
        await until(socket, event("done", turn=0))
        await socket.send_json({"op": "choose", "index": 1})
        assert (await socket.receive_json())["event"] == "chosen"


async def test_a_cancelled_chat_ends_its_turn(slow: Served) -> None:
    async with connected(slow, STORY + "/ws") as socket:
        await socket.send_json(LONG)
        await socket.send_json({"op": "cancel"})
        messages = await until(socket, event("done", turn=0))
        assert messages[-1]["completion_tokens"] < 50


async def test_a_turn_ends_with_its_client(slow: Served) -> None:
    async with connected(slow, STORY + "/ws") as socket:
        await socket.send_json(LONG)
        await until(socket, event("stream", index=1))
    async with connected(slow, STORY + "/ws") as socket:
        await socket.send_json(TURN | {"max_tokens": 1})
        await until(socket, event("done", turn=0))
    async with slow.http.get(slow.url + "/v1/stats") as response:
        assert (await response.json())["requests_open"] == 0
