"""Compiles on the machine with the GPU what the pack has as sources: engine, CUDA module, llama-server.

Objects that were compiled before the pack was made are carried and taken as they are. What is made is put
into the folder of the programs, and returned in $OUT in pieces of 15 MiB for pack --compiled.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from programs import ROOT, WORK

PACK, OUT = ROOT / ".gpu", Path(os.environ.get("OUT", WORK / "out"))
SOURCE = WORK / "source"
TREES = {  # a tree of objects: its source, and its targets
    "cuda": (SOURCE / "ggml", ("ggml-cuda",)),
    "objects": (SOURCE, ("llama-batched", "llama-batched-bench", "llama-server")),
}
PROGRAMS = TREES["objects"][1]
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:.0f} s: {text}", flush=True)


def configure() -> None:
    (SOURCE / "ggml/ggml.pc.in").touch()
    given = json.loads((PACK / "flags.json").read_text())
    ours = {"CUDA_cuda_driver_LIBRARY": stub(), "LLAMA_BATCHED_SOURCE": str(ROOT / "engine")} | cublas()
    for name, (source, _) in TREES.items():
        flags = [f"-D{flag}={value}" for flag, value in (given[name] | ours).items()]
        run("cmake", "-S", source, "-B", WORK / name, "-G", "Ninja", *flags)


def cublas() -> dict[str, str]:
    """cuBLAS of a Python package, with the headers that were carried, unless the toolkit has it."""
    toolkit = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve().parents[1]
    if any((toolkit / name / "libcublas.so").exists() for name in ("lib64", "targets/x86_64-linux/lib")):
        return {}
    for site in map(Path, sys.path):
        for library in site.glob("nvidia/c*/lib/libcublas.so.1*"):
            include = f"-isystem {PACK / 'include'}"
            return {"CUDA_cublas_LIBRARY": str(library), "CMAKE_CUDA_FLAGS": include}
    raise SystemExit(f"no cuBLAS in {toolkit} or Python's packages")


def stub() -> str:
    library = WORK / "libcuda.so"
    soname = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    run("cc", *soname, "-o", library, ROOT / "packaging/cuda/libcuda.c")
    return str(library)


def run(*command: str | Path, cwd: Path | None = None, shell: bool = False) -> str:
    done = subprocess.run(
        command[0] if shell else [*map(str, command)],
        cwd=cwd,
        shell=shell,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    with (WORK / "compile.log").open("a") as log:
        log.write(f"{' '.join(map(str, command))[-300:]}\n{done.stdout}")
    if done.returncode != 0:
        print(done.stdout[-3000:])
        raise SystemExit(f"{str(command[-1])[-300:]} exited with {done.returncode}")
    return done.stdout


def build() -> None:
    """Runs ninja's commands without ninja, which would compile again what it has not compiled itself."""
    makes, compiles, links = sorted_commands()
    for tree, command in makes:
        run(command, cwd=tree, shell=True)
    missing = [(tree, command) for tree, command in compiles if not (tree / made_by(command)).exists()]
    missing.sort(key=lambda one: ".cu.o" not in one[1])  # they take longest
    say(f"{len(compiles)} objects, of which {len(compiles) - len(missing)} were carried")
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda one: run(one[1], cwd=one[0], shell=True), missing))
    say("compiled")
    for tree, command in links:
        run(command, cwd=tree, shell=True)


def sorted_commands() -> tuple[list[tuple[Path, str]], list[tuple[Path, str]], list[tuple[Path, str]]]:
    """Commands that make sources, that compile, and that link, each with the folder that it runs in."""
    makes, compiles, links = [], [], []
    for name, (_, targets) in TREES.items():
        tree = WORK / name
        for command in run("ninja", "-C", tree, "-t", "commands", *targets).splitlines():
            if command.startswith("ninja: "):
                continue
            kind = links if command.startswith(": &&") else compiles if " -c " in command else makes
            kind.append((tree, command))
    return makes, compiles, links


def made_by(command: str) -> str:
    found = re.search(r" -o (\S+)", command)
    assert found, command
    return found[1]


def gather() -> None:
    """Programs and libraries, without symbols."""
    (WORK / "bin").mkdir(exist_ok=True)
    trees = [WORK / name for name in TREES]
    libraries = [path for tree in trees for path in tree.rglob("lib*.so")]
    for path in (*(WORK / "objects/bin" / name for name in PROGRAMS), *libraries):
        shutil.copy(path, WORK / "bin")
        run("strip", "--strip-unneeded", WORK / "bin" / path.name)


def return_made() -> None:
    pack = f"tar -C '{WORK}' -c bin | xz -T0 -6 | split -b 15M - '{OUT}/bin.tar.xz.'"
    subprocess.run(["bash", "-o", "pipefail", "-c", pack], check=True)


def main() -> None:
    if (WORK / "bin/libggml-cuda.so").exists():
        say("all is there")
    else:
        configure()
        say("configured")
        build()
        gather()
        say("linked")
        return_made()
        say("returned")


if __name__ == "__main__":
    main()
