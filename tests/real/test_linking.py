"""What the engine may link with: a portable build has ggml's code for CPUs in modules, loaded at run time."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from benchmarks import peers
from tests.support.objects import run, tree

pytestmark = pytest.mark.skipif(not shutil.which("nm"), reason="no nm here; it is in binutils")

LINKED = ("ggml", "ggml-base", "ggml-rpc", "llama", "llama-common", "llama-common-base")


def of_target(*names: str) -> list[Path]:
    """The objects that the build left of some CMake targets."""
    found = [path for name in names for path in peers.objects().glob(f"**/CMakeFiles/{name}.dir/**/*.o")]
    assert found, f"{peers.objects()} has no objects of {', '.join(names)}"
    return found


def symbols(objects: Iterable[Path], kinds: str) -> set[str]:
    """The symbols of some kinds, as nm names them: T is code that the object defines, U is undefined."""
    lines = run(["nm", "--format=posix", *map(str, objects)], peers.objects()).splitlines()
    return {words[0] for words in map(str.split, lines) if len(words) > 1 and words[1] in kinds}


def taken_from_the_cpus_modules(*more: Path) -> set[str]:
    """The engine's undefined symbols that only ggml-cpu defines; `more` are objects of the engine, too."""
    ours = [*of_target("llama-batched-objects", "llama-batched"), *more]
    there = symbols(of_target("ggml-cpu*"), "TDBR")
    assert "ggml_backend_cpu_init" in there
    return (symbols(ours, "U") & there) - symbols([*ours, *of_target(*LINKED)], "TDBRVW")


def test_the_engine_links_without_the_code_that_a_portable_build_has_in_modules() -> None:
    assert taken_from_the_cpus_modules() == set()


def test_a_call_into_a_module_is_noticed(tmp_path: Path) -> None:
    """The test above can fail."""
    (tmp_path / "adapter.cpp").write_text(
        '#include "ggml-cpu.h"\n'
        "bool is_float(ggml_type type) { return ggml_get_type_traits_cpu(type)->from_float != nullptr; }\n"
    )
    include = f"-I{tree() / 'ggml/include'}"
    run([shutil.which("c++") or "c++", include, "-c", "adapter.cpp", "-o", "adapter.o"], tmp_path)
    assert taken_from_the_cpus_modules(tmp_path / "adapter.o") == {"ggml_get_type_traits_cpu"}
