"""A proxy on loopback that records each request byte by byte and passes it on unchanged."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

CHUNK = 1 << 16
HEAD_END = b"\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request as it came; header names and their order as the client wrote them."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes


@dataclass
class RequestReader:
    """Bytes of one connection, in any pieces, become requests. Bodies need a Content-Length, or are empty."""

    buffer: bytes = b""

    def feed(self, data: bytes) -> Iterator[Recorded]:
        """The requests that these bytes complete."""
        self.buffer += data
        while HEAD_END in self.buffer:
            head, _, rest = self.buffer.partition(HEAD_END)
            first, *lines = head.decode("latin-1").split("\r\n")
            headers = tuple(
                (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
            )
            named = {name.lower(): value for name, value in headers}
            if "transfer-encoding" in named:
                raise NotImplementedError("a request in chunks")
            length = int(named.get("content-length", 0))
            if len(rest) < length:
                return
            method, target, _ = first.split(" ")
            self.buffer = rest[length:]
            yield Recorded(method, target, headers, rest[:length])


@dataclass
class Proxy:
    """What it has recorded, and which answers it holds back."""

    port: int
    requests: list[Recorded] = field(default_factory=list)
    held: frozenset[str] = frozenset()  # paths
    released: threading.Event = field(default_factory=threading.Event)

    def await_answer_to(self, target: str) -> None:
        """Returns when the answer to a request of this path may pass."""
        if target in self.held:
            self.released.wait()

    def taken(self) -> list[Recorded]:
        """The requests since the last call."""
        taken, self.requests = self.requests, []
        return taken

    @contextlib.contextmanager
    def holding(self, *paths: str) -> Iterator[None]:
        """Within the block the client waits for the answers of these paths."""
        self.held, self.released = frozenset(paths), threading.Event()
        yield
        self.held = frozenset()
        self.released.set()


def _read(source: socket.socket) -> bytes:
    """b"" at the end, also when the peer has gone."""
    try:
        return source.recv(CHUNK)
    except OSError:
        return b""


@dataclass
class Connection:
    """One client's connection, and its own to the server."""

    client: socket.socket
    server: socket.socket
    proxy: Proxy
    target: str = ""  # of the last request

    def to_server(self) -> None:
        reader = RequestReader()
        while data := _read(self.client):
            for request in reader.feed(data):
                self.proxy.requests.append(request)
                self.target = request.target
            self.server.sendall(data)
        with contextlib.suppress(OSError):
            self.server.shutdown(socket.SHUT_RDWR)

    def to_client(self) -> None:
        with contextlib.suppress(OSError):
            while data := _read(self.server):
                self.proxy.await_answer_to(self.target)
                self.client.sendall(data)
            self.client.shutdown(socket.SHUT_RDWR)


def _serve(client: socket.socket, upstream: tuple[str, int], proxy: Proxy) -> None:
    with client, socket.create_connection(upstream) as server:
        connection = Connection(client, server, proxy)
        answers = threading.Thread(target=connection.to_client, daemon=True)
        answers.start()
        connection.to_server()
        answers.join()


def _accept(listener: socket.socket, upstream: tuple[str, int], proxy: Proxy) -> None:
    with contextlib.suppress(OSError):  # closed at the end
        while True:
            client, _ = listener.accept()
            threading.Thread(target=_serve, args=(client, upstream, proxy), daemon=True).start()


@contextlib.contextmanager
def recording(port: int, upstream: tuple[str, int]) -> Iterator[Proxy]:
    """A proxy for the length of the block; port 0 takes a free one."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        proxy = Proxy(listener.getsockname()[1])
        threading.Thread(target=_accept, args=(listener, upstream, proxy), daemon=True).start()
        yield proxy
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
