"""Questions that are made of texts by rule, with the passage that answers each, in five of the six kinds.

exact      a name or a number of a table's row, a definition or a list of changes, which is in few places
heading    the heading above a passage
typos      words of a sentence, two of which are misspelt
inflection words of a sentence in other forms
long       words of a sentence within a question of 40 words

The sixth kind, paraphrase, is written by hand (questions.tsv). A rule takes every n-th of what it finds, so
the same texts make the same questions.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from benchmarks.recall.sources import Text

Wanted: TypeAlias = Mapping[str, Mapping[tuple[str, str], int]]
"""Questions by kind, and by the texts' kind and language."""
WANTED: Wanted = {
    "exact": {
        ("docs", "en"): 25, ("manual", "en"): 20, ("package", "en"): 15, ("manual", "de"): 15,
        ("manual", "zh"): 12,
    },
    "heading": {("docs", "en"): 40, ("package", "en"): 20},
    "typos": {("story", "en"): 20, ("docs", "en"): 20, ("package", "en"): 10, ("manual", "de"): 10},
    "inflection": {("story", "en"): 25, ("docs", "en"): 15, ("manual", "de"): 12},
    "long": {("story", "en"): 20, ("docs", "en"): 20, ("package", "en"): 5, ("manual", "de"): 6},
}  # fmt: skip
SHORTEST = 24  # characters of a passage
MOST_PLACES = 4  # in which an exact name is
WORDS = 5  # of a sentence that a question has
FRAMES = {
    "en": (
        "Yesterday somebody told me about this, but I have forgotten most of it, and I would like to read "
        "the place again before I go on with my own work: it was something with {}, if I am not mistaken. "
        "Where can I find it?",
        "I am looking for the part of the text in which there was talk of {}; I do not know any more where "
        "it stood, and the table of contents did not help me, so could you show me the right paragraph?",
    ),
    "de": (
        "Ich habe gestern eine Stelle gelesen, die ich jetzt nicht mehr finde, obwohl ich schon eine ganze "
        "Weile danach suche und auch im Inhaltsverzeichnis nachgesehen habe; es ging dort um {}. "
        "Kannst du mir sagen, wo das steht?",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Question:
    kind: str
    language: str
    text: str
    passage: str
    question: str

    def is_in(self, name: str, chunk: str) -> bool:
        """Whether a chunk answers it; a short passage only in its own text."""
        return (name == self.text or len(self.passage) >= SHORTEST) and plain(self.passage) in plain(chunk)


Rule: TypeAlias = Callable[[Text, frozenset[str]], Iterator[Question]]
Change: TypeAlias = Callable[[list[str], random.Random, str], list[str] | None]
"""Words of a sentence, chance, a language → the words that are asked for; None: these are no question."""


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def made(texts: Sequence[Text], wanted: Wanted = WANTED) -> list[Question]:
    """The questions of all rules, so many of each."""
    languages = {one.language for one in texts}
    common = {name: _common(one for one in texts if one.language == name) for name in languages}
    whole = "\n".join(plain(one.text) for one in texts)
    places = Counter(re.findall(r"[^\s`|,;()\[\]]+", whole))

    def is_fit(one: Question) -> bool:
        """Whether its passage is in one place, and an exact name in few, as names often are."""
        if one.kind == "exact":
            name = one.question.rpartition(" ")[2]
            is_name = re.search(r"[\d_A-Z-]", name) is not None and len(name) > 3
            if not is_name or not 0 < places[name] <= MOST_PLACES:
                return False
        return whole.count(plain(one.passage)) == 1

    found = list[Question]()
    for kind, counts in wanted.items():
        for (of, language), count in counts.items():
            some = [one for one in texts if (one.kind, one.language) == (of, language)]
            asked = [q for one in some for q in RULES[kind](one, common[language])]
            found += _spread([q for q in asked if is_fit(q)], count)
    return list({one.question: one for one in found}.values())


def _spread(some: list[Question], count: int) -> list[Question]:
    """So many of them, from all texts; no question twice."""
    some = list({one.question: one for one in some}.values())
    return [some[i * len(some) // count] for i in range(count)] if len(some) > count else some


# ----------------------------------------------------------------------------------------------------
# Names, numbers, headings
# ----------------------------------------------------------------------------------------------------


def _exact(text: Text, common: frozenset[str]) -> Iterator[Question]:
    rule = {"docs": _rows, "manual": _options, "package": _changes}[text.kind]
    for question, passage in rule(text.text):
        if len(passage) >= SHORTEST:
            asked = f"{text.name.rpartition('/')[2]} {question}" if text.kind == "manual" else question
            yield Question("exact", text.language, text.name, passage, asked)


def _rows(text: str) -> Iterator[tuple[str, str]]:
    """The first cell of a table's row, which is a name, and the last one."""
    for line in text.splitlines():
        cells = [one.strip() for one in line.strip("|").split("|")]
        if line.startswith("| `") and len(cells) > 1 and (name := re.fullmatch(r"`([^`]+)`", cells[0])):
            yield name[1], max(cells[1:], key=len)[:60]


def _options(text: str) -> Iterator[tuple[str, str]]:
    """An option of a manual page, or an upper-case name, and the line below it."""
    lines = text.splitlines()
    for line, below in pairwise(lines):
        name = re.match(r"\s{3,8}(?:-\w, )?(--[\w-]{4,}|[A-Z_]{6,})\b[^.]{0,30}$", line)
        if name is not None and below.strip():
            yield name[1], plain(below).strip()[:60]


def _changes(text: str) -> Iterator[tuple[str, str]]:
    """The number of a change in a list of them, and what it says."""
    for found in re.finditer(r"(?m)^[*-] (.{24,100}?)(?:,? by @[\w-]+)? (?:in )?\[?(#\d{3,})", text):
        yield found[2], found[1][:60]


def _headings(text: Text, common: frozenset[str]) -> Iterator[Question]:
    for found in re.finditer(r"(?m)^#{2,4} ([^\n#]{8,60})\n+([A-Z][^\n|#]{30,})", text.text):
        heading = re.sub(r"[`*\[\]]|\(.*?\)", "", found[1]).strip()
        if len(heading.split()) > 1:
            yield Question("heading", text.language, text.name, found[2][:50].strip(), heading)


# ----------------------------------------------------------------------------------------------------
# Words of a sentence
# ----------------------------------------------------------------------------------------------------


def _common(texts: Iterable[Text]) -> frozenset[str]:
    """Words that more than 8 % of the pages have."""
    pages = [part for one in texts for part in re.findall(r"(?s).{1,1000}", one.text)]
    having = Counter(word for one in pages for word in set(re.findall(r"\w+", one.lower())))
    return frozenset(word for word, count in having.items() if count > 0.08 * len(pages))


def _sentences(text: Text, common: frozenset[str]) -> Iterator[tuple[str, list[str]]]:
    """Sentences of prose, each with some of its words that are not common, in their order."""
    for found in re.finditer(r"(?<=[.!?\n]) *\n* *([A-ZÄÖÜ][^.!?|#`*<>{}]{50,180})[.!?](?=\s)", text.text):
        words = [one for one in re.findall(r"[^\W\d_]{4,}", found[1]) if one.lower() not in common]
        if len(words) >= WORDS - 1 and not re.search(r"[=/\\_]|https?|  --", found[1]):
            yield plain(found[1])[:90].strip(), words[:WORDS]


def _of_words(kind: str, change: Change) -> Rule:
    def rule(text: Text, common: frozenset[str]) -> Iterator[Question]:
        for passage, words in _sentences(text, common):
            drawn = random.Random(f"{kind}{passage}")
            if (changed := change(words, drawn, text.language)) is not None:
                yield Question(kind, text.language, text.name, passage, " ".join(changed))

    return rule


def _misspelt(words: list[str], drawn: random.Random, _: str) -> list[str] | None:
    """Of the longest two words a letter is left out, doubled, exchanged with the next one or another one."""
    for word in sorted(set(words), key=len)[-2:]:
        at = drawn.randrange(1, len(word) - 1)
        other = drawn.choice("aeinrst")
        wrong = drawn.choice((
            word[:at] + word[at + 1 :], word[:at] + word[at] + word[at:],
            word[:at] + word[at + 1] + word[at] + word[at + 2 :], word[:at] + other + word[at + 1 :],
        ))  # fmt: skip
        words = [wrong if one == word else one for one in words]
    return words


FORMS = {
    "en": (("ies", "y"), ("sses", "ss"), ("ing", "ed"), ("ed", "ing"), ("s", ""), ("y", "ies"), ("", "s")),
    "de": (
        ("ungen", "ung"), ("ung", "ungen"), ("en", "e"), ("er", "e"), ("e", "en"), ("s", ""), ("t", "en"),
        ("", "s"),
    ),
}  # fmt: skip


def _inflected(words: list[str], _: random.Random, language: str) -> list[str] | None:
    def other(word: str) -> str:
        if word.endswith("ss") or (word[0].isupper() and language == "en"):
            return word
        end, instead = next(one for one in FORMS[language] if word.endswith(one[0]))
        return word[: len(word) - len(end)] + instead

    changed = [other(one) for one in words]
    return changed if sum(a != b for a, b in zip(words, changed, strict=True)) >= 3 else None


def _framed(words: list[str], drawn: random.Random, language: str) -> list[str] | None:
    return [drawn.choice(FRAMES[language]).format(", ".join(words))]


RULES: dict[str, Rule] = {
    "exact": _exact,
    "heading": _headings,
    "typos": _of_words("typos", _misspelt),
    "inflection": _of_words("inflection", _inflected),
    "long": _of_words("long", _framed),
}
