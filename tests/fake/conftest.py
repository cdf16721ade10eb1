"""Servers of a test's own, with the fake engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.served import Serving, servers


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    """Starts servers: flags are the fake engine's, keywords are settings."""
    async with servers(tmp_path) as start:
        yield start
