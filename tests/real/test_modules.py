"""patches/0008: from which folder ggml's modules are loaded, and which one of several is chosen."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.objects import libraries, run, tree

PROGRAM = """
#include "ggml-backend.h"

#include <cstdio>

int main() {
    ggml_backend_load_all();
    printf("%d backends\\n", (int) ggml_backend_reg_count());
}
"""

# Prints that it was opened, and that it was chosen.
MODULE = """
#include <stdio.h>

__attribute__((constructor)) static void opened(void) { puts("opened " NAME); }
int    ggml_backend_score(void) { return SCORE; }
void * ggml_backend_init(void) { puts("chosen " NAME); return 0; }
"""

COMPILER = shutil.which("c++") or "c++"


def module(folder: Path, name: str, score: int) -> None:
    folder.mkdir(exist_ok=True)
    define = [f'-DNAME="{name}"', f"-DSCORE={score}"]
    source = folder.parent / "module.c"
    source.write_text(MODULE)
    run(["cc", "-shared", "-fPIC", *define, str(source), "-o", f"libggml-{name}.so"], folder)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads modules as the engine of a portable build does, with the patched loader."""
    folder = tmp_path_factory.mktemp("own")
    (folder.parent / "main.cpp").write_text(PROGRAM)
    sources = [str(tree() / f"ggml/src/ggml-backend-{part}.cpp") for part in ("reg", "dl")]
    includes = [f"-I{tree() / path}" for path in ("ggml/include", "ggml/src")]
    base = [word for word in libraries() if "ggml-cpu" not in word]
    flags = ["-std=c++17", "-DGGML_BACKEND_DL", *includes]
    run([COMPILER, *flags, "../main.cpp", *sources, *base, "-o", "program"], folder)
    module(folder, "cpu-old", 1)
    module(folder, "cpu-new", 2)
    module(folder, "cpu-foreign", 0)  # refuses this CPU
    return folder / "program"


def said(program: Path, folder: Path, **environment: str) -> list[str]:
    done = subprocess.run(
        [program], cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_the_best_module_beside_the_program_is_chosen(program: Path, tmp_path: Path) -> None:
    lines = said(program, tmp_path)
    assert [line for line in lines if line.startswith("chosen")] == ["chosen cpu-new"]


@pytest.mark.parametrize("name", ["cpu-evil", "blas", "cuda"])
def test_a_module_in_the_working_directory_is_not_opened(program: Path, tmp_path: Path, name: str) -> None:
    module(tmp_path / "work", name, 1000)
    lines = said(program, tmp_path / "work")
    assert {line.split()[1] for line in lines if line.startswith("opened")} == {
        "cpu-old",
        "cpu-new",
        "cpu-foreign",
    }


def test_a_module_that_the_environment_names_is_not_opened(program: Path, tmp_path: Path) -> None:
    module(tmp_path / "work", "evil", 1000)
    path = str(tmp_path / "work/libggml-evil.so")
    assert "opened evil" not in said(program, tmp_path, GGML_BACKEND_PATH=path)
