"""Bodies at the ingress: they are read from clients with a key, and have the bounds that a server has."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.ray.conftest import application, cluster_of
from tests.support.served import key_file
from tests.support.serving import Server
from tests.support.waiting import PATIENCE

MIB = 1 << 20
BODY = json.dumps({"prompt": "Once", "max_tokens": 2, "n": 1}).encode()


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return key_file(tmp_path_factory.mktemp("keys") / "keys", {"name": "ann", "scopes": ["complete"]})


@pytest.fixture(scope="module")
def served(keys: Path) -> Iterator[Server]:
    with (
        cluster_of(cpus=2) as cluster,
        application(cluster, 1, {"api_key_file": str(keys), "body_timeout": 2}) as made,
    ):
        yield made


@contextlib.contextmanager
def begun(
    served: Server, length: int, body: bytes, key: str | None = "ann", path: str = "/v1/completions"
) -> Iterator[socket.socket]:
    """A request whose body has begun, on a connection of its own."""
    at = urlsplit(served.url)
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"POST {path} HTTP/1.1\r\nHost: {at.netloc}\r\n{authorization}Content-Length: {length}\r\n\r\n"
    with socket.create_connection((str(at.hostname), at.port or 0), timeout=PATIENCE) as connection:
        connection.sendall(head.encode() + body)
        yield connection


def answer(connection: socket.socket) -> tuple[int, str]:
    """The status and the first bytes of an answer."""
    data = b""
    while b"\r\n\r\n" not in data or not data.partition(b"\r\n\r\n")[2]:
        piece = connection.recv(65536)
        assert piece, data
        data += piece
    return int(data.split()[1]), data.decode()


@pytest.mark.parametrize("key", [None, "nobody"])
def test_without_a_key_the_answer_comes_before_the_body(served: Server, key: str | None) -> None:
    with begun(served, 50 * MIB, b"{", key) as connection:
        status, text = answer(connection)
    assert status == 401
    assert '"invalid_api_key"' in text


def test_it_is_the_servers_answer_in_the_form_of_the_path(served: Server) -> None:
    with begun(served, MIB, b"{", None, "/v1/messages") as connection:
        status, text = answer(connection)
    assert (status, '"authentication_error"' in text) == (401, True)


def test_with_a_key_a_body_is_answered(served: Server) -> None:
    with begun(served, len(BODY), BODY) as connection:
        assert answer(connection)[0] == 200


def test_a_body_that_does_not_come_is_not_waited_for(served: Server) -> None:
    with begun(served, 1000, b"{") as connection:
        status, text = answer(connection)
    assert status == 408
    assert "the body was not complete after 2 s (--body-timeout)" in text


def test_a_body_that_is_too_large_is_refused_by_its_length(served: Server) -> None:
    with begun(served, 65 * MIB, b"{") as connection:
        status, text = answer(connection)
    assert status == 413
    assert f"the body has {65 * MIB} bytes or more; it may have {64 * MIB}" in text


def test_large_bodies_at_once_have_a_bound(served: Server) -> None:
    """Two ingresses have 16 each; those that wait for their end take a slot."""
    with contextlib.ExitStack() as stack:
        open_ones = [stack.enter_context(begun(served, 2 * MIB, b"{")) for _ in range(40)]
        found = sorted(answer(one)[0] for one in open_ones)
    assert set(found) == {408, 503}
    assert found.count(503) >= 40 - 2 * 16
    with begun(served, len(BODY), BODY) as connection:
        assert answer(connection)[0] == 200, "their slots are free again"


def test_the_body_of_a_new_key_is_read(served: Server, keys: Path) -> None:
    """A server that was started later knows it, so the ingress reads the file again."""
    key_file(keys, {"name": "ann", "scopes": ["complete"]}, {"name": "bob", "scopes": ["complete"]})
    with begun(served, 1000, b"{", "bob") as connection:
        assert answer(connection)[0] == 408
