"""Client, which blocks the calling thread."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Stream(Reading):
    """Iterates over events inside `with`; leaving the block early cancels the running sequences."""

    def __init__(self, client: Client, body: dict[str, Any], path: str = EVENTS) -> None:
        super().__init__(client, body, path)
        self._client = client

    def __enter__(self) -> Self:
        """Sends the request and waits for its first event, if a task has recalled something for the start.

        Raises if the server refuses the request.
        """
        with as_client_errors(self._place):
            self._response = self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    self._response.read()
                self._begin(self._response)
                self._chunks = self._response.iter_raw()
                while not self._has_begun:
                    self._feed(next(self._chunks, None))
            except BaseException:
                self._response.close()
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._response.close()

    def __iter__(self) -> Iterator[Event]:
        return self

    def __next__(self) -> Event:
        while not self._events:
            if self.answer.done is not None:
                raise StopIteration
            with as_client_errors(self._place):
                self._feed(next(self._chunks, None))
        return self._next()

    def collect(self) -> list[Choice]:
        """Sends the request and waits for all choices, best first if they are ranked."""
        with self:
            for _ in self:
                pass
        return self.answer.ranked

    def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False if they had ended. Stop events still follow."""
        return self._client.ask(self._ending(index))


class Client(Connection):
    """Calls a server from synchronous code; `with Client() as client:` closes the connections."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        model: str | None = None,
        timeout: float = TIMEOUT,
        http: httpx.Client | None = None,
    ) -> None:
        """url: also unix:FILE, the Unix socket of a server. model: the name of the model for all requests, if
        the server has several.

        timeout: seconds without a byte from the server; http: an httpx client to use.
        """
        super().__init__(url, api_key, model)
        transport = httpx.HTTPTransport(uds=self.socket) if self.socket else None
        self.http = http or httpx.Client(timeout=timeouts(timeout), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self.http.close()

    def complete(self, prompt: Prompted, *, n: int | None = None, **more: Any) -> list[Choice]:
        """Waits for n continuations (if None, the server's default n) and returns them.

        more: fields of docs/api.md (max_tokens, stop, temperature=[0.6, 0.9], …). A field that the server
        does not have raises UnknownField.
        """
        return self.stream(prompt, n=n, **more).collect()

    def chat(self, messages: str | Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """Waits for n answers to a chat; the model's template formats it. more: as in complete(), tools.

        messages: a text is the one message of a user.
        """
        return self.stream(n=n, messages=core.turns(messages), **more).collect()

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> Stream:
        """Streams events: `with client.stream("Once", n=8) as stream: for event in stream: …`

        For a chat pass messages=[…] instead of the prompt.
        """
        self.check(more)
        return Stream(self, body_of(prompt=prompt, n=n, **more))

    def check(self, names: Mapping[str, Any]) -> None:
        """UnknownField if the server has no field of one of these names. Asks the server only once."""
        if names and self._known is None:
            self._learn(self.ask(core.FIELDS))
        self._check(names)

    def prefix(self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None) -> int:
        """Prefills a prompt or a chat for a later request; returns its number of tokens."""
        return self.ask(core.prefix(prompt, messages))

    def prompt(
        self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None, **more: Any
    ) -> MadePrompt:
        """Returns the exact prompt of a request; nothing is generated. model: a model's or a task's name."""
        self.check(more)
        return self.ask(tasks.prompt(prompt, messages, more))

    def embed(self, texts: str | Sequence[Prompted], *, dimensions: int | None = None) -> list[list[float]]:
        """Returns a vector for each text, normalized to length 1."""
        return self.ask(core.embed(texts, dimensions))

    def score(
        self,
        prompt: Prompted,
        texts: str | Sequence[Prompted],
        *,
        logprobs: int = 0,
        certainty: bool = False,
    ) -> list[Score]:
        """Returns each text's log-probability after the prompt; logprobs: the alternatives for each token.

        certainty: also how certain the model is, on average over a text's tokens.
        """
        return self.ask(core.score(prompt, texts, logprobs, certainty))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Returns a text's tokens; special: with the tokens that the model adds around a text."""
        return self.ask(core.tokenize(text, special))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens."""
        return self.ask(core.detokenize(tokens))

    def models(self) -> list[Model]:
        """Returns the models and adapters that requests may name."""
        return self.ask(core.MODELS)

    def tasks(self) -> list[TaskEntry]:
        """Returns the tasks that the key may use."""
        return self.ask(tasks.TASKS)

    def task(self, name: str) -> Task:
        """The task of this name; nothing is sent yet."""
        return Task(self, name)

    def memories(self) -> list[MemoryEntry]:
        """Returns the memories that the key may use."""
        return self.ask(memories.MEMORIES)

    def memory(self, name: str) -> Memory:
        """The memory of this name; nothing is sent yet."""
        return Memory(self, name)

    def ask(self, call: Call[Answered]) -> Answered:
        """Sends the request of a call and reads its answer."""
        with as_client_errors(self.place):
            return self._read(call, self.http.send(self.request(self.http, call)))


class Task:
    """A task of the server. A name that the server does not have is refused with the first request."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def complete(self, prompt: str, *, n: int | None = None, **more: Any) -> list[Choice]:
        """Waits for n continuations and returns them, as Client.complete; fields not given are the task's."""
        return self.stream(prompt, n=n, **more).collect()

    def chat(self, messages: str | Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """Waits for n answers to a chat; the task's texts stand around the messages of the user."""
        return self.stream(n=n, messages=core.turns(messages), **more).collect()

    def stream(
        self,
        prompt: str | None = None,
        *,
        n: int | None = None,
        messages: Sequence[Message] | None = None,
        **more: Any,
    ) -> Stream:
        """Streams events, as Client.stream; stream.recalled names the chunks that the task has recalled."""
        tasks.check(more)
        self._client.check(more)
        body = body_of(prompt=prompt, n=n, messages=messages, **more)
        return Stream(self._client, body, tasks.path_of(self.name, messages))


class Memory:
    """A memory of the server. Names and ids that the server does not have are a RequestRefused."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def put(
        self,
        id: str,
        content: Content,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Stored:
        """Stores a document, in place of the key's one of this id.

        A text is plain text unless content_type says otherwise; without it the kind of bytes, or of the file
        of a Path, is the end of the id (.txt .md .html .pdf .docx .odt .rtf .epub).
        OSError if a file can't be read.
        """
        return self._client.ask(memories.put(self.name, id, content, content_type, metadata))

    def documents(self) -> Iterator[Document]:
        """Iterates over the documents that the key finds, by id, without texts."""
        after: str | None = ""
        while after is not None:
            page = self._client.ask(memories.page(self.name, after))
            yield from page.documents
            after = page.next

    def get(self, id: str) -> Document:
        """Returns a document with its text."""
        return self._client.ask(memories.get(self.name, id))

    def delete(self, id: str) -> None:
        """Deletes a document of the key."""
        self._client.ask(memories.delete(self.name, id))

    def search(
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
        """Returns the k chunks (5 unless given) that fit the query best.

        by: words, meaning or hybrid; else as the memory is searched. around: how many neighbours of each its
        text has; headings: those above a text stand in front of it; highlights: where the query's words are
        in each text; per_document: the most of one document;
        diversity: how much it counts that one is unlike those before it, 0 to 1. filter: conditions on
        metadata and score, for the chunks of which the k best are taken; post_filter: for these k.
        docs/api.md has the operators.
        """
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
        return self._client.ask(call)
