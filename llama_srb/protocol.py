"""The engine's lines (protocol 1): JSON objects, one a line, as frozen dataclasses. Pure: no I/O here.

docs/engine-protocol.md describes every command and event with a real transcript.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, TypeAlias

import orjson

from llama_srb.request import CompletionRequest, Extension
from llama_srb.values import lora_fields

PROTOCOL = 1

LINE_LIMIT = 64 << 20
"""Longest line that is believed, in bytes: the tokens of a 10 MB text fit, an endless line does not."""


class ProtocolError(Exception):
    """The engine wrote a line that is not an event of this protocol: a fault of ours, never of a client.

    The message quotes nothing of the line, which may hold anybody's text; `shown` is for the operator.
    """

    def __init__(self, message: str, line: bytes = b"") -> None:
        super().__init__(message)
        self._line = line

    @property
    def event(self) -> str:
        """The event's name, as far as the line has its usual beginning; else empty."""
        return self._head()[0]

    @property
    def id(self) -> str:
        """Whose line it is, as far as it has its usual beginning; else empty."""
        return self._head()[1]

    def _head(self) -> tuple[str, str]:
        head = _HEAD.match(self._line)
        return (head[1].decode(), head[2].decode()) if head else ("", "")

    @property
    def shown(self) -> str:
        """The line's beginning without the texts in it."""
        line = _TEXT.sub(b'"\xe2\x80\xa6"', self._line[:SHOWN])
        return line.decode(errors="replace") + ("…" if len(self._line) > SHOWN else "")


SHOWN = 200  # bytes of a faulty line in the log
_HEAD = re.compile(rb'\{"event":"(\w+)","id":"([\w.-]{1,64})"', re.ASCII)  # as every line of a request begins
_TEXT = re.compile(rb'(?<=:)"(?:[^"\\]|\\.)*"?', re.DOTALL)


@dataclass(frozen=True, slots=True)
class TokenList:
    """Tokens with their alternatives, as JSON: as objects they take six times as much, and Python's garbage
    collector visits all of them again and again. Iteration reads them."""

    json: bytes = b"[]"

    @classmethod
    def of(cls, tokens: Iterable[Mapping[str, Any]]) -> TokenList:
        return cls(orjson.dumps(list(tokens)))

    @classmethod
    def joined(cls, lists: Iterable[TokenList]) -> TokenList:
        return cls(b"[%b]" % b",".join(one.json[1:-1] for one in lists if one))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(orjson.loads(self.json)) if self else iter(())

    def __bool__(self) -> bool:
        return self.json != b"[]"

    @property
    def size(self) -> int:
        """How many tokens and alternatives it has."""
        return self.json.count(b'"logprob":')  # in a text the quotation marks would be escaped


NO_TOKENS = TokenList()


@dataclass(frozen=True, slots=True)
class Loading:
    """The model is being read; progress goes from 0 to 1."""

    progress: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine takes requests; cpu is what its products are compiled for: native, or a variant ("zen4")."""

    protocol: int
    n_ctx: int
    max_sequences: int
    backend: str
    model: Mapping[str, Any] = field(default_factory=dict)
    n_ctx_sequence: int = 0
    adapters: tuple[Mapping[str, Any], ...] = ()
    embedding: Mapping[str, Any] = field(default_factory=dict)
    cpu: str = ""


@dataclass(frozen=True, slots=True)
class Accepted:
    """The command has come, and its answer may take a while; line is its number among all commands."""

    id: str
    line: int


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits for room; position 1 is next."""

    id: str
    position: int


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; its prompt is about to be computed."""

    id: str
    count: int
    prompt_tokens: int
    cached_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt, when echo asks for it: first all its text, then, with logprobs, its tokens in pieces.

    The first token's logprob is null, since nothing predicts it, unless the tokenizer put a token before it.
    """

    id: str
    text: str
    tokens: TokenList = NO_TOKENS


@dataclass(frozen=True, slots=True)
class Progress:
    """A long prefill: tokens of the prompt processed so far."""

    id: str
    processed: int
    total: int


@dataclass(frozen=True, slots=True)
class Stream:
    """New text of one sequence; tokens only when logprobs were asked for.

    Of a chat: what it thinks, and calls of tools; id and name come with the first piece of a call only.
    """

    id: str
    index: int
    text: str
    tokens: TokenList = NO_TOKENS
    reasoning: str = ""
    tool_calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One sequence has ended; length counts tokens, stop is 1 when a stop token or stop string ended it.

    With ranking: sum and mean of its tokens' logprobs, and which share of its pairs of words are different
    ones. With dedupe: the index of a sequence that has said the same.
    """

    id: str
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
class Again:
    """What has come of this sequence is void: another one had said the same, and it begins anew."""

    id: str
    index: int


@dataclass(frozen=True, slots=True)
class Score:
    """One text is scored: the sum of its tokens' logprobs; greedy when each was the likeliest."""

    id: str
    index: int
    count: int
    logprob: float
    greedy: bool
    tokens: TokenList = NO_TOKENS


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one text, of length 1; count is that of its tokens."""

    id: str
    index: int
    count: int
    embedding: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """The request has more sequences: the new ones are first to count - 1."""

    id: str
    first: int
    count: int


@dataclass(frozen=True, slots=True)
class Done:
    """All sequences of the request have ended; with ranking: their order, best first."""

    id: str
    count: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    timings: Mapping[str, float] = field(default_factory=dict)
    ranking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Error:
    """Ends one request, or (with an empty id) reports a line that belonged to none.

    line: the number of the command that it answers, among all; None: it answers none.
    """

    code: str
    message: str
    id: str = ""
    param: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a command that is not generate: tokenize, detokenize, status, …"""

    id: str
    data: Mapping[str, Any]


Event: TypeAlias = (
    Loading
    | Ready
    | Accepted
    | Queued
    | Start
    | Prompt
    | Progress
    | Stream
    | Stop
    | Again
    | Score
    | Embedding
    | Extend
    | Done
    | Error
    | Result
)


# Commands: what goes to the engine's stdin


def encode(op: str, id: str, client: str = "", **arguments: Any) -> bytes:
    """One command as a line; TypeError for what JSON cannot hold: a lone surrogate, an integer of 65 bits.

    What it is about comes first: the engine knows that, whatever is wrong with the rest. client is whose it
    is, where several wait.
    """
    whose = {"client": client} if client else {}
    return orjson.dumps({"op": op, "id": id, **whose, **arguments}, option=orjson.OPT_APPEND_NEWLINE)


def encode_generate(id: str, request: CompletionRequest, client: str = "") -> bytes:
    """The command that starts a request's n sequences."""
    return encode("generate" if request.messages is None else "chat", id, client, **request.engine_fields())


def encode_prefix(id: str, request: CompletionRequest, client: str = "") -> bytes:
    """The command that computes a request's prompt and nothing else; it ends an earlier one of the client."""
    return encode("prefix", id, client, **request.prompt_fields(), **lora_fields(request.lora))


def encode_extend(id: str, extension: Extension) -> bytes:
    """The command that gives a running request more sequences; an Extend event answers it."""
    return encode("extend", id, **extension.engine_fields())


def encode_cancel(id: str, index: int | None = None) -> bytes:
    """The command that ends a request, or only the sequence `index` of it."""
    return encode("cancel", id) if index is None else encode("cancel", id, index=index)


# Events: what comes from the engine's stdout


def shows_step(event: Event) -> bool:
    """Whether the engine has computed something for this; queued, start and what was cancelled come before.

    Of done nothing is known: a prefix ends with it, computed or superseded.
    """
    computed = isinstance(event, Stream | Progress | Again | Score | Embedding)
    return computed or (isinstance(event, Stop) and event.finish_reason != "cancelled")


def bulk(events: list[Event]) -> int:
    """What events hold, each being 1 more, in units of about a plain event's memory (300 bytes).

    A token, each alternative to it, 256 characters of text and 8 numbers of a vector are 1.
    """
    held = 0
    for event in events:
        if type(event) is Stream:  # nearly all are
            if event.tokens:
                held += event.tokens.size
            if len(event.text) > UNIT or event.reasoning or event.tool_calls:
                pieces = sum(len(piece.get("arguments", "")) for piece in event.tool_calls)
                held += (len(event.text) + len(event.reasoning) + pieces) // UNIT + len(event.tool_calls)
        elif isinstance(event, Prompt):
            held += len(event.text) // UNIT + event.tokens.size
        elif isinstance(event, Score):
            held += event.tokens.size
        elif isinstance(event, Embedding):
            held += len(event.embedding) // 8
    return held


UNIT = 256  # characters of a text that count as much as an event


class Lines:
    """Cuts what was read into lines, whatever the borders of the reads; keeps the unfinished rest."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []  # a list, so that a long line in many reads is joined once
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their line feeds."""
        self._parts.append(chunk)
        self._size += len(chunk)
        if b"\n" not in chunk:
            if self._size > LINE_LIMIT:
                raise ProtocolError(f"a line of more than {LINE_LIMIT} bytes")
            return []
        *lines, rest = b"".join(self._parts).split(b"\n")
        self._parts, self._size = [rest], len(rest)
        return lines


def parse(line: bytes) -> Event | None:
    """The event that a line holds; None when this protocol has no event of that name (from a newer engine).

    Unknown fields are ignored. No JSON, a known event with a missing or wrongly typed field: ProtocolError.
    """
    try:
        data = orjson.loads(line)
        parser = _PARSERS.get(data["event"])
        return None if parser is None else parser(data)
    except KeyError as missing:
        raise ProtocolError(f"a line without {missing}", line) from None
    except orjson.JSONDecodeError as error:  # its message says where, and nothing of the line
        raise ProtocolError(f"a line that is no JSON ({error})", line) from None
    except TypeError as error:
        raise ProtocolError(f"a line that is no event ({error})", line) from None


_Parser: TypeAlias = Callable[[dict[str, Any]], Event]


def _stream(data: dict[str, Any]) -> Event:
    """Nearly all lines are stream events, n for each decode step, so this one is written out."""
    id, index, text = data["id"], data["index"], data["text"]
    if type(id) is not str or type(index) is not int or type(text) is not str:
        raise TypeError("id, index and text of stream are not str, int and str")
    return Stream(id, index, text) if len(data) == 4 else _STREAM(data)


def _result(data: dict[str, Any]) -> Result:
    """Whatever is not the envelope is the answer."""
    if type(data["id"]) is not str:
        raise TypeError("id of result is not str")
    return Result(data["id"], {key: value for key, value in data.items() if key not in ("event", "id")})


def _ready(data: dict[str, Any]) -> Event:
    """An engine of another protocol need not have our fields; all that we want of it is the number."""
    if type(data["protocol"]) is int and data["protocol"] != PROTOCOL:
        return Ready(data["protocol"], n_ctx=0, max_sequences=0, backend="")
    return _READY(data)


_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "str | None": (str,),
    "int": (int,),
    "int | None": (int,),
    "float": (float, int),
    "float | None": (float, int),
    "tuple[int, ...]": (list,),
    "bool": (bool,),
    "Mapping[str, Any]": (dict,),
    "Mapping[str, float]": (dict,),
    "tuple[Mapping[str, Any], ...]": (list,),
    "tuple[float, ...]": (list,),
    "TokenList": (list,),
}


def _parser(event: type[Any]) -> _Parser:
    """Reads an event by its dataclass: what has a default may be absent or null; True is no int."""
    name = event.__name__.lower()
    rows = [
        (
            f.name,
            _TYPES[str(f.type)],
            f.default is MISSING and f.default_factory is MISSING,
            TokenList.of if str(f.type) == "TokenList" else tuple,
        )
        for f in fields(event)
    ]

    def parse_event(data: dict[str, Any]) -> Event:
        values = {}
        for key, types, required, made_of in rows:
            value = data[key] if required else data.get(key)
            if type(value) in types:
                values[key] = made_of(value) if type(value) is list else value
            elif required or value is not None:
                raise TypeError(f"{key} of {name} is not {types[0].__name__}")
        made: Event = event(**values)
        return made

    return parse_event


_READY = _parser(Ready)
_STREAM = _parser(Stream)

_PARSERS: dict[str, _Parser] = {
    "stream": _stream,
    "result": _result,
    "ready": _ready,
    "loading": _parser(Loading),
    "accepted": _parser(Accepted),
    "queued": _parser(Queued),
    "start": _parser(Start),
    "prompt": _parser(Prompt),
    "progress": _parser(Progress),
    "stop": _parser(Stop),
    "again": _parser(Again),
    "score": _parser(Score),
    "embedding": _parser(Embedding),
    "extend": _parser(Extend),
    "done": _parser(Done),
    "error": _parser(Error),
}
