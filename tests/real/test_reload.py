"""SIGHUP to a real server of models by name, with real engines."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.real.test_life import API, alive, engines_of, eventually
from tests.support.places import STORYTELLER
from tests.support.serving import LASTING, Server

TABLE = f'[models.{{}}]\npath = "{STORYTELLER}"\n'
TALE, POEM, VERSE = (TABLE.format(name) for name in ("tale", "poem", "verse"))
TOP = f"max_queue = 9\nctx = 16384\nengine_args = {json.dumps(LASTING)}\n"
ENDLESS = {"prompt": "Once upon a time,", "n": 2, "max_tokens": -1, "ignore_eos": True}
CHECKED = "SIGHUP: keys, presets and model were checked"


@dataclass(frozen=True)
class Running(Server):
    process: subprocess.Popen[str]
    folder: Path

    def log(self) -> str:
        return (self.folder / "log").read_text()

    def reload(self, text: str) -> str:
        """Writes the file and sends SIGHUP; returns the new lines of the log."""
        (self.folder / "srb.toml").write_text(text)
        before = self.log()
        self.process.send_signal(signal.SIGHUP)
        eventually(lambda: CHECKED in self.log()[len(before) :], "SIGHUP was not heard")
        return self.log()[len(before) :]

    def models(self) -> dict[str, Any]:
        return {one["id"]: one for one in self.json("GET", "/v1/models")[1]["data"]}

    def text(self, model: str) -> str:
        """A greedy text."""
        body = {"model": model, "prompt": "Once upon a time,", "n": 1, "max_tokens": 8, "temperature": 0}
        events = self.events(body, "/v1/events")
        assert events[-1]["event"] == "done", events
        return "".join(event.get("text", "") for event in events if event["event"] == "stream")

    @contextlib.contextmanager
    def streaming(self, model: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of an endless request, from its first text on."""
        with contextlib.closing(self.connect()) as connection:
            connection.request("POST", "/v1/events", json.dumps({**ENDLESS, "model": model}))
            lines = iter(connection.getresponse().readline, b"")
            events = (json.loads(line[6:]) for line in lines if line.startswith(b"data: {"))
            assert next(event for event in events if event["event"] == "stream")
            yield events


@contextlib.contextmanager
def running(folder: Path, text: str) -> Iterator[Running]:
    (folder / "srb.toml").write_text(text)
    command = [*API, "--port", "0", "--stop-grace", "0", "--config", str(folder / "srb.toml")]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout
            line = process.stdout.readline()
            assert line.startswith("http://"), (folder / "log").read_text()
            yield Running(line.split()[0], process.pid, process, folder)
        finally:
            process.terminate()


def test_sighup_adds_changes_and_removes_models_while_requests_run(tmp_path: Path) -> None:
    with running(tmp_path, TOP + TALE + POEM) as server:
        text = server.text("poem")
        with server.streaming("tale") as tale, server.streaming("poem") as poem:
            old = engines_of(server.pid)
            assert len(old) == 2
            said = server.reload(
                TOP.replace("9", "7") + TALE + 'ctx = 8192\naliases = ["gpt"]\n' + VERSE + "preload = true\n"
            )
            line = "SIGHUP: models: added verse; changed tale; removed poem; only a restart changes max_queue"
            assert line in said
            models = server.models()
            assert {name: one["status"]["value"] for name, one in models.items()} == {
                "tale": "loaded",
                "verse": "loaded",
            }
            assert (models["tale"]["meta"]["n_ctx"], models["tale"]["aliases"]) == (8192, ["gpt"])
            assert server.text("gpt") == server.text("verse") == text
            assert server.json("POST", "/v1/events", {"model": "poem", "prompt": "x"})[0] == 404
            assert len(engines_of(server.pid)) == 4, "the requests of before run on"
            for events in (tale, poem):
                assert [next(events)["event"] for _ in range(20)].count("error") == 0
        eventually(lambda: not any(alive(engine) for engine in old), "an old engine has stayed")
        assert len(engines_of(server.pid)) == 2
        assert server.text("tale") == text


def test_with_a_fault_all_stays_as_it_was_and_a_mended_file_is_taken(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(STORYTELLER.read_bytes()[:2_000_000])
    with running(tmp_path, TOP + TALE) as server, server.streaming("tale") as events:
        before, engines = server.models(), engines_of(server.pid)
        for bad, reason in (
            (TALE + 'ctxx = 5\naliases = ["gpt"]\n', "did you mean ctx?"),
            (TALE + 'aliases = ["gpt"]\n' + POEM.replace(str(STORYTELLER), str(broken)), "broken.gguf"),
            (
                TALE + 'engine_args = ["-ctk", "rubbish"]\naliases = ["gpt"]\n',
                "models, tasks and memories stay as they were",
            ),
        ):
            said = server.reload(TOP + bad)
            assert "models, tasks and memories stay as they were: " in said
            assert reason in said
            assert "Traceback" not in said
            assert (server.models(), engines_of(server.pid)) == (before, engines)
            assert next(events)["event"] in ("stream", "stop")
        server.reload(TOP + TALE + 'aliases = ["gpt"]\n')
        assert server.models()["tale"]["aliases"] == ["gpt"]
        assert engines_of(server.pid) == engines
        assert server.text("gpt")


def test_a_model_whose_file_was_replaced_is_loaded_again(tmp_path: Path) -> None:
    model, fresh = tmp_path / "model.gguf", tmp_path / "fresh.gguf"
    for path in (model, fresh):
        path.write_bytes(STORYTELLER.read_bytes())
    table = TALE.replace(str(STORYTELLER), str(model))
    with running(tmp_path, TOP + table + POEM) as server, server.streaming("tale") as events:
        fresh.replace(model)
        said = server.reload(TOP + table + POEM)
        assert "SIGHUP: models: no change" in said
        assert f"{model} is another file now" in said
        assert next(events)["event"] in ("stream", "stop")
        assert len(engines_of(server.pid)) == 2
        assert server.text("tale")
