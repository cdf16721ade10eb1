"""Which ranked chunks a search returns: filters, one document for each chunk, and its cost."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event

from llama_srb.request.values import RequestError, SearchBy

from ..filters import Filter
from ..records import NO_SCORES, MemoryUnusable, Metadata, Scores, is_prompt
from .diversity import different, pool_of

MOST_COMPARED = 2_000_000  # values of all documents of a search: about a second
MOST_READ = 1_000_000_000  # characters of the documents whose chunks a search reads: about a second
AT_ONCE = 500  # candidates whose documents are looked up together


@dataclass(frozen=True, slots=True)
class Candidate:
    """A chunk by rank, with the number of its text. score: the cosine; None: there are no vectors.

    by: what the chunks are ranked by. instead: as of Found.
    """

    chunk: int
    text: int
    score: float | None
    scores: Scores = NO_SCORES
    by: SearchBy = "meaning"
    instead: frozenset[int] = frozenset()

    @property
    def cosine(self) -> float:
        """For filters, which are refused where there is none."""
        return 0.0 if self.score is None else self.score


@dataclass(frozen=True, slots=True)
class Name:
    """A document that has a text."""

    id: str
    owner: str
    metadata: Metadata
    size: int = 0  # of the metadata as JSON


class Ended(MemoryUnusable):
    """A search was ended, because nobody waits for it or the server stops."""


class TooMuch(RequestError):
    """A search has reached a bound of its work."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="filter")


class Effort:
    """What a search has done, in its thread; the event loop may end it."""

    def __init__(self) -> None:
        self._compared, self._n_read, self._ended = 0, 0, Event()

    @property
    def compared(self) -> int:
        """How many values were compared."""
        return self._compared

    def end(self) -> None:
        self._ended.set()

    def require_a_reader(self) -> None:
        """Ended if nobody waits for the search any more."""
        if self._ended.is_set():
            raise Ended("the search was ended: the memory is closed")

    def compare(self, n_values: int) -> None:
        """Counts values of a document before they are compared; Ended, TooMuch."""
        self.require_a_reader()
        self._compared += n_values
        if self._compared > MOST_COMPARED:
            raise TooMuch(
                f"the search compares more than {MOST_COMPARED:,} values, the most that it may: "
                f"{n_values} for the last document that it looks at; give fewer conditions"
            )

    def read(self, n_characters: int) -> None:
        """Counts the characters of a document that was read; Ended, TooMuch."""
        self.require_a_reader()
        self._n_read += n_characters
        if self._n_read > MOST_READ:
            raise TooMuch(
                f"the search reads documents of more than {MOST_READ:,} characters, the most that it may: "
                "ask for fewer chunks, or exclude fewer of them by private_tokens"
            )


class Efforts:
    """The searches of a store that run or wait."""

    def __init__(self) -> None:
        self._open = set[Effort]()

    @contextlib.contextmanager
    def begun(self) -> Iterator[Effort]:
        """A search, which ends with the block: its client may have left."""
        self._open.add(effort := Effort())
        try:
            yield effort
        finally:
            effort.end()
            self._open.discard(effort)

    def end(self) -> None:
        for effort in self._open:
            effort.end()


NamesOf = Callable[[Sequence[int]], Mapping[int, Iterable[Name]]]
TextOf = Callable[[Candidate], str]


def chosen(
    ranked: Iterable[Candidate], k: int, filter: Filter, names_of: NamesOf, text_of: TextOf, effort: Effort
) -> list[tuple[Candidate, Name]]:
    """The k best chunks that pass filter.before and lack what they must, each with its first such document.

    Then filter.after. TooMuch, unless the filter wants what was found so far.
    """
    passing = _passing(ranked, k, filter, names_of, effort)
    lacking = (pair for pair in passing if _lets(filter, pair[0], text_of, effort))
    best: list[tuple[Candidate, Name]] = []
    with up_to_the_bound(filter):
        for pair in islice(_of_each(lacking, filter.per_document), pool_of(k) if filter.diversity else k):
            best.append(pair)
    if filter.diversity:
        effort.require_a_reader()
        best = different(best, k, filter.diversity, lambda pair: text_of(pair[0]))
    return [(one, name) for one, name in best if filter.keeps(one.cosine, name.metadata)]


@contextlib.contextmanager
def up_to_the_bound(filter: Filter) -> Iterator[None]:
    """Ends the block where the search has reached a bound, if the filter wants what was found so far."""
    try:
        yield
    except TooMuch as error:
        if filter.on_bound is None:
            raise
        filter.on_bound(error.message)


def _passing(
    ranked: Iterable[Candidate], k: int, filter: Filter, names_of: NamesOf, effort: Effort
) -> Iterator[tuple[Candidate, Name]]:
    known: dict[int, Name | None] = {}  # the first document of each text that passes
    candidates = iter(ranked)
    while some := list(islice(candidates, k if not known else AT_ONCE)):
        if wanted := [text for text in dict.fromkeys(one.text for one in some) if text not in known]:
            for text, names in names_of(wanted).items():
                known[text] = next((one for one in names if _takes(filter, one, effort)), None)
        for one in some:
            if one.by == "meaning" and filter.ends_at(one.cosine):
                return
            if (name := known[one.text]) is not None and filter.takes_score(one.cosine):
                yield one, name


def _of_each(
    passing: Iterable[tuple[Candidate, Name]], most: int | None
) -> Iterator[tuple[Candidate, Name]]:  # fmt: skip
    """The first ones of each document."""
    count = Counter[tuple[str, str]]()
    for one, name in passing:
        count[name.owner, name.id] += 1
        if most is None or count[name.owner, name.id] <= most:
            yield one, name


def _takes(filter: Filter, name: Name, effort: Effort) -> bool:
    effort.compare(filter.cost_of_taking(name.metadata, name.size))
    if name.id == filter.besides or filter.prompts not in (None, is_prompt(name.id, name.metadata)):
        return False
    return filter.takes(name.metadata)


def _lets(filter: Filter, one: Candidate, text_of: TextOf, effort: Effort) -> bool:
    if not filter.lacking:
        return True
    effort.compare(filter.cost_of_letting(text := text_of(one)))
    return filter.lets(text)
