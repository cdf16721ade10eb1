"""Sessions: a request or a WebSocket that a key or a JWT has authorized. A session ends with its key.

access.py checks all sessions when the keys change; a session checks itself when its key expires. A request
in a session registers a function that ends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self, TypeAlias

from llama_srb.request.values import RequestError
from llama_srb.serving.keys.api_keys import Grant

Ender: TypeAlias = Callable[[RequestError], None]

MAX_DELAY = 60.0  # seconds until the expiry is checked again, since the system's clock may have been set
MIN_DELAY = 0.01  # seconds; a timer may fire a moment too early


class Session:
    """`with Session(ask):`, where ask() returns the key's grant, or raises RequestError if it has none."""

    def __init__(self, ask: Callable[[], Grant]) -> None:
        self._ask = ask
        self.grant = ask()
        self._refusal: RequestError | None = None
        self._enders: dict[object, Ender] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> Self:
        self._set_timer()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_timer()

    def add(self, member: object, end: Ender) -> None:
        """Registers the function that ends a member with the session; calls it if that has ended already."""
        if self._refusal is not None:
            end(self._refusal)
        else:
            self._enders[member] = end

    def discard(self, member: object) -> None:
        """Removes a member that has ended by itself."""
        self._enders.pop(member, None)

    def check(self) -> None:
        """Updates the grant, or ends the session if the key has none any more."""
        if self._refusal is not None:
            return
        try:
            self.grant = self._ask()
        except RequestError as error:
            self._end(error)
        else:
            self._set_timer()

    def _end(self, error: RequestError) -> None:
        message = f"the key has ended: {error.message}"
        self._refusal = refusal = RequestError(message, status=error.status, code=error.code)
        self._stop_timer()
        for end in list(self._enders.values()):
            end(refusal)
        self._enders.clear()

    def _set_timer(self) -> None:
        self._stop_timer()
        if (expires := self.grant.expires) is not None:
            left = (expires - datetime.now(UTC)).total_seconds()
            delay = min(max(left, MIN_DELAY), MAX_DELAY)
            self._timer = asyncio.get_running_loop().call_later(delay, self.check)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
