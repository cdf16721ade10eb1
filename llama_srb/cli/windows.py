"""How a long text is scored: the windows that the model reads, and what their scores say together. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Window:
    """What stands before, and the tokens that are scored behind it."""

    before: Sequence[int]
    scored: Sequence[int]


def strided(tokens: Sequence[int], begin: Sequence[int], size: int, stride: int) -> Iterator[Window]:
    """Windows in which each token is scored once, behind at least size - stride others.

    begin: the token that the model puts before a text, if it does; it is in each window. The first window's
    tokens have fewer before them.
    """
    room = size - len(begin)
    if tokens:
        yield Window(begin, tokens[:room])
    for at in range(room, len(tokens), stride):
        new = tokens[at : at + stride]
        yield Window([*begin, *tokens[at + len(new) - room : at]], new)


def halves(tokens: Sequence[int], begin: Sequence[int], size: int) -> Iterator[Window]:
    """The windows of llama.cpp's perplexity tool: one after the other, and of each only the second half.

    The tokens of `begin` stand once before the text, and then in place of each window's first token.
    """
    whole, middle = [*begin, *tokens], size // 2 + 1
    for at in range(0, len(whole) - size + 1, size):
        window = [*begin, *whole[at + len(begin) : at + size]]
        yield Window(window[:middle], window[middle:])


class Figures:
    """What the scores of all windows say together."""

    def __init__(self) -> None:
        self.logprobs: list[float] = []
        self.likeliest = 0
        self._certainties: list[float] = []

    def take(self, score: Mapping[str, Any]) -> None:
        """Takes an entry of /v1/score, with one alternative for each token and with its certainty."""
        for token in score["tokens"]:
            if token["logprob"] is not None:
                self.logprobs.append(token["logprob"])
                self.likeliest += bool(token["top"]) and token["top"][0]["id"] == token["id"]
        self._certainties.append(score.get("certainty", 0.0) * score["count"])

    def told(self, size_bytes: int | None) -> dict[str, float]:
        """By name; there must be a token. size_bytes: of the text, if all of it was scored.

        error: the standard error of the perplexity, as llama.cpp's tool has it.
        """
        count, total = len(self.logprobs), math.fsum(self.logprobs)
        mean = total / count
        spread = math.fsum((one - mean) ** 2 for one in self.logprobs) / count
        perplexity = math.exp(min(-mean, 700.0))
        more = {} if not size_bytes else {"bits_per_byte": -total / math.log(2) / size_bytes}
        return {
            "perplexity": perplexity,
            "error": perplexity * math.sqrt(spread / max(count - 1, 1)),
            "mean": mean,
            "sum": total,
            "tokens": count,
            "greedy": self.likeliest / count,
            "certainty": math.fsum(self._certainties) / count,
            **more,
        }
