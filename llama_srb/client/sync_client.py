"""Client, which blocks the calling thread."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class Stream(Reading):
    """Iterates over events inside `with`; leaving the block early cancels the running sequences."""

    def __init__(self, client: Client, body: dict[str, Any]) -> None:
        super().__init__(client, body)
        self._client = client

    def __enter__(self) -> Self:
        """Sends the request and waits for its first event. Raises if the server refuses the request."""
        with as_client_errors(self._url):
            self._response = self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    self._response.read()
                    raise refusal(self._response)
                self._require_event_stream(self._response)
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
            with as_client_errors(self._url):
                self._feed(next(self._chunks, None))
        return self._next()

    def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False if they had ended. Stop events still follow."""
        with as_client_errors(self._url):
            return was_running(
                self._client.http.delete(self._cancel_url(index), headers=self._client.headers)
            )


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
        """model: the name of the model for all requests, if the server has several.

        timeout: seconds without a byte from the server; http: an httpx client to use.
        """
        super().__init__(url, api_key, model)
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
        """Waits for n continuations (if None, the server's default n) and returns them.

        more: fields of docs/api.md (max_tokens, stop, temperature=[0.6, 0.9], …). A field that the server
        does not have raises UnknownField.
        """
        return self._all(self.stream(prompt, n=n, **more))

    def chat(self, messages: Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """Waits for n answers to a chat; the model's template formats it. more: as in complete(), tools."""
        return self._all(self.stream(n=n, messages=messages, **more))

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> Stream:
        """Streams events: `with client.stream("Once", n=8) as stream: for event in stream: …`

        For a chat pass messages=[…] instead of the prompt.
        """
        if more and self._known is None:
            with as_client_errors(self.url):
                self._set_known_fields(self.http.get(f"{self.url}/v1/samplers", headers=self.headers))
        self._check(more)
        return Stream(self, body_of(prompt=prompt, n=n, **more))

    def prefix(self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None) -> int:
        """Prefills a prompt or a chat for a later request; returns its number of tokens."""
        return self._ask(core.prefix(prompt, messages))

    def embed(self, texts: str | Sequence[Prompted], *, dimensions: int | None = None) -> list[list[float]]:
        """Returns a vector for each text, normalized to length 1."""
        return self._ask(core.embed(texts, dimensions))

    def score(self, prompt: Prompted, texts: str | Sequence[Prompted], *, logprobs: int = 0) -> list[Score]:
        """Returns each text's log-probability after the prompt; logprobs: the alternatives for each token."""
        return self._ask(core.score(prompt, texts, logprobs))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """Returns a text's tokens; special: with the tokens that the model adds around a text."""
        return self._ask(core.tokenize(text, special))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens."""
        return self._ask(core.detokenize(tokens))

    def models(self) -> list[Model]:
        """Returns the models and adapters that requests may name."""
        return self._ask(core.MODELS)

    def _all(self, stream: Stream) -> list[Choice]:
        with stream:
            for _ in stream:
                pass
            return stream.answer.ranked

    def _ask(self, call: Call[Answered]) -> Answered:
        with as_client_errors(self.url):
            return self._read(call, self.http.send(self.request(self.http, call)))
