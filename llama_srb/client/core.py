"""The code that both clients share: requests, parsing of answers and streams, errors. It does no I/O."""

from __future__ import annotations

import difflib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

import httpx
import orjson

from llama_srb.client.answer import RECALLED, Answer, Choice, Recalled, Score, as_class, recalled_of
from llama_srb.client.errors import ClientError, ConnectionFailed, RequestRefused, ServerError, UnknownField
from llama_srb.client.event_json import event_from, failure
from llama_srb.client.events import Error, Event, Loading, Queued, Start
from llama_srb.client.models import Model, models_from
from llama_srb.client.reader import (
    as_count,
    as_list,
    as_text,
    is_count,
    is_number,
    is_object,
    read_as,
    records,
)

URL = "http://localhost:9090"
CONNECT_TIMEOUT = 10.0  # seconds until a host counts as unreachable
TIMEOUT = 600.0  # seconds without a byte: a body may wait for a long prompt, while streams get comments
LINE_LIMIT = 64 << 20  # bytes of one line of a stream; the server has the same limit for its engine
EVENTS = "/v1/events"
NAMED = ("/v1/tasks/", "/v1/memories/")  # beginnings of paths that name what they are for: no `model`
EVENT_STREAM = "text/event-stream"
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
        data = orjson.loads(line)
    except ValueError:
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
def as_client_errors(place: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        if isinstance(error, httpx.ConnectError):
            reason = f"cannot connect: {reason}; is llama-srb serve running there?"
        raise ConnectionFailed(f"{place}: {reason}", code="connection_failed") from error


def address_of(url: str) -> tuple[str, str | None]:
    """Completes a server's URL: adds http:// if it has no scheme, removes a final slash and /v1.

    Also the Unix socket of unix:FILE and unix:FILE:PREFIX.
    """
    scheme, _, rest = url.partition(":")
    path, _, prefix = rest.partition(":")
    socket, url = (path, f"localhost{prefix}") if scheme == "unix" else (None, url)
    return (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1"), socket


def body_of(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def timeouts(timeout: float) -> httpx.Timeout:
    return httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))


Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class Call(Generic[Answered]):
    """A request that is answered with one body, which the function `read` reads.

    An object as its body is sent by POST, as JSON; method and headers are those of other requests.
    absent: the answer if the server has no such thing (404); None: then it is refused.
    """

    path: str
    body: Mapping[str, Any] | bytes | None
    read: Callable[[Any], Answered]
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    absent: Answered | None = None


MODELS: Call[list[Model]] = Call("/v1/models", None, models_from)


def tokenize(text: str, special: bool) -> Call[list[int]]:
    body = {"text": text, "add_bos_token": special}
    return Call("/v1/token/encode", body, lambda answer: as_list(answer["tokens"], is_count))


def detokenize(tokens: Sequence[int]) -> Call[str]:
    return Call("/v1/token/decode", {"tokens": list(tokens)}, lambda answer: as_text(answer["text"]))


def turns(messages: str | Sequence[Message]) -> Sequence[Message]:
    """The messages of a chat; a text is one message of the user."""
    return [{"role": "user", "content": messages}] if isinstance(messages, str) else messages


def _several(texts: str | Sequence[Prompted]) -> list[Prompted]:
    """A list of texts; a single text becomes a list of one."""
    return [texts] if isinstance(texts, str) else list(texts)


def embed(texts: str | Sequence[Prompted], dimensions: int | None) -> Call[list[list[float]]]:
    body = body_of(input=_several(texts), dimensions=dimensions)
    return Call("/v1/embeddings", body, _vectors)


def _vectors(answer: Any) -> list[list[float]]:
    return [as_list(one["embedding"], is_number) for one in as_list(answer["data"], is_object)]


def score(
    prompt: Prompted, texts: str | Sequence[Prompted], logprobs: int, certainty: bool
) -> Call[list[Score]]:
    body = {"prompt": prompt, "texts": _several(texts), "logprobs": logprobs}
    body |= {"certainty": True} if certainty else {}
    return Call("/v1/score", body, lambda answer: records(Score, answer["data"]))


ABORT: Call[int] = Call("/v1/abort", {}, lambda answer: as_count(answer["aborted"]))
"""Ends all requests of the client's key: `client.ask(ABORT)` returns how many there were."""


def prefix(prompt: Prompted | None, messages: Sequence[Message] | None) -> Call[int]:
    body = body_of(prompt=prompt, messages=messages)
    return Call("/v1/prefix", body, lambda answer: as_count(answer["prompt_tokens"]))


def _field_names(tables: Any) -> frozenset[str]:
    """The names of all request fields."""
    rows = [row for table in ("request", "samplers") for row in tables[table]]
    names = {as_text(name) for row in rows for name in (row["name"], *row["aliases"])}
    return frozenset(names | {"model"} | set(map(as_text, tables.get("converted", {}).keys())))


FIELDS: Call[frozenset[str]] = Call("/v1/samplers", None, _field_names)


def is_event_stream(response: httpx.Response) -> bool:
    return str(response.headers.get("Content-Type", "")).startswith(EVENT_STREAM)


def _last_event(response: httpx.Response) -> Mapping[str, Any]:
    """The last event of a stream that has been read as a whole; one of the MALFORMED if there is none."""
    lines = [line for line in response.text.split("\n") if line.startswith("data:")]
    last: Mapping[str, Any] = orjson.loads(lines[-1][5:])
    if last["event"] == "error":
        raise failure(read_as(Error, last))
    return last


def schema_of(value: object) -> object:
    """The JSON schema of a class of Pydantic, which may stand wherever a body has a schema; TypeError."""
    if (one := as_class(value)) is not None:
        return one.model_json_schema()
    raise TypeError(f"{value!r} has no form in JSON")


class Connection:
    """A server's address, the client's key and model and, once asked, the names of the request fields.

    socket: the Unix socket through which the URL is reached, if there is one.
    """

    def __init__(self, url: str, api_key: str | None, model: str | None = None) -> None:
        self.url, self.socket = address_of(url)
        self.place = f"unix:{self.socket}" if self.socket else self.url  # for messages
        self.model = model
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._known: frozenset[str] | None = None

    def post(
        self, http: httpx.Client | httpx.AsyncClient, path: str, body: Mapping[str, Any], accept: str = "*/*"
    ) -> httpx.Request:
        """Makes a POST request with a body, the client's model unless body or path name one, and the key."""
        model = None if path.startswith(NAMED) else self.model
        # Not httpx's json=: it raises for NaN and lone surrogates; the server's error names the field.
        content = json.dumps({**body_of(model=model), **body}, default=schema_of).encode()
        headers = {"Content-Type": "application/json", "Accept": accept, **self.headers}
        return http.build_request("POST", self.url + path, content=content, headers=headers)

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
        """Makes the request of a call."""
        if isinstance(call.body, Mapping):
            return self.post(http, call.path, call.body)
        headers = {**self.headers, **call.headers}
        return http.build_request(call.method, self.url + call.path, content=call.body, headers=headers)

    def _read(self, call: Call[Answered], response: httpx.Response) -> Answered:
        if response.status_code == 404 and call.absent is not None:
            return call.absent
        if response.status_code not in (200, 201):
            raise refusal(response)
        try:
            return call.read(_last_event(response) if is_event_stream(response) else response.json())
        except MALFORMED:
            raise ServerError(f"{response.url} answers, but not as llama-srb does") from None

    def _learn(self, fields: frozenset[str]) -> None:
        self._known = fields

    def _check(self, names: Mapping[str, Any]) -> None:
        for name in names:
            if self._known is not None and name not in self._known:
                nearest = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise UnknownField(f"{name} is not a known field{hint}", code="unknown_field", param=name)


class Reading:
    """The state of one stream: its events and its answer so far."""

    def __init__(self, client: Connection, body: dict[str, Any], path: str = EVENTS) -> None:
        self.answer = Answer(body)
        self.id = ""  # the server's id of this request, set when the block is entered
        self._caller = client
        self._place = client.place
        self._body, self._path = body, path
        self._recalls = False  # the start event, which may not have come yet, names what was recalled
        self._frames = Frames()
        self._events: deque[Event] = deque()

    @property
    def choices(self) -> list[Choice]:
        """The choices so far."""
        return self.answer.choices

    @property
    def recalled(self) -> tuple[Recalled, ...]:
        """The chunks that a task has recalled for the prompt, best first."""
        unread = next((event for event in self._events if isinstance(event, Start)), None)
        return recalled_of(self.answer.start or unread)

    def _post(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        return self._caller.post(http, self._path, self._body, EVENT_STREAM)

    def _begin(self, response: httpx.Response) -> None:
        """Reads the headers; ClientError if no event stream follows. A refusal's body must have been read."""
        if response.status_code != 200:
            raise refusal(response)
        if not is_event_stream(response):
            kind = response.headers.get("Content-Type") or "nothing"
            raise ServerError(f"{response.url} answers {kind}, which is no event stream")
        self._recalls = RECALLED in response.headers

    @property
    def _has_begun(self) -> bool:
        """Whether the first event is there; of a task that has recalled something the start event."""
        waits = (Loading, Queued) if self._recalls else ()
        return not all(isinstance(event, waits) for event in self._events)

    def _feed(self, chunk: bytes | None) -> None:
        if chunk is None:
            raise ConnectionFailed(f"{self._place}: the stream broke off", code="connection_failed")
        for event in self._frames.feed(chunk):
            self._events.append(event)
            self.id = event.id if isinstance(event, Start | Queued | Loading) else self.id

    def _next(self) -> Event:
        event = self._events.popleft()
        if isinstance(event, Error):
            raise failure(event)
        self.answer.take(event)
        return event

    def _ending(self, index: int | None) -> Call[bool]:
        """Ends the request, or one sequence; the answer: whether it was running."""
        path = f"/v1/completions/{self.id}" + ("" if index is None else f"/{index}")
        return Call(path, None, lambda answer: True, "DELETE", absent=False)
