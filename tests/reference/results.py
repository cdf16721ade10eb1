"""The reference of design §4, law 3: llama.cpp's own tool llama-results gives the logits of every token of a
text, computed in one batch by one sequence.

The tool is compiled from llama.cpp's tools/results/results.cpp and linked with the libraries that build.sh
has compiled, which takes seconds where a tree of its own would take minutes. They are unpatched as long as
patches/ changes nothing but CMakeLists.txt; a patch that changes more is refused here, for then the reference
needs libraries of its own.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from tests.conftest import ROOT
from tests.reference.models import write_plain


def build() -> Path:
    """Compiles llama-results beside the objects of build/bin/llama-batched, once."""
    cache = Path(os.environ.get("LLAMA_SRB_CACHE") or _cache_home() / "llama-srb")
    objects = cache / "objects" / (ROOT / "build/stamp").read_text()[:16]
    tool = objects / "reference/llama-results"
    if not tool.exists():
        _refuse_patched_code()
        tool.parent.mkdir(exist_ok=True)
        unfinished = tool.with_name(f"llama-results-{os.getpid()}")
        for command in _commands(objects, unfinished):
            done = subprocess.run(command, cwd=objects, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr[-3000:]}"
        unfinished.with_suffix(".o").unlink()
        unfinished.replace(tool)
    return tool


def _cache_home() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _refuse_patched_code() -> None:
    names = {
        name
        for patch in (ROOT / "patches").glob("*.patch")
        for name in re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE)
    }
    assert names <= {"CMakeLists.txt"}, f"patched: {names}; the reference needs libraries compiled without"


def _commands(objects: Path, output: Path) -> list[list[str]]:
    """llama-batched's own compile and link commands, with the tool's source in place of ours."""
    entries = json.loads((objects / "compile_commands.json").read_text())
    ours = next(entry for entry in entries if entry["file"].endswith("/engine/main.cpp"))
    home = re.search(
        r"^CMAKE_HOME_DIRECTORY:\w+=(.+)$", (objects / "CMakeCache.txt").read_text(), re.MULTILINE
    )
    assert home
    source, object = f"{home[1]}/tools/results/results.cpp", str(output.with_suffix(".o"))
    compile = _without(shlex.split(ours["command"]), "-o", "-c")
    ninja = re.search(
        r"^CMAKE_MAKE_PROGRAM:\w+=(.+)$", (objects / "CMakeCache.txt").read_text(), re.MULTILINE
    )
    assert ninja
    shown = subprocess.run(
        [ninja[1], "-t", "commands", "llama-batched"], cwd=objects, capture_output=True, text=True, check=True
    )
    link = shlex.split(shown.stdout.splitlines()[-1].removeprefix(": && ").removesuffix(" && :"))
    link = [word for word in _without(link, "-o") if not word.startswith("llama-batched/")]
    return [
        [*compile, "-std=gnu++17", "-o", object, "-c", source],
        [link[0], object, *link[1:], "-o", str(output)],
    ]


def _without(words: list[str], *options: str) -> list[str]:
    """The command without these options and the word that follows each of them."""
    dropped = {i + k for i, word in enumerate(words) if word in options for k in (0, 1)}
    return [word for i, word in enumerate(words) if i not in dropped]


class Reference:
    """Log-probabilities of token sequences of the plain model, by a process of llama-results for each.

    The tool takes text, and generated tokens are seldom the tokenizer's own split of theirs, so it gets the
    model in which token 17 is written "<17>".
    """

    def __init__(self, folder: Path, *flags: str) -> None:
        self._output = folder / "results.gguf"
        model = folder / "written_as_ids.gguf"
        if not model.exists():
            write_plain(model, written_as_ids=True)
        self._argv = [str(build()), "-m", str(model), "-o", str(self._output), "-t", "1", *flags]

    def logprobs(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Row i: what the model expects after tokens[: i + 1]; shape (len(tokens), n_vocab)."""
        text = "".join(f"<{token}>" for token in tokens)
        done = subprocess.run([*self._argv, "-p", text], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        found = {tensor.name: tensor.data for tensor in GGUFReader(self._output).tensors}
        assert found["tokens"].tolist() == list(tokens)
        logits = np.array(found["logits"], dtype=np.float64).reshape(len(tokens), -1)
        self._output.unlink()
        logits -= logits.max(axis=1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


if __name__ == "__main__":
    print(build())
