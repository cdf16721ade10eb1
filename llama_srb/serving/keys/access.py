"""Which callers are allowed, by API key or JWT.

401  no key, an unknown or an expired one, unless the route needs none
403  a key without the route's scope

When the keys change, open requests are checked again; they end with their key (sessions.py).
"""

from __future__ import annotations

import contextlib
import dataclasses
import ipaddress
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from llama_srb.config import Settings
from llama_srb.request.values import RequestError
from llama_srb.serving.keys import api_keys
from llama_srb.serving.keys.api_keys import Grant, JwtError, KeyFileError
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.keys.internal_callers import InternalCallers, Owner
from llama_srb.serving.keys.scopes import Scopes
from llama_srb.serving.keys.sessions import Session

if TYPE_CHECKING:
    from llama_srb.serving.keys.jwt import JwtVerifier


class AccessError(Exception):
    """Everybody could call, or a file cannot be read; the message is one line for the operator."""


class Access:
    """The keys of one server, and the sessions that are open with them."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sessions: set[Session] = set()  # the open ones
        self.internal: InternalCallers | None = None  # items of batches; is set before requests come
        self.reload()

    def reload(self) -> None:
        """Reads the key files again, and ends sessions whose key is gone. On AccessError nothing changes."""
        settings = self._settings
        try:
            found = api_keys.read(settings.api_key_file) if settings.api_key_file else ()
            signers = _signers(settings)
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
        if settings.socket is None and not is_local(host):
            raise AccessError(f"--host {host} lets other computers in, and there are no keys: {ways}")
        if settings.socket is not None and settings.grpc is not None:
            raise AccessError(
                f"--grpc {settings.grpc} lets all users of this computer in, whom the mode of {host} keeps "
                f"out, and there are no keys: {ways}"
            )

    # Keys

    @contextlib.contextmanager
    def authorized(self, scopes: Scopes, key: str | Owner | None, caller: Caller) -> Iterator[Caller]:
        """The caller with its key's grant, in an open session if the route needs one; RequestError.

        key: an owner: the request is an item of its batch. caller: what is known of it by its connection.
        """
        if not scopes or not self.needs_key:
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


def _signers(settings: Settings) -> JwtVerifier | None:
    """The keys that verify JSON web tokens, if the settings have any; KeyFileError."""
    if settings.jwt_secret is None and settings.jwt_keys is None:
        return None
    from llama_srb.serving.keys import jwt

    secret = settings.jwt_secret.get_secret_value() if settings.jwt_secret else None
    return jwt.read(secret, settings.jwt_keys, settings.jwt_audience, settings.jwt_issuer)


def _unknown(message: str) -> RequestError:
    return RequestError(message, status=401, code="invalid_api_key")


def key_in(headers: Mapping[str, str]) -> str | None:
    """The key in HTTP's headers, or in gRPC's metadata, whose names are in lower case."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return key.strip()
    return headers.get("x-admin-key") or headers.get("x-api-key")  # TabbyAPI's clients send the first


def is_address(host: str) -> bool:
    """Whether a Host is an IP address. DNS rebinding needs a name, so an address is safe."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_local(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    return is_address(host) and ipaddress.ip_address(host).is_loopback
