"""AsyncClient, for programs with an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from llama_srb.client import core
from llama_srb.client.answer import Choice, Score
from llama_srb.client.core import (
    TIMEOUT,
    URL,
    Answered,
    Call,
    Connection,
    Message,
    Prompted,
    Reading,
    as_client_errors,
    body_of,
    refusal,
    timeouts,
    was_running,
)
from llama_srb.client.events import Event
from llama_srb.client.models import Model


class AsyncStream(Reading):
    """Iterates over events inside `async with`; leaving the block early cancels the running sequences."""

    def __init__(self, client: AsyncClient, body: dict[str, Any], more: Mapping[str, Any]) -> None:
        super().__init__(client, body)
        self._client = client
        self._more = more

    async def __aenter__(self) -> Self:
        """Sends the request and waits for its first event. Raises if the server refuses the request."""
        with as_client_errors(self._url):
            await self._client.check(self._more)
            self._response = await self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    await self._response.aread()
                    raise refusal(self._response)
                self._require_event_stream(self._response)
                self._chunks = self._response.aiter_raw()
                while not self._events:
                    self._feed(await anext(self._chunks, None))
            except BaseException:
                await self._response.aclose()
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._response.aclose()

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self.answer.done is not None:
                raise StopAsyncIteration
            with as_client_errors(self._url):
                self._feed(await anext(self._chunks, None))
        return self._next()

    async def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False if they had ended. Stop events still follow."""
        with as_client_errors(self._url):
            return was_running(
                await self._client.http.delete(self._cancel_url(index), headers=self._client.headers)
            )


class AsyncClient(Connection):
    """Calls a server from an event loop. It has the methods of Client, with await."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = TIMEOUT,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """The same as Client's; http: an httpx client to use."""
        super().__init__(url, api_key, model)
        self.http = http or httpx.AsyncClient(timeout=timeouts(timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self.http.aclose()

    async def complete(self, prompt: Prompted, *, n: int | None = None, **more: Any) -> list[Choice]:
        """The same as Client.complete."""
        return await self._all(self.stream(prompt, n=n, **more))

    async def chat(self, messages: Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """The same as Client.chat."""
        return await self._all(self.stream(n=n, messages=messages, **more))

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> AsyncStream:
        """`async with client.stream("Once", n=8) as stream: async for event in stream: …`"""
        return AsyncStream(self, body_of(prompt=prompt, n=n, **more), more)

    async def check(self, names: Mapping[str, Any]) -> None:
        """UnknownField if the server has no field of one of these names. Asks the server only once."""
        if names and self._known is None:
            with as_client_errors(self.url):
                self._set_known_fields(await self.http.get(f"{self.url}/v1/samplers", headers=self.headers))
        self._check(names)

    async def prefix(
        self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None
    ) -> int:
        """The same as Client.prefix."""
        return await self._ask(core.prefix(prompt, messages))

    async def embed(
        self, texts: str | Sequence[Prompted], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """The same as Client.embed."""
        return await self._ask(core.embed(texts, dimensions))

    async def score(
        self, prompt: Prompted, texts: str | Sequence[Prompted], *, logprobs: int = 0
    ) -> list[Score]:
        """The same as Client.score."""
        return await self._ask(core.score(prompt, texts, logprobs))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The same as Client.tokenize."""
        return await self._ask(core.tokenize(text, special))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The same as Client.detokenize."""
        return await self._ask(core.detokenize(tokens))

    async def models(self) -> list[Model]:
        """The same as Client.models."""
        return await self._ask(core.MODELS)

    async def _all(self, stream: AsyncStream) -> list[Choice]:
        async with stream:
            async for _ in stream:
                pass
            return stream.answer.ranked

    async def _ask(self, call: Call[Answered]) -> Answered:
        with as_client_errors(self.url):
            return self._read(call, await self.http.send(self.request(self.http, call)))
