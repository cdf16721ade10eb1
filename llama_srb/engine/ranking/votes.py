"""The answers that texts vote for, in each text the last match of a pattern; and when a vote is decided."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from llama_srb.background import in_thread
from llama_srb.engine.ranking.candidates import Candidate
from llama_srb.request.rank_by import compiled

MOST_SECONDS = 5.0  # of CPU for all texts: RE2 is linear in a text, but each match begins another search


class VoteTooSlow(Exception):
    """The pattern took too much time on these texts."""


class Search:
    """Finds answers by a pattern, for at most MOST_SECONDS of CPU in all."""

    def __init__(self, pattern: str) -> None:
        self._regex = compiled(pattern)
        self._left = MOST_SECONDS

    def answers_in(self, texts: Sequence[str]) -> list[str | None]:
        """Each text's answer, None if it has none; VoteTooSlow. It may take seconds, so it has a thread."""
        until = time.thread_time() + self._left
        try:
            return [self._answer_in(text, until) for text in texts]
        finally:
            self._left = until - time.thread_time()

    def _answer_in(self, text: str, until: float) -> str | None:
        group, answer = 1 if self._regex.groups else 0, b""
        for match in self._regex.finditer(text.encode()):
            answer = match.group(group) or answer
            _refuse_after(until)
        _refuse_after(until)
        return answer.decode(errors="replace") or None


def answers_in(texts: Sequence[str], pattern: str) -> list[str | None]:
    """A search of its own for these texts."""
    return Search(pattern).answers_in(texts)


def _refuse_after(until: float) -> None:
    if time.thread_time() > until:
        raise VoteTooSlow(f"the vote's pattern took more than {MOST_SECONDS:g} s; use a simpler one")


class Decision:
    """Counts votes as texts end, and ends the rest when no answer can overtake the leading one.

    Of answers with as many texts the one with the likeliest text leads, so a tie could still be lost. If the
    pattern is too slow for a text, the vote is counted only at the end.
    """

    def __init__(self, pattern: str, end_surplus: Callable[[], None]) -> None:
        self._search, self._end_surplus = Search(pattern), end_surplus
        self._counts: Counter[str] = Counter()
        self._over = False

    async def ended(self, one: Candidate, candidates: Sequence[Candidate]) -> None:
        """One of the candidates has ended."""
        if self._over or not one.is_eligible:
            return
        try:
            answer = (await in_thread(partial(self._search.answers_in, [one.text])))[0]
        except VoteTooSlow:
            self._over = True
            return
        self._counts.update(() if answer is None else (answer,))
        (_, first), (_, second) = [*self._counts.most_common(2), ("", 0), ("", 0)][:2]
        if first > second + sum(other.stop is None for other in candidates):
            self._over = True
            self._end_surplus()
