"""The memory of another process for an engine's layers: llama.cpp's ggml-rpc-server, behind a proxy.

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

ALLOC_BUFFER, GET_TENSOR, GET_DEVICE_MEMORY = 0, 8, 11  # RPC_CMD_… of ggml-rpc.cpp
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


class Device:
    """A lender as a device, behind a proxy: it counts copies of cells, and may have little memory.

    free: its free memory in bytes; None: what the lender has.
    """

    def __init__(self, lender: Lender, free: int | None = None) -> None:
        self.n_copies = 0
        self.free = free
        self._lender = lender
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Device:
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
            try:
                while len(head := stream.read(HEAD.size)) == HEAD.size:
                    command, size = HEAD.unpack(head)
                    body = stream.read(size) if size else b""
                    self.n_copies += command == GET_TENSOR and b"cache_" in body
                    if (answer := self._own_answer(command, body)) is not None:
                        near.sendall(struct.pack("<Q", len(answer)) + answer)
                    else:
                        far.sendall(head + body)
            finally:
                far.shutdown(socket.SHUT_RDWR)  # the lender serves one connection at a time

    def _own_answer(self, command: int, body: bytes) -> bytes | None:
        """Of a device with little memory: how much there is, and that more cannot be allocated."""
        if self.free is None:
            return None
        if command == GET_DEVICE_MEMORY:
            return struct.pack("<QQ", self.free, self.free)
        if command == ALLOC_BUFFER and struct.unpack("<Q", body[-8:])[0] > self.free:
            return struct.pack("<QQ", 0, 0)
        return None

    def _answers(self, far: socket.socket, near: socket.socket) -> None:
        try:
            while data := far.recv(1 << 20):
                near.sendall(data)
        except OSError:  # the engine has ended
            return
