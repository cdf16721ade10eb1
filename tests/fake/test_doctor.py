"""Each check of the doctor finds its fault."""

from __future__ import annotations

import importlib.util
import resource
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llama_srb import config
from llama_srb.cli.doctor import checks
from tests.support.places import FAKE_ENGINE, ROOT

MODEL = ROOT / "models/storyteller.gguf"


def found(name: str, **options: object) -> checks.Finding:
    file = options.pop("config", None)
    return checks.CHECKS[name](config.load({"port": 0, **options}, config=file, environ={}))


def program(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def open_file(folder: Path) -> dict[str, Any]:
    (folder / "keys").write_text('{"keys": []}')
    (folder / "keys").chmod(0o644)
    return {"api_key_file": str(folder / "keys")}


def cut_model(folder: Path) -> dict[str, Any]:
    (folder / "m.gguf").write_bytes(MODEL.read_bytes()[:2_000_000])
    return {"model": str(folder / "m.gguf")}


def no_folder(folder: Path) -> dict[str, Any]:
    (folder / "file").write_text("")
    return {"prefix_cache": str(folder / "file" / "cache")}


def engine(script: str) -> Callable[[Path], dict[str, Any]]:
    def make(folder: Path) -> dict[str, Any]:
        program(folder, "engine", script)
        return {"engine": str(folder / "engine")}

    return make


def memory(line: str) -> Callable[[Path], dict[str, Any]]:
    def make(folder: Path) -> dict[str, Any]:
        (folder / "srb.toml").write_text(f"[memories.tales]\nstore = {{ file = 't.db' }}\n{line}")
        return {"config": str(folder / "srb.toml")}

    return make


WRONG = 'echo begun >&2; echo "self-test: q4_0, 8 columns: wrong" >&2; exit 1'


FAULTS: list[tuple[str, Callable[[Path], dict[str, Any]], str, str, str]] = [
    ("engine", lambda folder: {"engine": str(folder / "none")}, "bad", "no program at", "build.sh"),
    ("engine", engine("exit 1"), "bad", "does not run", "build.sh"),
    ("self-test", lambda folder: {"engine": str(folder / "none")}, "bad", "No such file", "build.sh"),
    ("self-test", engine(WRONG), "bad", "exit code 1: self-test: q4_0, 8 columns: wrong", "build.sh"),
    ("self-test", engine("kill -ILL $$"), "bad", "signal SIGILL", "build.sh"),
    ("model", lambda folder: {"model": str(folder / "none.gguf")}, "bad", "none.gguf", "--model"),
    ("model", cut_model, "bad", "truncated", "--model"),
    ("access", lambda folder: {"host": "0.0.0.0"}, "bad", "there are no keys", "security.md"),
    ("access", open_file, "warn", "can read", "chmod 600"),
    ("prefix cache", no_folder, "bad", "cannot write to", "--prefix-cache"),
    (
        "prefix cache",
        lambda f: {"prefix_cache": str(f), "prefix_cache_size": 2**60},
        "warn",
        "are free",
        "--prefix",
    ),
    ("memories", memory(""), "warn", "was not made to embed; it is searched by words", "or is false"),
    ("memories", memory("search = 'hybrid'"), "warn", "it is searched by hybrid", "or is false"),
    ("memories", memory("embedding_model = false"), "ok", "tales", ""),
    ("open files", lambda folder: {"max_queue": 100_000}, "warn", "open files", "ulimit -n"),
]


@pytest.mark.parametrize(("name", "make", "verdict", "what", "advice"), FAULTS)
def test_a_fault_is_found_with_advice(
    tmp_path: Path, name: str, make: Callable[[Path], dict[str, Any]], verdict: str, what: str, advice: str
) -> None:
    finding = found(name, **make(tmp_path))
    assert (finding.verdict, what in finding.what, advice in finding.advice) == (verdict, True, True), finding


@pytest.mark.parametrize(
    ("bundled", "model"), [(MODEL, f" -m {MODEL}"), (Path("none.gguf"), "")], ids=["there", "not there"]
)
def test_the_engine_tests_itself_with_the_bundled_model_if_that_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundled: Path, model: str
) -> None:
    monkeypatch.setattr(checks, "BUNDLED", bundled)
    finding = found("self-test", **engine('echo "self-test: $*"; echo more')(tmp_path))
    assert finding == checks.Finding("ok", f"--self-test{model}")


def test_an_engine_whose_self_test_hangs_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "TIMEOUT", 0.1)
    finding = found("self-test", **engine("exec sleep 60")(tmp_path))
    assert (finding.verdict, finding.what) == ("bad", "it did not end within 0.1 s")


@pytest.fixture(autouse=True)
def _few_open_files() -> Any:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, before[1]), before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_port_that_is_taken_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert found("port", port=port).verdict == "bad"
        assert found("gRPC", grpc=port).advice == "--grpc takes another"
    assert found("port", port=port).verdict == "ok"
    assert found("gRPC", grpc=port).verdict == "ok"


def test_missing_packages_for_grpc_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc_health" else name)
    finding = found("gRPC", grpc=0)
    assert (finding.verdict, finding.advice) == ("bad", "pip install 'llama-srb[grpc]'")


GPUS = {
    "no GPU": ({}, "ok", ""),
    "no nvcc": ({"nvidia-smi": "echo H200, 140000 MiB"}, "warn", "CUDA toolkit"),
    "no CUDA in the engine": (
        {"nvidia-smi": "echo H200, 140000 MiB", "nvcc": "true"},
        "warn",
        "./build.sh --cuda",
    ),
    "all": ({"nvidia-smi": "echo H200, 140000 MiB", "engine": "echo CUDA0: H200"}, "ok", ""),
}


@pytest.mark.parametrize(("programs", "verdict", "advice"), GPUS.values(), ids=GPUS)
def test_a_gpu_that_would_be_idle_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, programs: dict[str, str], verdict: str, advice: str
) -> None:
    monkeypatch.setattr(checks, "CUDA_FOLDER", "/nowhere")
    for name, script in ({"nvidia-smi": "exit 9", "nvcc": "exit 1", "engine": "true"} | programs).items():
        program(tmp_path, name, script)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = found("GPU", engine=str(tmp_path / "engine"))
    assert (finding.verdict, advice in finding.advice) == (verdict, True), finding


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--model", "none.gguf"), 1), (("--port", "x"), 2)])
def test_the_exit_code_tells_whether_a_fault_was_found(
    tmp_path: Path, options: tuple[str, ...], code: int
) -> None:
    program(tmp_path, "engine", f'exec {" ".join(FAKE_ENGINE)} "$@" < /dev/null')
    command = [
        sys.executable,
        "-m",
        "llama_srb.cli",
        "doctor",
        "--port",
        "0",
        "--engine",
        str(tmp_path / "engine"),
    ]
    done = subprocess.run([*command, *options], capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    if code < 2:
        assert [line[6:].split("  ")[0] for line in done.stdout.splitlines() if line[0] != " "] == [
            *checks.CHECKS
        ]
