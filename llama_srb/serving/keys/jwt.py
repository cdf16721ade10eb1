"""JSON web tokens (JWTs) that another server has signed: the keys that verify them, and what claims grant.

A key is used only with the algorithm of its type, never with the one that a JWT names. This module is
imported only where there are such keys: its libraries would be a tenth of a server's start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
)
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, RSAPublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import ValidationError

from llama_srb.serving.keys.api_keys import SCOPES, JwtError, KeyFileError, Token

ALGORITHMS = ("HS256", "RS256", "ES256")
SECRET_BYTES = 32  # RFC 7518, 3.2: at least as long as the hash
LEEWAY = 30.0  # seconds that the signer's clock may differ
LIMITS = ("max_n", "concurrent", "tokens_per_minute", "models", "tasks", "memories")


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that verifies signatures, with its id."""

    algorithm: str
    key: Any
    id: str | None = None

    @property
    def thumbprint(self) -> str:
        """The SHA-256 of algorithm and key, in hexadecimal: two keys with one id have two."""
        key = self.key
        if isinstance(key, str):
            data = key.encode()
        elif isinstance(key, bytes):
            data = key
        else:
            data = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(self.algorithm.encode() + data).hexdigest()


@dataclass(frozen=True, slots=True)
class JwtVerifier:
    """The keys, audience and issuer that JWTs are checked against."""

    signers: tuple[Signer, ...]
    audience: str | None = None
    issuer: str | None = None

    def has(self, token: Token) -> bool:
        """Whether the key that verified a JWT is still here."""
        return any(signer.thumbprint == token.signer for signer in self.signers)

    def grant(self, token: str) -> Token:
        """Verifies a JWT; its claims make a grant: sub, scope (a text or a list), exp, names, limits."""
        claims, signer = self._claims(token)
        scopes = claims.get("scope", claims.get("scopes", ()))
        scopes = scopes.split() if isinstance(scopes, str) else scopes
        try:
            return Token.model_validate(
                {
                    "signer": signer.thumbprint,
                    "name": claims.get("sub"),
                    "scopes": [scope for scope in scopes if scope in SCOPES],
                }
                | {"expires": _expiry(claims["exp"])}
                | {name: claims[name] for name in LIMITS if name in claims}
            )
        except (ValidationError, TypeError):
            raise JwtError(
                "its claims must be sub (a name), scope (a text), limits (numbers), models, tasks, memories "
                "(names)"
            ) from None

    def _claims(self, token: str) -> tuple[Mapping[str, Any], Signer]:
        reason: Exception = jwt.InvalidKeyError("no key here has signed it")
        for signer in self._signers_of(token):
            try:
                claims = jwt.decode(
                    token, signer.key, algorithms=[signer.algorithm], audience=self.audience,
                    issuer=self.issuer, leeway=LEEWAY, options={"require": ["exp", "sub"]},
                )  # fmt: skip
                return claims, signer
            except jwt.InvalidTokenError as error:
                reason = error
        raise JwtError(str(reason)) from None

    def _signers_of(self, token: str) -> list[Signer]:
        try:
            header = jwt.get_unverified_header(token)
        except jwt.InvalidTokenError as error:
            raise JwtError(str(error)) from None
        fits = [signer for signer in self.signers if signer.algorithm == header.get("alg")]
        return [signer for signer in fits if signer.id == header.get("kid")] or fits


def _expiry(exp: Any) -> datetime | None:
    """When a JWT expires; None beyond the year 9999, which datetime cannot hold."""
    try:
        return datetime.fromtimestamp(int(exp) + LEEWAY, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def signed(claims: Mapping[str, Any], secret: str | None, private_key: Path | None) -> str:
    """A JWT with these claims, signed by a private key (PEM), else by the secret; KeyFileError."""
    if private_key is not None:
        algorithm, key = _private(private_key)
        return jwt.encode(dict(claims), key, algorithm)
    if not secret:
        raise KeyFileError("nothing signs it: set LLAMA_SRB_JWT_SECRET, as the server has it, or --key FILE")
    return jwt.encode(dict(claims), _secret(secret).key, "HS256")


def _private(path: Path) -> tuple[str, Any]:
    """The algorithm and the private key of a file in PEM."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise KeyFileError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, TypeError) as error:  # no PEM, or one that a password protects
        raise KeyFileError(f"{path} is no private key as PEM without a password: {error}") from None
    if isinstance(key, RSAPrivateKey):
        return "RS256", key
    if isinstance(key, EllipticCurvePrivateKey) and key.curve.name == "secp256r1":
        return "ES256", key
    raise KeyFileError(f"{path} is no RSA or P-256 key: no others are known")


def read(
    secret: str | None, file: Path | None, audience: str | None, issuer: str | None
) -> JwtVerifier | None:
    """Reads the keys; None without a secret and a file. KeyFileError if one of them is unusable."""
    signers = [_secret(secret)] if secret else []
    signers += _in_file(file) if file else ()
    return JwtVerifier(tuple(signers), audience, issuer) if signers else None


def _secret(secret: str) -> Signer:
    if len(secret.encode()) < SECRET_BYTES:
        raise KeyFileError(f"--jwt-secret has {len(secret.encode())} bytes; it must have {SECRET_BYTES}")
    return Signer("HS256", secret)


def _in_file(path: Path) -> tuple[Signer, ...]:
    """Reads a public key in PEM, or a JWKS (a set of keys in JSON)."""
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
