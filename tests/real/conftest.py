"""Models that are made once a session for tests of the real engine, and a server with the bundled model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.reference.models import write_bigram, write_plain
from tests.support.models import write_chat_model
from tests.support.serving import lasting, server

__all__ = ["chat_model", "lasting", "server"]


def _made(factory: pytest.TempPathFactory, name: str, write: Callable[[Path], None]) -> Path:
    path = factory.mktemp(name) / f"{name}.gguf"
    write(path)
    return path


@pytest.fixture(scope="session")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with the same logits, bit by bit, in any batch: every difference is made by the engine."""
    return _made(tmp_path_factory, "bigram", write_bigram)


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model in F32."""
    return _made(tmp_path_factory, "plain", write_plain)


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose chat template takes tools."""
    return _made(tmp_path_factory, "chat", write_chat_model)
