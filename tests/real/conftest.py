"""Models that tests of the real engine make, once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.models import write_bigram, write_plain


@pytest.fixture(scope="session")
def bigram(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logits that are the same bits whatever the batch: what differs then is the engine's doing."""
    path = tmp_path_factory.mktemp("bigram") / "bigram.gguf"
    write_bigram(path)
    return path


@pytest.fixture(scope="session")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled model in F32."""
    path = tmp_path_factory.mktemp("plain") / "plain.gguf"
    write_plain(path)
    return path
