"""Files and batches as a server keeps them: the rows, and the statuses of a batch. Pure."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Status: TypeAlias = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]
Purpose: TypeAlias = Literal["batch", "batch_output"]
OPEN: frozenset[Status] = frozenset({"validating", "in_progress", "finalizing", "cancelling"})


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file of an owner. path: of its content, in the store's folder. Times are in seconds since 1970."""

    id: str
    owner: str
    filename: str
    bytes: int
    purpose: Purpose
    created_at: int
    expires_at: int
    path: str


@dataclass(frozen=True, slots=True)
class FoundError:
    """An error of an input file, or of its owner's key."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of an owner.

    token: what a JWT of the owner grants, as JSON; None: the owner's key is in the settings. times: when it
    came into each status, by the status. keep: seconds after which its outputs expire.
    """

    id: str
    owner: str
    token: dict[str, Any] | None
    endpoint: str
    input_file_id: str
    completion_window: str
    created_at: int
    expires_at: int
    keep: int
    metadata: Mapping[str, str] | None = None
    status: Status = "validating"
    times: Mapping[Status, int] = field(default_factory=dict)
    total: int = 0
    completed: int = 0
    failed: int = 0
    errors: tuple[FoundError, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in OPEN


def new_id(kind: Literal["file-", "batch_"]) -> str:
    """A random id, as OpenAI's."""
    return kind + secrets.token_hex(12)
