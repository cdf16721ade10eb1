"""SIGHUP on a server with tasks: they are added, changed and removed, and no request is lost."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.fake.reloaded import KEPT, Reloaded, running
from tests.fake.test_tasks import parts_of
from tests.support.processes import children
from tests.support.served import Served, Serving
from tests.support.several import MODEL, engine_of
from tests.support.sockets import connected, event, until
from tests.support.waiting import soon

MODELS: dict[str, Any] = {"tale": {"flags": ["--endless"]}, "poem": {"flags": ["--endless"]}}
USER = {"op": "turn", "text": "hi", "n": 1, "max_tokens": 2}


def task(name: str, prelude: str = "", **fields: object) -> str:
    lines = [f"[tasks.{name}]", f'prelude = "{prelude}"', 'prefix = "<u>"']
    return "\n".join([*lines, *(f"{key} = {json.dumps(value)}" for key, value in fields.items())]) + "\n"


STORY = task("story", "Once upon a time", max_tokens=3)


def parts(server: Reloaded, model: str = "tale") -> list[str]:
    """The prompts of a model's requests."""
    return [parts_of(note) for note in server.noted(model) if note["what"] == "generate"]


def pins(server: Reloaded, model: str = "tale") -> list[str]:
    """What a model's engine did with its pins."""
    notes = server.noted(model)
    return [f"{note['what']} {note['name']}" for note in notes if note["what"] in ("pin", "unpin")]


async def names(server: Reloaded) -> list[str]:
    return [one["id"] for one in (await server.get("/v1/tasks"))["data"]]


# ----------------------------------------------------------------------------------------------------
# What changes
# ----------------------------------------------------------------------------------------------------


async def test_tasks_come_change_and_go(start: Any) -> None:
    server = await start(MODELS, STORY + task("brief"))
    assert await server.serves("story")
    await server.reload(MODELS, STORY.replace("Once upon", "Then at") + task("long", model="poem"))
    assert server.told("tasks") == ["added long; changed story; removed brief"]
    assert server.told("models") == ["no change"]
    assert await names(server) == ["story", "long"]
    assert await server.serves("story")
    assert await server.serves("long")
    assert (await server.ask("brief"))["event"] == 404
    assert parts(server) == ["(Once upon a time)(<u>)Once", "(Then at a time)(<u>)Once"]
    assert parts(server, "poem") == ["(<u>)Once"]
    await server.reload(MODELS)
    assert server.told("tasks") == ["removed story, long"]
    await server.reload(MODELS)
    assert server.told("tasks") == []
    assert len(server.pids("tale")) == 1


async def test_a_schema_in_a_file_is_read_again(start: Any) -> None:
    schema = '{{"type": "object", "title": "{}"}}'
    text = task("form", json_schema_file="form.json")
    server = await start(MODELS)
    (server.folder / "form.json").write_text(schema.format("a"))
    await server.reload(MODELS, text)
    assert server.told("tasks") == ["added form"]
    await server.reload(MODELS, text)
    assert server.told("tasks") == ["no change"]
    (server.folder / "form.json").write_text(schema.format("b"))
    await server.reload(MODELS, text)
    assert server.told("tasks") == ["changed form"]


async def test_new_preludes_are_pinned_and_old_ones_released(start: Any) -> None:
    server = await start(MODELS, STORY + task("other", "In the garden"))
    assert await server.serves("story")
    await server.reload(MODELS, STORY + task("third", "At sea"))
    assert pins(server) == ["pin task story", "pin task other", "unpin task other", "pin task third"]
    await server.reload(MODELS, 'default_model = "poem"\n' + STORY + task("third", "At sea", model="tale"))
    assert pins(server)[4:] == ["unpin task story"]
    assert await server.serves("story")
    assert pins(server, "poem") == ["pin task story"]
    assert len(server.pids("tale")) == 1


async def test_a_changed_models_engine_has_the_new_preludes(start: Any) -> None:
    server = await start(MODELS, STORY)
    assert await server.serves("story")
    changed = {**MODELS, "tale": {**MODELS["tale"], "ctx": 512}}
    await server.reload(changed, task("third", "At sea"))
    assert (server.told("tasks"), server.told("models")) == (["added third; removed story"], ["changed tale"])
    assert pins(server) == ["pin task story", "pin task third"]
    assert len(server.pids("tale")) == 2


async def test_an_unloaded_model_pins_the_new_preludes_when_it_is_loaded(start: Any) -> None:
    server = await start(MODELS, STORY)
    await server.reload(MODELS, task("story", "At sea"))
    assert children() == set()
    assert await server.serves("story")
    assert parts(server) == ["(At sea)(<u>)Once"]
    assert pins(server) == ["pin task story"]


# ----------------------------------------------------------------------------------------------------
# Requests that run
# ----------------------------------------------------------------------------------------------------


async def test_a_running_request_finishes_with_the_task_that_it_has(start: Any) -> None:
    server = await start(MODELS, task("story", "Once"))
    async with running(server, "story") as request:
        await server.reload(MODELS)
        assert (await server.ask("story"))["event"] == 404
        await request.finish(server)


async def test_an_open_chat_keeps_its_task(start: Any) -> None:
    server = await start(MODELS, task("story", "Once", stop=["x"]))
    async with connected(server.served, "/v1/tasks/story/ws") as socket:
        await socket.send_json(USER)
        await until(socket, event("done", turn=0))
        await server.reload(MODELS, task("story", "At sea", locked=["n"]))
        await socket.send_json(USER)
        await until(socket, event("done", turn=1))
        await server.reload(MODELS)
        await socket.send_json(USER)
        await until(socket, event("done", turn=2))
    assert [one.split(")")[0] for one in parts(server)] == ["(Once"] * 3
    async with server.served.http.get(server.served.url + "/v1/tasks/story/ws") as response:
        assert response.status == 404


async def test_no_request_is_lost_while_tasks_come_change_and_go(start: Any) -> None:
    server = await start(MODELS, STORY)
    results: list[str] = []
    over = False

    async def client(*models: str) -> None:
        while not over:
            for model in models:
                results.append(str((await server.ask(model))["event"]))

    clients = [asyncio.create_task(client(*one)) for one in (["story"], ["brief", "tale"], ["story", "poem"])]
    for k in range(8):
        brief = task("brief", f"Be brief {k // 2}", model="poem" if k % 3 else "tale") if k % 4 != 3 else ""
        await server.reload(MODELS, task("story", "word " * (k % 3), max_tokens=2 + k % 2) + brief)
        enough = results.count("done") + 3
        await soon(_reaches(results, enough))
    over = True
    await soon(asyncio.gather(*clients))
    assert set(results) <= {"done", "404"}, "404 is brief, before it was added or after it was removed"
    assert [len(server.pids(name)) for name in MODELS] == [1, 1]
    assert "Traceback" not in server.log.text


async def _reaches(results: list[str], count: int) -> None:
    while results.count("done") < count:  # noqa: ASYNC110 (nothing would set an event)
        await asyncio.sleep(0.005)


# ----------------------------------------------------------------------------------------------------
# Faults: all stays as it was
# ----------------------------------------------------------------------------------------------------

FAULTS: dict[str, tuple[str, str]] = {  # the new tasks; a part of the message
    "an unknown field": (task("new", temperatur=1), "did you mean temperature?"),
    "a value out of bounds": (task("new", temperature=-1), "tasks.new"),
    "an unknown model": (task("new", model="tal"), "did you mean tale?"),
    "an unknown memory": (task("new", recall={}).replace("{}", '{ memory = "m" }'), "[memories.m]"),
    "a model's name": (task("poem"), "poem"),
    "a schema that is not there": (task("new", json_schema_file="none.json"), "none.json"),
    "a prelude without room": (task("new", "word " * 9000), "pin task new: 9000 cells would be pinned"),
    "a prelude without room in the second model": (
        task("a", "At sea") + task("new", "word " * 9000, model="poem"), "pin task new: 9000 cells"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_one_fault_and_all_stays_as_it_was(start: Any, name: str) -> None:
    server = await start(MODELS, STORY + task("other", "In the garden"))
    assert await server.serves("story")
    assert await server.serves("poem")
    before = await server.get("/v1/tasks")
    new, part = FAULTS[name]
    async with running(server, "other") as request:
        await server.reload({**MODELS, "added": {}}, new)
        (line,) = server.told("tasks")
        assert line.startswith(KEPT)
        assert part in line
        assert "Traceback" not in server.log.text
        assert await server.get("/v1/tasks") == before
        assert (await server.ask("added"))["event"] == 404
        await request.finish(server)
    status = (await server.get("/v1/stats"))["models"]["tale"]["engine"]
    assert status["cells_pinned"] == 7
    assert await server.serves("story")
    await server.reload(MODELS, STORY)
    assert server.told("tasks") == ["removed other"]


# ----------------------------------------------------------------------------------------------------
# A server of one model
# ----------------------------------------------------------------------------------------------------


async def test_on_a_server_of_one_model_tasks_change_and_other_settings_do_not(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    top = f'model = "{MODEL}"\nengine = "{engine_of(tmp_path, "one", "--endless")}"\n'
    file = tmp_path / "srb.toml"
    file.write_text(top + task("story", "Once upon a time"))
    server = Reloaded(Served("", None, tmp_path, None), tmp_path, caplog)  # type: ignore[arg-type]
    server.served = await serving(config=str(file))
    async with running(server, "story") as request:
        file.write_text(top + "ctx = 512\nn = 3\n" + task("other", "In the garden"))
        await server.reload()
        assert server.told("settings") == ["only a restart changes n, ctx"]
        assert server.told("tasks") == ["added other; removed story"]
        assert await server.serves("other")
        assert pins(server, "one") == ["pin task story", "unpin task story", "pin task other"]
        await request.finish(server)
    file.write_text("ctx = 'no'\n")
    await server.reload()
    assert server.told("tasks")[0].startswith(KEPT + "ctx in ")
    file.write_text(f'[models.one]\npath = "{MODEL}"\n')
    await server.reload()
    assert server.told("tasks") == [
        KEPT + "there are models by name now; they need a restart of this server of one model"
    ]
    assert await server.serves("other")
    file.write_text(top)
    await server.reload()
    assert (server.told("settings"), server.told("tasks")) == ([], ["removed other"])
    assert len(server.pids("one")) == 1
