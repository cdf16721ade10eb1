"""The answers that texts vote for: in each text the last match of a regular expression."""

from __future__ import annotations

import time
from collections.abc import Sequence

from llama_srb.request.rank_by import compiled

MOST_SECONDS = 5.0  # of CPU for all texts: RE2 is linear in a text, but each match begins another search


class VoteTooSlow(Exception):
    """The pattern took too much time on these texts."""


def answers_in(texts: Sequence[str], pattern: str) -> list[str | None]:
    """Each text's answer, None if it has none; VoteTooSlow. It may take seconds, so it has a thread."""
    regex, until = compiled(pattern), time.thread_time() + MOST_SECONDS
    group = 1 if regex.groups else 0
    found = []
    for text in texts:
        answer = b""
        for match in regex.finditer(text.encode()):
            answer = match.group(group) or answer
            _refuse_after(until)
        _refuse_after(until)
        found.append(answer.decode(errors="replace") or None)
    return found


def _refuse_after(until: float) -> None:
    if time.thread_time() > until:
        raise VoteTooSlow(f"the vote's pattern took more than {MOST_SECONDS:g} s; use a simpler one")
