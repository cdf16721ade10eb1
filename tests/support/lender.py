"""The memory of another process for an engine's layers: llama.cpp's ggml-rpc-server, and a proxy that counts copies.

Each copy is a round trip, so it stands for a device with slow small copies, which a GPU is, too.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import threading
from types import TracebackType

from tests.support.cluster import eventually
from tests.support.places import BINARY

GET_TENSOR = 8  # RPC_CMD_GET_TENSOR of ggml-rpc.cpp
HEAD = struct.Struct("<BQ")  # command, bytes that follow


class Lender:
    """A ggml-rpc-server on a port of loopback."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [BINARY.with_name("ggml-rpc-server"), "-H", "127.0.0.1", "-p", str(self.port), "-t", "1"]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
        eventually(self._listens)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _listens(self) -> bool:
        try:
            socket.create_connection(("127.0.0.1", self.port), 1).close()
        except OSError:
            return False
        return True


class Counter:
    """Passes connections to a lender; counts how often cells of the KV cache are copied from it."""

    def __init__(self, lender: Lender) -> None:
        self.n_copies = 0
        self._lender = lender
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Counter:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self._lender.port))
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._commands, args=(near, far), daemon=True).start()
            threading.Thread(target=self._answers, args=(far, near), daemon=True).start()

    def _commands(self, near: socket.socket, far: socket.socket) -> None:
        with near, far, near.makefile("rb") as stream:
            while len(head := stream.read(HEAD.size)) == HEAD.size:
                command, size = HEAD.unpack(head)
                body = stream.read(size) if size else b""
                self.n_copies += command == GET_TENSOR and b"cache_" in body
                far.sendall(head + body)
            far.shutdown(socket.SHUT_RDWR)  # the lender serves one connection at a time

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while data := far.recv(1 << 20):
                near.sendall(data)
        except OSError:  # the engine has ended
            return
