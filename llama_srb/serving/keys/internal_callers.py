"""Items of batches: requests that the server sends to itself, in the name of a batch's owner.

They come by a Unix socket in a folder that only this user can open, with the batch's id in a header. On other
connections the header means nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from llama_srb.serving.keys.api_keys import Token

HEADER = "X-Batch"


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a batch. client: its name, as Caller.client has it; empty if no key was needed.

    token: what its JWT grants; None if it has a key of the settings.
    """

    client: str
    token: Token | None = None


@dataclass(frozen=True, slots=True)
class InternalCallers:
    """The Unix socket by which items come, and the owners of the batches that run."""

    path: str
    owner: Callable[[str], Owner | None]

    def owner_of(self, socket: object, batch: str) -> Owner | None:
        """The owner in whose name an item comes; None: the request is no item.

        socket: the name of the connection's own end. batch: the value of HEADER.
        """
        return self.owner(batch) if socket == self.path else None
