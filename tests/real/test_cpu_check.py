"""The engine's check of the CPU: one it was not compiled for gets one line, not an illegal instruction.

qemu emulates such CPUs; as root on Debian it is installed.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess

import pytest

from tests.support.places import BINARY, STORYTELLER
from tests.support.processes import installed

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the check is for x86-64")


@pytest.fixture(scope="module")
def qemu() -> str:
    found = installed("qemu-user", "qemu-x86_64", "qemu-x86_64-static")
    if not found:
        pytest.skip("no qemu-x86_64 here; as root on Debian the tests install it")
    return found


def test_an_older_cpu_gets_one_line(qemu: str) -> None:
    command = [qemu, "-cpu", "Nehalem", str(BINARY), "-m", str(STORYTELLER)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    lines = [line for line in done.stderr.splitlines() if not line.startswith("qemu-x86_64: warning")]
    assert (done.returncode, done.stdout, len(lines)) == (1, "", 1), done.stderr
    assert re.fullmatch(
        r"llama-batched: this CPU lacks [a-z0-9_, ]*\bavx2?\b[a-z0-9_, ]*: this program was compiled for "
        r"another CPU; run \./build\.sh here, or \./build\.sh --portable for a program that runs on all CPUs",
        lines[0],
    )


def test_this_cpu_has_what_the_engine_was_compiled_for() -> None:
    done = subprocess.run([BINARY, "--version"], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "lacks" in done.stderr) == (0, False)


@pytest.mark.parametrize(("cpu", "variant"), [("Nehalem", "sse42"), ("Haswell", "haswell")])
def test_a_portable_engine_takes_the_module_of_the_cpu(qemu: str, cpu: str, variant: str) -> None:
    """Its environment is set already, so that it does not exec itself, which would leave qemu."""
    if not list(BINARY.parent.glob("libggml-cpu-*.so")):
        pytest.skip("the engine is built for this CPU alone; ./build.sh --portable makes the other kind")
    command = [qemu, "-cpu", cpu, str(BINARY), "--self-test", "-m", str(STORYTELLER), "-t", "2"]
    environment = os.environ | {"GOMP_SPINCOUNT": "100", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert re.fullmatch(
        rf"self-test: \d+ products on CPU \({variant}\); one request of 8 sequences\n", done.stdout
    ), done.stderr
