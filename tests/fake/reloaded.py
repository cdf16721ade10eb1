"""A server whose settings change while it runs: their file, SIGHUP, requests without an end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.served import frames
from tests.support.several import Several, tables
from tests.support.waiting import soon, until

CHECKED = "SIGHUP: keys, presets and model were checked"
KEPT = "models, tasks and memories stay as they were: "
Tables = dict[str, dict[str, Any]]
FEW = {"prompt": "Once", "n": 2, "max_tokens": 3}
ENDLESS = {"prompt": "Once", "n": 1, "max_tokens": -1}


@dataclass
class Reloaded(Several):
    """A server whose file of settings changes."""

    log: pytest.LogCaptureFixture

    def write(self, models: Tables, top: str = "") -> None:
        file = tables(self.folder, models)
        file.write_text(top + "\n" + file.read_text())

    def hang_up(self) -> int:
        """Sends SIGHUP; returns how many reloads were over before."""
        before = self.log.messages.count(CHECKED)
        os.kill(os.getpid(), signal.SIGHUP)
        return before

    async def reload(self, models: Tables | None = None, top: str = "") -> list[str]:
        """Writes the file and sends SIGHUP; returns the log's lines about the models."""
        if models is not None:
            self.write(models, top)
        self.log.clear()
        before = self.hang_up()
        await until(lambda: self.log.messages.count(CHECKED) > before)
        return self.told("models")

    def told(self, kind: str) -> list[str]:
        """The log's lines about models, tasks or memories, and about faults."""
        start = f"SIGHUP: {kind}: "
        return [line.removeprefix(start) for line in self.log.messages if line.startswith((start, KEPT))]

    async def names(self) -> list[str]:
        return [one["id"] for one in (await self.get("/v1/models"))["data"]]

    async def state(self, name: str) -> str:
        return str((await self.get(f"/v1/models/{name}"))["status"]["value"])

    async def ask(self, model: str | None = None, **fields: Any) -> dict[str, Any]:
        """The last event of a request that may fail."""
        body = {**FEW, **fields} if model is None else {**FEW, "model": model, **fields}
        status, data = await self.served.post(body, "/v1/events")
        return frames(data)[-1] if status == 200 else {"event": status, **json.loads(data)["error"]}

    async def serves(self, model: str | None = None, **fields: Any) -> bool:
        return (await self.ask(model, **fields))["event"] == "done"

    def pids(self, model: str) -> list[int]:
        return [note["pid"] for note in self.noted(model) if note["what"] == "loading"]


@contextlib.asynccontextmanager
async def running(server: Reloaded, model: str = "tale") -> AsyncIterator[Running]:
    """A request without an end, which an engine has."""
    url = server.served.url + "/v1/events"
    async with server.served.http.post(url, json={**ENDLESS, "model": model}) as response:
        events = Running(response)
        await events.until("stream")
        yield events


@dataclass
class Running:
    """The events of a request without an end."""

    response: Any
    id: str = ""

    async def next(self) -> dict[str, Any]:
        while True:
            line = await soon(self.response.content.readline())
            assert line, "the stream has ended"
            if line.startswith(b"data: {"):
                event: dict[str, Any] = json.loads(line[6:])
                self.id = self.id or event["id"]
                return event

    async def until(self, kind: str) -> dict[str, Any]:
        while (event := await self.next())["event"] != kind:
            pass
        return event

    async def finish(self, server: Reloaded) -> None:
        """It runs on, until it is cancelled by its id."""
        for _ in range(3):
            assert (await self.next())["event"] == "stream"
        assert (await server.status("DELETE", f"/v1/completions/{self.id}"))[0] == 200
        await self.until("done")
