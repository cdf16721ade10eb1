"""The middlewares of every request: its line in the log, counts, CORS, errors in the dialect's form."""

from __future__ import annotations

import contextlib
import logging
import math
import re
import sqlite3
import time
from collections.abc import AsyncIterable, Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from llama_srb import __version__
from llama_srb.dialects import anthropic, koboldai, llamacpp, negotiation, ollama, openai, responses
from llama_srb.dialects.common.response_types import NO_SIZE, PromptSize
from llama_srb.engine.events import Error
from llama_srb.http.gate import Gate
from llama_srb.http.request_keys import API_PREFIX, DIALECT, DIALECTS, FORM_RULE, ROUTE, ROWS, TRACE
from llama_srb.http.route import Route
from llama_srb.request.fields import Recalled
from llama_srb.request.json_text import json_of
from llama_srb.serving.faults import INTERNAL, Fault, fault_in, fault_of
from llama_srb.serving.keys.scopes import METRICS
from llama_srb.serving.observe.logs import log_line, log_summary, name_request, request_id
from llama_srb.serving.observe.metrics import Metrics
from llama_srb.serving.observe.traces import SocketTrace, Traces
from llama_srb.serving.recall import recalled_chunks

log = logging.getLogger("llama_srb.server")  # this name is documented

ERROR_FORMS = {
    "llamacpp": llamacpp.error_body,
    "koboldai": koboldai.error_body,
    "ollama": ollama.error_body,
    "anthropic": anthropic.error_body,
    "responses": responses.error_body,
}
FAULT: web.ResponseKey[dict[str, Any]] = web.ResponseKey("fault", dict)
UNKNOWN = (  # the beginnings of paths that are not here, and their dialects; the first match counts
    ("/v1/messages/", "anthropic"),
    ("/api/v1/", "koboldai"),
    ("/api/extra/", "koboldai"),
    ("/api/", "ollama"),
)

WORKER = "X-Worker"  # the header with --worker-name: a client finds the server behind a gateway by it
RECALLED = "X-Recalled"  # the header of an answer that names what a task has recalled for it
MOST_OF_RECALLED = 4000  # bytes of its names: with the count of the others it has less than 4 KiB


def middlewares(metrics: Metrics, traces: Traces) -> tuple[Middleware, ...]:
    """All middlewares of this module, the outermost first."""
    own = (_one_line_each, _counted(metrics), _preflight, _errors_in_own_form, _errors_as_json)
    return (_routed, _traced(traces), *own) if traces.is_on else (_routed, *own)


def error_response(
    status: int,
    message: str,
    *,
    param: str | None = None,
    code: str | None = None,
    size: PromptSize = NO_SIZE,
    headers: Mapping[str, str] | None = None,
) -> web.Response:
    """Makes an error in OpenAI's form."""
    fault: dict[str, Any] = {"message": message, "param": param, "code": code, "size": size}
    response = json_response(openai.error_body(**fault, is_clients=status < 500), status, headers)
    response[FAULT] = fault
    return response


def json_response(data: object, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """Makes an answer in JSON."""
    body = json_of(data) + b"\n"
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


async def send_pieces(
    http: web.Request, response: web.StreamResponse, pieces: AsyncIterable[bytes]
) -> web.StreamResponse:
    """Sends a body as fast as it is read; to HEAD its headers only, behind which the next answer begins."""
    await response.prepare(http)
    if http.method != "HEAD":
        async for piece in pieces:
            await response.write(piece)
    return response


def refused(error: Error) -> web.Response:
    """Makes an answer from the engine's refusal."""
    return _failed(fault_in(error))


def _failed(fault: Fault) -> web.Response:
    return error_response(
        fault.status,
        fault.message,
        param=fault.param,
        code=fault.code,
        size=fault.size,
        headers=_advice(fault),
    )


def _retry_after(seconds: float | None) -> dict[str, str]:
    return {} if seconds is None else {"Retry-After": str(math.ceil(seconds))}


def _advice(fault: Fault) -> dict[str, str]:
    """Headers that say what the client can do about an error."""
    return _retry_after(fault.retry_after) | ({"WWW-Authenticate": "Bearer"} if fault.status == 401 else {})


def _without_extra_slashes(path: str) -> str:
    """The path without double slashes and without one at its end, which an address in a tool may add."""
    return re.sub("/+", "/", path).rstrip("/")


def _http_error(error: web.HTTPException, http: web.Request) -> web.StreamResponse:
    """Gives aiohttp's own errors (404, 405, 413, …) a body as other errors have."""
    if error.status < 400:
        return error
    if isinstance(error, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{http.path} takes {allowed}, not {http.method}"
        return error_response(405, message, headers={"Allow": allowed})
    if isinstance(error, web.HTTPNotFound):
        prefix = http.app[API_PREFIX]
        plain = _without_extra_slashes(http.path)
        is_known = plain.removeprefix(prefix) in http.app[DIALECTS]
        hint = f"; did you mean {plain}?" if plain != http.path and is_known else ""
        return error_response(404, f"there is no {http.path} here{hint}")
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return error_response(413, f"the body is larger than --max-body, {http.client_max_size} bytes")
    return error_response(error.status, error.text if error.status == 400 and error.text else error.reason)


@web.middleware
async def _errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        return await handler(request)
    except ConnectionError:
        raise  # the client has left
    except Exception as error:
        return answer_to(error, request)


def answer_to(error: Exception, request: web.Request) -> web.StreamResponse:
    """The answer to a request that has failed; an error that is none of the known ones is logged."""
    if isinstance(error, web.HTTPException):
        return _http_error(error, request)
    if (fault := fault_of(error)) is None:
        log.error("%s %s", request.method, request.path, exc_info=error)
        fault = INTERNAL
    elif isinstance(error, OSError | sqlite3.Error):
        log.error("%s %s: %s", request.method, request.path, error)
    if fault.status == 403:  # a browser hides the reason from the page's script, so the log has it
        log_summary.set(f": {fault.message}")
    return _failed(fault)


def dialect_of(request: web.Request) -> str:
    """The dialect of the request's path, or of its beginning; empty if that has none."""
    row: Route | None = request.get(ROUTE)
    if row is not None:
        return row.dialect
    path = _without_extra_slashes(request.path.removeprefix(request.app[API_PREFIX]))  # or a wrong method
    known: str | None = request.app[DIALECTS].get(path)
    return known or next((to for start, to in UNKNOWN if path.startswith(start)), "")


@web.middleware
async def _routed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Finds the request's row in the table of routes."""
    if (row := request.app[ROWS].get(request.match_info.route)) is not None:
        request[ROUTE] = row
    return await handler(request)


@web.middleware
async def _errors_in_own_form(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Gives errors of another server's paths the form that this server uses."""
    response = await handler(request)
    dialect = dialect_of(request)
    form = ERROR_FORMS.get(dialect)
    if form is not None and isinstance(response, web.Response) and FAULT in response:
        fault = response[FAULT]
        response.body = orjson.dumps(form(response.status, **fault))
        if dialect == "anthropic":
            response.set_status(anthropic.status_of(response.status, fault["code"]))
    return response


@web.middleware
async def _one_line_each(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Logs each request when it is over: method and path, status, summary, time."""
    began, outcome = time.monotonic(), "client left"
    log_summary.set("")
    recalled_chunks.set(())
    name = name_request(request.headers.get("X-Request-Id", ""))
    try:
        response = await handler(request)
        outcome = str(response.status)
        return response
    except ConnectionError:
        if request.transport and not request.transport.is_closing():
            raise
        return web.Response()  # the client has left; a raised error would be a traceback in the log
    finally:
        what = (
            f"{request.method} {request.rel_url.raw_path[:200]}"  # raw: a decoded line feed would forge lines
        )
        log_line(what, outcome, time.monotonic() - began, name)


def headers_for(
    gate: Gate, worker: str | None
) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Makes the hook that adds the server's names, the request's id and CORS headers to each response."""

    async def add_headers(http: web.Request, response: web.StreamResponse) -> None:
        response.headers["Server"] = f"llama-srb/{__version__}"
        response.headers["X-Request-Id"] = request_id.get()
        if worker is not None:
            response.headers[WORKER] = worker
        if dialect_of(http) == "anthropic":
            response.headers["Request-Id"] = request_id.get()  # its clients show this one
        if found := recalled_chunks.get():
            response.headers[RECALLED] = recalled_header(found)
        if FORM_RULE in http:
            response.headers[negotiation.HEADER] = http[FORM_RULE]
        allowed = gate.allowed_origin(http.headers.get("Origin"))
        if allowed is not None:
            response.headers["Access-Control-Allow-Origin"] = allowed
        if allowed != "*":
            response.headers["Vary"] = "Origin"

    return add_headers


def recalled_header(found: Sequence[Recalled]) -> str:
    """The value of X-Recalled. More chunks than it has room for are counted: `more;count=12`."""
    names, size = list[str](), 0
    for one in found:
        name = one.id if one.score is None else f"{one.id};score={one.score}"
        size += len(name) + 2
        if size > MOST_OF_RECALLED:
            return ", ".join((*names, f"more;count={len(found) - len(names)}"))
        names.append(name)
    return ", ".join(names)


def _counted(metrics: Metrics) -> Middleware:
    """Counts requests by route, dialect and outcome; watches the event loop, also for each of a socket."""

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        row, outcome = request.get(ROUTE), "client left"
        path, dialect = ("other", "none") if row is None else (row.path, row.dialect)
        is_socket = row is not None and 101 in row.answers
        watched = contextlib.nullcontext() if is_socket else metrics.loop.during(f"{request.method} {path}")
        try:
            with watched:
                response = await handler(request)
            outcome = str(response.status)
            return response
        finally:
            metrics.answered(path, request.get(DIALECT, dialect), outcome)

    return count


def _traced(traces: Traces) -> Middleware:
    """Traces requests of routes that need a key, if keys are needed, but not the looks at metrics."""

    @web.middleware
    async def trace(request: web.Request, handler: Handler) -> web.StreamResponse:
        row = request.get(ROUTE)
        if row is None or request.method != row.method or row.scopes in ((), METRICS):
            return await handler(request)
        name = f"{row.method} {row.path}"
        if 101 in row.answers:
            request[TRACE] = SocketTrace(traces, name, request.headers)
            return await handler(request)
        attributes = {"http.request.method": row.method, "http.route": row.path}
        with traces.request(name, request.headers, attributes) as request[TRACE]:
            response = await handler(request)
            request[TRACE].answered(response.status, request_id.get())
            return response

    return trace


@web.middleware
async def _preflight(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answers a browser's preflight request: 200 at paths of llama-server, as it does, and 204 elsewhere.

    headers_for() adds whether the page's origin is allowed.
    """
    if request.method != "OPTIONS":
        return await handler(request)
    wanted = request.headers.get("Access-Control-Request-Headers", "*")
    is_theirs = dialect_of(request) == "llamacpp"
    methods = ("GET", "POST", *(() if is_theirs else ("PUT",)), "DELETE", "OPTIONS")
    headers = {
        "Access-Control-Allow-Methods": ", ".join(methods),
        "Access-Control-Allow-Headers": wanted if wanted.isascii() else "*",
        "Access-Control-Max-Age": "86400",
    }
    return web.Response(status=200 if is_theirs else 204, headers=headers)
