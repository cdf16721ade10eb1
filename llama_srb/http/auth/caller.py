"""Who asks: made anew for each request, and handed on from there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from llama_srb.http.auth.api_keys import Grant
from llama_srb.http.auth.sessions import Session


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Caller:
    """Of one request.

    grant, session: of its key, None where no key is needed. hang_up ends its connection at once, whatever is
    still to be written.
    """

    grant: Grant | None = None
    session: Session | None = None
    address: str = ""
    hang_up: Callable[[], None] = _nothing

    @property
    def client(self) -> str:
        """Whose its requests are: a key's, a token's, or where none is needed an address's."""
        return f"address {self.address}" if self.grant is None else self.grant.client

    def on(self, address: str, hang_up: Callable[[], None] | None) -> Caller:
        """The same on its connection."""
        return dataclasses.replace(self, address=address, hang_up=hang_up or _nothing)

    @property
    def now(self) -> Caller:
        """With what its key may do by now."""
        return self if self.session is None else dataclasses.replace(self, grant=self.session.grant)


CALLER: web.RequestKey[Caller] = web.RequestKey("caller", Caller)
