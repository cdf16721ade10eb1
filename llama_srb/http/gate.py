"""Which requests come in, as one middleware: by the Host header, by Origin, and by the key (serving/keys).

403  a Host that is no name of this server (DNS rebinding); not checked if keys are needed
403  an Origin that --cors does not allow
403  a page's request without Origin (an image, a script) for a GET that works
401  and 403: see serving/keys/access.py
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from llama_srb import threads
from llama_srb.config import Settings
from llama_srb.http.request_keys import CALLER, ROUTE, TRACE
from llama_srb.request.values import RequestError
from llama_srb.serving.keys.access import Access, is_address, is_local, key_in
from llama_srb.serving.keys.caller import Caller, nothing, priority_of
from llama_srb.serving.keys.internal_callers import HEADER, Owner
from llama_srb.serving.keys.scopes import NO_KEY
from llama_srb.serving.observe.traces import NO_TRACE

QUERY_KEY = "api_key"
QUERY_PATHS = frozenset({  # a browser's WebSocket and EventSource cannot send headers
    "/v1/ws", "/v1/tasks/{name}/ws", "/v1/tasks/{name}/live",
})  # fmt: skip
ORIGIN = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//(\[[0-9a-z:.%]+\]|[\w.-]+)(?::\d*)?", re.IGNORECASE | re.ASCII)
OTHER_SITES = ("cross-site", "same-site")  # of Sec-Fetch-Site
PROGRAMS = ("app", "tauri", "vscode-file", "vscode-webview")
"""Schemes in the origins of desktop programs that are made of web pages, such as Obsidian."""


class Gate:
    """The rules of one server. access: whose keys are known."""

    def __init__(self, settings: Settings, access: Access) -> None:
        self._settings, self._access = settings, access
        self._names = _names_of_this_server(settings)

    def allowed_origin(self, origin: str | None) -> str | None:
        """The value of Access-Control-Allow-Origin for a page of this origin."""
        if "*" in self._settings.cors:
            return "*"
        return origin if origin is not None and self._is_named(origin) else None

    def _is_named(self, origin: str) -> bool:
        cors = self._settings.cors
        here = origin.partition("://")[0] in PROGRAMS or is_local(_host_of(origin))
        return origin in cors or ("localhost" in cors and here)

    def _require_origin(self, origin: str | None, host: str | None) -> None:
        """Refuses other origins than the allowed ones and this server's own pages."""
        if origin is None or self.allowed_origin(origin) is not None or origin.partition("//")[2] == host:
            return
        origin = _shown(origin)
        message = f"pages of {origin} may not call this server; --cors {origin} would let them"
        raise RequestError(message, status=403, code="origin_not_allowed")

    def _require_no_image(self, request: web.Request) -> None:
        """Refuses what other pages ask for without a script, and so without an Origin, if it costs work.

        Browsers send Sec-Fetch-Site to https and to this computer.
        """
        is_foreign = request.headers.get("Sec-Fetch-Site") in OTHER_SITES and "Origin" not in request.headers
        if is_foreign and ROUTE in request and request[ROUTE].works and self.allowed_origin(None) is None:
            message = (
                "pages of other origins may not call this server; --cors ORIGIN would let those of one fetch"
            )
            raise RequestError(message, status=403, code="origin_not_allowed")

    def _require_name(self, host: str | None) -> None:
        if host is None or "*" in self._names or (name := _host_of("//" + host)) in self._names:
            return
        if not (name.endswith(".localhost") or is_address(name) or self._access.needs_key):
            host = _shown(name.removeprefix("//"))
            message = f"{host} is no name of this server; --allowed-hosts {host} makes it one"
            raise RequestError(message, status=403, code="host_not_allowed")

    # The middleware

    def middleware(self) -> Middleware:
        """Checks callers. The middlewares around it answer preflights and give errors their form."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            headers = request.headers
            host = headers.get("Host")
            self._require_name(host)
            self._require_origin(headers.get("Origin"), host)
            self._require_no_image(request)
            row = request.get(ROUTE)
            owner = self._owner_of(request)
            key = key_in(headers)
            if key is None and row is not None and row.path in QUERY_PATHS:
                key = request.query.get(QUERY_KEY)
            connection = Caller(
                address=request.remote or "",
                hang_up=_end_of(request.transport),
                is_item=owner is not None,
                priority=priority_of(headers["Priority"]) if "Priority" in headers else 0,
                dialect="none" if row is None else row.dialect,
                trace=request.get(TRACE, NO_TRACE),
            )
            # answers 404 and 405 need no scope: they reveal nothing
            scopes = NO_KEY if row is None else row.scopes
            with self._access.authorized(scopes, owner or key, connection) as request[CALLER]:
                threads.client.set(request[CALLER].client)
                return await handler(request)

        return authorize

    def _owner_of(self, request: web.Request) -> Owner | None:
        """The owner of a batch in whose name the server itself asks."""
        if (internal := self._access.internal) is None or request.transport is None:
            return None
        return internal.owner_of(
            request.transport.get_extra_info("sockname"), request.headers.get(HEADER, "")
        )


def _end_of(transport: asyncio.BaseTransport | None) -> Callable[[], None]:
    """What ends a connection at once: close() would wait; uvloop's are no asyncio.Transport."""
    return nothing if transport is None else getattr(transport, "abort", transport.close)


def _names_of_this_server(settings: Settings) -> frozenset[str]:
    own = socket.gethostname().lower()
    return frozenset({"localhost", own, f"{own}.local", settings.host.lower(), *settings.allowed_hosts})


def _host_of(url: str) -> str:
    """The host in an origin; the text itself if it is not an origin, which then matches no name."""
    match = ORIGIN.fullmatch(url)
    return match[1].strip("[]").rstrip(".").lower() if match else url


def _shown(header: str) -> str:
    """A header, which may be any bytes, as at most 100 characters of ASCII."""
    return header[:100].encode("ascii", "backslashreplace").decode()
