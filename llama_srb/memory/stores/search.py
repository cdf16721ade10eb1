"""Which ranked chunks a search returns: the filters, and one document for each chunk. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

from ..filters import Filter
from ..records import Metadata

AT_ONCE = 500  # candidates whose documents are looked up together


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk by rank, with the number of its text."""

    chunk: int
    text: int
    score: float


@dataclass(frozen=True, slots=True)
class Name:
    """A document that has a text."""

    id: str
    owner: str
    metadata: Metadata


NamesOf = Callable[[Sequence[int]], dict[int, list[Name]]]
TextOf = Callable[[Candidate], str]


def chosen(
    ranked: Iterable[Candidate], k: int, filter: Filter, names_of: NamesOf, text_of: TextOf
) -> list[tuple[Candidate, Name]]:
    """The k best chunks that pass filter.before and lack what they must, each with its first such document.

    Then filter.after.
    """
    passing = _passing(ranked, k, filter, names_of)
    best = list(islice((pair for pair in passing if filter.lets(partial(text_of, pair[0]))), k))
    return [(one, name) for one, name in best if filter.keeps(one.score, name.metadata)]


def _passing(
    ranked: Iterable[Candidate], k: int, filter: Filter, names_of: NamesOf
) -> Iterator[tuple[Candidate, Name]]:
    known: dict[int, list[Name]] = {}
    candidates = iter(ranked)
    while some := list(islice(candidates, k if not known else AT_ONCE)):
        if wanted := list({one.text for one in some} - known.keys()):
            known |= names_of(wanted)
        for one in some:
            if filter.ends_at(one.score):
                return
            name = next((n for n in known[one.text] if filter.takes(one.score, n.metadata)), None)
            if name is not None:
                yield one, name
