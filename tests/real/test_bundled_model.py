"""The bundled model is the one of its card (models/README.md), and the card's figures are true."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Iterator

import pytest
from gguf import GGUFReader

from models.figures import LONGEST, STORY, Engine, bits_per_byte, samples, self_bleu
from tests.support.places import BINARY, ROOT

MODEL, CARD = ROOT / "models/storyteller.gguf", ROOT / "models/README.md"
MOST_BYTES = 10_000_000
CONTEXT = 1024
METADATA = {
    "general.architecture": "llama",
    "general.name": "Storyteller",
    "general.author": "llama-srb",
    "general.license": "CDLA-Sharing-1.0 (training data)",
    "llama.context_length": CONTEXT,
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.add_bos_token": True,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(MODEL, "-c", "16384", "-np", "40", "-t", "2") as engine:
        yield engine


@pytest.fixture(scope="module")
def stories(engine: Engine) -> tuple[list[str], float]:
    """40 stories at the card's middle temperature, and the share of them that the model ended."""
    return samples(engine, 40, temperature=0.85)


def on_the_card(pattern: str) -> str:
    found = re.search(pattern, CARD.read_text(encoding="utf-8"))
    assert found, f"the card has no {pattern}"
    return found[1]


def test_the_file_is_that_of_the_card() -> None:
    data = MODEL.read_bytes()
    assert hashlib.sha256(data).hexdigest() == on_the_card(r"sha256 \| ([0-9a-f]{64})")
    assert len(data) <= MOST_BYTES


def test_the_metadata_has_the_expected_names_and_licence() -> None:
    fields = GGUFReader(MODEL).fields
    assert {name: fields[name].contents() for name in METADATA} == METADATA
    assert "tokenizer.chat_template" not in fields


def test_stories_end_by_themselves(stories: tuple[list[str], float]) -> None:
    texts, ended = stories
    assert ended >= 0.8, f"{ended:.0%} end within {LONGEST} tokens"
    assert min(len(text.split()) for text in texts) > 20  # words; a story that ends at once is none


def test_stories_of_one_prompt_differ(stories: tuple[list[str], float]) -> None:
    texts, _ = stories
    assert len(set(texts)) == len(texts)
    assert self_bleu(texts[:8]) < 0.5  # 1 when all are the same


def test_a_new_story_has_the_bits_per_byte_that_the_card_says(engine: Engine) -> None:
    said = float(on_the_card(r"fox and his stone \| ([0-9.]+) bits per byte"))
    assert bits_per_byte(engine, [STORY], CONTEXT) == pytest.approx(said, rel=0.005)


def test_the_engine_starts_without_warnings() -> None:
    """The server logs the engine's warnings, and operators read them."""
    done = subprocess.run([BINARY, "-m", MODEL], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
