"""JSON Web Tokens that another server has signed: which keys may sign them, and what their claims grant.

A key serves the one algorithm of its kind, never the one that a token names.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from pydantic import ValidationError

from llama_srb.http.auth.api_keys import SCOPES, Grant, KeyFileError

ALGORITHMS = ("HS256", "RS256", "ES256")
SECRET_BYTES = 32  # RFC 7518, 3.2: as long as the hash, at least
LEEWAY = 30.0  # seconds that the signer's clock may differ
LIMITS = ("max_n", "concurrent", "tokens_per_minute")


class TokenError(Exception):
    """A token that is not accepted; the message says why, for whoever sent it."""


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that may have signed, under its id."""

    algorithm: str
    key: Any
    id: str | None = None


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a token must be signed with, and for whom."""

    signers: tuple[Signer, ...]
    audience: str | None = None
    issuer: str | None = None

    def grant(self, token: str) -> Grant:
        """What a token's claims say: sub, scope (a text or a list), exp, the limits. TokenError otherwise."""
        claims = self._claims(token)
        scopes = claims.get("scope", claims.get("scopes", ()))
        scopes = scopes.split() if isinstance(scopes, str) else scopes
        try:
            return Grant.model_validate(
                {"name": claims.get("sub"), "scopes": [scope for scope in scopes if scope in SCOPES]}
                | {"expires": _expiry(claims["exp"])}
                | {name: claims[name] for name in LIMITS if name in claims}
            )
        except (ValidationError, TypeError):
            raise TokenError("its claims must be sub (a name), scope (a text), limits (numbers)") from None

    def _claims(self, token: str) -> Mapping[str, Any]:
        reason: Exception = jwt.InvalidKeyError("no key here has signed it")
        for signer in self._signers_of(token):
            try:
                return jwt.decode(
                    token, signer.key, algorithms=[signer.algorithm], audience=self.audience,
                    issuer=self.issuer, leeway=LEEWAY, options={"require": ["exp", "sub"]},
                )  # fmt: skip
            except jwt.InvalidTokenError as error:
                reason = error
        raise TokenError(str(reason)) from None

    def _signers_of(self, token: str) -> list[Signer]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise TokenError(str(error)) from None
        fits = [signer for signer in self.signers if signer.algorithm == header.get("alg")]
        return [signer for signer in fits if signer.id == header.get("kid")] or fits


def _expiry(exp: Any) -> datetime | None:
    """From when on it is refused; none beyond the last year that there is."""
    try:
        return datetime.fromtimestamp(int(exp) + LEEWAY, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def read(secret: str | None, file: Path | None, audience: str | None, issuer: str | None) -> Tokens | None:
    """None without a secret and a file; KeyFileError when one of them is of no use."""
    signers = [_secret(secret)] if secret else []
    signers += _in_file(file) if file else ()
    return Tokens(tuple(signers), audience, issuer) if signers else None


def _secret(secret: str) -> Signer:
    if len(secret.encode()) < SECRET_BYTES:
        raise KeyFileError(f"--jwt-secret has {len(secret.encode())} bytes; it must have {SECRET_BYTES}")
    return Signer("HS256", secret)


def _in_file(path: Path) -> tuple[Signer, ...]:
    """A public key as PEM, or a set of keys as JSON (JWKS)."""
    try:
        data = path.read_bytes()
        return (_pem(data),) if data.lstrip().startswith(b"-----BEGIN") else _set(data)
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError, jwt.PyJWTError) as error:
        raise KeyFileError(f"{path} is neither a public key as PEM nor a JWKS: {error}") from None


def _pem(data: bytes) -> Signer:
    key = load_pem_public_key(data)
    if isinstance(key, RSAPublicKey):
        return Signer("RS256", key)
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name == "secp256r1":
        return Signer("ES256", key)
    raise ValueError("only RSA and P-256 keys are known")


def _set(data: bytes) -> tuple[Signer, ...]:
    rows = jwt.PyJWKSet.from_dict(json.loads(data)).keys
    known = tuple(
        Signer(row.algorithm_name, row.key, row.key_id) for row in rows if row.algorithm_name in ALGORITHMS
    )
    if not known:
        raise ValueError(f"it has no key for {', '.join(ALGORITHMS)}")
    return known
