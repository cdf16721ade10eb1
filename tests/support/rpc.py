"""A gRPC client as users make one: its code is generated from llama_srb.proto by grpcio-tools."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import AsyncIterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_tools import protoc

from tests.support.places import ROOT

PROTO = ROOT / "llama_srb/grpc/llama_srb.proto"
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


@cache
def generated() -> tuple[ModuleType, ModuleType]:
    """The modules llama_srb_pb2 and llama_srb_pb2_grpc."""
    folder = tempfile.mkdtemp(prefix="llama-srb-proto-")
    outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    paths = [f"-I{path}" for path in (PROTO.parent, Path(protoc.__file__).parent / "_proto")]
    assert protoc.main(["protoc", *paths, *outputs, PROTO.name]) == 0
    sys.path.insert(0, folder)
    try:
        import llama_srb_pb2
        import llama_srb_pb2_grpc
    finally:
        sys.path.remove(folder)
    return llama_srb_pb2, llama_srb_pb2_grpc


class Rpc:
    """`async with Rpc(port) as rpc:`; keywords of the methods are fields of the message."""

    def __init__(self, port: int, *, key: str = "", credentials: Any = None) -> None:
        address = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        self.channel = (
            grpc.aio.secure_channel(address, credentials)
            if credentials
            else grpc.aio.insecure_channel(address)
        )
        self.pb, services = generated()
        self.stub = services.LlamaSrbStub(self.channel)
        self.health = health_pb2_grpc.HealthStub(self.channel)
        self.metadata = (("authorization", f"Bearer {key}"),) if key else ()

    async def __aenter__(self) -> Rpc:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close()

    def complete(self, timeout: float | None = None, **fields: Any) -> Any:
        request = self.pb.CompleteRequest(**fields)
        return self.stub.Complete(request, metadata=self.metadata, timeout=timeout)

    def chat(self, **fields: Any) -> Any:
        return self.stub.Chat(self.pb.ChatRequest(**fields), metadata=self.metadata)

    async def embed(self, **fields: Any) -> Any:
        return await self.stub.Embed(self.pb.EmbedRequest(**fields), metadata=self.metadata)

    async def serves(self, service: str = "") -> int:
        """The status of a service."""
        answer = await self.health.Check(health_pb2.HealthCheckRequest(service=service))
        return int(answer.status)


async def all_of(call: AsyncIterable[Any]) -> list[tuple[str, Any]]:
    """The events of a call: the name of each, and its message."""
    return [(name := event.WhichOneof("event"), getattr(event, name)) async for event in call]


async def failure(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    """The status of a call that fails, its message, and what the metadata says of it."""
    try:
        await (all_of(call) if isinstance(call, AsyncIterable) else call)
    except grpc.aio.AioRpcError as error:
        trailing = {name: str(value) for name, value in error.trailing_metadata() or ()}
        return error.code(), error.details() or "", trailing
    raise AssertionError("the call has not failed")


def port_in(log: str) -> int:
    """The port of the gRPC server whose start is in this log."""
    return int(log.rpartition("gRPC listens on ")[2].split()[2])
