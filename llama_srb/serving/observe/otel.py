"""Traces as OpenTelemetry's spans, sent to a collector as OTLP over HTTP. Needs the extra `otel`.

A request is one server span. A generation in it is three children, which are made when it is over: queue,
prefill, decode. So tokens cost nothing. The SDK's variables (OTEL_…) count, but for the endpoint.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from urllib.parse import urlsplit

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from llama_srb import __version__
from llama_srb.background import in_thread
from llama_srb.config import Settings
from llama_srb.engine.events import Again, Done, Error, Event, Stream
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.values import RequestError
from llama_srb.serving.observe import gen_ai
from llama_srb.serving.observe.model_metrics import Clock
from llama_srb.serving.observe.traces import Trace, Traces

log = logging.getLogger("llama_srb.server")  # this name is documented

MAX_SPANS = 2048  # that wait to be sent; later ones are dropped
MAX_BATCH = 128  # spans in one message; a larger one would take the event loop's thread for milliseconds
TIMEOUT = 5.0  # seconds for the collector to take a message, tries again included
CLOSE_GRACE = 2.0  # seconds for the last spans when the server stops
MAX_TEXT = 4096  # characters of each text of a request, and of all texts of its answer
ERROR_TYPE = "error.type"


class _Reporting(SpanExporter):
    """Logs when the collector stops to take spans, and when it takes them again."""

    def __init__(self, endpoint: str) -> None:
        self._exporter, self._works = OTLPSpanExporter(endpoint, timeout=TIMEOUT), True
        self._host = urlsplit(endpoint).netloc.rpartition("@")[2]

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        works = result is SpanExportResult.SUCCESS
        if self._works and not works:
            log.warning("the collector at %s takes no traces: they are dropped until it does", self._host)
        elif works and not self._works:
            log.info("the collector at %s takes traces again", self._host)
        self._works = works
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()  # type: ignore[no-untyped-call]


class OtelTraces(Traces):
    """The traces of a server with --otlp-traces-endpoint."""

    is_on = True

    def __init__(self, settings: Settings) -> None:
        endpoint = settings.otlp_traces_endpoint
        assert endpoint is not None
        if not log.isEnabledFor(logging.DEBUG):  # its lines about each try; _Reporting says what matters
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        own = Resource({"service.name": "llama-srb", "service.version": __version__})
        self._provider = TracerProvider(
            resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False
        )
        self._provider.add_span_processor(
            BatchSpanProcessor(
                _Reporting(endpoint), max_queue_size=MAX_SPANS, max_export_batch_size=MAX_BATCH
            )
        )
        self._tracer = self._provider.get_tracer("llama_srb", __version__, schema_url=gen_ai.SCHEMA_URL)
        self._shows_texts = settings.log_prompts

    @contextlib.contextmanager
    def request(
        self, name: str, carrier: Mapping[str, str], attributes: Mapping[str, str]
    ) -> Iterator[Trace]:
        parent = TraceContextTextMapPropagator().extract(carrier)
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, attributes=attributes)
        trace = _SpanTrace(self._tracer, span, shows_texts=self._shows_texts and span.is_recording())
        try:
            yield trace
        except RequestError as error:
            if error.status >= 500:
                trace.failed(error.code or str(error.status))
            raise
        except Exception as error:
            trace.failed(type(error).__name__)
            raise
        finally:
            span.end()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE):
                await in_thread(self._provider.shutdown)


class _SpanTrace(Trace):
    """A request's span, and its children."""

    def __init__(self, tracer: Tracer, span: Span, *, shows_texts: bool) -> None:
        self._tracer, self._span, self.takes_texts = tracer, span, shows_texts
        self._done: list[Done] = []
        self._reasons: list[str] = []
        self._texts: dict[tuple[str, int], str] = {}  # by generation and index
        self._has_failed = False

    def asked(self, request: CompletionRequest, model: str) -> None:
        self._span.set_attributes(gen_ai.of_request(request, model))
        if self.takes_texts:
            self._span.set_attributes(gen_ai.texts_of_request(request, MAX_TEXT))

    def ran(self, op: str, model: str) -> None:
        if op == "embed":
            self._span.set_attributes(gen_ai.of_operation(gen_ai.EMBEDDINGS, model))

    def took(self, id: str, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Stream):
                room = MAX_TEXT - sum(map(len, self._texts.values()))
                text = self._texts.get((id, event.index), "")
                self._texts[id, event.index] = text + event.text[: max(0, room)]
            elif isinstance(event, Again):
                self._texts.pop((id, event.index), None)

    def ended(self, id: str, clock: Clock, last: Event | None) -> None:
        self._reasons += clock.reasons
        self._span.set_attributes({gen_ai.RESPONSE_ID: id, gen_ai.RESPONSE_FINISH_REASONS: self._reasons})
        if isinstance(last, Done):
            self._done.append(last)
            self._span.set_attributes(gen_ai.of_result(self._done))
        elif isinstance(last, Error):
            self.failed(last.code)
        if self._texts:
            self._span.set_attributes(gen_ai.texts_of_result(self._texts.values()))
        if self._span.get_span_context().trace_flags.sampled:
            self._make_children(clock, last, time.monotonic())

    def _make_children(self, clock: Clock, last: Event | None, end: float) -> None:
        """Makes the spans of the phases that a generation has had; the clock is the monotonic one."""
        context, offset = set_span_in_context(self._span), time.time_ns() - time.monotonic_ns()
        for name, began, ended in _phases(clock, last, end):
            attributes = _of_phase(name, last)
            begins, ends = (int(at * 1e9) + offset for at in (began, ended))
            self._tracer.start_span(name, context, start_time=begins, attributes=attributes).end(ends)

    def answered(self, status: int, name: str) -> None:
        self._span.set_attributes({
            "http.response.status_code": status, "http.response.header.x-request-id": [name],
        })  # fmt: skip
        if status >= 500:
            self.failed(str(status))

    def failed(self, kind: str) -> None:
        """Only the first reason counts. There is no message: it may quote the request."""
        if not self._has_failed:
            self._has_failed = True
            self._span.set_status(StatusCode.ERROR)
            self._span.set_attribute(ERROR_TYPE, kind)


def _phases(clock: Clock, last: Event | None, end: float) -> Iterator[tuple[str, float, float]]:
    """The phases of a generation: name, beginning and end."""
    if clock.admitted is None:
        yield "queue", clock.began, end
        return
    yield "queue", clock.began, clock.admitted
    computed = clock.first_text  # later than the end of the prompt, if text is held back
    if isinstance(last, Done) and last.completion_tokens and "decode_ms" in last.timings:
        computed = min(max(end - last.timings["decode_ms"] / 1000, clock.admitted), end)
    yield "prefill", clock.admitted, end if computed is None else computed
    if computed is not None:
        yield "decode", computed, end


def _of_phase(name: str, last: Event | None) -> gen_ai.Attributes:
    if not isinstance(last, Done) or name == "queue":
        return {}
    usage = gen_ai.of_result([last])
    output = {gen_ai.USAGE_OUTPUT_TOKENS: usage.pop(gen_ai.USAGE_OUTPUT_TOKENS)}
    return output if name == "decode" else usage
