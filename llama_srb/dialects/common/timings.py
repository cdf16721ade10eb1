"""llama-server's timings and progress of a prompt, from the events of one request. Pure but for its clock."""

import time
from collections import Counter
from collections.abc import Callable
from typing import Any, NotRequired, cast

from typing_extensions import TypedDict

from llama_srb.dialects.common.response_types import Count
from llama_srb.engine.events import Done, Event, Progress, Start, Stream


class Timings(TypedDict):
    """Times in milliseconds, rates in tokens per second.

    prompt_n: tokens of the prompt that were computed. cache_n: those that were not, since they were known.
    The first token costs no decode step, so the times and rates of predicted tokens do not count it.
    saved_tokens: with finish or prune, those that ended sequences could still have had, at most.
    draft_n: tokens that were guessed, if any were; draft_n_accepted: those that were right.
    logits_processor_ms: of the operator's own logits processor, where it was asked for.
    """

    cache_n: Count
    prompt_n: Count
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: Count
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    saved_tokens: NotRequired[Count]
    draft_n: NotRequired[Count]
    draft_n_accepted: NotRequired[Count]
    logits_processor_ms: NotRequired[float]


class PromptProgress(TypedDict):
    """Tokens of the prompt; processed includes those in the prefix cache (cache)."""

    total: Count
    cache: Count
    processed: Count
    time_ms: float


def timings(cached: int, computed: int, prompt_ms: float, predicted: int, predicted_ms: float) -> Timings:
    """The counts and times with their ratios."""
    made: dict[str, Any] = {"cache_n": cached}
    steps = max(predicted - 1, 0)
    rows = (("prompt", computed, computed, prompt_ms), ("predicted", predicted, steps, predicted_ms))
    for name, n, timed, ms in rows:
        made |= {f"{name}_n": n, f"{name}_ms": ms, f"{name}_per_token_ms": ms / timed if timed else 0.0}
        made[f"{name}_per_second"] = 1000 * timed / ms if ms else 0.0
    return cast(Timings, made)


def timings_of(done: Done, predicted: int) -> Timings:
    """The timings of an ended request, as the engine has measured them; predicted: tokens of one sequence."""
    computed = done.prompt_tokens - done.cached_tokens
    ms = done.timings
    made = timings(
        done.cached_tokens, computed, ms.get("prompt_ms", 0.0), predicted, ms.get("decode_ms", 0.0)
    )
    counts = {name: round(ms[name]) for name in ("saved_tokens", "draft_n", "draft_n_accepted") if name in ms}
    times = {name: ms[name] for name in ("logits_processor_ms",) if name in ms}
    return cast(Timings, made | counts | times)


class Stopwatch:
    """Measures a running request; clock: seconds.

    progress: what the last event says about the prompt; None if it says nothing new.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._first = 0.0  # time of the start, and of the first text
        self._total = self._cached = self._processed = 0
        self._lengths: Counter[int] = Counter()  # by sequence
        self._done: Done | None = None
        self.progress: PromptProgress | None = None

    def take(self, event: Event) -> None:
        """Takes the next event."""
        self.progress = None
        match event:
            case Start():
                self._began = self._clock()
                self._total, self._cached = event.prompt_tokens, event.cached_tokens
                self._reached(event.cached_tokens, 0.0)
            case Progress() if self._processed < event.processed < self._total:
                self._reached(event.processed, self._since(self._began))
            case Stream():
                if not self._first:
                    self._first = self._clock()
                    if self._processed < self._total:
                        self._reached(self._total, self._since(self._began))
                self._lengths[event.index] += 1
            case Done():
                self._done = event

    @property
    def prompt_tokens(self) -> int:
        return self._total

    @property
    def cached_tokens(self) -> int:
        return self._cached

    def length(self, index: int) -> int:
        """The tokens of one sequence so far."""
        return self._lengths[index]

    def _since(self, when: float) -> float:
        return 1000 * (self._clock() - when)

    def _reached(self, processed: int, ms: float) -> None:
        self._processed = processed
        self.progress = {"total": self._total, "cache": self._cached, "processed": processed, "time_ms": ms}

    def timings(self, index: int) -> Timings:
        """The timings of one sequence so far."""
        predicted = self._lengths[index]
        if self._done:
            return timings_of(self._done, predicted)
        computed = self._processed - self._cached
        if not predicted:
            prompt_ms = self._since(self._began) if computed else 0.0
            return timings(self._cached, computed, prompt_ms, 0, 0.0)
        prompt_ms, predicted_ms = 1000 * (self._first - self._began), self._since(self._first)
        return timings(self._cached, computed, prompt_ms, predicted, predicted_ms)
