"""A server at a Unix socket, with a prefix before its paths, and behind nginx."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import httpx
import pytest

import llama_srb
from llama_srb import AsyncClient, Client
from llama_srb.client.errors import ConnectionFailed
from llama_srb.client.server_process import NotStarted
from tests.support.proxy import documented, nginx
from tests.support.waiting import soon

HELLO = {"prompt": "Once upon a time", "n": 2, "max_tokens": 4}


@pytest.fixture
def place() -> Iterator[Path]:
    """A socket's file, whose path has at most 107 bytes."""
    folder = Path(f"/tmp/llama-srb-{os.getpid()}")
    folder.mkdir()
    yield folder / "srb.sock"
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()


@pytest.mark.filterwarnings(  # httpcore leaves the socket of a failed connection to the collector
    "ignore:.*<socket.socket:pytest.PytestUnraisableExceptionWarning"
)
def test_a_unix_socket_serves_both_clients_and_goes_with_the_server(place: Path) -> None:
    with llama_srb.serve(host=f"unix:{place}") as client:
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        assert len(client.complete("Once upon a time", n=2, max_tokens=4)) == 2
        with client.stream("Once upon a time", n=1, max_tokens=-1) as stream:
            assert stream.cancel()

        async def other() -> int:
            async with AsyncClient(f"unix:{place}") as second:
                return len(await second.complete("Once upon a time", n=3, max_tokens=4))

        assert asyncio.run(other()) == 3
    assert not place.exists()
    with Client(f"unix:{place}") as gone, pytest.raises(ConnectionFailed, match=f"unix:{place}: .*No such"):
        gone.complete("Once")


def test_the_mode_of_the_file_is_a_setting(place: Path) -> None:
    with llama_srb.serve(host=str(place), socket_mode="660"):
        assert stat.S_IMODE(place.stat().st_mode) == 0o660


def test_a_killed_servers_file_is_replaced(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(place))
    with llama_srb.serve(host=f"unix:{place}") as client:
        assert client.complete("Once", n=1, max_tokens=2)


@pytest.mark.parametrize(
    ("what", "reason"),
    [("server", "a server listens there"), ("file", "it is no socket"), ("folder", "there is no folder")],
)
def test_a_socket_that_cannot_be_is_refused(place: Path, what: str, reason: str) -> None:
    with socket.socket(socket.AF_UNIX) as other:
        if what == "server":
            other.bind(str(place))
            other.listen()
        elif what == "file":
            place.write_text("mine")
        else:
            place = place / "no" / "srb.sock"
        refused = pytest.raises(NotStarted, match=f"cannot listen on {place}: {reason}")
        with refused, llama_srb.serve(host=f"unix:{place}"):
            pass
    assert what != "file" or place.read_text() == "mine"


def test_doctor_says_whether_a_socket_is_free(place: Path) -> None:
    def said() -> str:
        command = [sys.executable, "-m", "llama_srb.cli", "doctor", "--host", f"unix:{place}"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    assert f"{place} is free" in said()
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(place))
        other.listen()
        assert f"cannot listen on {place}: a server listens there" in said()


@pytest.fixture(scope="module")
def prefixed() -> Iterator[str]:
    with llama_srb.serve(api_prefix="/llm") as client:
        yield client.url


def test_every_path_has_the_prefix(prefixed: str) -> None:
    assert prefixed.endswith("/llm")
    with httpx.Client() as http:
        answer = http.post(f"{prefixed}/openai/v1/completions", json=HELLO)
        assert len(answer.json()["choices"]) == 2
        refused = http.post(f"{prefixed}/v1/messages", json={})
        assert refused.json()["type"] == "error", "the form of the path's dialect"
        assert http.post(prefixed.removesuffix("/llm") + "/v1/completions", json=HELLO).status_code == 404
        nearly = http.post(f"{prefixed}/v1/completions/", json=HELLO)
        assert "did you mean /llm/v1/completions?" in nearly.text
        counted = http.get(f"{prefixed}/metrics").text
        assert 'path="/openai/v1/completions"' in counted


def test_the_description_has_the_prefix(prefixed: str) -> None:
    found = httpx.get(f"{prefixed}/openapi.json").json()
    assert found["servers"] == [{"url": "/llm"}]
    assert "/v1/completions" in found["paths"]


def test_keys_and_scopes_know_the_prefix() -> None:
    with llama_srb.serve(api_prefix="/llm/too", api_key="sesame") as client:
        assert client.complete("Once", n=1, max_tokens=2)
        assert httpx.post(f"{client.url}/v1/completions", json=HELLO).status_code == 401
        page = httpx.get(client.url, follow_redirects=True)
        assert (page.status_code, str(page.url)) == (200, f"{client.url}/"), "the page needs no key"


def test_behind_nginx_streams_and_websockets_work(place: Path, tmp_path: Path) -> None:
    async def talk(url: str) -> list[str]:
        async with aiohttp.ClientSession() as http, http.ws_connect(f"{url}/v1/ws") as connection:
            await connection.send_json({"op": "generate", "id": "a", **HELLO})
            events: list[str] = []
            while events[-1:] != ["done"]:
                events.append((await soon(connection.receive_json()))["event"])
            return events

    with (
        llama_srb.serve(host=f"unix:{place}", api_prefix="/llm"),
        nginx(tmp_path, documented(f"http://unix:{place}:")) as url,
        Client(f"{url}/llm") as client,
    ):
        assert len(client.complete("Once upon a time", n=2, max_tokens=4)) == 2
        with client.stream("Once upon a time", n=1, max_tokens=-1, ignore_eos=True) as stream:
            next(stream)
            assert stream.cancel(), "the first events come while the others are still made"
        assert asyncio.run(talk(f"{url}/llm")).count("stop") == 2
        assert httpx.get(f"{url}/llm/openapi.json").json()["servers"] == [{"url": "/llm"}]
