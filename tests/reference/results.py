"""The reference of law 3 (docs/architecture.md): llama.cpp's own tool llama-results computes the logits of
every token of a text in one batch with one sequence.

The tool is compiled from llama.cpp's tools/results/results.cpp and linked with the libraries that build.sh
has compiled: seconds, where a separate build would take minutes. Sources that patches/ changes are compiled
without the patches and linked before the libraries, so that the linker leaves out the patched objects.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader

from benchmarks import peers
from tests.reference.models import write_plain
from tests.support.places import ROOT
from tests.support.processes import one_at_a_time

# The patches of these classes stay: the libraries are compiled with their members and virtual functions.
# With one sequence in one batch the first changes nothing; the second changes no weight.
KEPT = ("src/llama-memory.h", "src/llama-model-loader.h")


def build() -> Path:
    """Compiles llama-results beside the objects of build/bin/llama-batched, once."""
    objects = peers.objects()
    tool = objects / "reference/llama-results"
    with one_at_a_time("reference"):
        if not tool.exists():
            work = tool.parent.with_name("reference.new")
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            for command in _commands(objects, work):
                done = subprocess.run(command, cwd=objects, capture_output=True, text=True, timeout=600)
                assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr[-3000:]}"
            work.rename(tool.parent)
    return tool


def _patched() -> set[str]:
    """The sources that patches/ changes, without CMake's list; unpatched sources need none that it adds."""
    patches = list((ROOT / "patches").glob("*.patch"))
    changed, added = (set[str]().union(*map(those, patches)) for those in (peers.changes, peers.adds))
    return changed - added - {"CMakeLists.txt"}


def _commands(objects: Path, work: Path) -> list[list[str]]:
    """llama-batched's compile and link commands, changed to compile the tool's source."""
    entries = {entry["file"]: entry for entry in json.loads((objects / "compile_commands.json").read_text())}
    tree = peers.setting("CMAKE_HOME_DIRECTORY")
    ours = next(entry for file, entry in entries.items() if file.endswith("/engine/main.cpp"))
    made = [str(work / "results.o")]
    commands = [_compile(ours, f"{tree}/tools/results/results.cpp", made[0])]
    if _patched():
        commands += _unpatch(Path(tree), work)
    for name in sorted(name for name in _patched() if f"{tree}/{name}" in entries):
        made.append(str(work / f"{Path(name).name}.o"))
        commands.append(_compile(entries[f"{tree}/{name}"], str(work / name), made[-1]))
    shown = subprocess.run(
        [peers.setting("CMAKE_MAKE_PROGRAM"), "-t", "commands", "llama-batched"],
        cwd=objects, capture_output=True, text=True, check=True,
    )  # fmt: skip
    link = shlex.split(shown.stdout.splitlines()[-1].removeprefix(": && ").removesuffix(" && :"))
    link = [word for word in _without(link, "-o") if not word.startswith("llama-batched/")]
    return [*commands, [link[0], *made, *link[1:], "-o", str(work / "llama-results")]]


def _compile(entry: dict[str, str], source: str, output: str) -> list[str]:
    """The same command for another source, with that source's folder first in the search for headers."""
    compiler, *flags = _without(shlex.split(entry["command"]), "-o", "-c")
    return [compiler, f"-I{Path(source).parent}", *flags, "-o", output, "-c", source]


def _unpatch(tree: Path, work: Path) -> list[list[str]]:
    """Copies the folders of patched files and reverts the patches in the copies, the last one first."""
    folders = sorted({str(Path(name).parent) for name in _patched()})
    copies = [
        ["sh", "-c", 'mkdir -p "$1" && cp -R "$0/." "$1"', f"{tree}/{folder}", str(work / folder)]
        for folder in folders
    ]
    return [*copies, *peers.revert_patches(work, "CMakeLists.txt", *KEPT)]


def _without(words: list[str], *options: str) -> list[str]:
    """The command without these options and their arguments."""
    dropped = {i + k for i, word in enumerate(words) if word in options for k in (0, 1)}
    return [word for i, word in enumerate(words) if i not in dropped]


class Reference:
    """Logprobs of the plain model for token sequences, by one process of llama-results for each sequence.

        The tool takes text, and the tokenizer seldom splits a generated text into the same tokens, so it gets
    the model in which token 17 is written "<17>".
    """

    def __init__(self, folder: Path, *flags: str) -> None:
        self._output = folder / "results.gguf"
        model = folder / "written_as_ids.gguf"
        if not model.exists():
            write_plain(model, written_as_ids=True)
        self._argv = [str(build()), "-m", str(model), "-o", str(self._output), "-t", "1", *flags]

    def logprobs(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Row i: the logprobs after tokens[: i + 1]; shape (len(tokens), n_vocab)."""
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
