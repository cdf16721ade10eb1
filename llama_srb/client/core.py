"""The code that both clients share: requests, parsing of answers and streams, errors. It does no I/O."""

from __future__ import annotations

import difflib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

import httpx

from llama_srb.client.events import (
    Answer,
    Choice,
    ClientError,
    ConnectionFailed,
    Error,
    Event,
    Loading,
    Queued,
    RequestRefused,
    Score,
    ServerError,
    Start,
    UnknownField,
    event_from,
    failure,
    is_count,
    is_list,
    is_number,
    is_object,
    read_as,
)
from llama_srb.client.models import Model, models_from

URL = "http://localhost:9090"
CONNECT_TIMEOUT = 10.0  # seconds until a host counts as unreachable
TIMEOUT = 600.0  # seconds without a byte: a body may wait for a long prompt, while streams get comments
LINE_LIMIT = 64 << 20  # bytes of one line of a stream; the server has the same limit for its engine
MALFORMED = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""The errors of reading unexpected JSON; RecursionError comes from deeply nested lists."""

Prompted: TypeAlias = str | Sequence[int]
"""A prompt: a text, or its token ids."""
Message: TypeAlias = Mapping[str, Any]
"""One message of a chat: role and content, and more as in OpenAI's API."""


class Frames:
    """Splits the bytes of a stream into events; an event may span several chunks.

    httpx's iter_lines is not used: it also splits at U+2028, which JSON may contain unescaped.
    """

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> list[Event]:
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        if len(self._rest) > LINE_LIMIT:
            raise ServerError(f"the server wrote a line of more than {LINE_LIMIT} bytes")
        found = [_event(line[5:]) for line in lines if line.startswith(b"data:")]
        return [event for event in found if event is not None]


def _event(line: bytes) -> Event | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise ServerError(f"the server wrote a line that is no event: {line[:100]!r}") from None
    return event_from(data) if isinstance(data, dict) else None


def refusal(response: httpx.Response) -> ClientError:
    """Makes an exception from an answer with an error status, whose body has been read."""
    try:
        fields = response.json()["error"]
        error: Error = read_as(Error, {**fields, "code": fields.get("code") or ""})
        message, code, param = error.message, error.code, error.param
    except MALFORMED:
        return ServerError(f"{response.url} answers {response.status_code}, which is not llama-srb's")
    if 400 <= response.status_code < 500:
        return RequestRefused(message, code=code or "invalid_request", param=param)
    return ServerError(message, code=code, param=param)


@contextmanager
def as_client_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailed(f"{url}: {reason}", code="connection_failed") from error


def address_of(url: str) -> str:
    """Completes a server's URL: adds http:// if it has no scheme, removes a final slash and /v1."""
    return (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")


def body_of(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def timeouts(timeout: float) -> httpx.Timeout:
    return httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))


Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answered]):
    """A request that is answered with one body: its path, its body, and a function that reads the answer.

    Without a body it is a GET request.
    """

    path: str
    body: Mapping[str, Any] | None
    read: Callable[[Any], Answered]


MODELS: Call[list[Model]] = Call("/v1/models", None, models_from)


def tokenize(text: str, special: bool) -> Call[list[int]]:
    body = {"text": text, "add_bos_token": special}
    return Call("/v1/token/encode", body, lambda answer: _listed(answer["tokens"], is_count))


def detokenize(tokens: Sequence[int]) -> Call[str]:
    return Call("/v1/token/decode", {"tokens": list(tokens)}, lambda answer: _text(answer["text"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("no whole number")
    return value


def _listed(value: object, each: Callable[[Any], bool]) -> list[Any]:
    if not isinstance(value, list) or not is_list(value, each):
        raise TypeError("no such list")
    return value


def _several(texts: str | Sequence[Prompted]) -> list[Prompted]:
    """A list of texts; a single text becomes a list of one."""
    return [texts] if isinstance(texts, str) else list(texts)


def embed(texts: str | Sequence[Prompted], dimensions: int | None) -> Call[list[list[float]]]:
    body = body_of(input=_several(texts), dimensions=dimensions)
    return Call("/v1/embeddings", body, _vectors)


def _vectors(answer: Any) -> list[list[float]]:
    return [_listed(one["embedding"], is_number) for one in _listed(answer["data"], is_object)]


def score(prompt: Prompted, texts: str | Sequence[Prompted], logprobs: int) -> Call[list[Score]]:
    body = {"prompt": prompt, "texts": _several(texts), "logprobs": logprobs}
    return Call("/v1/score", body, _scores)


def _scores(answer: Any) -> list[Score]:
    return [read_as(Score, one) for one in _listed(answer["data"], is_object)]


def prefix(prompt: Prompted | None, messages: Sequence[Message] | None) -> Call[int]:
    body = body_of(prompt=prompt, messages=messages)
    return Call("/v1/prefix", body, lambda answer: _count(answer["prompt_tokens"]))


def _field_names(tables: Any) -> frozenset[str]:
    """The names of all request fields, from the answer of /v1/samplers."""
    rows = [row for table in ("request", "samplers") for row in tables[table]]
    names = {_text(name) for row in rows for name in (row["name"], *row["aliases"])}
    return frozenset(names | {"model"} | set(map(_text, tables.get("converted", {}).keys())))


class Connection:
    """A server's address, the client's key and model and, once asked, the names of the request fields."""

    def __init__(self, url: str, api_key: str | None, model: str | None = None) -> None:
        self.url = address_of(url)
        self.model = model
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._known: frozenset[str] | None = None

    def post(
        self, http: httpx.Client | httpx.AsyncClient, path: str, body: Mapping[str, Any]
    ) -> httpx.Request:
        """Makes a POST request with a body, the client's model unless the body names one, and the key."""
        # Not httpx's json=: it raises for NaN and lone surrogates; the server's error names the field.
        content = json.dumps({**body_of(model=self.model), **body}).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        return http.build_request("POST", self.url + path, content=content, headers=headers)

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
        """Makes the request of a call."""
        if call.body is None:
            return http.build_request("GET", self.url + call.path, headers=self.headers)
        return self.post(http, call.path, call.body)

    def _read(self, call: Call[Answered], response: httpx.Response) -> Answered:
        if response.status_code != 200:
            raise refusal(response)
        try:
            return call.read(response.json())
        except MALFORMED:
            raise ServerError(f"{response.url} answers, but not as llama-srb does") from None

    def _set_known_fields(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            raise refusal(response)
        try:
            self._known = _field_names(response.json())
        except MALFORMED:
            raise ServerError(f"{response.url} answers, but not as llama-srb does") from None

    def _check(self, names: Mapping[str, Any]) -> None:
        for name in names:
            if self._known is not None and name not in self._known:
                nearest = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise UnknownField(f"{name} is not a known field{hint}", code="unknown_field", param=name)


class Reading:
    """The state of one stream: its events and its answer so far."""

    def __init__(self, client: Connection, body: dict[str, Any]) -> None:
        self.answer = Answer(body)
        self.id = ""  # the server's id of this request, set when the block is entered
        self._caller = client
        self._url = client.url
        self._body = body
        self._frames = Frames()
        self._events: deque[Event] = deque()

    @property
    def choices(self) -> list[Choice]:
        """The choices so far."""
        return self.answer.choices

    def _post(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        return self._caller.post(http, "/v1/events", self._body)

    def _require_event_stream(self, response: httpx.Response) -> None:
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            raise ServerError(f"{response.url} answers {kind or 'nothing'}, which is no event stream")

    def _feed(self, chunk: bytes | None) -> None:
        if chunk is None:
            raise ConnectionFailed(f"{self._url}: the stream broke off", code="connection_failed")
        for event in self._frames.feed(chunk):
            self._events.append(event)
            self.id = event.id if isinstance(event, Start | Queued | Loading) else self.id

    def _next(self) -> Event:
        event = self._events.popleft()
        if isinstance(event, Error):
            raise failure(event)
        self.answer.take(event)
        return event

    def _cancel_url(self, index: int | None) -> str:
        return f"{self._url}/v1/completions/{self.id}" + ("" if index is None else f"/{index}")


def was_running(response: httpx.Response) -> bool:
    """Whether a cancel has found its request running."""
    if response.status_code not in (200, 404):
        raise refusal(response)
    return response.status_code == 200
