"""Keeps a port of Ray's on loopback.

Each replica listens on all interfaces for calls by gRPC, without a key, and what comes there is unpickled:
a program that reaches the port can run code. No setting closes it. By default calls take another way
(RAY_SERVE_USE_GRPC_BY_DEFAULT is 0), so nobody needs the port from elsewhere.
"""

from __future__ import annotations

from typing import Any

from ray.serve._private import replica

ANYWHERE, HERE = "[::]:", "127.0.0.1:"


def bind_here() -> None:
    """From now on this process's replica listens on loopback."""
    bind = replica.add_port_to_grpc_server

    def bind_on_loopback(grpc_server: Any, address: str) -> int:
        port: int = bind(grpc_server, address.replace(ANYWHERE, HERE))
        return port

    replica.add_port_to_grpc_server = bind_on_loopback
