"""What requests tell about themselves for traces. Here nothing is done with it; otel.py makes spans of it.

It imports nothing of OpenTelemetry, so that a server without traces needs and loads nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from llama_srb.engine.events import Event
from llama_srb.request.fields import CompletionRequest
from llama_srb.serving.observe.model_metrics import Clock


class Trace:
    """One request. takes_texts: took() is to be called."""

    takes_texts = False

    def request(self) -> AbstractContextManager[Trace]:
        """One of the requests of a connection that has many."""
        return contextlib.nullcontext(self)

    def asked(self, request: CompletionRequest, model: str) -> None:
        """A generation was asked for."""

    def ran(self, op: str, model: str) -> None:
        """Another command of the engine was asked for."""

    def took(self, id: str, events: list[Event]) -> None:
        """Events of the generation `id` have come."""

    def ended(self, id: str, clock: Clock, last: Event | None) -> None:
        """The generation `id` is over; last: its last event."""

    def answered(self, status: int, name: str) -> None:
        """An answer with this HTTP status was made. name: the request's id in the log."""

    def failed(self, kind: str) -> None:
        """The request has failed."""


NO_TRACE = Trace()


class Traces:
    """The traces of a server; at the end of its block what is left is sent, for a moment at most."""

    is_on = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is left."""

    def request(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str]
    ) -> AbstractContextManager[Trace]:
        """A request. carrier: its headers, which may name the trace that it belongs to."""
        return contextlib.nullcontext(NO_TRACE)


NO_TRACES = Traces()


class SocketTrace(Trace):
    """A WebSocket: each of its requests has a trace of its own, below that of the handshake."""

    def __init__(self, traces: Traces, name: str, carrier: Mapping[str, str]) -> None:
        self._traces, self._name, self._carrier = traces, name, carrier

    def request(self) -> AbstractContextManager[Trace]:
        return self._traces.request(self._name, self._carrier, {"http.route": self._name.split()[-1]})
