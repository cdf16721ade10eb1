"""Checks whether a server with these settings can start here, with advice where it cannot.

The checks change nothing and leave no process running.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from llama_srb import bundled
from llama_srb.cli import fetching
from llama_srb.config import Settings, folders
from llama_srb.memory import tables as memories
from llama_srb.memory.embedding import Vectoriser
from llama_srb.models import gguf_header
from llama_srb.models.cache import Cache, HubError, name_from
from llama_srb.models.gguf_header import ModelFileError
from llama_srb.server import lifetime as server
from llama_srb.server.listening import socket_fault
from llama_srb.serving.keys.access import Access, AccessError, tls

Verdict: TypeAlias = Literal["ok", "warn", "bad"]
TIMEOUT = 30.0  # seconds for a program; a GPU's driver may hang
BUNDLED = bundled.model()
CUDA_FOLDER = "/usr/local/cuda/bin"  # ./build.sh looks here, too
OWN_DESCRIPTORS = 64  # file descriptors of the server itself: logs, pipes, the event loop, the model's file
GIB = 2**30


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; unless it is ok, with advice."""

    verdict: Verdict
    what: str
    advice: str = ""


def _output_of(settings: Settings, *command: str) -> str | None:
    """A program's output; None if there is no such program, or it fails or hangs."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
            env=settings.engine_environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _system(settings: Settings) -> Finding:
    libc = " ".join(word for word in platform.libc_ver() if word)
    system = f"{platform.system()} {platform.machine()}" + (f", {libc}" if libc else "")
    oldest = bundled.oldest_glibc()
    return Finding("ok", f"{system}; this wheel is for glibc {oldest} or later" if oldest else system)


def _compiler(settings: Settings) -> Finding:
    for name in ("c++", "g++", "clang++"):
        if version := _output_of(settings, name, "--version"):
            return Finding("ok", version.splitlines()[0])
    if not bundled.is_checkout():
        return Finding("ok", "no C++ compiler, and a wheel's engine needs none")
    return Finding(
        "warn", "no C++ compiler", "only ./build.sh needs one: apt install g++, or xcode-select --install"
    )


def _engine(settings: Settings) -> Finding:
    path = settings.engine
    if not path.is_file() or not os.access(path, os.X_OK):
        return Finding("bad", f"no program at {path}", bundled.remedy())
    version = _output_of(settings, str(path), "--version")
    if version is None:
        return Finding("bad", f"{path} does not run", bundled.remedy())
    found = (line for line in version.splitlines() if line.startswith("version"))
    return Finding("ok", next(found, str(path)))


def _self_test(settings: Settings) -> Finding:
    """The engine's self-test: products of all weight types, and a request if there is a bundled model."""
    model = ["-m", str(BUNDLED)] if BUNDLED.is_file() else []
    command = [str(settings.engine), "--self-test", *model]
    advice = bundled.remedy()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT, check=False,
            env=settings.engine_environment, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except OSError as error:
        return Finding("bad", f"it cannot start: {error.strerror}", advice)
    except subprocess.TimeoutExpired:
        return Finding("bad", f"it did not end within {TIMEOUT:g} s", advice)
    if done.returncode != 0:
        return Finding("bad", _end_of(done), advice)
    return Finding("ok", next(iter(done.stdout.splitlines()), "passed").removeprefix("self-test: "))


def _end_of(failed: subprocess.CompletedProcess[str]) -> str:
    """How a program ended, and its last line on stderr."""
    status = failed.returncode
    how = f"signal {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
    return ": ".join([how, *failed.stderr.splitlines()[-1:]])


def _gpu(settings: Settings) -> Finding:
    cards = _output_of(settings, "nvidia-smi", "--query-gpu=name,memory.free", "--format=csv,noheader")
    if not cards:
        return Finding("ok", "no NVIDIA GPU, or no driver for one; the engine computes on the CPU")
    card = cards.splitlines()[0]
    if "CUDA" in (_output_of(settings, str(settings.engine), "--list-devices") or ""):
        return Finding("ok", f"{card} free, and the engine can use it")
    if not bundled.is_checkout():
        return Finding(
            "warn",
            f"{card} free, but a wheel's engine is for CPUs",
            "./build.sh --cuda in a checkout, and --engine",
        )
    if all(_output_of(settings, nvcc, "--version") is None for nvcc in ("nvcc", f"{CUDA_FOLDER}/nvcc")):
        return Finding(
            "warn", f"{card} free, but there is no nvcc", "install the CUDA toolkit, then ./build.sh --cuda"
        )
    return Finding("warn", f"{card} free, but the engine was built without CUDA", "./build.sh --cuda")


def _models(settings: Settings) -> Finding:
    """The finding about the model, or of several the first that is not ok."""
    found = [_model(model) for model in settings.served]
    bad = (finding for verdict in ("bad", "warn") for finding in found if finding.verdict == verdict)
    return next(bad, Finding("ok", "; ".join(finding.what for finding in found)))


def _model(settings: Settings) -> Finding:
    path = settings.model
    try:
        if fetching.is_hub_name(path):
            kept = {one.name: one.path for one in Cache(folders.hub_models()).all()}
            name = name_from(str(path))
            if name not in kept:
                return Finding("warn", f"{name} is not downloaded", f"llama-srb models pull {name}")
            path = kept[name]
        model = gguf_header.read_model(path)
    except HubError as error:
        return Finding("bad", str(error), "llama-srb models list shows what is there")
    except ModelFileError as error:
        return Finding("bad", str(error), "--model names a GGUF file")
    what = f"{model.name}, {model.quantisation}, {model.size_bytes / 2**20:,.0f} MiB"
    free = _memory()
    if free is not None and model.size_bytes > free:
        return Finding("warn", f"{what}, and {free / GIB:.1f} GiB of memory are free",
                       "a smaller quantisation, or -- -ngl 99 where a GPU has room")  # fmt: skip
    return Finding("ok", what)


def _memory() -> int | None:
    """Bytes of memory that are available; None without /proc/meminfo."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable")), None)


def _port(settings: Settings) -> Finding:
    if settings.socket is None:
        return _free(settings.host, settings.port, "--port")
    fault = socket_fault(settings.socket)
    return Finding("bad", fault) if fault else Finding("ok", f"{settings.socket} is free")


def _free(host: str, port: int, option: str) -> Finding:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        return Finding("bad", f"{host} port {port}: {error.strerror or error}", f"{option} takes another")
    return Finding("ok", f"{host} port {port} is free")


def _grpc(settings: Settings) -> Finding:
    if settings.grpc is None:
        return Finding("ok", "no port; --grpc sets one")
    for package in ("grpc", "grpc_health", "grpc_reflection"):
        if importlib.util.find_spec(package) is None:
            return Finding("bad", f"there is no package {package}", server.INSTALL_GRPC)
    return _free(settings.grpc_host, settings.grpc, "--grpc")


def _access(settings: Settings) -> Finding:
    try:
        access = Access(settings)
        access.require_safe()
        tls(settings)
    except AccessError as error:
        return Finding("bad", str(error), "docs/security.md, Who may use it")
    file = settings.api_key_file
    if file is not None and file.stat().st_mode & 0o077:
        return Finding("warn", f"others than its owner can read {file}", f"chmod 600 {file}")
    return Finding("ok", "with a key" if access.needs_key else "without a key")


def _files(settings: Settings) -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = settings.max_queue + settings.parallel + OWN_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        what = f"{soft} open files; --max-queue {settings.max_queue} and its clients need {wanted}"
        return Finding("warn", what, f"ulimit -n {wanted} (at most {hard}), or LimitNOFILE= of systemd")
    return Finding("ok", f"{soft} open files, {wanted} needed")


def _prefix_cache(settings: Settings) -> Finding:
    folder = settings.prefix_cache
    if folder is None:
        return Finding("ok", "none; computed prompts are kept in memory only")
    near = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not near.is_dir() or not os.access(near, os.W_OK):
        return Finding("bad", f"cannot write to {near}", "--prefix-cache names a folder of this user")
    free = shutil.disk_usage(near).free
    if free < settings.prefix_cache_size:
        wanted = (
            f"{free / GIB:.1f} GiB are free at {folder}, it may take {settings.prefix_cache_size / GIB:.1f}"
        )
        return Finding("warn", wanted, "--prefix-cache-size")
    return Finding("ok", f"{free / GIB:.1f} GiB are free at {folder}")


def _memories(settings: Settings) -> Finding:
    """Whether the vectors of memories are those of models that were made to embed."""
    found = memories.read(settings)
    for one in found:
        model = next((model for model in settings.served if one.embedding_model in model.model_names), None)
        if model is None or fetching.is_hub_name(model.model):
            continue
        try:
            is_made_to_embed = Vectoriser.of(model, gguf_header.read(model.model)).is_made_to_embed
        except ModelFileError:  # which the check of the model has found
            continue
        if not is_made_to_embed:
            made = f"{one.name} has vectors of {one.embedding_model}, which was not made to embed"
            return Finding(
                "warn",
                f"{made}; it is searched by {one.searched_by(is_made_to_embed)}",
                "embedding_model names a model that was, or is false, which computes none",
            )
    return Finding("ok", ", ".join(one.name for one in found) or "none")


CHECKS: dict[str, Callable[[Settings], Finding]] = {
    "system": _system,
    "compiler": _compiler,
    "engine": _engine,
    "self-test": _self_test,
    "GPU": _gpu,
    "model": _models,
    "port": _port,
    "gRPC": _grpc,
    "access": _access,
    "open files": _files,
    "prefix cache": _prefix_cache,
    "memories": _memories,
}


def examine(settings: Settings) -> Iterator[tuple[str, Finding]]:
    """Runs the checks, and yields each one's name and finding."""
    for name, check in CHECKS.items():
        yield name, check(settings)
