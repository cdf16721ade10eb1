"""The layers of a model in the memory of another process: llama.cpp's ggml-rpc-server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_prefix import words
from tests.support.cluster import eventually
from tests.support.lender import Lender
from tests.support.places import ROOT, STORYTELLER
from tests.support.serving import LASTING, Server, serving

BODY: dict[str, Any] = {"prompt": "Once upon a time", "n": 8, "max_tokens": 24, "ignore_eos": True, "seed": 5}


@pytest.fixture
def lender() -> Iterator[Lender]:
    lender = Lender()
    lender.start()
    yield lender
    lender.kill()


@contextlib.contextmanager
def borrowing(lender: Lender, *settings: str, flags: tuple[str, ...] = ()) -> Iterator[Server]:
    with serving(*settings, "--", "--rpc", lender.address, "-ngl", "99", *flags) as server:
        yield server


def texts(server: Server, **fields: Any) -> list[str]:
    choices = server.json("POST", "/v1/completions", BODY | {"stream": False} | fields)[1]["choices"]
    return [choice["text"] for choice in choices]


def test_a_model_lives_in_the_memory_of_another_process(lender: Lender) -> None:
    with serving("--ctx", "4096") as alone:
        expected = texts(alone, temperature=0, n=1)
    with borrowing(lender, "--ctx", "4096") as server:
        assert texts(server, temperature=0, n=1) == expected
        assert len(set(texts(server))) == 8


def test_a_lost_server_ends_requests_with_its_name_and_all_goes_on_when_it_is_back(lender: Lender) -> None:
    with borrowing(lender, "--ctx", "16384", flags=LASTING) as server:
        body = json.dumps(BODY | {"max_tokens": -1})
        with contextlib.closing(server.connect()) as connection:
            connection.request("POST", "/v1/events", body, {"Content-Type": "application/json"})
            with connection.getresponse() as answer:
                head = answer.read(2000)
                lender.kill()
                tail = answer.read().decode()
        assert b'"stream"' in head
        assert lender.address in tail.rsplit('"event": "error"', 1)[1]
        assert '"event": "done"' not in tail

        status, error = server.json("POST", "/v1/completions", BODY)
        assert (status, lender.address in error["error"]["message"]) == (503, True), error
        status, health = server.json("GET", "/health")
        assert (status, health["status"], lender.address in health["error"]) == (503, "failed", True)

        lender.start()
        eventually(lambda: server.call("GET", "/health")[0] == 200)
        assert len(set(texts(server))) == 8


def test_a_server_that_is_back_already_is_named_too(lender: Lender) -> None:
    with borrowing(lender, "--ctx", "4096") as server:
        texts(server)
        lender.kill()
        lender.start()
        status, error = server.json("POST", "/v1/completions", BODY | {"stream": False})
        assert (status, lender.address in error["error"]["message"]) == (500, True), error
        eventually(lambda: server.call("GET", "/health")[0] == 200)
        assert len(set(texts(server))) == 8


def test_no_engine_is_renewed_beside_another(lender: Lender, tmp_path: Path) -> None:
    model, log = shutil.copy(STORYTELLER, tmp_path / "model.gguf"), tmp_path / "log"
    settings = ("--port", "0", "--ctx", "4096", "--model", str(model))
    command = [ROOT / "api.py", *settings, "--", "--rpc", lender.address]
    out = subprocess.PIPE
    with log.open("w") as errors, subprocess.Popen(command, stdout=out, stderr=errors, text=True) as process:
        try:
            assert process.stdout
            server = Server(process.stdout.readline().split()[0], process.pid)
            os.utime(model, (0, 0))
            process.send_signal(signal.SIGHUP)
            eventually(lambda: "one client at a time" in log.read_text())
            assert len(set(texts(server))) == 8
        finally:
            process.terminate()


def test_a_start_without_the_server_fails_with_its_name(lender: Lender) -> None:
    lender.kill()
    flags = ("--port", "0", "--", "--rpc", lender.address)
    ended = subprocess.run([ROOT / "api.py", *flags], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert f"the RPC server {lender.address} does not answer" in ended.stderr


@pytest.mark.parametrize("place", ["ram", "disk"])
def test_a_prompt_that_left_comes_back(lender: Lender, tmp_path: Path, place: str) -> None:
    kept = ("--cache-ram", "64M") if place == "ram" else ("--cache-ram", "0", "--prefix-cache", str(tmp_path))
    prompts = [words(i, 200) for i in range(1, 8)]
    with borrowing(lender, "--ctx", "2048", "--cache-cells", "600", *kept) as server:
        first = [texts(server, prompt=prompt, n=2, max_tokens=4) for prompt in prompts]
        once = BODY | {"prompt": prompts[0], "n": 2, "max_tokens": 4, "stream": False}
        again = server.json("POST", "/v1/completions", once)[1]
        assert [choice["text"] for choice in again["choices"]] == first[0]
        assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
