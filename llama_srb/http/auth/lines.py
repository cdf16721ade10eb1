"""Lines of batches: requests that the server sends to itself, in the name of a batch's owner.

They come by a Unix socket in a folder that only this user can open, with the batch's id in a header. On other
connections the header means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from llama_srb.http.auth.jwt import Token

HEADER = "X-Batch"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a batch. client: its name, as Caller.client has it; empty if no key was needed.

    token: what its JWT grants; None if it has a key of the settings.
    """

    client: str
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class Lines:
    """The Unix socket by which lines come, and the owners of the batches that run."""

    path: str
    owner: Callable[[str], Owner | None]

    def owner_of(self, request: web.Request) -> Owner | None:
        """The owner in whose name a line comes; None: the request is no line."""
        transport = request.transport
        if transport is None or transport.get_extra_info("sockname") != self.path:
            return None
        return self.owner(request.headers.get(HEADER, ""))
