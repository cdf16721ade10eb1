"""API keys: what each may do, and the key file, which holds only hashes. A key itself is shown once.

A key has 256 random bits, so it cannot be guessed from a fast hash.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, get_args

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

Scope: TypeAlias = Literal["complete", "chat", "embed", "memory", "batch", "metrics", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
USUAL: tuple[Scope, ...] = ("complete", "chat", "embed")
KEY_PREFIX = "srb-"  # so that scanners recognise a leaked key

Name: TypeAlias = Annotated[str, Field(min_length=1, max_length=100, pattern=r"^[\w.@+-]+$")]
Limit: TypeAlias = Annotated[int, Field(ge=1)]


class KeyFileError(Exception):
    """A key file cannot be used; the message is one line for the operator."""


class Grant(BaseModel):
    """A client's name, scopes and limits; None means no limit for this client."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: Name
    scopes: tuple[Scope, ...] = USUAL
    expires: AwareDatetime | None = None
    max_n: Limit | None = None
    concurrent: Limit | None = None
    tokens_per_minute: Limit | None = None
    models: tuple[str, ...] | None = None  # names or aliases of those that it may use
    tasks: tuple[str, ...] | None = None  # those that it may use, whatever their models; None: by `models`
    memories: tuple[str, ...] | None = None  # those that it may use

    def may(self, scopes: Iterable[str]) -> bool:
        """Whether it has one of these scopes; admin includes all."""
        return self.is_admin or not set(self.scopes).isdisjoint(scopes)

    @property
    def is_admin(self) -> bool:
        return "admin" in self.scopes

    @property
    def client(self) -> str:
        """The client's name for limits: a key and a JWT of the same name are two clients."""
        return f"token {self.name}"

    @property
    def is_over(self) -> bool:
        return self.expires is not None and self.expires <= datetime.now(UTC)


class Token(Grant):
    """What a JSON web token grants. signer: the thumbprint of the key that verified it."""

    signer: str = ""


class JwtError(Exception):
    """A JSON web token is not accepted; the message tells its sender why."""


class Key(Grant):
    """One key of the file."""

    hash: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

    @property
    def client(self) -> str:
        return f"key {self.name}"


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    keys: tuple[Key, ...] = ()


def new_key() -> str:
    return KEY_PREFIX + secrets.token_urlsafe(32)


def hashed(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def find(keys: Sequence[Key], key: str) -> Key | None:
    """Finds a key by its text. It compares all keys in constant time, so that the time reveals nothing."""
    wanted = hashed(key)
    matches = [known for known in keys if hmac.compare_digest(known.hash, wanted)]
    return matches[0] if matches else None


def given(keys: Iterable[str]) -> tuple[Key, ...]:
    """Makes the keys of --api-key, which have all scopes."""
    return tuple(Key(name=f"api-key-{at}", scopes=SCOPES, hash=hashed(key)) for at, key in enumerate(keys, 1))


def read(path: Path) -> tuple[Key, ...]:
    """Reads a key file; KeyFileError if it cannot be read or is invalid."""
    try:
        found = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise KeyFileError(f"cannot read the keys in {path}: {error.strerror}") from None
    except ValidationError as invalid:
        first = invalid.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "it"
        remedy = "`llama-srb keys` makes one, --api-key takes plain keys"
        raise KeyFileError(f"{path} is not a key file: {where}: {first['msg']}; {remedy}") from None
    return found.keys


def write(path: Path, keys: Iterable[Key]) -> None:
    """Replaces the file atomically, so that a server never reads half of it. Only its owner can read it."""
    rows = [key.model_dump(mode="json", exclude_none=True) for key in keys]
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)  # mode 0600
    try:
        with os.fdopen(handle, "w") as file:
            file.write(json.dumps({"keys": rows}, indent=1, ensure_ascii=False) + "\n")
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
