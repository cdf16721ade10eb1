"""The real engine continues a prompt with a model that was downloaded from a hub."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.hub import Hub, running
from tests.support.places import ROOT, STORYTELLER


def test_complete_downloads_a_model_and_continues_a_prompt(tmp_path: Path) -> None:
    with running(Hub({"ann/tales": {"tales-Q4_K_M.gguf": STORYTELLER.read_bytes()}})) as hub:
        environ = os.environ | {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": str(tmp_path),
            "LLAMA_SRB_CACHE": str(tmp_path),
        }
        ended = [
            subprocess.run(
                [sys.executable, "-m", "llama_srb.cli", "complete", "Once upon a time", *model,
                 "-n", "2", "--max-tokens", "8", "--temperature", "0"],
                env=environ, cwd=ROOT, capture_output=True, text=True, timeout=60,
            )
            for model in (["--model", "hf:ann/tales"], ["--model", str(STORYTELLER)])
        ]  # fmt: skip
    assert [one.returncode for one in ended] == [0, 0], [one.stderr for one in ended]
    assert ended[0].stdout
    assert ended[0].stdout == ended[1].stdout
    assert len(hub.stored) == 1
