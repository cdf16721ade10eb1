"""A nearly full card: another program leaves 3.2 GiB of its memory, then our server and llama-server start.

Prints when each is ready, where it computes, and one answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from programs import ROOT, WORK, arguments, attempt

from benchmarks.sides.table import free_port, healthy

LEFT_GIB = 3.2
SECONDS = 22.0  # for a start
BODY = {"prompt": "Once upon a time,", "n": 2, "max_tokens": 8, "stream": False}

HOG = """
import sys, time, torch
free, total = torch.cuda.mem_get_info()
held = torch.empty(int(free - float(sys.argv[1]) * 2**30), dtype=torch.uint8, device="cuda")
print(f"left on the card: {torch.cuda.mem_get_info()[0] / 2**30:.2f} of {total / 2**30:.1f} GiB", flush=True)
time.sleep(600)
"""


@contextlib.contextmanager
def hog() -> Iterator[None]:
    """Takes the card's memory; without PyTorch or a GPU it only says so."""
    command = [sys.executable, "-c", HOG, str(LEFT_GIB)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout
        lines = [process.stdout.readline()]
        if not lines[0].startswith("left"):
            lines = [lines[0], *process.stdout][-1:]
        print(f"hog: {lines[0].strip()}", flush=True)
        try:
            yield
        finally:
            process.kill()


def start(name: str, command: list[str], port: int, path: str, body: dict[str, object], facts: str) -> None:
    """Starts a server; prints how it came up, and the facts and one answer that it gives."""
    log = WORK / f"{name}.full.log"
    began = time.monotonic()
    with log.open("w") as file, subprocess.Popen(command, stdout=file, stderr=file) as process:
        try:
            while not healthy(port):
                if process.poll() is not None or time.monotonic() - began > SECONDS:
                    print(
                        f"{name}: not ready after {time.monotonic() - began:.1f} s, status {process.poll()}"
                    )
                    return
                time.sleep(0.05)
            print(f"{name}: ready after {time.monotonic() - began:.1f} s")
            print(f"{name}: {facts}: {call(port, facts)[:700]}")
            asked = time.monotonic()
            answer = call(port, path, body)
            print(f"{name}: answered in {time.monotonic() - asked:.2f} s: {answer[:300]}", flush=True)
        finally:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
            process.kill()
            said = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
            print(*(f"{name}: log: {line[:240]}" for line in interesting(said)), sep="\n", flush=True)


def interesting(lines: list[str]) -> list[str]:
    words = ("fit", "offload", "ready", "error", "layers", "memory")
    return [line for line in lines if any(word in line.lower() for word in words)][-8:]


def call(port: int, path: str, body: dict[str, object] | None = None) -> str:
    data = json.dumps(body).encode() if body else None
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            text: str = answer.read().decode()
            return " ".join(text.split())
    except (urllib.error.URLError, OSError) as error:
        return repr(error)


def main() -> None:
    given = arguments(__doc__, tokens=8)
    model = str(Path(given.model))
    nvidia = ["nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader"]
    with hog():
        for name, path, facts, command in (
            (
                "llama-srb",
                "/openai/v1/completions",
                "/props",
                [sys.executable, str(ROOT / "api.py"), "--model"],
            ),
            ("llama-server", "/v1/completions", "/props", [str(WORK / "bin/llama-server"), "-np", "4", "-m"]),
        ):
            port = free_port()
            argv = [*command, model, "--port", str(port)]
            attempt(name, functools.partial(start, name, argv, port, path, dict(BODY), facts))
            with contextlib.suppress(OSError):
                subprocess.run(nvidia, check=False)


if __name__ == "__main__":
    main()
