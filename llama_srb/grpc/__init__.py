"""The gRPC API's server: its port, its certificate, its health, reflection. Needs the extra `grpc`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from llama_srb.background import begin
from llama_srb.config import Settings
from llama_srb.grpc.calls import Calls, code_of, text_of, trailing_of
from llama_srb.grpc.messages import SERVICE
from llama_srb.request.values import RequestError
from llama_srb.serving.faults import StartError, fault_of
from llama_srb.serving.health import health_of
from llama_srb.serving.keys.access import Access, key_in
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.keys.scopes import EVERY_KEY
from llama_srb.serving.service import Service

log = logging.getLogger("llama_srb.server")  # this name is documented

MAX_CALLS = 256  # running calls of one connection, as of one WebSocket
ONLY_PLAIN = 1  # the bits of the allowed compressions: a few bytes may expand to gigabytes
WRITE_GRACE = 1.0  # seconds for clients to read the end of their calls when the server stops
NAMES = (SERVICE, health.SERVICE_NAME, reflection.SERVICE_NAME)


class Certificate:
    """The files --tls-cert and --tls-key, which renew() reads again for new connections."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._renewed: Any = None

    def credentials(self) -> grpc.ServerCredentials:
        return grpc.dynamic_ssl_server_credentials(self._read(), self._take)

    def renew(self) -> None:
        self._renewed = self._read()

    def _take(self) -> Any:
        """The files that were read again since the last call; called by gRPC's threads."""
        renewed, self._renewed = self._renewed, None
        return renewed

    def _read(self) -> Any:
        cert, key = self._settings.tls_cert, self._settings.tls_key
        assert cert is not None
        assert key is not None
        return grpc.ssl_server_certificate_configuration([(key.read_bytes(), cert.read_bytes())])


class _KeyForReflection(grpc.aio.ServerInterceptor):
    """Reflection needs a key where /openapi.json needs one."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        if not details.method.startswith(f"/{reflection.SERVICE_NAME}/"):
            return await continuation(details)
        try:
            key = key_in(text_of(details.invocation_metadata))
            with self._access.authorized(EVERY_KEY, key, Caller()):
                return await continuation(details)
        except RequestError as error:
            fault = fault_of(error)
            assert fault is not None

            async def refuse(_: object, context: Any) -> None:
                await context.abort(code_of(fault), fault.message, trailing_of(fault))

            return grpc.stream_stream_rpc_method_handler(refuse)


class GrpcServer:
    """`async with GrpcServer(…)` listens; the port is `port`. drain() is called before the models stop."""

    def __init__(self, service: Service) -> None:
        self._settings, self._registry = service.settings, service.registry
        self._calls, self._access = Calls(service), service.access
        self._health = health.aio.HealthServicer()
        self._changed = asyncio.Event()
        self._watch: asyncio.Task[None] | None = None
        self.certificate = Certificate(self._settings) if self._settings.tls_cert is not None else None
        self.port = 0

    async def __aenter__(self) -> Self:
        options, guards = tuple(_options(self._settings)), (_KeyForReflection(self._access),)
        self._server = server = grpc.aio.server(interceptors=guards, options=options)
        server.add_generic_rpc_handlers((self._calls.handler(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        reflection.enable_server_reflection(NAMES, server)
        await self._set_health()
        self.port = self._bind(server)
        await server.start()
        self._registry.residency.listeners.append(self._changed.set)
        self._watch = begin(self._tell_health(), "gRPC health")
        log.info("gRPC listens on %s port %d", self._settings.grpc_host, self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.cancel()
        await self._server.stop(WRITE_GRACE)

    async def drain(self) -> None:
        """From now on the health is NOT_SERVING. Calls end with the models' pools."""
        await self._health.enter_graceful_shutdown()

    def started(self) -> None:
        """The models of the start are loaded."""
        self._changed.set()

    def _bind(self, server: grpc.aio.Server) -> int:
        host, port = self._settings.grpc_host, self._settings.grpc
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if self.certificate is None:
                return server.add_insecure_port(address)
            return server.add_secure_port(address, self.certificate.credentials())
        except RuntimeError as error:
            message = f"gRPC cannot listen on {host} port {port}: {error}; try --grpc"
            raise StartError(message) from None

    async def _tell_health(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            await self._set_health()

    async def _set_health(self) -> None:
        states = health_pb2.HealthCheckResponse
        serves = health_of(self._registry)["status"] == "ok"
        for name in ("", SERVICE):
            await self._health.set(name, states.SERVING if serves else states.NOT_SERVING)


def _options(settings: Settings) -> Iterator[tuple[str, int]]:
    """gRPC's options, from the settings that HTTP's connections have, too."""
    yield "grpc.so_reuseport", int(settings.reuse_port)
    yield "grpc.max_receive_message_length", settings.max_body
    yield "grpc.max_send_message_length", -1
    yield "grpc.max_concurrent_streams", MAX_CALLS
    yield "grpc.compression_enabled_algorithms_bitset", ONLY_PLAIN
    yield "grpc.max_connection_idle_ms", int(settings.idle_timeout * 1000)
    yield "grpc.keepalive_time_ms", int(settings.keep_alive * 1000)
    yield "grpc.keepalive_timeout_ms", int(settings.write_timeout * 1000)
