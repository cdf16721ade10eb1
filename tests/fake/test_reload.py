"""SIGHUP on a server of models by name: they are added, changed and removed, and no request is lost."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llama_srb.models.gguf_header import ModelFileError
from llama_srb.request.parse import parse_body
from tests.fake.reloaded import CHECKED, KEPT, Reloaded, Tables, running
from tests.support.models import write_adapter
from tests.support.processes import children
from tests.support.served import frames
from tests.support.several import MODEL, engine_of, tables
from tests.support.waiting import PATIENCE, soon, until

TALE: dict[str, Any] = {"flags": ["--endless"], "aliases": ["gpt"]}
SLOW = ["--endless", "--load-seconds", "0.5"]


# What changes


async def test_without_a_change_nothing_happens(start: Any) -> None:
    server = await start({"tale": TALE})
    assert await server.serves("tale")
    assert await server.reload() == ["no change"]
    assert await server.serves("tale")
    assert len(server.pids("tale")) == 1


async def test_a_model_is_added(start: Any) -> None:
    server = await start({"tale": TALE})
    assert (await server.ask("poem"))["event"] == 404
    assert await server.reload({"tale": TALE, "poem": {"aliases": ["verse"]}}) == ["added poem"]
    assert await server.names() == ["tale", "poem"]
    assert await server.state("poem") == "unloaded"
    assert await server.serves("verse")
    assert await server.serves("gpt")


async def test_an_added_model_with_preload_is_loaded_before_it_is_served(start: Any) -> None:
    server = await start({"tale": TALE})
    await server.reload({"tale": TALE, "poem": {"preload": True, "flags": SLOW}})
    assert await server.state("poem") == "loaded"


async def test_a_removed_model_is_unknown_and_its_engine_ends(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    assert await server.serves("poem")
    assert await server.reload({"tale": TALE}) == ["removed poem"]
    assert (await server.ask("poem"))["code"] == "model_not_found"
    await until(lambda: not children())
    assert await server.names() == ["tale"]


async def test_the_order_of_the_file_and_the_default_are_new(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    assert (await server.reload({"poem": {}, "tale": TALE})) == ["no change"]
    assert await server.names() == ["poem", "tale"]
    assert await server.serves()
    assert server.ops("poem", "generate") == 1
    lines = await server.reload({"poem": {}, "tale": TALE}, 'default_model = "gpt"\nmodels_max = 2')
    assert lines == ["settings default_model, models_max"]
    assert await server.serves()
    assert await server.serves("unknown")
    assert server.ops("tale", "generate") == 2


async def test_the_first_model_is_removed_and_the_next_one_is_the_default(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    await server.reload({"poem": {}})
    assert await server.serves()
    assert server.ops("poem", "generate") == 1


IN_PLACE: list[tuple[dict[str, Any], dict[str, Any]]] = [  # of a table; what is then said of it
    ({"aliases": ["new"]}, {"aliases": ["new"]}),
    ({"tags": ["old"]}, {"tags": ["old"]}),
]


@pytest.mark.parametrize(("fields", "expected"), IN_PLACE)
async def test_facts_change_while_the_engine_stays(
    start: Any, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    server = await start({"tale": TALE})
    async with running(server) as request:
        assert await server.reload({"tale": {**TALE, **fields}}) == ["changed tale"]
        entry = await server.get("/v1/models/tale")
        assert {name: entry[name] for name in expected} == expected
        await request.finish(server)
    assert await server.serves(expected.get("aliases", ["tale"])[0])
    assert len(server.pids("tale")) == 1


async def test_defaults_of_requests_change_in_place(start: Any) -> None:
    server = await start({"tale": {"n": 2, "max_n": 4}})
    await server.ask("tale")
    changed = {"n": 3, "max_n": 3, "sampling": {"temperature": 0.25}}
    assert await server.reload({"tale": changed}) == ["changed tale"]
    status, data = await server.served.post(
        {"prompt": "Once", "max_tokens": 2, "model": "tale"}, "/v1/events"
    )
    assert (status, {event["index"] for event in frames(data) if "index" in event}) == (200, {0, 1, 2})
    *_, last = (note for note in server.noted("tale") if note["what"] == "generate")
    assert last["sampling"]["temperature"] == 0.25
    refused = await server.ask("tale", n=4)
    assert (refused["event"], refused["param"]) == (400, "n")
    assert len(server.pids("tale")) == 1


async def test_unload_after_is_live(start: Any) -> None:
    server = await start({"tale": TALE})
    assert await server.serves("tale")
    await server.reload({"tale": {**TALE, "unload_after": "0.1s"}})
    await until(lambda: not children())
    assert await server.state("tale") == "unloaded"


async def test_preload_that_is_new_loads_the_model(start: Any) -> None:
    server = await start({"tale": TALE})
    await server.reload({"tale": {**TALE, "preload": True}})
    await until(lambda: server.pids("tale"))


# Engines


async def test_another_engine_is_loaded_beside_the_old_one_whose_requests_finish(start: Any) -> None:
    server = await start({"tale": {**TALE, "flags": SLOW}})
    async with running(server) as request:
        assert await server.reload({"tale": {**TALE, "flags": SLOW, "ctx": 512}}) == ["changed tale"]
        assert await server.state("tale") == "loaded", "it was loaded first"
        assert len(children()) == 2
        async with running(server) as other:
            await request.finish(server)
            await until(lambda: len(children()) == 1)
            await other.finish(server)
    assert len(server.pids("tale")) == 2


async def test_a_new_engine_has_the_preludes_of_tasks(start: Any) -> None:
    task = '[tasks.story]\nmodel = "gpt"\nprelude = "Once"\n'
    server = await start({"tale": TALE}, task)
    assert await server.serves("story")
    for ctx in (512, 256):
        await server.reload({"tale": {**TALE, "ctx": ctx}}, task)
        assert await server.serves("story")
    pins = [note["name"] for note in server.noted("tale") if note["what"] == "pin"]
    assert pins == ["task story"] * len(server.pids("tale")) == ["task story"] * 3


async def test_a_model_that_was_not_loaded_is_not_loaded_after_a_change(start: Any) -> None:
    server = await start({"tale": TALE})
    await server.reload({"tale": {**TALE, "ctx": 512}})
    assert children() == set()
    assert await server.serves("tale")


async def test_without_room_the_new_engine_loads_after_the_requests_of_the_old_one(start: Any) -> None:
    server = await start({"tale": TALE}, "models_max = 1")
    async with running(server) as request:
        changed = {"tale": {**TALE, "ctx": 512}}
        assert await server.reload(changed, "models_max = 1") == ["changed tale"]
        waiting = asyncio.create_task(server.serves("tale"))
        await asyncio.sleep(0.1)
        assert (len(children()), waiting.done()) == (1, False)
        await request.finish(server)
    assert await soon(waiting)
    assert len(server.pids("tale")) == 2


async def test_without_room_and_requests_the_model_is_loaded_again(start: Any) -> None:
    server = await start({"tale": TALE}, "models_max = 1")
    assert await server.serves("tale")
    await server.reload({"tale": {**TALE, "ctx": 512}}, "models_max = 1")
    await until(lambda: len(server.pids("tale")) == 2)
    await until(lambda: len(children()) == 1)


async def test_waiting_requests_of_a_changed_model_are_served(start: Any) -> None:
    server = await start({"tale": {**TALE, "flags": SLOW}}, "models_max = 1")
    waiting = [asyncio.create_task(server.serves("tale")) for _ in range(5)]
    await until(lambda: server.pids("tale"))
    await server.reload({"tale": {**TALE, "flags": SLOW, "ctx": 512}}, "models_max = 1")
    waiting += [asyncio.create_task(server.serves("tale")) for _ in range(5)]
    assert await soon(asyncio.gather(*waiting)) == [True] * 10
    await until(lambda: len(children()) == 1)


async def test_requests_of_a_removed_model_finish_also_those_that_wait(start: Any) -> None:
    models = {"tale": {**TALE, "flags": SLOW}, "poem": {"flags": ["--endless"]}}
    server = await start(models, "models_max = 1\nmodels_wait = 0.3")
    async with running(server, "poem") as request:
        waiting = [asyncio.create_task(server.serves("tale")) for _ in range(5)]
        while (await server.get("/v1/stats"))["requests_open"] < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await server.reload({"other": {}}, "models_max = 1\nmodels_wait = 0.3")
        assert (await server.ask("tale"))["event"] == 404
        extended = await server.status("POST", f"/v1/completions/{request.id}/extend", {"add": 1})
        assert extended[0] == 200, "a running request of a removed model is found by its id"
        await request.finish(server)
        assert await soon(asyncio.gather(*waiting)) == [True] * 5
    assert await server.serves("other")
    await until(lambda: len(children()) == 1)


class Held(ThreadPoolExecutor):
    """Threads in which only JSON is read; other work waits until it is set free."""

    def __init__(self) -> None:
        super().__init__()
        self.free, self.n_held = threading.Event(), 0

    def submit(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        if call.args[0] is not parse_body:
            self.n_held += 1
            args, call = (call, *args), self._later
        return super().submit(call, *args, **kwargs)

    def _later(self, call: Any, *args: Any) -> Any:
        self.free.wait()
        return call(*args)


async def test_a_request_that_has_chosen_a_removed_model_is_served(start: Any) -> None:
    """Its fields are read in a thread, so it is not in the model's pool yet."""
    server = await start({"tale": {}, "poem": {}})
    assert await server.serves("tale")
    threads = Held()
    asyncio.get_running_loop().set_default_executor(threads)
    try:
        asks = [asyncio.create_task(server.serves("tale", ignored="x" * 100_000)) for _ in range(6)]
        await until(lambda: threads.n_held == 6)
        assert await server.reload({"poem": {}}) == ["removed tale"]
        assert len(children()) == 1
    finally:
        threads.free.set()
    assert await soon(asyncio.gather(*asks)) == [True] * 6
    await until(lambda: not children())


async def test_a_load_that_waits_gets_the_changed_model(start: Any) -> None:
    tale = {**TALE, "flags": ["--no-ready"]}
    server = await start({"tale": tale, "poem": {}})
    load = asyncio.create_task(server.status("POST", "/v1/models/tale/load"))
    gone = asyncio.create_task(server.status("POST", "/v1/models/poem/load"))
    await until(lambda: server.pids("tale"))
    assert (await soon(gone))[0] == 200
    engine_of(server.folder, "tale", "--endless")
    await server.reload({"tale": {**TALE, "ctx": 512}})
    status, answer = await soon(load)
    assert (status, answer["status"]["value"]) == (200, "loaded")
    await until(lambda: len(children()) == 1)


async def test_a_load_that_waits_for_a_removed_model_says_so(start: Any) -> None:
    server = await start({"tale": {**TALE, "flags": ["--no-ready"]}, "poem": {}})
    load = asyncio.create_task(server.status("POST", "/v1/models/tale/load"))
    await until(lambda: server.pids("tale"))
    await server.reload({"poem": {}})
    status, answer = await soon(load)
    assert (status, "was removed" in answer["error"]["message"]) == (503, True)
    await until(lambda: not children())


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_no_request_is_lost_while_models_come_change_and_go(start: Any, mode: str) -> None:
    server = await start({"tale": {**TALE, "engine_mode": mode}}, "models_max = 2\nmodels_wait = 0.2")
    results: list[str] = []
    over = False

    async def client(names: Sequence[str]) -> None:
        while not over:
            for name in names:
                results.append(str((await server.ask(name))["event"]))

    clients = [asyncio.create_task(client(names)) for names in (["tale"], ["gpt", "tale"], ["poem", "gpt"])]
    for k in range(8):
        poem = {"poem": {"ctx": 256 * (k // 2 + 1), "preload": k % 2 == 0}} if k % 4 != 3 else {}
        models = {"tale": {**TALE, "engine_mode": mode, "ctx": 512 + 256 * (k // 3)}, **poem}
        server.write(models, f"models_max = {2 + k % 2}\nmodels_wait = 0.2")
        await server.reload()
        n_done = results.count("done")
        await until(lambda enough=n_done + 3: results.count("done") >= enough)
    over = True
    await soon(asyncio.gather(*clients))
    assert set(results) <= {"done", "404"}, "404 is poem, before it was added or after it was removed"
    if mode == "resident":
        await until(lambda: len(children()) <= 2)
    assert "Traceback" not in server.log.text


async def test_a_websocket_uses_the_models_of_now_and_finishes_those_of_before(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    url = server.served.url.replace("http", "ws") + "/v1/ws"

    def asked(id: str, model: str, **fields: Any) -> str:
        return json.dumps({"op": "generate", "id": id, "prompt": "Once", "n": 1, "model": model, **fields})

    async with server.served.http.ws_connect(url) as socket:
        await socket.send_str(asked("a", "tale", max_tokens=-1))
        while (await soon(socket.receive_json()))["event"] != "stream":
            pass
        await server.reload({"poem": {}, "other": {}})
        await socket.send_str(asked("b", "tale", max_tokens=2))
        await socket.send_str(asked("c", "other", max_tokens=2))
        ends: dict[str, str] = {}
        while len(ends) < 2:
            event = await soon(socket.receive_json())
            if event["event"] in ("error", "done"):
                ends[event["id"]] = event["event"]
        assert ends == {"b": "error", "c": "done"}
        assert (await soon(socket.receive_json()))["id"] == "a"


# Faults: all stays as it was

FAULTS: dict[str, tuple[str, str]] = {  # the file; a part of the message
    "no TOML": ("[models.tale\n", "several.toml"),
    "an unknown setting": ('[models.tale]\npath = "x.gguf"\nctxx = 5\n', "did you mean ctx?"),
    "a file that is not there": ('{tale}[models.b]\npath = "none.gguf"\n', "none.gguf"),
    "a file that is no model": ('{tale}[models.b]\npath = "several.toml"\n', "several.toml"),
    "a wrong default": ("{tale}sampling = {{ temperature = 'hot' }}\n", "sampling is wrong"),
    "no engine": ('{tale}[models.b]\npath = "{model}"\nengine = "/none"\n', "there is no engine"),
    "an engine that is no program": (
        '{tale}[models.b]\npath = "{model}"\nengine = "several.toml"\n', "not executable"),
    "an unknown default": ('default_model = "other"\n{tale}', "other"),
    "two models of one name": ('{tale}[models.b]\npath = "{model}"\naliases = ["gpt"]\n', "gpt"),
    "no models": ("ctx = 512\n", "a server of one model needs a restart"),
    "no table": ("[models]\n", "[models] of the --config file is empty"),
    "an engine that does not load, for each request": (
        '{tale}[models.b]\npath = "{model}"\nengine = "bad.engine"\npreload = true\n'
        'engine_mode = "per-request"\n', "exit code 3"),
    "an engine that does not load": (
        '{tale}[models.b]\npath = "{model}"\nengine = "bad.engine"\npreload = true\n', "exit code 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
async def test_one_fault_and_all_stays_as_it_was(start: Any, name: str) -> None:
    server = await start({"tale": TALE})
    file = server.folder / "several.toml"
    before, (text, part) = file.read_text().strip(), FAULTS[name]
    engine_of(server.folder, "bad", "--exit-while-loading", "3")
    path = next(line.split('"')[1] for line in before.splitlines() if line.startswith("path"))
    async with running(server) as request:
        models = await server.get("/v1/models")
        new = before.replace('["gpt"]', '["new", "gpt"]') + "\nctx = 512\n"
        file.write_text(text.format(tale=new, model=path) if "{" in text else text)
        (line,) = await server.reload()
        assert line.startswith(KEPT)
        assert part in line
        assert "Traceback" not in server.log.text
        assert await server.get("/v1/models") == models
        assert (await server.ask("new"))["event"] == 404
        await until(lambda: len(children()) == 1)
        await request.finish(server)
    file.write_text(before + '\ntags = ["mended"]')
    assert await server.reload() == ["changed tale"]
    assert (await server.get("/v1/models/tale"))["tags"] == ["mended"]
    assert await server.serves("gpt")
    assert len(server.pids("tale")) <= 2


async def test_a_changed_model_that_does_not_load_stays_as_it_was(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    async with running(server) as request:
        (server.folder / "bad").write_text("")
        bad = engine_of(server.folder, "bad", "--exit-while-loading", "3")
        file = server.folder / "several.toml"
        text = file.read_text()
        file.write_text(text.replace("tale.engine", bad.name) + "[models.other]\npath = 'x.gguf'\n")
        assert "x.gguf" in (await server.reload())[0]
        file.write_text(text.replace("tale.engine", bad.name))
        (line,) = await server.reload()
        assert line.startswith(KEPT + "the model tale cannot be loaded: ")
        await request.finish(server)
    assert await server.serves("tale")
    assert len(server.pids("tale")) == 1


# Settings of the server


async def test_what_needs_a_restart_is_named_and_keeps_its_value(start: Any) -> None:
    server = await start({"tale": TALE}, "max_queue = 7\nstrict = false")
    lines = await server.reload({"tale": TALE, "poem": {}}, "max_queue = 0\nstrict = true\ncache_ram = 5")
    assert lines == ["added poem; only a restart changes cache_ram, strict, max_queue"]
    assert await server.serves("tale", unknown_field=1), "not strict"
    assert await server.serves("poem", unknown_field=1)
    lines = await server.reload({"tale": TALE, "poem": {}}, "max_queue = 0\nstrict = true\ncache_ram = 5")
    assert lines == ["only a restart changes cache_ram, strict, max_queue"]
    assert [len(server.pids(name)) for name in ("tale", "poem")] == [1, 1]


async def test_limits_are_live(start: Any) -> None:
    models = {"tale": TALE, "poem": {}, "other": {}}
    server = await start(models, "models_max = 1")
    for name in models:
        assert await server.serves(name)
    assert len(children()) == 1
    await server.reload(models, "models_max = 3")
    for name in models:
        assert await server.serves(name)
    assert len(children()) == 3
    await server.reload(models, "models_max = 2")
    await until(lambda: len(children()) == 2)
    await server.reload(models, 'models_memory = "1MiB"')
    await until(lambda: len(children()) <= 1)
    assert "models-memory" in (await server.ask("tale"))["message"]
    await server.reload(models)
    for name in models:
        assert await server.serves(name), "it is no longer too large"


async def test_a_folder_of_models_is_read_again(start: Any, tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "one.gguf").symlink_to(MODEL)
    more = {"models_dir": str(folder), "engine": str(engine_of(tmp_path, "all"))}
    server = await start({"tale": TALE}, **more)
    assert await server.names() == ["tale", "one"] or await server.names() == ["one", "tale"]
    (folder / "two.gguf").symlink_to(MODEL)
    (folder / "one.gguf").unlink()
    assert await server.reload() == ["added two; removed one"]
    assert await server.serves("two")


async def test_a_file_of_a_folder_that_is_no_model_is_left_out_until_it_is_one(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "good.gguf").symlink_to(MODEL)
    whole = MODEL.read_bytes()
    (folder / "cut.gguf").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.gguf").touch()
    write_adapter(folder / "pirate.gguf", "llama", 0)
    more = {"models_dir": str(folder), "engine": str(engine_of(tmp_path, "all"))}
    server = await start({"tale": TALE}, **more)
    assert sorted(await server.names()) == ["good", "tale"]
    left_out = [line for line in caplog.messages if line.startswith("a model of --models-dir is left out: ")]
    assert [line.rpartition("/")[2].partition(".")[0] for line in left_out] == ["cut", "empty", "pirate"]
    (folder / "cut.gguf").write_bytes(whole)
    (folder / "good.gguf").unlink()
    (folder / "good.gguf").touch()  # it is served, so its fault changes nothing
    assert await server.reload() == ["added cut"]
    assert any("the model good stays as it was: " in line for line in server.log.messages)
    assert await server.serves("good")
    assert await server.serves("cut")


async def test_the_default_model_is_not_left_out(start: Any, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "empty.gguf").touch()
    more = {"models_dir": str(tmp_path / "models"), "engine": str(engine_of(tmp_path, "all"))}
    with pytest.raises(ModelFileError, match=r"empty.gguf: the file is empty"):
        await start({"tale": TALE}, default_model="empty", **more)


# More than one reload


async def test_two_signals_in_quick_succession_take_the_last_file(start: Any) -> None:
    server = await start({"tale": TALE})
    slow = {"preload": True, "flags": SLOW}
    server.write({"tale": TALE, "poem": slow})
    server.hang_up()
    await until(lambda: server.pids("poem"))
    server.write({"tale": TALE, "other": {}})
    for _ in range(3):
        server.hang_up()
        await asyncio.sleep(0)
    await until(lambda: server.log.messages.count(CHECKED) == 2)
    assert await server.names() == ["tale", "other"]
    await until(lambda: not children())
    told = [line for line in server.log.messages if line.startswith("SIGHUP: models")]
    assert told == ["SIGHUP: models: added poem", "SIGHUP: models: added other; removed poem"]


async def test_a_signal_during_the_start_counts_after_it(
    start: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models: Tables = {"tale": {**TALE, "preload": True, "flags": SLOW}, "poem": {}}
    starting = asyncio.create_task(start(models))
    await until(lambda: (tmp_path / "tale.journal").exists())
    tables(tmp_path, {"other": {}, "poem": {}})
    os.kill(os.getpid(), signal.SIGHUP)
    server = await starting
    await until(lambda: CHECKED in caplog.messages)
    served = next(k for k, line in enumerate(caplog.messages) if line.endswith("serves tale, poem"))
    assert served < caplog.messages.index(CHECKED)
    assert await server.names() == ["other", "poem"]
    assert await server.serves("other")
    await until(lambda: len(children()) == 1)


async def test_a_model_may_return_while_requests_of_the_removed_one_run(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    async with running(server) as request:
        await server.reload({"poem": {}})
        await server.reload({"poem": {}, "tale": TALE})
        async with running(server) as other:
            assert len(children()) == 2
            stats = (await server.get("/v1/stats"))["models"]["tale"]
            assert stats["requests_open"] == 2
            await request.finish(server)
            await other.finish(server)
    await until(lambda: len(children()) == 1)
    assert await server.serves("tale")


async def test_keys_are_read_at_once_while_a_model_loads(start: Any) -> None:
    server = await start({"tale": TALE})
    server.write({"tale": TALE, "poem": {"preload": True, "flags": ["--no-ready"]}})
    server.hang_up()
    await until(lambda: server.pids("poem"))
    presets = asyncio.create_task(server.get("/v1/presets"))
    assert await soon(presets)
    assert await server.serves("tale")


async def test_a_server_stops_while_it_reloads(start: Any) -> None:
    server = await start({"tale": TALE})
    async with running(server):
        server.write({"poem": {"preload": True, "flags": ["--no-ready"]}, "tale": {**TALE, "ctx": 512}})
        server.hang_up()
        await until(lambda: server.pids("poem"))
        await server.served.stack.aclose()
    assert children() == set()


async def test_metrics_and_models_follow(start: Any) -> None:
    server = await start({"tale": TALE, "poem": {}})
    assert await server.serves("tale")
    async with running(server) as request:
        await server.reload({"poem": {}})
        assert await metric(server, "llama_srb_requests_open") == 1
        assert await metric(server, "llama_srb_engine_ready", model="tale") == 1
        await request.finish(server)
    await until(lambda: not children())
    assert await metric(server, "llama_srb_engine_ready", model="tale") == 0
    assert await metric(server, "llama_srb_engine_memory_bytes", model="tale") == 0
    assert await metric(server, "llama_srb_engine_starts_total", model="tale") == 1
    assert list((await server.get("/v1/stats"))["models"]) == ["poem"]
    assert await server.names() == ["poem"]
    await server.reload({"poem": {}, "tale": TALE})
    assert await server.serves("tale")
    assert await metric(server, "llama_srb_engine_starts_total", model="tale") == 2


async def metric(server: Reloaded, name: str, **labels: str) -> float:
    async with server.served.http.get(server.served.url + "/metrics") as response:
        families = text_string_to_metric_families(await response.text())
    (value,) = (
        one.value
        for family in families
        for one in family.samples
        if one.name == name and labels.items() <= one.labels.items()
    )
    return float(value)


async def test_readers_of_models_events_hear_of_it(start: Any) -> None:
    server = await start({"tale": TALE})
    async with server.served.http.get(server.served.url + "/models/sse") as response:
        await server.reload({"poem": {}})
        seen: list[dict[str, Any]] = []
        async with asyncio.timeout(PATIENCE):
            while len(seen) < 2:
                line = await response.content.readline()
                seen += [json.loads(line[6:])] if line.startswith(b"data: {") else []
    assert {(one["model"], one["event"]) for one in seen} == {
        ("tale", "model_remove"), ("*", "models_reload"),
    }  # fmt: skip
