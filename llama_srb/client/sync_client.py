"""Client: waits in this thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from llama_srb.client import core
from llama_srb.client.core import (
    TIMEOUT,
    URL,
    Answered,
    Call,
    Connection,
    Message,
    Prompted,
    Reading,
    body_of,
    our_errors,
    refusal,
    timeouts,
    was_there,
)
from llama_srb.client.events import Choice, Event, Score


class Stream(Reading):
    """Iterates over events inside `with`; leaving the block early cancels what still runs."""

    def __init__(self, client: Client, body: dict[str, Any]) -> None:
        super().__init__(client, body)
        self._client = client

    def __enter__(self) -> Self:
        """Sends the request and waits for its first event; what is wrong with it is raised here."""
        with our_errors(self._url):
            self._response = self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    self._response.read()
                    raise refusal(self._response)
                self._checked(self._response)
                self._chunks = self._response.iter_raw()
                while not self._events:
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
            with our_errors(self._url):
                self._feed(next(self._chunks, None))
        return self._next()

    def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False when it had ended. Its stop event still comes."""
        with our_errors(self._url):
            return was_there(self._client.http.delete(self._cancel_url(index), headers=self._client.headers))


class Client(Connection):
    """A server to call from synchronous code; `with Client() as client:` closes its connections."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        http: httpx.Client | None = None,
    ) -> None:
        """timeout is in seconds of silence; http replaces the httpx client that is made otherwise."""
        super().__init__(url, api_key)
        self.http = http or httpx.Client(timeout=timeouts(timeout))

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
        """n continuations (the server's default if None), all of them ended.

        more are the fields of docs/api.md: max_tokens, stop, temperature=[0.6, 0.9], … The server is asked
        once which it has; others raise UnknownField.
        """
        return self._all(self.stream(prompt, n=n, **more))

    def chat(self, messages: Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """n answers to a chat, by the model's own template; more as for complete(), and tools, …"""
        return self._all(self.stream(n=n, messages=messages, **more))

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> Stream:
        """The same as events: `with client.stream("Once", n=8) as stream: for event in stream: …`

        messages=[…] in place of the prompt is a chat.
        """
        if more and self._known is None:
            with our_errors(self.url):
                self._learn(self.http.get(f"{self.url}/v1/samplers", headers=self.headers))
        self._check(more)
        return Stream(self, body_of(prompt=prompt, n=n, **more))

    def prefix(self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None) -> int:
        """Computes a prompt, or a chat's, so that the request that follows starts at once; its tokens."""
        return self._ask(core.prefix(prompt, messages))

    def embed(self, texts: str | Sequence[Prompted], *, dimensions: int | None = None) -> list[list[float]]:
        """A vector of length 1 for each text."""
        return self._ask(core.embed(texts, dimensions))

    def score(self, prompt: Prompted, texts: str | Sequence[Prompted], *, logprobs: int = 0) -> list[Score]:
        """How likely each text is after the prompt; logprobs: so many alternatives of each token."""
        return self._ask(core.score(prompt, texts, logprobs))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The text's tokens; special: with those that the model puts around a text."""
        return self._ask(core.tokenize(text, special))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._ask(core.detokenize(tokens))

    def _all(self, stream: Stream) -> list[Choice]:
        with stream:
            for _ in stream:
                pass
            return stream.answer.ranked

    def _ask(self, call: Call[Answered]) -> Answered:
        with our_errors(self.url):
            return self._read(call, self.http.send(self.post(self.http, call.path, call.body)))
