"""KoboldCpp: answers to clients that poll a generation: its text so far, its tokens, its speed. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.common.response_types import Count, Warned
from llama_srb.dialects.koboldai.generation import KoboldLogprobs, logprobs
from llama_srb.engine.events import Again, Done, Event, Extend, Start, Stream
from llama_srb.request.fields import CompletionRequest

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class TextSoFar(TypedDict):
    text: str


class TextsSoFar(Warned):
    results: list[TextSoFar]


class LastLogprobs(Warned):
    logprobs: KoboldLogprobs | None


class Performance(TypedDict):
    """The speed of the last generation; times in seconds. last_seed is -1 before the first one."""

    last_process: float
    last_eval: float
    last_token_count: Count
    last_input_count: Count
    last_seed: int
    queue: Count
    idle: Count
    uptime: float


class Aborted(TypedDict):
    success: Literal["true", "false"]
    done: Literal["true"]


# ----------------------------------------------------------------------------------------------------
# The record of one generation
# ----------------------------------------------------------------------------------------------------


ALL, TOKENS, TEXTS, COUNTS = range(4)  # the parts that a record still has, from all to the fewest
REMOVED = {
    TOKENS: "the alternatives were removed",
    TEXTS: "the tokens were removed",
    COUNTS: "the texts and their tokens were removed",
}
PER_TEXT = 64  # bytes of an empty text
PER_TOKEN = 96  # bytes of a token and its alternatives without their characters; each is a line of JSON


class GenerationRecord:
    """The parts of a generation that check, last_logprobs and perf show, stored in few bytes.

    Texts are stored as UTF-8. Tokens are stored only for the first sequence, and as JSON: objects would take
    six times the memory.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.start: Start | None = None
        self.done: Done | None = None
        self._texts = [bytearray() for _ in range(request.n)]
        self._has_tokens = request.logprobs is not None
        self._tokens: list[tuple[bytes, bytes]] = []  # each token, and its alternatives
        self._text_bytes = 0  # of all texts
        self._token_bytes = 0
        self._level = ALL

    @property
    def size(self) -> int:
        """Its size in bytes, estimated."""
        empty = len(self._texts) * (PER_TEXT if self._level < COUNTS else 8)
        return empty + self._text_bytes + self._token_bytes

    def take(self, events: Iterable[Event]) -> None:
        """Takes events that follow those of the last call."""
        for event in events:
            match event:
                case Stream():
                    self._add(event)
                case Again():
                    self._clear(event.index)
                case Extend():
                    self._texts += [bytearray() for _ in range(event.first, event.count)]
                case Start():
                    self.start = event
                case Done():
                    self.done = replace(event, ranking=())

    def _add(self, event: Stream) -> None:
        if self._level < COUNTS:
            text = event.text.encode()
            self._texts[event.index] += text
            self._text_bytes += len(text)
        if event.index == 0 and self._level < TEXTS:
            packed = list(map(self._packed, event.tokens))
            self._tokens += packed
            self._token_bytes += sum(map(_size, packed))

    def _packed(self, token: Mapping[str, Any]) -> tuple[bytes, bytes]:
        one = {name: value for name, value in token.items() if name != "top"}
        return orjson.dumps(one), orjson.dumps(token.get("top", [])) if self._level == ALL else b"[]"

    def _clear(self, index: int) -> None:
        self._text_bytes -= len(self._texts[index])
        self._texts[index] = bytearray()
        if index == 0:
            self._tokens, self._token_bytes = [], 0

    def shrink(self) -> bool:
        """Removes for good the alternatives, then the tokens, then the texts; False if nothing is left."""
        if self._level == COUNTS:
            return False
        self._level += 1
        if self._level == TOKENS:
            self._tokens = [(one, b"[]") for one, _ in self._tokens]
            self._token_bytes = sum(map(_size, self._tokens))
        if self._level == TEXTS:
            self._tokens, self._token_bytes = [], 0
        if self._level == COUNTS:
            self._texts, self._text_bytes = [bytearray()] * len(self._texts), 0
        return True

    def so_far(self) -> TextsSoFar:
        """The texts so far."""
        return {"results": [{"text": text.decode()} for text in self._texts], **self._warned(COUNTS)}

    def tokens(self) -> list[tuple[bytes, bytes]]:
        """The tokens of the first sequence so far, as JSON: each token, and its alternatives."""
        return list(self._tokens)

    def logprobs(self, tokens: Iterable[tuple[bytes, bytes]]) -> LastLogprobs:
        """Tokens in koboldcpp's form; null if the request has no logprobs, or the tokens were removed."""
        parsed = (orjson.loads(one) | {"top": orjson.loads(top)} for one, top in tokens)
        kept = self._has_tokens and self._level < TEXTS
        warned: Warned = self._warned(TOKENS) if self._has_tokens else {}
        return {"logprobs": logprobs(parsed) if kept else None, **warned}

    def _warned(self, since: int) -> Warned:
        """A warning about the removed parts, from level `since` on."""
        if self._level < since:
            return {}
        return {"warnings": (f"{REMOVED[self._level]}: this client's generations take too much memory",)}


def _size(token: tuple[bytes, bytes]) -> int:
    return PER_TOKEN + len(token[0]) + len(token[1])


def so_far(record: GenerationRecord | None) -> TextsSoFar:
    """/api/extra/generate/check: the texts so far."""
    return record.so_far() if record else {"results": [{"text": ""}]}


def last_logprobs(record: GenerationRecord | None, tokens: Iterable[tuple[bytes, bytes]]) -> bytes:
    """/api/extra/last_logprobs: all tokens of the first sequence so far."""
    return orjson.dumps(record.logprobs(tokens) if record else {"logprobs": None})


def performance(record: GenerationRecord | None, running: int, about: ServerInfo) -> Performance:
    """/api/extra/perf: the speed of the last generation; times in seconds."""
    done = record.done if record else None
    ms: Mapping[str, float] = done.timings if done else {}
    return {
        "last_process": ms.get("prompt_ms", 0.0) / 1000,
        "last_eval": ms.get("decode_ms", 0.0) / 1000,
        "last_token_count": done.completion_tokens if done else 0,
        "last_input_count": done.prompt_tokens if done else 0,
        "last_seed": record.start.seed if record and record.start else -1,
        "queue": running,
        "idle": int(running == 0),
        "uptime": about.uptime,
    }


def aborted(found: bool) -> Aborted:
    """/api/extra/abort."""
    return {"success": "true" if found else "false", "done": "true"}
