"""Gets the other sides: llama.cpp's own programs, and OpenVINO GenAI from PyPI.

The programs are compiled as build.sh compiled llama-batched: unpatched, and with our patches. Both kinds use
one CMake tree in the cache (peers/), so switching between them, or changing a patch, compiles only the files
that patches change. A finished kind has a stamp with its source and flags.
"""

from __future__ import annotations

import fcntl
import filecmp
import functools
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ("llama-server", "llama-batched-bench", "llama-perplexity")
Kind = Literal["plain", "patched"]
OPENVINO = "openvino-genai==2026.4.1.0"

# Flags that differ from our build: these programs are tools, and llama-server must not download its pages.
CHANGED = {
    "LLAMA_BUILD_TOOLS": "ON",
    "LLAMA_BUILD_SERVER": "ON",
    "LLAMA_USE_PREBUILT_UI": "OFF",
    "LLAMA_SUBPROCESS": "ON",  # llama-server's router
}
TAKEN = re.compile(
    r"^((?:GGML|LLAMA)_\w+|BUILD_SHARED_LIBS|CMAKE_(?:BUILD_TYPE|MAKE_PROGRAM|\w+_COMPILER(?:_LAUNCHER)?"
    r"|(?:C|CXX|EXE_LINKER)_FLAGS(?=:STRING=.)))"
    r":(?:BOOL|STRING|FILEPATH|UNINITIALIZED)=(.*)$",
    re.MULTILINE,
)


@functools.cache
def programs(kind: Kind) -> Path:
    """The folder of the programs. Compiles them, in minutes, if they are missing or outdated."""
    home = cache() / "peers"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp, wanted = home / kind / "stamp", _made_of(kind)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            _compile(home, kind)
            stamp.write_text(wanted)
    return home / kind


def cache() -> Path:
    """The folder where build.sh keeps sources and objects."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("LLAMA_SRB_CACHE") or Path(home) / "llama-srb")


def objects() -> Path:
    """The CMake tree in which build/bin/llama-batched was compiled."""
    tree = cache() / "objects" / (ROOT / "build/bin/stamp").read_text().split()[-1]
    if not tree.is_dir():
        raise FileNotFoundError(
            f"{tree} is gone: remove build/bin/stamp and run ./build.sh, with the same LLAMA_SRB_CACHE"
        )
    return tree


def setting(name: str) -> str:
    """One CMake setting of that tree."""
    found = re.search(rf"^{name}:\w+=(.+)$", (objects() / "CMakeCache.txt").read_text(), re.MULTILINE)
    assert found, f"{objects()}/CMakeCache.txt has no {name}"
    return found[1]


def revert_patches(folder: Path, *kept: str) -> Iterator[list[str]]:
    """The commands that revert the patches in a folder, the last one first, but not those of `kept` files."""
    for patch in sorted((ROOT / "patches").glob("*.patch"), reverse=True):
        if not changes(patch) & set(kept):
            yield ["patch", "-R", "-p1", "-d", str(folder), "-i", str(patch)]


def changes(patch: Path) -> set[str]:
    """The files that a patch changes or adds."""
    return set(re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE))


def adds(patch: Path) -> set[str]:
    """The files that a patch adds."""
    return set(re.findall(r"^\+\+\+ b/(\S+)\n@@ -0,0 ", patch.read_text(), re.MULTILINE))


def openvino() -> Path:
    """The Python of an environment that has OpenVINO GenAI; downloads it if it is missing."""
    home = cache() / "peers" / "openvino"
    python, done = home / "bin" / "python", home / OPENVINO
    if not done.exists():
        print(f"installing {OPENVINO} into {home}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", OPENVINO], check=True)
        done.touch()
    return python


def _flags() -> dict[str, str]:
    found = dict(TAKEN.findall((objects() / "CMakeCache.txt").read_text())) | CHANGED
    del found["LLAMA_BATCHED_SOURCE"]
    return found


def _made_of(kind: Kind) -> str:
    """The stamp: the source (commit and hash of the patches), the processor and the flags."""
    source = Path(setting("CMAKE_HOME_DIRECTORY")).name
    flags = [f"-D{name}={value}" for name, value in sorted(_flags().items())]
    return "\n".join(
        [source if kind == "patched" else source.rpartition("-")[0], platform.processor(), *flags]
    )


def _compile(home: Path, kind: Kind) -> None:
    source, made = home / "source", home / "objects"
    copy_changed(Path(setting("CMAKE_HOME_DIRECTORY")), source)
    commands = list(revert_patches(source)) if kind == "plain" else []
    flags = [f"-D{name}={value}" for name, value in _flags().items()]
    jobs = str(os.cpu_count())
    cmake = setting("CMAKE_COMMAND")
    commands += [
        [cmake, "-S", str(source), "-B", str(made), "-G", "Ninja", *flags],
        [cmake, "--build", str(made), "--parallel", jobs, "--target", *PROGRAMS],
    ]
    print(f"compiling {', '.join(PROGRAMS)}, {kind}; log: {home}/log", file=sys.stderr)
    with (home / "log").open("w") as log:
        for command in commands:
            subprocess.run(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=True)
    (home / kind).mkdir(exist_ok=True)
    for name in PROGRAMS:
        shutil.copy(made / "bin" / name, home / kind)


def copy_changed(source: Path, target: Path) -> None:
    """Makes a folder equal to another. Equal files keep their times, so that they are not compiled again."""
    wanted, present = _files(source), _files(target)
    for name in present - wanted:
        (target / name).unlink()
    for name in wanted:
        if name not in present or not filecmp.cmp(source / name, target / name, shallow=False):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source / name, target / name)


def _files(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*") if path.is_file()}


if __name__ == "__main__":
    for each in ("plain", "patched"):
        print(programs(each))
