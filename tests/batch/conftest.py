"""Servers in the test's process, with the fake engine and a folder of files."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.served import Serving, servers


@pytest.fixture
async def serving(tmp_path: Path) -> AsyncIterator[Serving]:
    async with servers(tmp_path) as start:
        yield start
