"""Attacks on the real server program by HTTP heads, connections, WebSocket frames and slow readers.

Each gets an answer or loses its connection. Other clients are served meanwhile, and the log has no traceback.
"""

# ruff: noqa: E501 (tables)
from __future__ import annotations

import contextlib
import gzip
import json
import os
import select
import signal
import socket
import struct
import subprocess
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from llama_srb.serving.bodies import MAX_LARGE, SHARE
from tests.support import forked
from tests.support.bench import Bench
from tests.support.hostile import PATHS
from tests.support.processes import status
from tests.support.waiting import PATIENCE

HOST = b" HTTP/1.1\r\nHost: localhost\r\n"
SMALL = b'{"prompt":"x","n":1,"max_tokens":1}'
ENDLESS = b'{"prompt":"x","n":64,"max_tokens":-1,"logprobs":20}'
MEMORY = 128  # MiB by which the server may grow in an attack
FLAGS = ("--body-timeout", "2", "--idle-timeout", "2", "--max-unread", "4000", "--log-level", "info")


pytestmark = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="looks into /proc")


@dataclass(frozen=True)
class Target:
    """The attacked server, and its state before the attack."""

    port: int
    pid: int
    log: Path
    idle: int  # open descriptors before the attack

    def connect(self, patience: float = PATIENCE) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=patience)

    def answer(self, *pieces: bytes) -> bytes:
        """Sends the pieces, a moment apart; returns the first bytes of the answer."""
        with self.connect() as client, contextlib.suppress(ConnectionError, TimeoutError):
            for piece in pieces:
                client.sendall(piece)
                time.sleep(0.05 * (len(pieces) > 1))
            return client.recv(1 << 16)
        return b""

    @property
    def memory(self) -> int:
        return status(self.pid, "VmHWM") // 1024

    @property
    def descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("attacked")
    bench, log = Bench(folder), folder / "log"
    command = bench.command("serve", *FLAGS, "--", "--endless")
    with (
        log.open("wb") as stderr,
        forked.Popen(command, env=bench.environ, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            idle = len(os.listdir(f"/proc/{process.pid}/fd"))
            yield Target(int(url.rpartition(":")[2]), process.pid, log, idle)
        finally:
            process.kill()


@pytest.fixture(autouse=True)
def _unharmed(target: Target) -> Iterator[None]:
    """After each attack the server serves others, has no traceback in its log and no open descriptor."""
    before = target.memory
    yield
    assert b" 200 " in target.answer(post(SMALL))[:20]
    log = target.log.read_text()
    assert [line for line in log.splitlines() if "Traceback" in line or "internal error" in line] == []
    assert target.memory - before < MEMORY


def get(path: bytes, *fields: bytes) -> bytes:
    return b"GET " + path + HOST + b"".join(field + b"\r\n" for field in fields) + b"\r\n"


def post(body: bytes, *fields: bytes, path: bytes = b"/v1/events") -> bytes:
    head = b"POST " + path + HOST + b"".join(field + b"\r\n" for field in fields)
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


def chunked(*parts: bytes) -> bytes:
    return b"POST /v1/events" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(parts)


BOMB = gzip.compress(bytes(1 << 20), 9) * 256
ATTACKS: dict[str, tuple[bytes, bytes]] = {  # the bytes that are sent, and the status of the answer
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", b"400"),
    "two hosts": (get(b"/health", b"Host: evil.example"), b"400"),
    "a host that is none": (b"GET /health HTTP/1.1\r\nHost: [::1\r\n\r\n", b"403"),
    "a host of any bytes": (b"GET /health HTTP/1.1\r\nHost: \xff\xfe\r\n\r\n", b"403"),
    "a host behind a user": (b"GET /health HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n", b"403"),
    "a host before a fragment": (b"GET /health HTTP/1.1\r\nHost: evil.example#localhost\r\n\r\n", b"403"),
    "a rebound name": (b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n", b"403"),
    "an origin of any bytes": (get(b"/health", b"Origin: \xff\xfe"), b"403"),
    "an origin with a user": (get(b"/health", b"Origin: http://evil.example@localhost"), b"403"),
    "an origin with a path": (get(b"/health", b"Origin: http://localhost/\xff"), b"403"),
    "a page's text/plain": (post(SMALL, b"Origin: http://evil.example", b"Content-Type: text/plain"), b"403"),
    "a preflight of any bytes": (
        b"OPTIONS /v1/events" + HOST + b"Origin: http://localhost\r\nAccess-Control-Request-Headers: \xff\r\n\r\n", b"204"),
    "a proxy's CONNECT": (b"CONNECT evil.example:443" + HOST + b"\r\n", b"404"),
    "a TRACE": (b"TRACE /" + HOST + b"\r\n", b"405"),
    "a star": (b"GET *" + HOST + b"\r\n", b"400"),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(200)), b"400"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"400"),
    "HTTP/9.9": (b"GET /health HTTP/9.9\r\nHost: localhost\r\n\r\n", b"400"),
    "a name with a space": (get(b"/health", b"X : y"), b"400"),
    "a folded field": (get(b"/health", b"X: a", b" b"), b"400"),
    "a field with a NUL": (get(b"/health", b"X: a\0b"), b"400"),
    "a key in a broken field": (get(b"/health", b"Authorization: Bearer hunter2\0"), b"400"),
    "a path with an escape": (get(b"/\x1b[2J"), b"400"),
    "a path of any bytes": (get(b"/\xff\xfe"), b"400"),
    "a path with a forged line": (get(b"/x%0d%0a2026-01-01 I forged"), b"400"),
    "a path of wrong percents": (get(b"/%zz%ff%00"), b"404"),
    "a path upwards": (get(b"/../../../etc/passwd"), b"404"),
    "a path upwards, in percents": (get(b"/studio/..%2f..%2fserver.py"), b"404"),
    "a path upwards, in more percents": (get(b"/studio/%2e%2e/server.py"), b"404"),
    "a model upwards": (get(b"/v1/models/..%2f..%2fetc%2fpasswd"), b"404"),
    "a length and chunks": (post(SMALL, b"Transfer-Encoding: chunked"), b"400"),
    "two lengths": (post(SMALL, b"Content-Length: 3"), b"400"),
    "a length below 0": (b"POST /v1/events" + HOST + b"Content-Length: -1\r\n\r\n", b"400"),
    "a length without end": (b"POST /v1/events" + HOST + b"Content-Length: " + b"9" * 30 + b"\r\n\r\n", b"400"),
    "a length beyond --max-body": (b"POST /v1/events" + HOST + b"Content-Length: 99999999999\r\n\r\n", b"413"),
    "chunks beyond --max-body": (chunked(*[b"100000\r\n" + bytes(1 << 20) + b"\r\n"] * 17), b"413"),
    "a chunk of no size": (chunked(b"zz\r\n"), b"400"),
    "a chunk of every size": (chunked(b"f" * 40 + b"\r\n"), b"400"),
    "20,000 trailers": (chunked(b"0\r\n", b"A: b\r\n" * 20_000, b"\r\n"), b"400"),
    "a packed body": (post(BOMB, b"Content-Encoding: gzip"), b"415"),
    "a body packed by nobody": (post(SMALL, b"Content-Encoding: evil"), b"415"),
    "an odd Expect": (post(SMALL, b"Expect: evil"), b"417"),
    "a key of any bytes": (post(SMALL, b"Authorization: Bearer \xff.\xff.\xff"), b"200"),
    "a name of any bytes": (post(SMALL, b"X-Request-Id: \xff\xfe%s"), b"200"),
    "an Accept of any bytes": (post(SMALL, b"Accept: \xff\xfe", b"Content-Type: \xff; charset=\xfe"), b"200"),
    "a WebSocket without a key": (get(b"/v1/ws", b"Connection: upgrade", b"Upgrade: websocket"), b"400"),
    "a WebSocket of no WebSocket": (get(b"/v1/ws"), b"400"),
    "a sequence beyond all": (b"DELETE /v1/completions/%00/99999999999999999999" + HOST + b"\r\n", b"404"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "code"), ATTACKS.values(), ids=ATTACKS)
def test_an_attack_gets_its_answer(target: Target, sent: bytes, code: bytes) -> None:
    assert target.answer(sent).split(b" ")[1:2] == [code]


DEEP = [("/v1/events", depth) for depth in range(960, 1000)]
NO_BODY = ("/v1/internal/stop-generation", "/v1/abort")  # these routes read none
DEEP += [(path, 980) for path in PATHS if path not in NO_BODY]


@pytest.mark.parametrize("inner", [b"1", b"NaN"])
def test_a_body_that_is_nested_too_deeply_is_a_400(target: Target, inner: bytes) -> None:
    """Python's recursion ends at about 1,000 levels, in the parser or in the message about it."""
    for path, depth in DEEP:
        body = b'{"prompt":' + b"[" * depth + inner + b"]" * depth + b"}"
        answer = target.answer(post(body, path=path.encode()))
        assert (path, answer.split()[1]) == (path, b"400")
        assert b"is nested %d levels deep; it must be at most 64" % (depth + 1) in answer or inner == b"NaN"


def test_the_log_has_no_key_of_a_broken_request(target: Target) -> None:
    target.answer(get(b"/health", b"Authorization: Bearer hunter2\0"))
    assert "hunter2" not in target.log.read_text()


def test_rubbish_after_a_request_ends_the_connection(target: Target) -> None:
    assert b" 200 " in target.answer(post(SMALL), b"\0\1\2" * 1000)


@pytest.mark.parametrize("sent", [chunked(b"5\r\n{"), chunked(), post(b"")[:-4] + b"9\r\n\r\n{"])
def test_an_unfinished_body_is_408(target: Target, sent: bytes) -> None:
    assert b" 408 " in target.answer(sent)


def test_hundreds_of_connections_to_a_busy_server_are_all_served(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        os.kill(target.pid, signal.SIGSTOP)
        try:  # a full queue makes the kernel retry after a second
            clients = [stack.enter_context(target.connect(0.9)) for _ in range(500)]
        finally:
            os.kill(target.pid, signal.SIGCONT)
        for client in clients:
            client.settimeout(PATIENCE)
            client.sendall(get(b"/health"))
        assert [client.recv(100).split()[1] for client in clients] == [b"200"] * 500
    eventually(lambda: target.descriptors <= target.idle)


def test_slow_heads_keep_no_other_client_out(target: Target) -> None:
    with contextlib.ExitStack() as stack:
        slow = [stack.enter_context(target.connect()) for _ in range(200)]
        for client in slow:
            client.sendall(get(b"/health", b"X: y")[:-2])
        assert b" 200 " in target.answer(post(SMALL))
        for client in slow:  # --idle-timeout ends them
            assert client.recv(100) == b""
    eventually(lambda: target.descriptors <= target.idle)


def test_2000_pipelined_requests_are_answered_in_order(target: Target) -> None:
    with target.connect() as client:
        client.sendall(get(b"/health") * 2000 + get(b"/nowhere", b"Connection: close"))
        data = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert (data.count(b" 200 OK"), data.count(b" 404 ")) == (2000, 1)


def test_a_reader_that_falls_behind_loses_its_connection_without_reading(target: Target) -> None:
    """On uvloop, which only the real program uses, a transport with unread data is closed by abort only."""
    with target.connect() as client:
        client.sendall(post(ENDLESS))
        eventually(lambda: "unread events" in target.log.read_text())
        eventually(lambda: target.descriptors <= target.idle)


def test_large_bodies_have_a_slot_or_are_refused(target: Target) -> None:
    body = b'{"prompt":"x","n":1,"max_tokens":1,"junk":"' + b"a" * (2 << 20) + b'"}'
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(target.connect()) for _ in range(17)]
        for client in clients:
            client.sendall(post(body)[:1000])
        answered, _, _ = select.select(clients, [], [], PATIENCE)  # the client whose head was read last
        said = answered[0].recv(1 << 16)
        assert (b" 503 " in said, b"Retry-After: 5" in said) == (True, True)
    eventually(lambda: b" 200 " in target.answer(post(body)))


def test_an_unread_log_does_not_block_the_server(tmp_path: Path) -> None:
    """A pipe holds 64 KiB; these log lines have ten times as much."""
    name = b"X-Request-Id: " + b"n" * 64
    with Bench(tmp_path).serving("--log-level", "info") as (server, greeting):
        port = int(greeting.split()[0].rpartition(":")[2])
        target = Target(port, server.pid, tmp_path, 0)
        with target.connect() as client:
            client.sendall(get(b"/" + b"q" * 200, name) * 2000 + get(b"/nowhere", b"Connection: close"))
            data = b"".join(iter(lambda: client.recv(1 << 16), b""))
        assert data.count(b" 404 ") == 2001
        assert b'"done"' in target.answer(post(SMALL))
        assert server.stderr is not None
        watch = threading.Timer(PATIENCE, server.kill)  # otherwise a failure would read for ever
        watch.start()
        dropped = 0  # a short line may fit between two drops, so there may be several reports
        for line in server.stderr:
            dropped += int(line.split(": ")[1].split()[0]) if "nobody read the log" in line else 0
            if dropped > 500:
                break
        assert dropped > 500
        assert b" 200 " in target.answer(get(b"/health", b"X-Request-Id: again"))
        assert "again" in next(line for line in server.stderr if "again" in line)
        watch.cancel()


def test_an_unread_log_does_not_block_an_engine_that_logs_much(tmp_path: Path) -> None:
    with Bench(tmp_path).serving("--log-level", "debug", "--", "--stderr-flood") as (server, greeting):
        target = Target(int(greeting.split()[0].rpartition(":")[2]), server.pid, tmp_path, 0)
        with target.connect() as client:
            client.sendall(post(b'{"prompt":"x","n":1,"max_tokens":20}', b"Connection: close"))
            assert b'"done"' in b"".join(iter(lambda: client.recv(1 << 16), b""))


def test_a_server_with_an_unread_log_ends_on_sigterm(tmp_path: Path) -> None:
    with Bench(tmp_path).serving("--log-level", "info") as (server, greeting):
        port = int(greeting.split()[0].rpartition(":")[2])
        with Target(port, server.pid, tmp_path, 0).connect() as client:
            client.sendall(
                get(b"/health", b"X-Request-Id: " + b"n" * 64) * 2000 + get(b"/", b"Connection: close")
            )
            while client.recv(1 << 16):
                pass
        server.terminate()
        assert server.wait(PATIENCE) == 0


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# WebSockets

UPGRADE = get(b"/v1/ws", b"Connection: upgrade", b"Upgrade: websocket", b"Sec-WebSocket-Version: 13",
              b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", b"Sec-WebSocket-Extensions: permessage-deflate")  # fmt: skip


def frame(
    opcode: int, data: bytes, *, last: bool = True, packed: bool = False, length: int | None = None
) -> bytes:
    size = len(data) if length is None else length
    head = bytes([last << 7 | packed << 6 | opcode])
    short = (
        bytes([0x80 | size])
        if size < 126
        else bytes([0x80 | 126]) + struct.pack(">H", size)
        if size < 65536
        else b""
    )
    return head + (short or bytes([0x80 | 127]) + struct.pack(">Q", size)) + bytes(4) + data


def deflated(data: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_SYNC_FLUSH)[:-4]


def command(id: int) -> bytes:
    fields = {"op": "generate", "id": str(id), "prompt": "x", "n": 1, "max_tokens": 2}
    return frame(1, json.dumps(fields).encode())


CLOSED = b"\x88\x02"  # a close frame with a code
FLOODS: dict[str, tuple[bytes, bytes]] = {  # frames, and bytes that the answer must have
    "a reserved opcode": (frame(5, b"{}"), CLOSED + struct.pack(">H", 1002)),
    "a length of 2^62": (frame(1, b"x", length=2**62), CLOSED + struct.pack(">H", 1009)),
    "fragments beyond --max-body": (frame(1, b"{", last=False) + frame(0, bytes(1 << 20), last=False) * 17,
                                    CLOSED + struct.pack(">H", 1009)),
    "a continuation of nothing": (frame(0, b"x"), CLOSED + struct.pack(">H", 1002)),
    "a message that is nested too deeply": (frame(1, b'{"op":' + b"[" * 980 + b"]" * 980 + b"}"), b"nested 981 levels deep"),
    "a ping that is too long": (frame(9, b"x" * 1000), CLOSED + struct.pack(">H", 1002)),
    "a packed message": (frame(1, deflated(bytes(1 << 28)), packed=True), CLOSED + struct.pack(">H", 1002)),
    "a message that is badly packed": (frame(1, b"\xff" * 100, packed=True), CLOSED),
    "a text of any bytes": (frame(1, b"\xff\xfe"), CLOSED + struct.pack(">H", 1007)),
    "100,000 pongs": (frame(10, b"x") * 100_000 + frame(8, b""), b"\x88"),
    "20,000 times rubbish": (frame(1, b"x") * 20_000 + frame(8, b""), b"\x88"),
    "1,000 requests": (b"".join(map(command, range(1000))) + frame(8, b""), b"\x88"),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "told"), FLOODS.values(), ids=FLOODS)
def test_a_flood_of_frames_is_answered_or_ends_the_connection(
    target: Target, sent: bytes, told: bytes
) -> None:
    data = b""
    with target.connect() as client, contextlib.suppress(ConnectionError):
        client.sendall(UPGRADE)
        while b"\r\n\r\n" not in data:
            data += client.recv(1 << 16)
        data = data.partition(b"\r\n\r\n")[2]
        with contextlib.suppress(ConnectionError):
            client.sendall(sent)
        while told not in data and (piece := client.recv(1 << 16)):
            data += piece
    assert told in data


# Unfinished messages


def upgraded(stack: contextlib.ExitStack, target: Target) -> socket.socket:
    client = stack.enter_context(target.connect())
    client.sendall(UPGRADE)
    data = b""
    while b"\r\n\r\n" not in data:
        data += client.recv(1 << 16)
    return client


def has_closed(client: socket.socket, code: int) -> bool:
    """Whether a close frame with this code arrives soon."""
    data, told = b"", b"\x88" + b"?" + struct.pack(">H", code)
    with contextlib.suppress(ConnectionError, TimeoutError):
        client.settimeout(PATIENCE)
        while told[2:] not in data and (piece := client.recv(1 << 16)):
            data += piece
    return told[2:] in data


HALF = frame(1, b'{"op":"generate",', last=False) + frame(0, b" " * (1 << 19), last=False) * 3


def test_fragments_of_large_messages_have_a_slot_or_are_refused(target: Target) -> None:
    """They hold their slots for --body-timeout, 2 s, so on a slow machine the test tries again."""
    large = b'{"prompt":"x","n":1,"max_tokens":1,"junk":"' + b"a" * (2 << 20) + b'"}'

    def sent_away() -> bool:
        with contextlib.ExitStack() as stack:
            for _ in range(16):
                upgraded(stack, target).sendall(HALF)
            if b" 503 " not in target.answer(post(large)[:1000]):
                return False
            refused = upgraded(stack, target)
            with contextlib.suppress(ConnectionError):
                refused.sendall(HALF)
            return has_closed(refused, 1013)

    eventually(sent_away)
    eventually(lambda: b" 200 " in target.answer(post(large)))


def test_an_unfinished_large_message_closes_the_connection(target: Target) -> None:
    """--body-timeout is 2 s."""
    with contextlib.ExitStack() as stack:
        client = upgraded(stack, target)
        client.sendall(HALF)
        assert has_closed(client, 1008)


def test_a_large_message_holds_its_slot_until_its_request_has_ended(target: Target) -> None:
    fields = {"op": "generate", "id": "a", "prompt": "x", "n": 1, "max_tokens": -1, "junk": "a" * (1 << 21)}
    with contextlib.ExitStack() as stack:
        clients = [upgraded(stack, target) for _ in range(MAX_LARGE - SHARE)]  # what one client may have
        for client in clients:
            client.sendall(frame(1, json.dumps(fields).encode()))
            while b'"start"' not in client.recv(1 << 16):
                pass
        refused = upgraded(stack, target)
        with contextlib.suppress(ConnectionError):
            refused.sendall(HALF)
        assert has_closed(refused, 1013)
    with contextlib.ExitStack() as stack:  # the server notices the others' ends one by one
        eventually(
            lambda: (
                b" 200 "
                in target.answer(
                    post(b'{"prompt":"x","n":1,"max_tokens":1,"junk":"' + b"a" * (2 << 20) + b'"}')
                )
            )
        )


# Readers that do not read


STALLED = {
    "a stream": post(b'{"prompt":"x","n":32,"max_tokens":-1}'),
    "a whole answer": post(b'{"text":"' + b"a " * 1_500_000 + b'"}').replace(b"/v1/events", b"/v1/token/encode"),
    "a WebSocket": UPGRADE + frame(1, json.dumps({"op": "generate", "id": "a", "prompt": "x", "n": 32, "max_tokens": -1}).encode()),
    "answers in a row": get(b"/v1/samplers") * 2000,
}  # fmt: skip


@pytest.mark.parametrize("sent", STALLED.values(), ids=STALLED)
def test_a_reader_that_reads_nothing_is_cut_off_alone(tmp_path: Path, sent: bytes) -> None:
    """With any number of unread events, and although a WebSocket's client answers pings."""
    flags = ("--write-timeout", "2", "--max-unread", "10000000", "--log-level", "info", "--keep-alive", "1")
    with Bench(tmp_path).serving(*flags, "--", "--endless", "--flood") as (server, greeting):
        port = int(greeting.split()[0].rpartition(":")[2])
        target = Target(port, server.pid, tmp_path, len(os.listdir(f"/proc/{server.pid}/fd")))
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with client, target.connect() as reader:
            client.connect(("127.0.0.1", port))
            reader.sendall(post(b'{"prompt":"x","n":1,"max_tokens":-1}'))
            client.sendall(sent)

            def cut_off() -> bool:
                reader.recv(1 << 20)
                with contextlib.suppress(ConnectionError):
                    if sent.startswith(UPGRADE):
                        client.send(frame(10, b"x"))
                return target.descriptors <= target.idle + 1

            eventually(cut_off)
            while b'"stream"' not in reader.recv(1 << 20):
                pass


# Memory of generations


def test_remembered_generations_of_kobolds_clients_take_little_memory(tmp_path: Path) -> None:
    """8 prompts of 4 MB, and 4 texts of 200 tokens with 100 alternatives each: unbounded, 250 MiB."""
    flags = ("--alternatives", "--torrent", "--endless", "--flood")
    with Bench(tmp_path).serving("--log-level", "info", "--", *flags) as (server, greeting):
        target = Target(int(greeting.split()[0].rpartition(":")[2]), server.pid, tmp_path, 0)
        idle = status(server.pid, "VmRSS")
        body = {"prompt": "x" * (4 << 20), "n": 4, "max_length": 200, "logprobs": 100}
        for number in range(8):
            sent = json.dumps(body | {"genkey": f"K{number}"}).encode()
            with target.connect(60) as client:
                client.sendall(
                    post(sent, b"Connection: close").replace(b"/v1/events", b"/api/extra/generate/stream")
                )
                while client.recv(1 << 20):
                    pass
        assert b'"text":' in target.answer(
            post(b'{"genkey":"K7"}').replace(b"/v1/events", b"/api/extra/generate/check")
        )
        assert (status(server.pid, "VmRSS") - idle) // 1024 < MEMORY


# Readers of long events


MANY = {"prompt": "x", "n": 512, "max_tokens": 10**6, "logprobs": 100, "stream": True}
ECHO = {"prompt": "x" * (1 << 20), "n": 256, "max_tokens": 1, "echo": True}
LONG: dict[str, tuple[bytes, tuple[str, ...]]] = {
    "alternatives": (post(json.dumps(MANY).encode()), ("--torrent",)),
    "alternatives, OpenAI": (post(json.dumps(MANY | {"prompt": ["x"] * 8, "n": 64}).encode()).replace(b"/v1/events", b"/v1/completions"), ("--torrent",)),
    "alternatives, Ollama": (post(json.dumps({"model": "storyteller", "prompt": "x", "logprobs": True, "top_logprobs": 20, "options": {"n": 512, "num_predict": 10**6}}).encode()).replace(b"/v1/events", b"/api/generate"), ("--torrent",)),
    "a prompt in each choice": (post(json.dumps(ECHO | {"stream": True}).encode()).replace(b"/v1/events", b"/v1/completions"), ()),
    "a prompt in each choice of a whole answer": (post(json.dumps(ECHO | {"stream": False}).encode()).replace(b"/v1/events", b"/v1/completions"), ()),
}  # fmt: skip


@pytest.mark.parametrize(("sent", "flags"), LONG.values(), ids=LONG)
def test_a_slow_reader_of_long_events_costs_little(
    tmp_path: Path, sent: bytes, flags: tuple[str, ...]
) -> None:
    """The bound of 250,000 unread events, tokens and alternatives takes 90 MiB."""
    flags = ("--log-level", "info", "--", "--alternatives", "--endless", "--flood", *flags)
    with Bench(tmp_path).serving(*flags) as (server, greeting):
        target = Target(int(greeting.split()[0].rpartition(":")[2]), server.pid, tmp_path, 0)
        idle, deadline = target.memory, time.monotonic() + 4
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        with (
            client,
            contextlib.suppress(ConnectionError, TimeoutError),
        ):  # too large: the answer came in one piece
            client.connect(("127.0.0.1", target.port))
            client.settimeout(5)
            client.sendall(sent)
            while client.recv(1 << 12) and time.monotonic() < deadline:
                time.sleep(0.01)
        assert b" 200 " in target.answer(get(b"/health/live"))
        assert target.memory - idle < 1.5 * MEMORY
