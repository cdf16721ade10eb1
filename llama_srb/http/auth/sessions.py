"""What a key or a token has let in: one request, or a WebSocket, until it is over. It ends with its key.

access.py asks again when the keys change; a session itself asks again when its key expires. What has to end
then, and how, is said by whoever runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Self, TypeAlias

from llama_srb.http.auth.api_keys import Grant
from llama_srb.request.values import RequestError

Ender: TypeAlias = Callable[[RequestError], None]

LOOK_AGAIN = 60.0  # seconds after which an expiry is looked at again: the clock may have been set
LEAST = 0.01  # seconds; a timer may fire a moment too soon


class Session:
    """`with Session(ask):`, where ask is the grant of its key, or raises why there is none (any more)."""

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

    def add(self, what: object, end: Ender) -> None:
        """From now on this ends with the session; at once when that has ended already."""
        if self._refusal is not None:
            end(self._refusal)
        else:
            self._enders[what] = end

    def discard(self, what: object) -> None:
        """It is over by itself."""
        self._enders.pop(what, None)

    def look_again(self) -> None:
        """Takes over what the key may do now, or ends with it."""
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
            delay = min(max(left, LEAST), LOOK_AGAIN)
            self._timer = asyncio.get_running_loop().call_later(delay, self.look_again)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
