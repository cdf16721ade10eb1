"""Servers in the test's process, with the fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake.reloaded import Reloaded, Tables
from tests.support.served import Served, Serving, servers


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """A function that starts servers: flags are the fake engine's, keywords are settings."""
    async with servers(tmp_path) as start:
        yield start


@pytest.fixture
async def start(serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Any:
    """A function that starts servers of models by name, whose settings may change."""
    caplog.set_level("INFO")

    async def begin(models: Tables, top: str = "", **options: object) -> Reloaded:
        server = Reloaded(Served("", None, tmp_path, None), tmp_path, caplog)  # type: ignore[arg-type]
        server.write(models, top)
        server.served = await serving(config=str(tmp_path / "several.toml"), **options)
        return server

    return begin
