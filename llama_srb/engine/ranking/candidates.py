"""One candidate of a request: the text of a sequence so far, how it ended, and its scores. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from llama_srb.engine.events import Event, Stop, Stream, TokenList

MAX_PIECES = 256  # of one text, which are then joined: each piece takes 60 bytes more than its letters
CUT_SHORT = ("cancelled", "timeout", "surplus", "pruned")  # finish_reasons of incomplete texts
# A run of letters; single characters of scripts that put no spaces between words (kana, han, hangul).
WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\W\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


@dataclass(slots=True)
class Candidate:
    """The text of one sequence so far, and how it ended."""

    texts: list[str] = field(default_factory=list)
    tokens: list[TokenList] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    tool_calls: list[Mapping[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stop: Stop | None = None

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def add(self, event: Stream) -> None:
        self.add_text(event.text)
        self.tokens += [event.tokens] if event.tokens else []
        self.reasoning += [event.reasoning] if event.reasoning else []
        self.tool_calls += event.tool_calls
        self.token_ids += event.token_ids
        self.entropies += event.entropies

    def add_text(self, text: str) -> None:
        self.texts.append(text)
        if len(self.texts) > MAX_PIECES:
            self.texts = [self.text]

    def events(self, id: str, index: int) -> list[Event]:
        """Its text, tokens, reasoning and tool calls as one event; no event if it has none of them."""
        reasoning = "".join(self.reasoning)
        stream = Stream(
            id,
            index,
            self.text,
            TokenList.joined(self.tokens),
            reasoning,
            tuple(self.tool_calls),
            tuple(self.token_ids),
            tuple(self.entropies),
        )
        return [] if stream == Stream(id, index, "") else [stream]

    @property
    def mean_logprob(self) -> float:
        stop = self.stop
        drawn = stop.length - (stop.free_length or 0) if stop else 0  # of its second answer, if it has two
        return stop.logprob / drawn if stop and stop.logprob is not None and drawn else 0.0

    @property
    def is_eligible(self) -> bool:
        """Whether it is complete and no duplicate."""
        stop = self.stop
        return stop is not None and stop.finish_reason not in CUT_SHORT and stop.duplicate_of is None

    def scored(self, stop: Stop) -> Stop:
        """Returns its stop event with its scores, and keeps it."""
        self.stop = stop
        if stop.logprob is None:  # the request was cancelled before the engine got it
            return stop
        self.stop = replace(stop, mean_logprob=self.mean_logprob, distinct_2=distinct(words(self.text), 2))
        return self.stop


def words(text: str) -> list[str]:
    """The words of a text in lower case."""
    return WORD.findall(text.lower())


def n_grams(units: Sequence[str], n: int) -> Counter[tuple[str, ...]]:
    """How often each n-gram of the units occurs."""
    return Counter(zip(*(units[i:] for i in range(n)), strict=False))


def distinct(units: Sequence[str], n: int) -> float:
    """Distinct-n (Li et al. 2016): the share of different ones among the n-grams; 1.0 if there are none."""
    found = n_grams(units, n)
    return len(found) / found.total() if found else 1.0
