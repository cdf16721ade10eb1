"""The caller of a request: a value that is made once and passed on as an argument."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from llama_srb.serving.keys.api_keys import Grant
from llama_srb.serving.keys.sessions import Session
from llama_srb.serving.observe.traces import NO_TRACE, Trace

BATCH = 1
"""The engine's priority of requests with the header `Priority: u=7`, the least urgent (RFC 9218, 4.1)."""


def priority_of(header: str) -> int:
    """Of a request with this header Priority (RFC 9218): BATCH if it is the least urgent one."""
    return BATCH if "u=7" in header.replace(" ", "").split(",") else 0


def nothing() -> None:
    """The end of a connection that there is not."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of one request.

    grant, session: those of its key; None if no key is needed. hang_up ends its connection at once, without
    writing the rest. is_item: the request is an item of a batch that this server runs. priority: 0, or BATCH
    for what may wait for everybody else. dialect: of the answer. is_accepted: a drain lets it finish, because
    it belongs to something that has begun.
    """

    grant: Grant | None = None
    session: Session | None = None
    address: str = ""
    hang_up: Callable[[], None] = nothing
    is_item: bool = False
    priority: int = 0
    dialect: str = "none"
    is_accepted: bool = False
    trace: Trace = NO_TRACE
    client: str = dataclasses.field(init=False)
    """Its name for limits and scheduling: by key or JWT; by address if no key is needed."""

    def __post_init__(self) -> None:
        name = f"address {self.address}" if self.grant is None else self.grant.client
        object.__setattr__(self, "client", name)

    @property
    def owner(self) -> str:
        """The owner of files and batches that it stores; empty if no key is needed."""
        return "" if self.grant is None else self.grant.client

    @property
    def is_admin(self) -> bool:
        """Whether its key has the scope admin; without keys nobody has it."""
        return self.grant is not None and self.grant.is_admin

    def answered_as(self, dialect: str) -> Caller:
        """The same caller, whose answer has another dialect than its path."""
        return dataclasses.replace(self, dialect=dialect)

    def traced(self, trace: Trace) -> Caller:
        """The same caller with the trace of its request."""
        return dataclasses.replace(self, trace=trace)

    @property
    def accepted(self) -> Caller:
        """The same caller, whose requests a drain lets finish."""
        return dataclasses.replace(self, is_accepted=True)

    @property
    def detached(self) -> Caller:
        """The same client without its connection, for work that goes on when its request is over."""
        return Caller(self.grant, address=self.address)

    @property
    def now(self) -> Caller:
        """The same caller with its key's current grant."""
        return self if self.session is None else dataclasses.replace(self, grant=self.session.grant)
