"""The engine's events (protocol 1) as frozen dataclasses, and what they weigh. Pure: no I/O here.

docs/engine-protocol.md describes every command and event with a real transcript.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson


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
