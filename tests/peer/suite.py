"""Runs llama.cpp's tests of its server, in a virtual environment of their own, against a chosen server.

The tests come from the source of llama.cpp that build.sh has fetched, and need other versions of pytest and
aiohttp than ours. They run in a copy of their folder, and stand_in.py starts the server.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import peers
from tests.support.encoder import write_encoder
from tests.support.models import write_model
from tests.support.places import ROOT, STORYTELLER

HERE = Path(__file__).resolve().parent
TESTS = "tools/server/tests"  # in llama.cpp's tree
FILES = (
    "basic", "completion", "chat_completion", "ignore_eos", "infill", "tokenize", "template", "security",
    "metrics", "compat_anthropic", "compat_oai_responses", "ctx_shift", "router", "stream",
)  # fmt: skip
ADDED = ("pytest-timeout>=2.3",)  # to the tests' own requirements
SECONDS = 60  # for one test
INFILL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")

ROUTED = (  # the models of the tests of a router
    "ggml-org/tinygemma3-GGUF:Q8_0",
    "ggml-org/test-model-stories260K:F32",
    "ggml-org/test-model-stories260K-infill:F32",
)

OURS = (sys.executable, "-m", "llama_srb.cli", "serve")


def source() -> Path:
    """llama.cpp's tree, with our patches, as the engine was compiled from it."""
    return Path(peers.setting("CMAKE_HOME_DIRECTORY"))


def llama_server() -> tuple[str, ...]:
    """The command of llama-server without our patches; compiles it, in minutes, where it is missing."""
    return (str(peers.programs("plain") / "llama-server"),)


@functools.cache
def environment() -> Path:
    """The python of the tests' virtual environment in the cache, which is made where it is missing."""
    home = peers.cache() / "peer-tests"
    home.mkdir(parents=True, exist_ok=True)
    requirements = source() / TESTS / "requirements.txt"
    wanted = sys.version + requirements.read_text() + str(ADDED)
    python, stamp = home / "venv/bin/python", home / "stamp"
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not stamp.exists() or stamp.read_text() != wanted:
            stamp.unlink(missing_ok=True)
            venv.create(home / "venv", clear=True, with_pip=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(requirements), *ADDED]
            subprocess.run(install, check=True, stdin=subprocess.DEVNULL)
            stamp.write_text(wanted)
    return python


def models(folder: Path) -> dict[str, str]:
    """Writes the models that stand for those of the tests. By the beginning of a name, its file."""
    infill, encoder = folder / "infill.gguf", folder / "encoder.gguf"
    write_model(infill, "llama", control=INFILL)
    write_encoder(encoder, "cls")
    return {
        "": str(STORYTELLER),
        "ggml-org/test-model-stories260K-infill": str(infill),
        "ggml-org/models:bert-bge-small": str(encoder),
    }


def router(server: Sequence[str], folder: Path, files: Mapping[str, str]) -> list[str]:
    """The arguments by which a server serves the models that the tests of a router name."""
    by_name = {
        name: files[max((start for start in files if name.startswith(start)), key=len)] for name in ROUTED
    }
    if server == OURS:
        config = folder / "router.toml"
        config.write_text("".join(f'[models."{name}"]\npath = "{file}"\n' for name, file in by_name.items()))
        return ["--config", str(config)]
    preset = folder / "router.ini"
    preset.write_text("".join(f"[{name}]\nmodel = {file}\n" for name, file in by_name.items()))
    return ["--models-preset", str(preset)]


def run(server: Sequence[str], tests: Sequence[str], workers: int) -> dict[str, str]:
    """The outcome of each test by its id: passed, failed or skipped. tests: ids, or files, in TESTS."""
    with tempfile.TemporaryDirectory(prefix="llama-srb-peer-") as made:
        folder = Path(made)
        tree = folder / "llama.cpp"
        shutil.copytree(source() / TESTS, tree / TESTS)
        (tree / TESTS / "tmp").mkdir()  # tests write there; it comes with a download
        (tree / "models").symlink_to(source() / "models")
        results = folder / "results.json"
        settings = {
            "PEER_PYTHON": sys.executable,
            "PEER_SERVER": json.dumps(list(server)),
            "PEER_MODELS": json.dumps(files := models(folder)),
            "PEER_ROUTER": json.dumps(router(server, folder, files)),
            "PEER_RESULTS": str(results),
            "PYTHONPATH": f"{HERE}:{tree / TESTS}:{ROOT}",
        }
        _pytest(tree / TESTS, settings, [*tests, f"--numprocesses={workers}", f"--timeout={SECONDS}"])
        found: dict[str, str] = json.loads(results.read_text())
        return found


def _pytest(folder: Path, settings: Mapping[str, str], arguments: Sequence[str]) -> None:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "LLAMA_"))}
    options = ["-p", "plugin", "-p", "no:cacheprovider", "-m", "not slow", "--tb=short", "-q", "-rfE"]
    command = [str(environment()), "-m", "pytest", *options, *arguments]
    with open(os.environ.get("PEER_LOG", os.devnull), "w") as output:
        ended = subprocess.run(
            command, cwd=folder, env=kept | dict(settings),
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    assert ended.returncode in (0, 1), f"{command} ended with {ended.returncode}"  # 1: a test has failed


def all_tests() -> list[str]:
    return [f"unit/test_{name}.py" for name in FILES]


def commit() -> str:
    """llama.cpp's pinned commit."""
    found = re.search(r"^commit=(\w+)$", (ROOT / "build.sh").read_text(), re.MULTILINE)
    assert found
    return found[1]


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
