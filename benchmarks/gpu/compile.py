"""Compiles engine, CUDA module and llama-server on the machine with the GPU, if the pack has sources.

What is made is put into the folder of the programs, and given back in $OUT in pieces of 15 MiB for
benchmarks/gpu/pack --compiled, so that a later pack carries it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from programs import ROOT, WORK

PACK, OUT = ROOT / ".gpu", Path(os.environ.get("OUT", WORK / "out"))
SOURCE, OBJECTS = WORK / "source", WORK / "objects"
# The second line is needed for comparisons only: if time is short, it is the second line that is missing.
TARGETS = (("ggml-cuda", "llama-batched"), ("llama-batched-bench", "llama-server"))
SITES = [Path(folder) for folder in sys.path]
BEGAN = time.monotonic()


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:.0f} s: {text}", flush=True)


def flags() -> dict[str, str]:
    given: dict[str, str] = json.loads((PACK / "flags.json").read_text())
    return (
        given | cublas() | {"CUDA_cuda_driver_LIBRARY": stub(), "LLAMA_BATCHED_SOURCE": str(ROOT / "engine")}
    )


def cublas() -> dict[str, str]:
    """cuBLAS of a Python package, with the headers that were carried, unless the toolkit has it."""
    toolkit = Path(shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc").resolve().parents[1]
    if any((toolkit / name / "libcublas.so").exists() for name in ("lib64", "targets/x86_64-linux/lib")):
        return {}
    for site in SITES:
        for library in site.glob("nvidia/c*/lib/libcublas.so.1*"):
            include = f"-isystem {PACK / 'include'}"
            return {"CUDA_cublas_LIBRARY": str(library), "CMAKE_CUDA_FLAGS": include}
    raise SystemExit(f"no cuBLAS in {toolkit} or Python's packages")


def stub() -> str:
    library = WORK / "libcuda.so"
    soname = ("-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")
    run("cc", *soname, "-o", library, ROOT / "packaging/cuda/libcuda.c")
    return str(library)


def run(*command: str | Path) -> None:
    log = OUT / "compile.txt"
    with log.open("a") as file:
        done = subprocess.run([*map(str, command)], stdout=file, stderr=file, check=False)
    if done.returncode != 0:
        print(log.read_text()[-3000:])
        raise SystemExit(f"{command[0]} exited with {done.returncode}")


def gather() -> None:
    """Programs and libraries, without symbols."""
    (WORK / "bin").mkdir(exist_ok=True)
    names = [name for line in TARGETS for name in line]
    programs = [path for name in names if (path := OBJECTS / "bin" / name).exists()]
    for path in (*programs, *OBJECTS.rglob("lib*.so")):
        shutil.copy(path, WORK / "bin")
        run("strip", "--strip-unneeded", WORK / "bin" / path.name)


def give_back() -> None:
    pack = f"tar -C '{WORK}' -c bin | xz -T0 -6 | split -b 15M - '{OUT}/bin.tar.xz.'"
    subprocess.run(["bash", "-o", "pipefail", "-c", pack], check=True)


def main() -> None:
    if (WORK / "bin/libggml-cuda.so").exists():
        return say("all is there")
    (SOURCE / "ggml/ggml.pc.in").touch()
    run(
        "cmake",
        "-S",
        SOURCE,
        "-B",
        OBJECTS,
        "-G",
        "Ninja",
        *(f"-D{name}={value}" for name, value in flags().items()),
    )
    say("configured")
    for targets in TARGETS:
        run("cmake", "--build", OBJECTS, "--parallel", str(os.cpu_count()), "--target", *targets)
        gather()
        say(f"compiled {', '.join(targets)}")
    give_back()
    say("given back")
    return None


if __name__ == "__main__":
    main()
