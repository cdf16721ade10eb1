"""The engine's events (protocol 1) as frozen dataclasses, and an estimate of their memory. No I/O here.

Each field is one row (`event_rows`): name, type, what clients see of it, default. From the rows follow the
frames, their types, gRPC's messages and the client's events; an event's docstring is its text in
/openapi.json. After a change run scripts/events. docs/engine-protocol.md describes every command and event
with a real transcript.

This module does not import `annotations` from `__future__`: the rows would be texts then.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self, TypeAlias, get_args

import orjson

from llama_srb.engine.event_rows import Public, public_rows


@dataclass(frozen=True, slots=True)
class TokenList:
    """Tokens with their alternatives, kept as JSON and parsed when they are iterated.

    As Python objects they would take six times the memory, and each run of the garbage collector would visit
    all of them.
    """

    json: bytes = b"[]"

    @classmethod
    def of(cls, tokens: Iterable[Mapping[str, Any]]) -> Self:
        return cls(orjson.dumps(list(tokens)))

    @classmethod
    def joined(cls, lists: Iterable[Self]) -> Self:
        return cls(b"[%b]" % b",".join(one.json[1:-1] for one in lists if one))

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(orjson.loads(self.json)) if self else iter(())

    def __bool__(self) -> bool:
        return self.json != b"[]"

    @property
    def size(self) -> int:
        """The number of tokens and alternatives."""
        return self.json.count(b'"logprob":')  # inside a token's text the quotation marks are escaped


NO_TOKENS = TokenList()


@dataclass(frozen=True, slots=True)
class Loading:
    """The request waits for its model, which is not loaded; progress is the part of it that is loaded."""

    progress: Annotated[float, Public(2, "Annotated[float, Field(ge=0, le=1)]")]
    id: Annotated[str, Public(1, place=0, always=True)] = ""  # empty if no request waits


@dataclass(frozen=True, slots=True)
class Ready:
    """The engine accepts requests.

    cpu: the CPU that its kernels are compiled for, native or e.g. "zen4". commit: llama.cpp's. devices: what
    lies on each, in bytes (`model`, `context`, `compute`), and its `total` memory; the CPU is the last one.
    gpu_layers: those of `layers` that GPUs compute. drafts: what next tokens are guessed from: none, texts,
    or model, a draft model where texts say nothing.
    """

    protocol: int
    n_ctx: int
    max_sequences: int
    backend: str
    model: Mapping[str, Any] = field(default_factory=dict)
    n_ctx_sequence: int = 0
    adapters: tuple[Mapping[str, Any], ...] = ()
    embedding: Mapping[str, Any] = field(default_factory=dict)
    cpu: str = ""
    commit: str = ""
    devices: tuple[Mapping[str, Any], ...] = ()
    layers: int = 0
    gpu_layers: int = 0
    drafts: str = "none"

    @property
    def where(self) -> str:
        """Where it computes, for people: "CUDA0 (20 of 33 layers), CPU (zen4)"."""
        cpu = f" ({self.cpu})" if self.cpu else ""
        gpus = [str(one["name"]) for one in self.devices[:-1]]
        if not gpus or not self.gpu_layers:
            return self.backend + cpu
        whole = self.gpu_layers == self.layers
        part = "" if whole else f" ({self.gpu_layers} of {self.layers} layers)"
        return ", ".join([", ".join(gpus) + part, f"CPU{cpu}"])

    @property
    def memory(self) -> int:
        """Bytes of all devices that model, cells and buffers take; 0: not known."""
        return sum(one[name] for one in self.devices for name in ("model", "context", "compute"))


@dataclass(frozen=True, slots=True)
class Accepted:
    """The engine has read a command whose answer may take a while; line is the command's number."""

    id: str
    line: int


@dataclass(frozen=True, slots=True)
class Queued:
    """The request waits in the queue; position 1 is admitted next."""

    id: Annotated[str, Public(1, place=1)]
    position: Annotated[int, Public(2)]


@dataclass(frozen=True, slots=True)
class Start:
    """The request is admitted; its prompt is about to be computed.

    cut_tokens: those that were cut from the prompt, or from the sequence that it continues.
    """

    id: Annotated[str, Public(1, place=1)]
    count: Annotated[int, Public(2)]
    prompt_tokens: Annotated[int, Public(3)]
    cached_tokens: Annotated[int, Public(4)]
    seed: Annotated[int, Public(5, "int")]
    cut_tokens: Annotated[int | None, Public(9)] = None
    prompt_token_ids: Annotated[tuple[int, ...], Public(10, "list[int]")] = ()  # with `return_token_ids`
    warnings: tuple[str, ...] = ()  # about schemas; a client's own come first


@dataclass(frozen=True, slots=True)
class Prompt:
    """The prompt, if echo is set: first its whole text, then, with logprobs, its tokens over some events."""

    id: str
    text: Annotated[str, Public(1)]
    tokens: Annotated[TokenList, Public(2)] = NO_TOKENS  # the first has no logprob if nothing predicts it


@dataclass(frozen=True, slots=True)
class PromptLogprobs:
    """The prompt's tokens over some events, with prompt_logprobs; the first one of all has no logprob."""

    id: str
    tokens: Annotated[TokenList, Public(1, "list[RankedToken]")]


@dataclass(frozen=True, slots=True)
class Progress:
    """How many tokens of a long prompt are prefilled."""

    id: str
    processed: Annotated[int, Public(1)]
    total: Annotated[int, Public(2)]


@dataclass(frozen=True, slots=True)
class Stream:
    """New text of one sequence; tokens only if the request has logprobs.

    In a chat also reasoning and tool calls. token_ids, entropies: of the tokens that were drawn since the
    last event, with return_token_ids and return_entropies.
    """

    id: str
    index: Annotated[int, Public(1)]
    text: Annotated[str, Public(2)]
    tokens: Annotated[TokenList, Public(3)] = NO_TOKENS
    reasoning: Annotated[str, Public(4)] = ""
    tool_calls: Annotated[tuple[Mapping[str, Any], ...], Public(5, "list[CallPiece]")] = ()
    token_ids: Annotated[tuple[int, ...], Public(6, "list[int]")] = ()
    entropies: Annotated[tuple[float, ...], Public(7)] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """One sequence has ended; length counts tokens, stop is 1 if a stop token or stop string ended it.

    With ranking: the sum and the mean of its tokens' logprobs, and distinct_2, the share of different pairs
    of words. With dedupe: the index of the sequence that this one is a duplicate of. With then: how many of
    the tokens are the free answer's. end: sentences or paragraphs, if `end` ended it.
    """

    id: str
    index: Annotated[int, Public(1)]
    length: Annotated[int, Public(2)]
    stop: Annotated[int, Public(3)]
    finish_reason: Annotated[str, Public(4)]
    stop_text: Annotated[str, Public(5)] = ""
    logprob: Annotated[float | None, Public(6)] = None
    mean_logprob: Annotated[float | None, Public(7)] = None
    distinct_2: Annotated[float | None, Public(8)] = None
    certainty: Annotated[float | None, Public(12)] = None  # the mean of its rows', if it is asked for
    duplicate_of: Annotated[int | None, Public(9)] = None
    free_length: Annotated[int | None, Public(10)] = None
    stop_token: Annotated[int | None, Public(11, "int", "Of stop_token_ids.")] = None
    end: Annotated[str, Public(13)] = ""

    @property
    def reason(self) -> str | int | None:
        """What has ended the text: a stop string, a token of `stop_token_ids`, `end`'s unit; None: none."""
        return self.stop_text or self.end or self.stop_token


@dataclass(frozen=True, slots=True)
class Then:
    """The free answer of a sequence has ended, as a stop event has it; what follows is its second answer.

    Only with then.return_free.
    """

    id: str
    index: Annotated[int, Public(1)]
    length: Annotated[int, Public(2)]
    stop: Annotated[int, Public(3)]
    finish_reason: Annotated[str, Public(4)]
    stop_text: Annotated[str, Public(5)] = ""
    end: Annotated[str, Public(6)] = ""


@dataclass(frozen=True, slots=True)
class Again:
    """This sequence was a duplicate and is sampled again from its start: its text so far is void."""

    id: str
    index: int


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one text: the sum of its tokens' logprobs; greedy if each token was the likeliest.

    certainty: the mean of its rows', if it is asked for.
    """

    id: str
    index: int
    count: int
    logprob: float
    greedy: bool
    tokens: TokenList = NO_TOKENS
    certainty: float | None = None


@dataclass(frozen=True, slots=True)
class Embedding:
    """The vector of one text, normalized to length 1; count is the number of the text's tokens."""

    id: str
    index: int
    count: int
    embedding: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Extend:
    """The request got more sequences: their indices are first to count - 1."""

    id: str
    first: Annotated[int, Public(1)]
    count: Annotated[int, Public(2)]


@dataclass(frozen=True, slots=True)
class Vote:
    """An answer that texts have, and how many of them."""

    answer: str
    count: int


@dataclass(frozen=True, slots=True)
class DiversityStats:
    """How much texts differ: different beginnings, mean overlap of two, effective number of clusters."""

    texts: int
    beginnings: int
    mean_overlap: float | None
    effective_number: float


@dataclass(frozen=True, slots=True)
class Done:
    """All sequences of the request have ended; with ranking: their indices, best first.

    timings: milliseconds.
    """

    id: str
    count: Annotated[int, Public(1)]
    prompt_tokens: Annotated[int, Public(2)]
    cached_tokens: Annotated[int, Public(3)]
    completion_tokens: Annotated[int, Public(4)]
    # With finish or prune also saved_tokens, those that ended sequences could still have had, at most.
    timings: Annotated[Mapping[str, float], Public(5)] = field(default_factory=dict)
    ranking: Annotated[tuple[int, ...], Public(6)] = ()
    votes: Annotated[tuple[Vote, ...] | None, Public(7)] = None  # the leading answer first
    diversity_stats: Annotated[DiversityStats | None, Public(8)] = None  # of the returned texts
    reasoning_tokens: int = 0  # of completion_tokens: those of a chat's thoughts
    negative_tokens: int = 0  # of the negative prompt, which is computed beside the prompt

    @property
    def total_ms(self) -> float:
        """The time that the request took."""
        return sum(value for name, value in self.timings.items() if name.endswith("_ms"))


@dataclass(frozen=True, slots=True)
class Error:
    """Ends the request."""

    code: Annotated[str, Public()]
    message: Annotated[str, Public()]
    id: str = ""  # empty if the line that was wrong belongs to no request
    param: Annotated[str | None, Public()] = None
    line: int | None = None  # the number of the command that it answers, if it answers one
    n_prompt_tokens: int | None = None  # with the code context_exceeded: the prompt's, or a lower bound
    n_ctx: int | None = None  # and those that a sequence may have


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a command that generates nothing: tokenize, detokenize, status, …

    line: of a long one, whose data codec.read_result() reads in a thread; then data is empty.
    """

    id: str
    data: Mapping[str, Any]
    line: bytes = b""


Event: TypeAlias = (
    Loading
    | Ready
    | Accepted
    | Queued
    | Start
    | Prompt
    | PromptLogprobs
    | Progress
    | Stream
    | Stop
    | Then
    | Again
    | Score
    | Embedding
    | Extend
    | Done
    | Error
    | Result
)
PUBLIC = tuple(kind for kind in get_args(Event) if public_rows(kind))
"""The events that clients see."""


def shows_step(event: Event) -> bool:
    """Whether this event proves that the engine has made a decode step.

    Queued, start and the stop of a cancelled sequence may come before any step. Done proves nothing: it also
    ends a prefix that was replaced before it was computed.
    """
    computed = isinstance(event, Stream | Progress | Then | Again | Score | Embedding)
    return computed or (isinstance(event, Stop) and event.finish_reason != "cancelled")


def content_size(events: list[Event]) -> int:
    """Estimates the memory of the events' contents, in units of a plain event (about 300 bytes).

    A token, an alternative to it, 256 characters of text and 8 numbers of a vector count 1 each. The events
    themselves are not counted.
    """
    held = 0
    for event in events:
        if type(event) is Stream:  # first, since nearly all events are of this type
            if event.tokens:
                held += event.tokens.size
            if event.token_ids or event.entropies:
                held += (len(event.token_ids) + len(event.entropies)) // 8
            if len(event.text) > UNIT or event.reasoning or event.tool_calls:
                pieces = sum(len(piece.get("arguments", "")) for piece in event.tool_calls)
                held += (len(event.text) + len(event.reasoning) + pieces) // UNIT + len(event.tool_calls)
        elif isinstance(event, Prompt):
            held += len(event.text) // UNIT + event.tokens.size
        elif isinstance(event, Score | PromptLogprobs):
            held += event.tokens.size
        elif isinstance(event, Start):
            held += len(event.prompt_token_ids) // 8
        elif isinstance(event, Embedding):
            held += len(event.embedding) // 8
    return held


UNIT = 256  # characters of text that take as much memory as an event
