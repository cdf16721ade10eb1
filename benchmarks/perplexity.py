"""Perplexity by llama.cpp's own tool, unpatched and with our patches, for each type of cells.

.venv/bin/python benchmarks/perplexity.py TEXT [--model FILE] [--cells TYPE …] [--chunks N]

TEXT is a file that the model has not been trained on. Prints a table with a row for each type of cells and a
column for each kind of llama.cpp.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

import peers  # noqa: E402

from llama_srb import bundled  # noqa: E402

CELLS = ("f16", "q8_0", "q4_0")
KINDS = get_args(peers.Kind)


def perplexity(kind: peers.Kind, text: Path, model: Path, cells: str, chunks: int) -> str:
    """What llama-perplexity estimates, with its error; its flags are its own, but for the cells."""
    command = [str(peers.programs(kind) / "llama-perplexity"), "-m", str(model), "-f", str(text), "-fa", "on",
               "-ctk", cells, "-ctv", cells, "--chunks", str(chunks), "-t", str(os.cpu_count())]  # fmt: skip
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    found = re.search(r"Final estimate: PPL = ([\d.]+) \+/- ([\d.]+)", said.stdout + said.stderr)
    assert found, said.stderr[-2000:]
    return f"{float(found[1]):.4f} ± {float(found[2]):.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("text", type=Path)
    parser.add_argument("--model", type=Path, default=bundled.model())
    parser.add_argument("--cells", nargs="+", default=CELLS)
    parser.add_argument("--chunks", type=int, default=-1, help="of the model's context; -1: the whole text")
    given = parser.parse_args()
    print(f"| cells | {' | '.join(KINDS)} |\n|---|{'---|' * len(KINDS)}")
    for cells in given.cells:
        found = [perplexity(kind, given.text, given.model, cells, given.chunks) for kind in KINDS]
        print(f"| {cells} | {' | '.join(found)} |", flush=True)


if __name__ == "__main__":
    main()
