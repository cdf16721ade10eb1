"""Servers in the test's process, with the fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.served import Serving, servers


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """A function that starts servers: flags are the fake engine's, keywords are settings."""
    async with servers(tmp_path) as start:
        yield start
