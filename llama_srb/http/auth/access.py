"""Which callers are allowed, as one middleware: by the Host header, by Origin, by API key or JWT.

403  a Host that is no name of this server (DNS rebinding); not checked if keys are needed
403  an Origin that --cors does not allow
403  a page's request without Origin (an image, a script) for a GET that works
401  no key, an unknown or an expired one, unless the route needs none
403  a key without the route's scope

When the keys change, open requests are checked again; they end with their key (sessions.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import re
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Middleware

from llama_srb.config import Settings
from llama_srb.http.auth import api_keys, jwt
from llama_srb.http.auth.api_keys import Grant, KeyFileError
from llama_srb.http.auth.caller import CALLER, Caller
from llama_srb.http.auth.jwt import JwtError, JwtVerifier
from llama_srb.http.auth.lines import Lines, Owner
from llama_srb.http.auth.sessions import Session
from llama_srb.http.foreign import Scopes
from llama_srb.http.route import pattern_of
from llama_srb.http.routes import ROUTES
from llama_srb.request.values import RequestError

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

QUERY_KEY = "api_key"
QUERY_PATHS = frozenset({  # a browser's WebSocket and EventSource cannot send headers
    "/v1/ws", "/v1/tasks/{name}/ws", "/v1/tasks/{name}/live",
})  # fmt: skip
ORIGIN = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?//(\[[0-9a-z:.%]+\]|[\w.-]+)(?::\d*)?", re.IGNORECASE | re.ASCII)
SCOPES: Mapping[tuple[str, str], Scopes] = {(route.method, route.path): route.scopes for route in ROUTES}
WORKING = {(route.method, route.path) for route in ROUTES if route.works}
OTHER_SITES = ("cross-site", "same-site")  # of Sec-Fetch-Site
ADMIN: Scopes = ("admin",)  # of routes that are in no table
PROGRAMS = ("app", "tauri", "vscode-file", "vscode-webview")
"""Schemes in the origins of desktop programs that are made of web pages, such as Obsidian."""


class AccessError(Exception):
    """Everybody could call, or a file cannot be read; the message is one line for the operator."""


class Access:
    """The settings about callers: names, origins, keys, JWTs."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._names = _names_of_this_server(settings)
        self._sessions: set[Session] = set()  # the open ones
        self.lines: Lines | None = None  # of batches; is set before requests come
        self.reload()

    def reload(self) -> None:
        """Reads the key files again, and ends sessions whose key is gone. On AccessError nothing changes."""
        settings = self._settings
        secret = settings.jwt_secret.get_secret_value() if settings.jwt_secret else None
        try:
            found = api_keys.read(settings.api_key_file) if settings.api_key_file else ()
            signers = jwt.read(secret, settings.jwt_keys, settings.jwt_audience, settings.jwt_issuer)
        except KeyFileError as error:
            raise AccessError(str(error)) from None
        given = api_keys.given(key.get_secret_value() for key in settings.api_key)
        self._keys: tuple[api_keys.Key, ...] = (*given, *found)
        self._jwt_verifier: JwtVerifier | None = signers
        for session in list(self._sessions):
            session.check()

    @property
    def needs_key(self) -> bool:
        """Whether callers need a key: also with a key file that has no keys left."""
        return bool(self._keys or self._settings.api_key_file or self._jwt_verifier)

    def is_known(self, key: str | None) -> bool:
        """Whether no key is needed, or this one has access to something."""
        with contextlib.suppress(RequestError):
            return not self.needs_key or bool(self._grant_of(key))
        return False

    def require_safe(self) -> None:
        """AccessError if no key is needed, and others can connect than the settings say.

        That is other computers, or by gRPC other users of this one, which a Unix socket's mode keeps out.
        """
        settings, host = self._settings, self._settings.host
        if self.needs_key or settings.insecure:
            return
        ways = "--api-key-file FILE (made by llama-srb keys add), --api-key KEY, or --insecure"
        if settings.socket is None and not _is_local(host):
            raise AccessError(f"--host {host} lets other computers in, and there are no keys: {ways}")
        if settings.socket is not None and settings.grpc is not None:
            raise AccessError(
                f"--grpc {settings.grpc} lets all users of this computer in, whom the mode of {host} keeps "
                f"out, and there are no keys: {ways}"
            )

    # Web pages

    def allowed_origin(self, origin: str | None) -> str | None:
        """The value of Access-Control-Allow-Origin for a page of this origin."""
        if "*" in self._settings.cors:
            return "*"
        return origin if origin is not None and self._is_named(origin) else None

    def _is_named(self, origin: str) -> bool:
        cors = self._settings.cors
        here = origin.partition("://")[0] in PROGRAMS or _is_local(_host_of(origin))
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
        if is_foreign and _row_of(request) in WORKING and self.allowed_origin(None) is None:
            message = (
                "pages of other origins may not call this server; --cors ORIGIN would let those of one fetch"
            )
            raise RequestError(message, status=403, code="origin_not_allowed")

    def _require_name(self, host: str | None) -> None:
        if host is None or self.needs_key or "*" in self._names:
            return
        name = _host_of("//" + host)
        if name not in self._names and not name.endswith(".localhost") and not _is_address(name):
            host = _shown(name.removeprefix("//"))
            message = f"{host} is no name of this server; --allowed-hosts {host} makes it one"
            raise RequestError(message, status=403, code="host_not_allowed")

    # Keys

    @contextlib.contextmanager
    def authorized(self, scopes: Scopes, key: str | Owner | None) -> Iterator[Caller]:
        """The caller, with an open session if the route needs a key. RequestError 401 or 403.

        key: an owner: the request is a line of its batch.
        """
        caller = Caller(is_line=isinstance(key, Owner))
        if not self.needs_key or not scopes:
            yield caller
            return
        with Session(lambda: self._grant(scopes, key)) as session:
            self._sessions.add(session)
            try:
                yield dataclasses.replace(caller, grant=session.grant, session=session)
            finally:
                self._sessions.discard(session)

    def _grant(self, scopes: Scopes, key: str | Owner | None) -> Grant:
        found = self._grant_of_owner(key) if isinstance(key, Owner) else self._grant_of(key)
        if not found.may(scopes):
            message = (
                f"{found.name} has the scopes {' '.join(found.scopes)}; this needs {' or '.join(scopes)}"
            )
            raise RequestError(message, status=403, code="scope_missing")
        return found

    def _grant_of(self, key: str | None) -> Grant:
        if not key:
            raise _unknown("a key is needed: Authorization: Bearer KEY, or x-api-key: KEY")
        known = api_keys.find(self._keys, key)
        if known is not None and not known.is_over:
            return known
        if known is not None:
            raise _unknown(f"the key {known.name} has expired")
        if self._jwt_verifier is None or key.count(".") != 2 or not key.isascii():
            raise _unknown("there is no such key")
        try:
            return self._jwt_verifier.grant(key)
        except JwtError as error:
            raise _unknown(f"the token is not accepted: {error}") from None

    def grant_of(self, owner: Owner) -> Grant | None:
        """What an owner's key grants now; None if no key is needed. RequestError 401 if it has ended."""
        return self._grant_of_owner(owner) if self.needs_key else None

    def _grant_of_owner(self, owner: Owner) -> Grant:
        if owner.token is not None:
            if owner.token.is_over:
                raise _unknown(f"the token of {owner.token.name} has expired")
            if self._jwt_verifier is None or not self._jwt_verifier.has(owner.token):
                raise _unknown(f"the key that has signed the token of {owner.token.name} is gone")
            return owner.token
        for key in self._keys:
            if key.client == owner.client and not key.is_over:
                return key
        raise _unknown(f"the {owner.client or 'client without a key'} has no access any more")

    # The middleware

    def middleware(self) -> Middleware:
        """Checks callers. The middlewares around it answer preflights and give errors their form."""

        @web.middleware
        async def authorize(request: web.Request, handler: Handler) -> web.StreamResponse:
            host = request.headers.get("Host")
            self._require_name(host)
            self._require_origin(request.headers.get("Origin"), host)
            self._require_no_image(request)
            scopes, path = _route_of(request)
            owner = self.lines.owner_of(request) if self.lines is not None else None
            query_key = request.query.get(QUERY_KEY) if path in QUERY_PATHS else None
            key = key_in(request.headers) or query_key
            with self.authorized(scopes, owner or key) as request[CALLER]:
                return await handler(request)

        return authorize


def tls(settings: Settings) -> ssl.SSLContext | None:
    """The TLS context of --tls-cert and --tls-key; None without them. AccessError if they cannot be used."""
    if settings.tls_cert is None and settings.tls_key is None:
        return None
    if settings.tls_cert is None or settings.tls_key is None:
        raise AccessError("--tls-cert and --tls-key go together")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    renew_tls(settings, context)
    return context


def renew_tls(settings: Settings, context: ssl.SSLContext | None) -> None:
    """Loads the certificate again for new connections; AccessError if it cannot be used."""
    if context is None or settings.tls_cert is None:
        return
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except OSError as error:  # SSLError is one
        files = f"{settings.tls_cert} and {settings.tls_key}"
        raise AccessError(f"cannot use {files}: {error.strerror or error}") from None


def _route_of(request: web.Request) -> tuple[Scopes, str]:
    """The scopes that the route needs, and its path. Answers 404 and 405 need none: they reveal nothing."""
    row = _row_of(request)
    return ((), request.path) if row is None else (SCOPES.get(row, ADMIN), row[1])


def _row_of(request: web.Request) -> tuple[str, str] | None:
    """Method and path of the request's row in the table; None: there is none."""
    pattern, method = pattern_of(request), "GET" if request.method == "HEAD" else request.method
    return None if pattern is None else (method, pattern)


def _unknown(message: str) -> RequestError:
    return RequestError(message, status=401, code="invalid_api_key")


def key_in(headers: Mapping[str, str]) -> str | None:
    """The key in HTTP's headers, or in gRPC's metadata, whose names are in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("x-admin-key") or headers.get("x-api-key")  # TabbyAPI's clients send the first


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


def _is_address(host: str) -> bool:
    """Whether a Host is an IP address. DNS rebinding needs a name, so an address is safe."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
