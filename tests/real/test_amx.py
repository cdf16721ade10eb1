"""patches/0007, on any CPU: the configuration of AMX's tiles, and the weights that its buffer takes."""

from __future__ import annotations

import platform
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.objects import flags_of, libraries, run, tree

MMQ = "ggml/src/ggml-cpu/amx/mmq.cpp"
AMX = "ggml/src/ggml-cpu/amx/amx.cpp"
CPU = "-march=sapphirerapids"

COLUMNS = [64, 64, 32, 32, 64, 64, 64, 64]  # bytes of a row of each tile
ROWS = [8, 8, 16, 16, 16, 16, 16, 16]
CONFIGURATION = (
    bytes([1, 0])  # palette, first row
    + bytes(14)
    + b"".join(n.to_bytes(2, "little") for n in COLUMNS)
    + bytes(16)
    + bytes(ROWS)
    + bytes(8)
)

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="AMX is of x86-64")


def compiled(folder: Path, source: str) -> Path:
    """The object file, compiled for a CPU with AMX."""
    flags = flags_of(MMQ)
    if subprocess.run([flags[0], CPU, "-fsyntax-only", "-xc++", "/dev/null"], capture_output=True).returncode:
        pytest.skip(f"{flags[0]} does not know {CPU}")
    others = [flag for flag in flags if not flag.startswith(("-march=", "-mno-"))]  # it may leave AMX out
    # -O1 takes half of the time of -O3, and has the same constant
    flags = [*others, f"-I{(tree() / MMQ).parent}", CPU, "-O1"]
    run([*flags, "-c", source, "-o", "mmq.o"], folder)
    return folder / "mmq.o"


def loaded_configuration(object_file: Path) -> bytes:
    """The 64 bytes that ldtilecfg reads: a constant, found by the instruction's relocation."""
    code = run(["objdump", "-dr", "--no-show-raw-insn", str(object_file)], object_file.parent)
    place = re.search(r"ldtilecfg.*\n\s+[0-9a-f]+: R_X86_64_PC32\s+(\S+?)([+-]0x[0-9a-f]+)?\n", code)
    assert place, "ldtilecfg reads no constant"
    symbols = run(["objdump", "-t", str(object_file)], object_file.parent)
    found = re.search(
        rf"^([0-9a-f]+) .* (\S+)\t[0-9a-f]+ +(?:\.hidden )?{re.escape(place[1])}$", symbols, re.M
    )
    assert found, f"{place[1]} is in no section"
    out = object_file.with_suffix(".bin")
    run(["objcopy", "-O", "binary", f"--only-section={found[2]}", str(object_file), str(out)], out.parent)
    begin = (
        int(found[1], 16) + int(place[2] or "0", 16) + 4
    )  # counted from the end of the instruction's four bytes
    return out.read_bytes()[begin : begin + 64]


def test_the_tiles_are_configured_with_all_64_bytes(tmp_path: Path) -> None:
    assert loaded_configuration(compiled(tmp_path, str(tree() / MMQ))) == CONFIGURATION


def test_without_the_patch_the_tiles_are_not_configured(tmp_path: Path) -> None:
    """So the test above notices the fault."""
    source = (tree() / MMQ).read_text()
    constant = re.search(r"    alignas\(64\) static const tile_config_t tc = \{.*?\};\n", source, re.S)
    assert constant
    local = "    alignas(64) tile_config_t tc = {};\n    tc.palette_id = 1;\n"
    local += "".join(f"    tc.rows[{i}] = {ROWS[i]}; tc.colsb[{i}] = {COLUMNS[i]};\n" for i in range(8))
    changed = tmp_path / "mmq.cpp"
    changed.write_text(source.replace(constant[0], local))
    with pytest.raises(AssertionError, match="reads no constant"):
        loaded_configuration(compiled(tmp_path, str(changed)))


# Compiled for this CPU, so that it runs here. The compiler's own headers come first: if they see the macros,
# they expect that the compiler generates AVX-512.
HAS_AMX = """
#include "ggml-cpu-impl.h"
#include <immintrin.h>

#undef  __AMX_INT8__
#undef  __AVX512VNNI__
#define __AMX_INT8__    1
#define __AVX512VNNI__  1

{rest}
"""

ASKS = """
#include "amx/amx.h"
#include "ggml-backend-impl.h"
#include "ggml-cpu.h"
#include "traits.h"

#include <cstdio>

extern "C" long __wrap_syscall(long, ...) { return 0; } // the system permits AMX

size_t ggml_backend_amx_desired_wsize(const ggml_tensor *) { return 0; }
size_t ggml_backend_amx_get_alloc_size(const ggml_tensor * t) { return ggml_nbytes(t); }
void ggml_backend_amx_convert_weight(ggml_tensor *, const void *, size_t, size_t) {}
void ggml_backend_amx_mul_mat(const ggml_compute_params *, ggml_tensor *) {}

int main() {
    ggml_backend_buffer_type_t amx    = ggml_backend_amx_buffer_type();
    ggml_backend_buffer_t      buffer = ggml_backend_buft_alloc_buffer(amx, 0);
    ggml_context *             ctx    = ggml_init({1 << 20, nullptr, true});
    for (int i = 0; i < GGML_TYPE_COUNT; i++) {
        const ggml_type type = (ggml_type) i;
        if (ggml_blck_size(type) == 0 || ggml_type_size(type) == 0) {
            continue;
        }
        for (int n = 1; n <= 2; n++) {
            ggml_tensor * weights = ggml_new_tensor_3d(ctx, type, 512, 96, n);
            weights->buffer       = buffer;
            ggml_tensor * columns = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, 512, 8, n);
            ggml_tensor * product = ggml_mul_mat(ctx, weights, columns);
            auto *        kind    = (ggml::cpu::extra_buffer_type *) amx->context;
            if (kind->supports_op(nullptr, product)) {
                printf("%dx%s ", n, ggml_type_name(type));
            }
        }
    }
}
"""


def test_the_amx_buffer_takes_the_types_that_are_faster_there(tmp_path: Path) -> None:
    """K-quants stay with the row-wise products, which are 1.1 to 1.6 times as fast, and weights of several
    matrices with the buffers that pack more than the first (patches/0007).
    """
    (tmp_path / "amx.cpp").write_text(HAS_AMX.format(rest=f'#include "{tree() / AMX}"'))
    (tmp_path / "asks.cpp").write_text(HAS_AMX.format(rest=ASKS))
    flags = [*flags_of(AMX), f"-I{(tree() / AMX).parents[1]}", f"-I{(tree() / AMX).parent}", "-w"]
    for name in ("amx", "asks"):
        run([*flags, "-c", f"{name}.cpp", "-o", f"{name}.o"], tmp_path)
    run([flags[0], "asks.o", "amx.o", *libraries(), "-Wl,--wrap=syscall", "-o", "asks"], tmp_path)
    taken = set(run(["./asks"], tmp_path).split())
    assert taken == {f"1x{name}" for name in ("q4_0", "q4_1", "q8_0", "iq4_xs", "f16")}
