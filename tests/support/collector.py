"""A collector of traces: a real HTTP server that parses OTLP's protobuf."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.waiting import until


@dataclass(frozen=True)
class Received:
    """A span, with its attributes and those of its resource as Python values."""

    span: Span
    resource: dict[str, Any]
    schema: str
    attributes: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", _values(self.span.attributes))

    @property
    def name(self) -> str:
        return self.span.name

    @property
    def failed(self) -> bool:
        return bool(self.span.status.code == 2)


def _values(attributes: Any) -> dict[str, Any]:
    return {one.key: _value(one.value) for one in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    return (
        [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)
    )


class Collector:
    """What came so far. open: cleared, messages get no answer. status: of the answers."""

    def __init__(self) -> None:
        self.spans: list[Received] = []
        self.status, self.messages = 200, 0
        self.open = asyncio.Event()
        self.open.set()
        self.url = ""

    async def take(self, http: web.Request) -> web.Response:
        assert http.content_type == "application/x-protobuf"
        message = ExportTraceServiceRequest.FromString(await http.read())
        self.messages += 1
        await self.open.wait()
        if self.status == 200:
            for of_resource in message.resource_spans:
                resource = _values(of_resource.resource.attributes)
                for scope in of_resource.scope_spans:
                    self.spans += [Received(span, resource, scope.schema_url) for span in scope.spans]
        answer = ExportTraceServiceResponse().SerializeToString()
        return web.Response(body=answer, status=self.status, content_type="application/x-protobuf")

    async def until(self, holds: Callable[[list[Received]], object]) -> list[Received]:
        """Waits until the condition holds of the spans; returns them."""
        await until(lambda: holds(self.spans))
        return self.spans

    def children(self, parent: Received) -> list[Received]:
        """The children of a span in the order of their beginnings."""
        found = [one for one in self.spans if one.span.parent_span_id == parent.span.span_id]
        return sorted(found, key=lambda one: one.span.start_time_unix_nano)

    @property
    def servers(self) -> list[Received]:
        """The server spans."""
        return [one for one in self.spans if one.span.kind == Span.SPAN_KIND_SERVER]


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[Collector]:
    """Runs a collector on a free port."""
    collector, app = Collector(), web.Application()
    app.router.add_post("/v1/traces", collector.take)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    collector.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield collector
    finally:
        collector.open.set()
        await runner.cleanup()
