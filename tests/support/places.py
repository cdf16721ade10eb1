"""Paths in the checkout."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKE = ROOT / "tests" / "fake_engine"
FAKE_ENGINE = (sys.executable, "-I", "-S", str(FAKE / "__main__.py"))  # starts in 30 ms: -I -S, no runpy
FAKE_COMMAND = shlex.join(FAKE_ENGINE)  # for scripts of a shell
BINARY = ROOT / "build" / "bin" / "llama-batched"
WORLD = (
    ROOT / "tests/studio/sillytavern_world.json"
)  # written by SillyTavern: tests/clients/capture/world_info.py
CHARACTER = ROOT / "tests/studio/sillytavern_character.json"
STORYTELLER = ROOT / "models" / "storyteller.gguf"
