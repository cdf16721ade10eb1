"""KoboldCpp: what clients that look on at a generation are shown of it. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

import orjson
from typing_extensions import TypedDict

from llama_srb.dialects.common.answers import Count, Warned
from llama_srb.dialects.common.reply import ServerInfo
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
    """Of the last generation; seconds. last_seed is -1 before the first one."""

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
FORGOTTEN = {
    TOKENS: "the alternatives are forgotten",
    TEXTS: "the tokens are forgotten",
    COUNTS: "the texts and their tokens are forgotten",
}
PER_TEXT = 64  # bytes that one takes without a character
PER_TOKEN = 96  # the same of a token and of its alternatives, which are a line of JSON each


class Seen:
    """What check, last_logprobs and perf show of a generation, in as few bytes as that takes.

    The texts are UTF-8. Only the first one's tokens are shown; they are JSON, since as objects they would
    take six times as much.
    """

    def __init__(self, request: CompletionRequest) -> None:
        self.begun: Start | None = None
        self.done: Done | None = None
        self._texts = [bytearray() for _ in range(request.n)]
        self._has_tokens = request.logprobs is not None
        self._tokens: list[tuple[bytes, bytes]] = []  # each, and its alternatives
        self._said = 0  # bytes of all texts
        self._listed = 0  # bytes of the tokens
        self._keeps = ALL

    @property
    def size(self) -> int:
        """Its size in bytes, estimated."""
        return len(self._texts) * (PER_TEXT if self._keeps < COUNTS else 8) + self._said + self._listed

    def take(self, events: Iterable[Event]) -> None:
        """Events, which follow those of the last call."""
        for event in events:
            match event:
                case Stream():
                    self._add(event)
                case Again():
                    self._clear(event.index)
                case Extend():
                    self._texts += [bytearray() for _ in range(event.first, event.count)]
                case Start():
                    self.begun = event
                case Done():
                    self.done = replace(event, ranking=())

    def _add(self, event: Stream) -> None:
        if self._keeps < COUNTS:
            text = event.text.encode()
            self._texts[event.index] += text
            self._said += len(text)
        if event.index == 0 and self._keeps < TEXTS:
            packed = list(map(self._packed, event.tokens))
            self._tokens += packed
            self._listed += sum(map(_size, packed))

    def _packed(self, token: Mapping[str, Any]) -> tuple[bytes, bytes]:
        one = {name: value for name, value in token.items() if name != "top"}
        return orjson.dumps(one), orjson.dumps(token.get("top", [])) if self._keeps == ALL else b"[]"

    def _clear(self, index: int) -> None:
        self._said -= len(self._texts[index])
        self._texts[index] = bytearray()
        if index == 0:
            self._tokens, self._listed = [], 0

    def shrink(self) -> bool:
        """Forgets for good the alternatives, then the tokens, then the texts; False when nothing is left."""
        if self._keeps == COUNTS:
            return False
        self._keeps += 1
        if self._keeps == TOKENS:
            self._tokens = [(one, b"[]") for one, _ in self._tokens]
            self._listed = sum(map(_size, self._tokens))
        if self._keeps == TEXTS:
            self._tokens, self._listed = [], 0
        if self._keeps == COUNTS:
            self._texts, self._said = [bytearray()] * len(self._texts), 0
        return True

    def so_far(self) -> TextsSoFar:
        """The texts until now."""
        return {"results": [{"text": text.decode()} for text in self._texts], **self._warned(COUNTS)}

    def tokens(self) -> list[tuple[bytes, bytes]]:
        """Those of the first text until now, as JSON: each, and its alternatives."""
        return list(self._tokens)

    def logprobs(self, tokens: Iterable[tuple[bytes, bytes]]) -> LastLogprobs:
        """The same as koboldcpp tells them; null when they were not asked for, or are forgotten."""
        told = (orjson.loads(one) | {"top": orjson.loads(top)} for one, top in tokens)
        kept = self._has_tokens and self._keeps < TEXTS
        warned: Warned = self._warned(TOKENS) if self._has_tokens else {}
        return {"logprobs": logprobs(told) if kept else None, **warned}

    def _warned(self, since: int) -> Warned:
        """Of what is forgotten."""
        if self._keeps < since:
            return {}
        return {"warnings": (f"{FORGOTTEN[self._keeps]}: this client's generations have said too much",)}


def _size(token: tuple[bytes, bytes]) -> int:
    return PER_TOKEN + len(token[0]) + len(token[1])


def so_far(seen: Seen | None) -> TextsSoFar:
    """/api/extra/generate/check: the texts until now."""
    return seen.so_far() if seen else {"results": [{"text": ""}]}


def last_logprobs(seen: Seen | None, tokens: Iterable[tuple[bytes, bytes]]) -> bytes:
    """/api/extra/last_logprobs: of the first sequence, all its tokens until now."""
    return orjson.dumps(seen.logprobs(tokens) if seen else {"logprobs": None})


def performance(seen: Seen | None, running: int, about: ServerInfo) -> Performance:
    """/api/extra/perf: of the last generation; seconds."""
    done = seen.done if seen else None
    ms: Mapping[str, float] = done.timings if done else {}
    return {
        "last_process": ms.get("prompt_ms", 0.0) / 1000,
        "last_eval": ms.get("decode_ms", 0.0) / 1000,
        "last_token_count": done.completion_tokens if done else 0,
        "last_input_count": done.prompt_tokens if done else 0,
        "last_seed": seen.begun.seed if seen and seen.begun else -1,
        "queue": running,
        "idle": int(running == 0),
        "uptime": about.uptime,
    }


def aborted(found: bool) -> Aborted:
    """/api/extra/abort."""
    return {"success": "true" if found else "false", "done": "true"}
