"""Client and AsyncClient, for Python programs: n continuations of one prompt from a running llama-srb server.

Speaks the event stream (POST /v1/events) with httpx and shares no code with the server. The two clients
differ only in who waits: what a body is, what bytes mean, which error an answer is, what is asked for beside
streams stands once, above them.

    ClientError
    ├── UnknownField       a keyword argument that the server has no field for (also a TypeError)
    ├── RequestRefused     the server refused the request; param names the field
    ├── ServerError        the server, or its engine, failed; or what it wrote is no answer of llama-srb
    └── ConnectionFailed   no connection, or it was lost
"""

from __future__ import annotations

import difflib
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

import httpx

__all__ = [
    "Answer", "AsyncClient", "AsyncStream", "Choice", "Client", "ClientError", "ConnectionFailed", "Done",
    "Error", "Event", "Message", "Progress", "Prompt", "Prompted", "Queued", "RequestRefused", "Score",
    "ServerError", "Start", "Stop", "Stream", "Text", "UnknownField", "as_json", "event_from", "failure",
]  # fmt: skip

URL = "http://localhost:9090"
CONNECT_TIMEOUT = 10.0  # seconds: a host that does not answer at all
TIMEOUT = 600.0  # seconds of silence: a long prompt or a model that loads says nothing; streams get comments
REFUSED = frozenset({"invalid_request", "context_exceeded"})
"""Codes of error events that are the request's own fault."""
LINE_LIMIT = 64 << 20  # bytes of one line of a stream that are believed, as the server believes of its engine
MOST_SEQUENCES = 1 << 20  # that an answer is believed to have: each takes memory before its first text
BROKEN = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading raises where JSON is not what was expected; RecursionError: lists in lists in lists."""

Prompted: TypeAlias = str | Sequence[int]
"""A prompt: a text, or its token ids."""
Message: TypeAlias = Mapping[str, Any]
"""One of a chat: role and content; more as in OpenAI's chats."""


# ----------------------------------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------------------------------


class ClientError(Exception):
    """What a call can fail with; code is the server's word for it."""

    def __init__(self, message: str, *, code: str = "", param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.param = param


class UnknownField(ClientError, TypeError):
    """The server has no such field; the message names the nearest that it has."""


class RequestRefused(ClientError):
    """The request asks for what cannot be; the message has field, value and bound."""


class ServerError(ClientError):
    """The server answered with an error that is not the request's fault, or with what is no answer."""


class ConnectionFailed(ClientError):
    """The server cannot be reached, or was lost while it answered."""


# ----------------------------------------------------------------------------------------------------
# Events and choices
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits for room; position 1 is next."""

    position: int
    id: str


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; warnings name fields that are not used."""

    count: int
    id: str
    prompt_tokens: int
    cached_tokens: int
    seed: int
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prompt:
    """A piece of the prompt, if echo is on; each choice's text begins with it."""

    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Progress:
    """A long prompt is being computed: so many of its tokens are done."""

    processed: int
    total: int


@dataclass(frozen=True, slots=True)
class Text:
    """New text of one sequence (the server's event "stream"); tokens only when logprobs were asked for.

    Of a chat: what the model thinks, and pieces of calls of tools; id and name are in a call's first piece.
    """

    index: int
    text: str
    tokens: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One sequence has ended, after length tokens; stop is 1 when a stop token or stop string ended it.

    With best_of or rank_by: sum and mean of its tokens' logprobs, and its share of different pairs of words;
    with dedupe the index of a sequence that has said the same.
    """

    index: int
    length: int
    stop: int
    finish_reason: str
    stop_text: str = ""
    logprob: float | None = None
    mean_logprob: float | None = None
    distinct_2: float | None = None
    duplicate_of: int | None = None


@dataclass(frozen=True, slots=True)
class Done:
    """All sequences have ended; with best_of or rank_by, ranking is their order, best first."""

    count: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    timings: Mapping[str, float] = field(default_factory=dict)
    ranking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """Ends the stream; iterating raises it as a ClientError."""

    code: str
    message: str
    param: str | None = None


Event: TypeAlias = Queued | Start | Prompt | Progress | Text | Stop | Done | Error

EVENTS: dict[str, type[Any]] = {
    "queued": Queued, "start": Start, "prompt": Prompt, "progress": Progress, "stream": Text, "stop": Stop,
    "done": Done, "error": Error,
}  # fmt: skip
_NAMES = {event: name for name, event in EVENTS.items()}
_FIELDS = {event: tuple(fields(event)) for event in EVENTS.values()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list(value: object, each: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(each, value))


def _is_call(value: object) -> bool:
    """A piece of a call of a tool."""
    if not isinstance(value, Mapping) or not _is_count(value.get("index")):
        return False
    texts = (value.get("id", ""), value.get("name", ""), value.get("arguments"))
    return all(isinstance(text, str) for text in texts)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "str": lambda value: isinstance(value, str),
    "str | None": lambda value: isinstance(value, str),
    "int": _is_count,
    "int | None": _is_count,
    "float": _is_number,
    "float | None": _is_number,
    "bool": lambda value: isinstance(value, bool),
    "Mapping[str, float]": lambda value: _is_object(value) and all(map(_is_number, value.values())),
    "tuple[str, ...]": lambda value: _is_list(value, lambda one: isinstance(one, str)),
    "tuple[int, ...]": lambda value: _is_list(value, _is_count),
    "tuple[Mapping[str, Any], ...]": lambda value: _is_list(value, _is_object),
    "tool_calls: tuple[Mapping[str, Any], ...]": lambda value: _is_list(value, _is_call),
}
"""Whether a value is what an annotation says, by the annotation's text, or the field's name and that."""


@dataclass(frozen=True, slots=True)
class _Key:
    """One field of a dataclass, as JSON has it; needed: null and absent are wrong."""

    name: str
    type: str
    is_right: Callable[[Any], bool]
    has_default: bool
    needed: bool


def _keys(kind: type[Any]) -> list[_Key]:
    made = []
    for row in fields(kind):
        type, has_default = str(row.type), (row.default, row.default_factory) != (MISSING, MISSING)
        is_right = _TYPES.get(f"{row.name}: {type}") or _TYPES[type]
        made.append(_Key(row.name, type, is_right, has_default, not has_default and "None" not in type))
    return made


def _read(kind: type[Any], data: Mapping[str, Any]) -> Any:
    """A dataclass from an object of JSON: null is absent, keys may be more; TypeError or KeyError."""
    given: dict[str, Any] = {}
    for key in _KEYS[kind]:
        value = data.get(key.name)
        if value is None:
            if key.needed:
                raise KeyError(key.name)
            if not key.has_default:
                given[key.name] = None
        elif not key.is_right(value):
            raise TypeError(f"{key.name} is no {key.type}")
        else:
            given[key.name] = tuple(value) if isinstance(value, list) else value
    return kind(**given)


def event_from(data: Mapping[str, Any]) -> Event | None:
    """The event that an object of the stream is; None for one of a newer server. Keys may be more.

    ServerError when a key is missing or its value has another type.
    """
    kind = EVENTS.get(str(data.get("event")))
    if kind is None:
        return None
    try:
        event: Event = _read(kind, data)
    except KeyError as missing:
        raise ServerError(f"an event of the server is incomplete: no {missing} in {data['event']}") from None
    except TypeError as error:
        raise ServerError(f"an event of the server is wrong: in {data['event']} {error}") from None
    return event


def as_json(event: Event) -> dict[str, Any]:
    """The event as the server writes it, without what is at its default."""
    values = {row.name: getattr(event, row.name) for row in _FIELDS[type(event)]}
    defaults = {row.name: row.default for row in _FIELDS[type(event)] if row.default is not MISSING}
    said = {name: value for name, value in values.items() if name not in defaults or value != defaults[name]}
    return {"event": _NAMES[type(event)], **said}


@dataclass(frozen=True, slots=True)
class Choice:
    """One continuation; while it runs, finish_reason is None and length counts what has come.

    length is in tokens. seed with the same request, n and a fresh engine brings the text back, where
    diversity is none. Of a chat, reasoning is what the model thought, and a call of a tool has id, name and
    arguments, which are JSON.
    """

    index: int
    text: str
    length: int = 0
    finish_reason: str | None = None
    stop_text: str = ""
    seed: int | None = None
    tokens: tuple[Mapping[str, Any], ...] = ()
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Score:
    """How likely a text is after its prompt: sum and mean of its tokens' log-probabilities (natural).

    greedy: each token was the likeliest. A text of which nothing is predicted has no mean.
    """

    index: int
    sum: float
    mean: float | None
    perplexity: float | None
    count: int
    greedy: bool
    tokens: tuple[Mapping[str, Any], ...] = ()


_KEYS = {kind: _keys(kind) for kind in (*EVENTS.values(), Score)}


class _Growing:
    """One sequence as it comes."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.tokens: list[Mapping[str, Any]] = []
        self.thoughts: list[str] = []
        self.calls: dict[int, dict[str, str]] = {}
        self.stop: Stop | None = None

    def add(self, event: Text) -> None:
        self.texts.append(event.text)
        self.tokens += event.tokens
        self.thoughts.append(event.reasoning)
        for piece in event.tool_calls:
            new = {"id": piece.get("id", ""), "name": piece.get("name", ""), "arguments": ""}
            self.calls.setdefault(piece["index"], new)["arguments"] += piece["arguments"]

    def choice(self, index: int, prompt: str, seed: int | None) -> Choice:
        stop = self.stop or Stop(index, len(self.texts), 0, "")
        return Choice(
            index,
            text=prompt + "".join(self.texts),
            length=stop.length,
            finish_reason=stop.finish_reason or None,
            stop_text=stop.stop_text,
            seed=seed,
            tokens=tuple(self.tokens),
            reasoning="".join(self.thoughts),
            tool_calls=tuple(call for _, call in sorted(self.calls.items())),
        )


class Answer:
    """What the events have brought so far; body is the request that they answer."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        self._body = body
        self._growing: list[_Growing] = []
        self.prompt = ""  # the echo
        self.last: Event | None = None
        self.start: Start | None = None
        self.done: Done | None = None

    def take(self, event: Event) -> None:
        """One more event, in order; ServerError when it is about a sequence that cannot be."""
        self.last = event
        match event:
            case Text():
                self._sequence(event.index).add(event)
            case Stop():
                self._sequence(event.index).stop = event
            case Start():
                self.start = event
                self._sequence(event.count - 1)
            case Prompt():
                self.prompt += event.text
            case Done():
                if not all(0 <= index < len(self._growing) for index in event.ranking):
                    raise ServerError(f"the server ranks {event.ranking} of {len(self._growing)} sequences")
                self.done = event

    def _sequence(self, index: int) -> _Growing:
        """One of them; cancelled while it waits, a request ends without having started."""
        if not 0 <= index < MOST_SEQUENCES:
            raise ServerError(f"the server wrote of sequence {index}, which cannot be")
        self._growing += [_Growing() for _ in range(index + 1 - len(self._growing))]
        return self._growing[index]

    @property
    def choices(self) -> list[Choice]:
        """All n, ended or not; none before the start event."""
        return [self.choice(index) for index in range(len(self._growing))]

    @property
    def ranked(self) -> list[Choice]:
        """The same, best first where the request says by what."""
        return (
            [self.choice(index) for index in self.done.ranking]
            if self.done and self.done.ranking
            else self.choices
        )

    def choice(self, index: int) -> Choice:
        """One of them."""
        return self._growing[index].choice(index, self.prompt, self._seed(index))

    def _seed(self, index: int) -> int | None:
        """A sequence's own seed, else the request's + index (as engine/sampling.cpp adds them)."""
        sequences, seeds = self._body.get("sequences") or (), self._body.get("seed")
        own = sequences[index].get("seed") if index < len(sequences) else None
        if own is None and isinstance(seeds, list | tuple):
            own = seeds[index]
        if own is not None and 0 <= own < 2**32 - 1:
            return int(own)
        return None if self.start is None else (self.start.seed + index) % (2**32 - 1)


# ----------------------------------------------------------------------------------------------------
# What both clients share: bytes, bodies, errors
# ----------------------------------------------------------------------------------------------------


class _Frames:
    """Bytes of a stream, in whatever pieces, as events.

    httpx's own iter_lines would also cut at U+2028, which JSON may hold as it is.
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
        raise ServerError(f"the server wrote what is no event: {line[:100]!r}") from None
    return event_from(data) if isinstance(data, dict) else None


def failure(error: Error) -> ClientError:
    """The exception that an error event is."""
    kind = RequestRefused if error.code in REFUSED else ServerError
    return kind(error.message, code=error.code, param=error.param)


def _refusal(response: httpx.Response) -> ClientError:
    """The exception that an answer with an error status is; its body has been read."""
    try:
        error = response.json()["error"]
        said: Error = _read(Error, {**error, "code": error.get("code") or ""})
        message, code, param = said.message, said.code, said.param
    except BROKEN:
        return ServerError(f"{response.url} answers {response.status_code}, which is not llama-srb's")
    if 400 <= response.status_code < 500:
        return RequestRefused(message, code=code or "invalid_request", param=param)
    return ServerError(message, code=code, param=param)


@contextmanager
def _our_errors(url: str) -> Iterator[None]:
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        raise ConnectionFailed(f"{url}: {reason}", code="connection_failed") from error


def _address(url: str) -> str:
    """A server's URL, also without its http://, with a final slash or with OpenAI's /v1."""
    return (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")


def _body(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _timeouts(timeout: float) -> httpx.Timeout:
    return httpx.Timeout(timeout, connect=min(timeout, CONNECT_TIMEOUT))


Answered = TypeVar("Answered")


@dataclass(frozen=True, slots=True)
class _Question(Generic[Answered]):
    """What is asked for in one piece: a path, a body, and how the answer reads."""

    path: str
    body: Mapping[str, Any]
    read: Callable[[Any], Answered]


def _tokenize(text: str, special: bool) -> _Question[list[int]]:
    body = {"text": text, "add_bos_token": special}
    return _Question("/v1/token/encode", body, lambda answer: _listed(answer["tokens"], _is_count))


def _detokenize(tokens: Sequence[int]) -> _Question[str]:
    return _Question("/v1/token/decode", {"tokens": list(tokens)}, lambda answer: _text(answer["text"]))


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError("no whole number")
    return value


def _listed(value: object, each: Callable[[Any], bool]) -> list[Any]:
    if not isinstance(value, list) or not _is_list(value, each):
        raise TypeError("no such list")
    return value


def _several(texts: str | Sequence[Prompted]) -> list[Prompted]:
    """A text is one text, not as many as it has letters."""
    return [texts] if isinstance(texts, str) else list(texts)


def _embed(texts: str | Sequence[Prompted], dimensions: int | None) -> _Question[list[list[float]]]:
    body = _body(input=_several(texts), dimensions=dimensions)
    return _Question("/v1/embeddings", body, _vectors)


def _vectors(answer: Any) -> list[list[float]]:
    return [_listed(one["embedding"], _is_number) for one in _listed(answer["data"], _is_object)]


def _score(prompt: Prompted, texts: str | Sequence[Prompted], logprobs: int) -> _Question[list[Score]]:
    body = {"prompt": prompt, "texts": _several(texts), "logprobs": logprobs}
    return _Question("/v1/score", body, _scores)


def _scores(answer: Any) -> list[Score]:
    return [_read(Score, one) for one in _listed(answer["data"], _is_object)]


def _prefix(prompt: Prompted | None, messages: Sequence[Message] | None) -> _Question[int]:
    body = _body(prompt=prompt, messages=messages)
    return _Question("/v1/prefix", body, lambda answer: _count(answer["prompt_tokens"]))


def _field_names(tables: Any) -> frozenset[str]:
    """The names in /v1/samplers."""
    rows = [row for table in ("request", "samplers") for row in tables[table]]
    names = {_text(name) for row in rows for name in (row["name"], *row["aliases"])}
    return frozenset(names | set(map(_text, tables.get("converted", {}).keys())))


class _Common:
    """What a client knows: where its server is, its key and, once asked, which fields the server has."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = _address(url)
        self.headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._known: frozenset[str] | None = None

    def post(
        self, http: httpx.Client | httpx.AsyncClient, path: str, body: Mapping[str, Any]
    ) -> httpx.Request:
        """A request with a body and the key."""
        # Not httpx's json=: it raises at NaN and lone surrogates, where the server's refusal names the field.
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        return http.build_request("POST", self.url + path, content=content, headers=headers)

    def _read(self, question: _Question[Answered], response: httpx.Response) -> Answered:
        if response.status_code != 200:
            raise _refusal(response)
        try:
            return question.read(response.json())
        except BROKEN:
            raise ServerError(f"{response.url} answers what is not llama-srb's") from None

    def _learn(self, response: httpx.Response) -> None:
        if response.status_code != 200:
            raise _refusal(response)
        try:
            self._known = _field_names(response.json())
        except BROKEN:
            raise ServerError(f"{response.url} answers what is not llama-srb's") from None

    def _check(self, names: Mapping[str, Any]) -> None:
        for name in names:
            if self._known is not None and name not in self._known:
                nearest = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; did you mean {nearest[0]}?" if nearest else ""
                raise UnknownField(f"{name} is not a known field{hint}", code="unknown_field", param=name)


class _Reading:
    """One stream's state, whoever waits for its bytes."""

    def __init__(self, client: _Common, body: dict[str, Any]) -> None:
        self.answer = Answer(body)
        self.id = ""  # what the server calls this request, once the block is entered
        self._caller = client
        self._url = client.url
        self._body = body
        self._frames = _Frames()
        self._events: deque[Event] = deque()

    @property
    def choices(self) -> list[Choice]:
        """What has come so far."""
        return self.answer.choices

    def _post(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        return self._caller.post(http, "/v1/events", self._body)

    def _checked(self, response: httpx.Response) -> None:
        kind = response.headers.get("Content-Type", "")
        if not kind.startswith("text/event-stream"):
            raise ServerError(f"{response.url} answers {kind or 'nothing'}, which is no event stream")

    def _feed(self, chunk: bytes | None) -> None:
        if chunk is None:
            raise ConnectionFailed(f"{self._url}: the stream broke off", code="connection_failed")
        for event in self._frames.feed(chunk):
            self._events.append(event)
            self.id = event.id if isinstance(event, Start | Queued) else self.id

    def _next(self) -> Event:
        event = self._events.popleft()
        if isinstance(event, Error):
            raise failure(event)
        self.answer.take(event)
        return event

    def _cancel_url(self, index: int | None) -> str:
        return f"{self._url}/v1/completions/{self.id}" + ("" if index is None else f"/{index}")


def _was_there(response: httpx.Response) -> bool:
    """Whether there was something to cancel."""
    if response.status_code not in (200, 404):
        raise _refusal(response)
    return response.status_code == 200


# ----------------------------------------------------------------------------------------------------
# Waiting for it in this thread
# ----------------------------------------------------------------------------------------------------


class Stream(_Reading):
    """Iterates over events inside `with`; leaving the block early cancels what still runs."""

    def __init__(self, client: Client, body: dict[str, Any]) -> None:
        super().__init__(client, body)
        self._client = client

    def __enter__(self) -> Self:
        """Sends the request and waits for its first event; what is wrong with it is raised here."""
        with _our_errors(self._url):
            self._response = self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    self._response.read()
                    raise _refusal(self._response)
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
            with _our_errors(self._url):
                self._feed(next(self._chunks, None))
        return self._next()

    def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False when it had ended. Its stop event still comes."""
        with _our_errors(self._url):
            return _was_there(self._client.http.delete(self._cancel_url(index), headers=self._client.headers))


class Client(_Common):
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
        self.http = http or httpx.Client(timeout=_timeouts(timeout))

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
            with _our_errors(self.url):
                self._learn(self.http.get(f"{self.url}/v1/samplers", headers=self.headers))
        self._check(more)
        return Stream(self, _body(prompt=prompt, n=n, **more))

    def prefix(self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None) -> int:
        """Computes a prompt, or a chat's, so that the request that follows starts at once; its tokens."""
        return self._ask(_prefix(prompt, messages))

    def embed(self, texts: str | Sequence[Prompted], *, dimensions: int | None = None) -> list[list[float]]:
        """A vector of length 1 for each text."""
        return self._ask(_embed(texts, dimensions))

    def score(self, prompt: Prompted, texts: str | Sequence[Prompted], *, logprobs: int = 0) -> list[Score]:
        """How likely each text is after the prompt; logprobs: so many alternatives of each token."""
        return self._ask(_score(prompt, texts, logprobs))

    def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """The text's tokens; special: with those that the model puts around a text."""
        return self._ask(_tokenize(text, special))

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of tokens."""
        return self._ask(_detokenize(tokens))

    def _all(self, stream: Stream) -> list[Choice]:
        with stream:
            for _ in stream:
                pass
            return stream.answer.ranked

    def _ask(self, question: _Question[Answered]) -> Answered:
        with _our_errors(self.url):
            return self._read(question, self.http.send(self.post(self.http, question.path, question.body)))


# ----------------------------------------------------------------------------------------------------
# Waiting for it in an event loop
# ----------------------------------------------------------------------------------------------------


class AsyncStream(_Reading):
    """Iterates over events inside `async with`; leaving the block early cancels what still runs."""

    def __init__(self, client: AsyncClient, body: dict[str, Any], more: Mapping[str, Any]) -> None:
        super().__init__(client, body)
        self._client = client
        self._more = more

    async def __aenter__(self) -> Self:
        """Sends the request and waits for its first event; what is wrong with it is raised here."""
        with _our_errors(self._url):
            await self._client.check(self._more)
            self._response = await self._client.http.send(self._post(self._client.http), stream=True)
            try:
                if self._response.status_code != 200:
                    await self._response.aread()
                    raise _refusal(self._response)
                self._checked(self._response)
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
            with _our_errors(self._url):
                self._feed(await anext(self._chunks, None))
        return self._next()

    async def cancel(self, index: int | None = None) -> bool:
        """Ends all sequences, or only `index`; False when it had ended. Its stop event still comes."""
        with _our_errors(self._url):
            return _was_there(
                await self._client.http.delete(self._cancel_url(index), headers=self._client.headers)
            )


class AsyncClient(_Common):
    """A server to call from an event loop; as Client, with await."""

    def __init__(
        self,
        url: str = URL,
        *,
        api_key: str | None = None,
        timeout: float = TIMEOUT,
        http: httpx.AsyncClient | None = None,
    ) -> None:
        """timeout is in seconds of silence; http replaces the httpx client that is made otherwise."""
        super().__init__(url, api_key)
        self.http = http or httpx.AsyncClient(timeout=_timeouts(timeout))

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
        """As Client.complete."""
        return await self._all(self.stream(prompt, n=n, **more))

    async def chat(self, messages: Sequence[Message], *, n: int | None = None, **more: Any) -> list[Choice]:
        """As Client.chat."""
        return await self._all(self.stream(n=n, messages=messages, **more))

    def stream(self, prompt: Prompted | None = None, *, n: int | None = None, **more: Any) -> AsyncStream:
        """`async with client.stream("Once", n=8) as stream: async for event in stream: …`"""
        return AsyncStream(self, _body(prompt=prompt, n=n, **more), more)

    async def check(self, names: Mapping[str, Any]) -> None:
        """UnknownField if the server has no field of one of these names; it is asked once."""
        if names and self._known is None:
            with _our_errors(self.url):
                self._learn(await self.http.get(f"{self.url}/v1/samplers", headers=self.headers))
        self._check(names)

    async def prefix(
        self, prompt: Prompted | None = None, *, messages: Sequence[Message] | None = None
    ) -> int:
        """As Client.prefix."""
        return await self._ask(_prefix(prompt, messages))

    async def embed(
        self, texts: str | Sequence[Prompted], *, dimensions: int | None = None
    ) -> list[list[float]]:
        """As Client.embed."""
        return await self._ask(_embed(texts, dimensions))

    async def score(
        self, prompt: Prompted, texts: str | Sequence[Prompted], *, logprobs: int = 0
    ) -> list[Score]:
        """As Client.score."""
        return await self._ask(_score(prompt, texts, logprobs))

    async def tokenize(self, text: str, *, special: bool = False) -> list[int]:
        """As Client.tokenize."""
        return await self._ask(_tokenize(text, special))

    async def detokenize(self, tokens: Sequence[int]) -> str:
        """As Client.detokenize."""
        return await self._ask(_detokenize(tokens))

    async def _all(self, stream: AsyncStream) -> list[Choice]:
        async with stream:
            async for _ in stream:
                pass
            return stream.answer.ranked

    async def _ask(self, question: _Question[Answered]) -> Answered:
        with _our_errors(self.url):
            sent = self.http.send(self.post(self.http, question.path, question.body))
            return self._read(question, await sent)
