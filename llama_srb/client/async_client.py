"""AsyncClient, for programs with an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from llama_srb.client import core, memories, tasks
from llama_srb.client.answer import Choice, Score
from llama_srb.client.core import (
    EVENTS,
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
    timeouts,
)
from llama_srb.client.events import Event
from llama_srb.client.memories import Chunk, Content, Document, MemoryEntry, Stored
from llama_srb.client.models import Model
from llama_srb.client.tasks import MadePrompt, TaskEntry


class AsyncStream(Reading):
    """Iterates over events inside `async with`; leaving the block early cancels the running sequences."""

    def __init__(
        self, client: AsyncClient, body: dict[str, Any], more: Mapping[str, Any], path: str = EVENTS
    ) -> None:
        super().__init__(client, body, path)
        self._client = client
        self._more = more

    async def __aenter__(self) -> Self:
        """Sends the request and waits for its first event, if a task has recalled something for the start.

        Raises if the server refuses the request.
        """
        with as_client_errors(self._place):
            await self._client.check(self._more)
            self._response = await self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    await self._response.aread()
                self._begin(self._response)
                self._chunks = self._response.aiter_raw()
                while not self._has_begun:
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
            with as_client_errors(self._place):
                self._feed(await anext(self._chunks, None))
        return self._next()

    async def collect(self) -> list[Choice]:
        """Sends the request and waits for all choices, best first if they are ranked."""
        async with self:
            async for _ in self:
                pass
        return self.answer.ranked

    async def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False if they had ended. Stop events still follow."""
        return await self._client.ask(self._ending(index))


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
        transport = httpx.AsyncHTTPTransport(uds=self.socket) if self.socket else None
        self.http = http or httpx.AsyncClient(timeout=timeouts(timeout), transport=transport)

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
        return await self.stream(prompt, n=n, **more).collect()

    async def chat(
        self, messages: str | Sequence[Message], *, n: int | None = None, **more: Any
    ) -> list[Choice]:
        """The same as Client.chat."""
        return await self.stream(n=n, messages=core.turns(messages), **more).collect()

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> AsyncStream:
        """`async with client.stream("Once", n=8) as stream: async for event in stream: …`"""
        return AsyncStream(self, body_of(prompt=prompt, n=n, **more), more)

    async def check(self, names: Mapping[str, Any]) -> None:
        """UnknownField if the server has no field of one of these names. Asks the server only once."""
        if names and self._known is None:
            self._learn(await self.ask(core.FIELDS))
        self._check(names)

    async def prefix(
        self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None
    ) -> int:
        """The same as Client.prefix."""
        return await self.ask(core.prefix(prompt, messages))

    async def prompt(
        self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None, **more: Any
    ) -> MadePrompt:
        """The same as Client.prompt."""
        await self.check(more)
        return await self.ask(tasks.prompt(prompt, messages, more))

    async def embed(
        self, texts: str | Sequence[Prompted], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """The same as Client.embed."""
        return await self.ask(core.embed(texts, dimensions))

    async def score(
        self,
        prompt: Prompted,
        texts: str | Sequence[Prompted],
        *,
        logprobs: int = 0,
        certainty: bool = False,
    ) -> list[Score]:
        """The same as Client.score."""
        return await self.ask(core.score(prompt, texts, logprobs, certainty))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The same as Client.tokenize."""
        return await self.ask(core.tokenize(text, special))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """The same as Client.detokenize."""
        return await self.ask(core.detokenize(tokens))

    async def models(self) -> list[Model]:
        """The same as Client.models."""
        return await self.ask(core.MODELS)

    async def tasks(self) -> list[TaskEntry]:
        """The same as Client.tasks."""
        return await self.ask(tasks.TASKS)

    def task(self, name: str) -> AsyncTask:
        """The same as Client.task."""
        return AsyncTask(self, name)

    async def memories(self) -> list[MemoryEntry]:
        """The same as Client.memories."""
        return await self.ask(memories.MEMORIES)

    def memory(self, name: str) -> AsyncMemory:
        """The same as Client.memory."""
        return AsyncMemory(self, name)

    async def ask(self, call: Call[Answered]) -> Answered:
        """The same as Client.ask."""
        with as_client_errors(self.place):
            return self._read(call, await self.http.send(self.request(self.http, call)))


class AsyncTask:
    """A task of the server. It has the methods of Task, with await."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    async def complete(self, prompt: str, *, n: int | None = None, **more: Any) -> list[Choice]:
        """The same as Task.complete."""
        return await self.stream(prompt, n=n, **more).collect()

    async def chat(
        self, messages: str | Sequence[Message], *, n: int | None = None, **more: Any
    ) -> list[Choice]:
        """The same as Task.chat."""
        return await self.stream(n=n, messages=core.turns(messages), **more).collect()

    def stream(
        self,
        prompt: str | None = None,
        *,
        n: int | None = None,
        messages: Sequence[Message] | None = None,
        **more: Any,
    ) -> AsyncStream:
        """The same as Task.stream, for `async with`."""
        tasks.check(more)
        body = body_of(prompt=prompt, n=n, messages=messages, **more)
        return AsyncStream(self._client, body, more, tasks.path_of(self.name, messages))


class AsyncMemory:
    """A memory of the server. It has the methods of Memory, with await."""

    def __init__(self, client: AsyncClient, name: str) -> None:
        self._client = client
        self.name = name

    async def put(
        self,
        id: str,
        content: Content,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Stored:
        """The same as Memory.put."""
        given = (self.name, id, content, content_type, metadata)
        return await self._client.ask(await asyncio.to_thread(memories.put, *given))

    async def documents(self) -> AsyncIterator[Document]:
        """The same as Memory.documents, for `async for`."""
        after: str | None = ""
        while after is not None:
            page = await self._client.ask(memories.page(self.name, after))
            for document in page.documents:
                yield document
            after = page.next

    async def get(self, id: str) -> Document:
        """The same as Memory.get."""
        return await self._client.ask(memories.get(self.name, id))

    async def delete(self, id: str) -> None:
        """The same as Memory.delete."""
        await self._client.ask(memories.delete(self.name, id))

    async def search(
        self,
        query: str,
        k: int | None = None,
        *,
        filter: Mapping[str, Any] | None = None,
        post_filter: Mapping[str, Any] | None = None,
        by: str | None = None,
        around: int | None = None,
        per_document: int | None = None,
        diversity: float | None = None,
        headings: bool | None = None,
        highlights: bool | None = None,
    ) -> list[Chunk]:
        """The same as Memory.search."""
        call = memories.search(
            self.name,
            query,
            k,
            filter,
            post_filter,
            by,
            around,
            per_document,
            diversity,
            headings,
            highlights,
        )
        return await self._client.ask(call)
