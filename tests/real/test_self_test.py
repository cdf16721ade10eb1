"""The engine's self-test passes on this machine, and finds each of several kinds of faults."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.objects import flags_of, libraries, run, tree
from tests.support.places import BINARY, ROOT, STORYTELLER


def self_test(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BINARY, "--self-test", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "more"), [((), ""), (("-m", str(STORYTELLER)), "; one request of 8 sequences")]
)
def test_it_prints_what_it_has_computed_and_on_which_device(arguments: tuple[str, ...], more: str) -> None:
    done = self_test(*arguments)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"self-test: \d{{3,}} products on .*CPU.* \((native|\w+)\){more}\n", done.stdout)


def test_a_model_that_cannot_be_loaded_fails_it(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(STORYTELLER.read_bytes()[:100_000])
    done = self_test("-m", str(tmp_path / "m.gguf"))
    assert (done.returncode, done.stdout) == (1, "")


# Faults of functions that the linker puts between the self-test and llama.cpp.
FAULTS = {
    "one product is wrong by a few percent": (
        "ggml_backend_tensor_get(ggml_tensor * t, void * data, size_t offset, size_t size)",
        "__real_ggml_backend_tensor_get(t, data, offset, size);"
        " if (t->src[0]->type == GGML_TYPE_Q6_K && ggml_nrows(t) == 8) ((float *) data)[99] *= 3;",
        1,
        r"llama-batched: self-test: q6_K weights in a buffer CPU, 8 columns: the error is 0\.\d+; it must .*",
    ),
    "one is not a number": (
        "ggml_backend_tensor_get(ggml_tensor * t, void * data, size_t offset, size_t size)",
        "__real_ggml_backend_tensor_get(t, data, offset, size);"
        " if (t->src[0]->type == GGML_TYPE_BF16 && t->ne[1] == 1) ((float *) data)[0] = 0.0f / 0.0f;",
        1,
        r"llama-batched: self-test: bf16 weights in a buffer CPU, 1 columns: the error is -?nan; it must .*",
    ),
    "nothing is computed": (
        "ggml_backend_graph_compute(ggml_backend_t, ggml_cgraph *)",
        "return GGML_STATUS_SUCCESS;",
        1,
        r"llama-batched: self-test: f32 weights in a buffer CPU, 1 columns: the error is nan; it must .*",
    ),
    "an illegal instruction": (
        "ggml_backend_graph_compute(ggml_backend_t backend, ggml_cgraph * graph)",
        "if (ggml_graph_node(graph, 0)->src[0]->type == GGML_TYPE_Q4_K) __builtin_trap();"
        " return __real_ggml_backend_graph_compute(backend, graph);",
        -4,
        r"llama-batched: self-test: q4_K weights in a buffer \w+, 1 columns: signal 4",
    ),
}


@pytest.mark.parametrize(("function", "body", "status", "line"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found_and_named(tmp_path: Path, function: str, body: str, status: int, line: str) -> None:
    name = function.partition("(")[0]
    result = "void" if name.endswith("get") else "ggml_status"
    real = f"{result} __real_{function};\n"
    (tmp_path / "main.cpp").write_text(
        '#include "model/self_test.h"\n#include "ggml-backend.h"\n#include "ggml.h"\n'
        f'extern "C" {{\n{real}{result} __wrap_{function} {{ {body} }}\n}}\n'
        "int main() { return test_products() < 0; }\n"
    )
    flags = [flags_of("src/llama.cpp")[0], "-std=c++17", "-O1", f"-I{ROOT / 'engine'}"]
    flags += [f"-I{tree() / path}" for path in ("ggml/include", "vendor")]
    sources = ["main.cpp", str(ROOT / "engine/model/self_test.cpp")]
    built = Path(libraries()[0]).parent.parent
    registry = [str(next(built.rglob(name))) for name in ("libggml.a", "libggml-rpc.a")]
    command = [*flags, *sources, *registry, *libraries(), f"-Wl,--wrap={name}", "-o", "tests"]
    run(command, tmp_path)
    done = subprocess.run([tmp_path / "tests"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == status, done.stderr
    said = [one for one in done.stderr.splitlines() if one.startswith("llama-batched:")]
    assert said, done.stderr
    assert re.fullmatch(line, said[0]), done.stderr


def test_it_leaves_no_file_in_the_working_directory(tmp_path: Path) -> None:
    shutil.copy(STORYTELLER, tmp_path / "m.gguf")
    subprocess.run([BINARY, "--self-test", "-m", "m.gguf"], cwd=tmp_path, check=True, capture_output=True)
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]
