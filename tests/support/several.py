"""A server of several models in the test's process; each has its own fake engine with its own journal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llama_srb.bundled import CHECKOUT
from tests.support.places import FAKE_COMMAND
from tests.support.served import Served, Serving

MODEL = CHECKOUT / "models" / "storyteller.gguf"


@dataclass
class Several:
    """The server, and the folder of the journals."""

    served: Served
    folder: Path

    def noted(self, model: str) -> list[dict[str, Any]]:
        """What the engine of a model did."""
        journal = self.folder / f"{model}.journal"
        return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []

    def ops(self, model: str, op: str) -> int:
        return sum(note["what"] == op for note in self.noted(model))

    async def get(self, path: str, **headers: str) -> Any:
        async with self.served.http.get(self.served.url + path, headers=headers) as response:
            return json.loads(await response.read())

    async def status(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        url = self.served.url + path
        async with self.served.http.request(method, url, data=data, headers=headers) as response:
            text, form = await response.read(), response.content_type
            return response.status, json.loads(text) if form == "application/json" else text.decode()


def engine_of(folder: Path, name: str, *flags: str) -> Path:
    """A fake engine with a journal of its own."""
    program = folder / f"{name}.engine"
    journal = folder / f"{name}.journal"
    new = folder / f"{name}.engine.new"  # in two steps: a shell must not read half of it
    new.write_text(f'#!/bin/sh\nexec {FAKE_COMMAND} --journal {journal} {" ".join(flags)} "$@"\n')
    new.chmod(0o755)
    return new.replace(program)


def tables(folder: Path, models: dict[str, dict[str, Any]]) -> Path:
    """A file of settings with a table for each model. The key `flags` is of its fake engine."""
    lines = []
    for name, given in models.items():
        table = {"path": str(MODEL), **given}
        table["engine"] = str(engine_of(folder, name, *table.pop("flags", ())))
        adapters = table.pop("adapters", {})
        lines += [f"[models.{name}]", *(f"{key} = {_toml(value)}" for key, value in table.items())]
        if adapters:
            lines += [
                f"[models.{name}.adapters]",
                *(f"{key} = {_toml(one)}" for key, one in adapters.items()),
            ]
    file = folder / "several.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(one)}" for key, one in value.items()) + " }"
    return json.dumps(value)


async def serve(
    serving: Serving, folder: Path, models: dict[str, dict[str, Any]], **options: object
) -> Several:
    """Starts a server of these models."""
    return Several(await serving(config=str(tables(folder, models)), **options), folder)
