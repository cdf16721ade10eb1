"""The words of a text as a search knows them: names, numbers, their parts, stems, pairs of characters.

A word is a hash of 32 bits, so no index needs a dictionary. Pure; a text of a chunk takes microseconds.
"""

from __future__ import annotations

import re
import struct
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice, pairwise
from zlib import crc32

MOST_ASKED = 256  # words of a query; a longer one is about many things
MOST_COUNTED = 63  # of one word in a chunk: six bits beside its row
MOST_KNOWN = 50_000  # words whose terms are kept
LONGEST = 64  # characters of a word; base64 is not searched
MOST_JOINED = 6  # parts of a name such as step-timeout or v1/models
LEAST_CORRECTED = 4  # characters of a word that may have a typo
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
# A letter, a digit or a sign that combines with the one before it: accents, points, vowels of Indic scripts.
_SIGN = (
    "[\\w\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u0dff"
    "\u1ab0-\u1aff\u1dc0-\u1dff\ufe20-\ufe2f]"
)
_PICTURE = (
    "[\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"  # emoji, but no skin tones
)
_JOINED = re.compile(
    rf"(?:(?<![\w-])--?|[#@$])?\w{_SIGN}*(?:[-./:@+]\w{_SIGN}*)*|{_PICTURE}"
)  # --option, #12, @name, $NAME
_WORD = re.compile(rf"\w{_SIGN}*")
_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\d_A-Z]+|\d+")
_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]+"
)  # Thai, Lao, Burmese, Khmer, Japanese, Chinese
_SYLLABLES = re.compile("[\uac00-\ud7a3]{2,}")  # Korean: words end in particles
_COUNTED = re.compile(_WITHOUT_SPACES.pattern.removesuffix("+") + r"|\w+|[^\w\s]")
_SUFFIXES = ("ings", "ing", "edly", "ied", "ies", "ed", "ern", "ens", "ers", "em", "en", "er", "es", *"esn")
_INSTEAD = {"ied": "y", "ies": "y"}
_known: dict[str, tuple[int, ...]] = {}


def hash_of(term: str) -> int:
    return crc32(term.encode(errors="surrogatepass"))


def terms_of(text: str) -> Iterator[int]:
    """The terms of a text, each as often as it comes."""
    for found in _JOINED.finditer(text):
        whole = found[0]
        if (terms := _known.get(whole)) is None:
            terms = tuple(map(hash_of, _terms(whole)))
            if len(whole) <= LONGEST:
                if len(_known) >= MOST_KNOWN:
                    _known.clear()
                _known[whole] = terms
        yield from terms


def count_words(texts: Sequence[str]) -> list[int]:
    """About the tokens of texts, for a memory without a model: words, signs, Chinese characters."""
    return [sum(1 for _ in _COUNTED.finditer(text)) for text in texts]


def last_words(text: str, count: int) -> str:
    """The end of a text with at most this many words, as count_words() has them."""
    begins = [found.start() for found in _COUNTED.finditer(text)]
    return text if len(begins) <= count else text[begins[-count] :]


@dataclass(frozen=True, slots=True)
class Asked:
    """A term of a query. times: how often it comes; word: that it is, if it may have a typo."""

    term: int
    times: int
    word: str = ""


def asked(query: str) -> list[Asked]:
    """The terms of a query, of a long one the first ones."""
    times, words = Counter[int](), dict[int, str]()
    for found in _JOINED.finditer(query):
        whole = found[0]
        times.update(map(hash_of, _terms(whole, asks=True)))
        if LEAST_CORRECTED <= len(whole) <= LONGEST and whole.isalpha():
            words[hash_of(folded(whole))] = folded(whole)  # not its stem
        if len(times) >= MOST_ASKED:
            break
    return [Asked(term, count, words.get(term, "")) for term, count in islice(times.items(), MOST_ASKED)]


def highlights(text: str, asked: Sequence[Asked], instead: Set[int] = frozenset()) -> list[tuple[int, int]]:
    """Where the words of a query are in a text, also in other forms: from a character to before another.

    instead: terms that were looked for, too, in place of words with a typo.
    """
    wanted = {*(one.term for one in asked), *instead}
    pairs = (hash_of(one) for run in _WITHOUT_SPACES.finditer(text) for one in _pairs(run[0]))
    alone = wanted.isdisjoint(pairs)  # single characters of scripts without spaces are in many words
    found = list[tuple[int, int]]()
    for whole in _JOINED.finditer(text):
        if wanted.isdisjoint(map(hash_of, _terms(whole[0]))):
            continue
        spans = [span for word in _WORD.finditer(whole[0]) for span in _spans(word, wanted, alone)]
        if not spans and _WITHOUT_SPACES.search(whole[0]) is None:
            spans = [(0, len(whole[0]))]  # the name as a whole
        for start, end in spans:
            start, end = whole.start() + start, whole.start() + end
            if found and found[-1][1] >= start:
                start = found.pop()[0]
            found.append((start, end))
    return found


def _spans(word: re.Match[str], wanted: set[int], alone: bool) -> Iterator[tuple[int, int]]:
    """The parts of a word that are wanted: all of it, or pairs of characters of a script without spaces."""
    begin = 0
    for run in _WITHOUT_SPACES.finditer(word[0]):
        yield from _whole_part(word, begin, run.start(), wanted)
        begin, n = run.end(), 1 if alone else 2
        for at, one in enumerate(run[0] if alone else _pairs(run[0]), word.start() + run.start()):
            if hash_of(unicodedata.normalize("NFKC", one)) in wanted:
                yield at, at + n
    yield from _whole_part(word, begin, len(word[0]), wanted)


def _whole_part(word: re.Match[str], begin: int, end: int, wanted: set[int]) -> Iterator[tuple[int, int]]:
    if begin < end and not wanted.isdisjoint(map(hash_of, _of_word(word[0][begin:end], asks=False))):
        yield word.start() + begin, word.start() + end


def packed(text: str) -> bytes:
    """The terms of a chunk as a store keeps them: hashes as little-endian uint32 in order, then a byte each.

    The byte is how often a term comes.
    """
    counts = sorted(Counter(terms_of(text)).items())
    hashes = struct.pack(f"<{len(counts)}I", *(term for term, _ in counts))
    return hashes + bytes(min(count, MOST_COUNTED) for _, count in counts)


def unpacked(words: bytes) -> tuple[list[int], list[int]]:
    """The terms of a chunk, and how often each comes."""
    count = len(words) // 5
    return list(struct.unpack_from(f"<{count}I", words)), list(words[4 * count :])


def folded(word: str) -> str:
    """Lower case, and Latin letters without accents."""
    return _plain(word).casefold()


def _plain(word: str) -> str:
    if word.isascii():
        return word
    word = unicodedata.normalize("NFKC", word).replace("ß", "ss")
    return "".join(unicodedata.normalize("NFD", one)[0] if one < "\u0250" else one for one in word)


def stem(word: str) -> str:
    """The word without its ending, as English and German have them; another word has the same, rarely."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            rest = word[: -len(suffix)] + _INSTEAD.get(suffix, "")
            doubled = suffix in ("ing", "ings", "ed") and rest[-1] == rest[-2] and rest[-1] not in "lsz"
            return rest[:-1] if doubled and len(rest) > 3 else rest
    return word


def _terms(whole: str, *, asks: bool = False) -> list[str]:
    """The terms of a name: the name, its parts, their stems. asks: of a query."""
    if len(whole) > LONGEST and _WITHOUT_SPACES.search(whole) is None:
        words = [one for one in _WORD.findall(whole) if _is_readable(one)]
        return [folded(whole), *(term for word in words for term in _of_word(word, asks))]
    words = _WORD.findall(whole)
    if not words:
        return [whole]
    terms = [term for word in words for term in _of_word(word, asks)]
    if 1 < len(words) <= MOST_JOINED:
        terms.append(folded("".join(words).replace("_", "")))
    if (sign := whole[: len(whole) - len(whole.lstrip("-#@$"))]) and len(words) <= MOST_JOINED:
        terms.append(sign + folded("".join(words).replace("_", "")))
    return terms


def _is_readable(word: str) -> bool:
    """Whether a part of a long name, as of a path, may be a word: no part of base64."""
    return len(word) <= LONGEST and (word.isalpha() or word.islower() or word.isdecimal())


def _of_word(word: str, asks: bool) -> list[str]:
    if not word.isascii() and _WITHOUT_SPACES.search(word) is not None:
        return _of_characters(word, asks)
    if not word.isascii() and _SYLLABLES.search(word) is not None:
        word = unicodedata.normalize("NFC", word)
        pairs = (run[i : i + 2] for run in _SYLLABLES.findall(word) for i in range(len(run) - 1))
        return list(dict.fromkeys((folded(word), *pairs)))
    word, whole = _plain(word), folded(word.replace("_", ""))
    if not whole:
        return []
    parts = (
        [word.casefold()]
        if word.islower() and "_" not in word
        else list(map(str.casefold, _PARTS.findall(word)))
    )
    if len(parts) < 2:
        return list(dict.fromkeys((whole, stem(whole))))
    parts = [one for one in parts if len(one) > 1 or one.isdecimal()]  # E1042 is about 1042 and itself
    return [*(term for one in parts for term in dict.fromkeys((one, stem(one)))), whole]


def _pairs(run: str) -> Iterator[str]:
    return map("".join, pairwise(run))


def _of_characters(word: str, asks: bool) -> list[str]:
    """Characters of a script without spaces, and pairs of them."""
    terms, begin, word = list[str](), 0, word[: MOST_ASKED if asks else None]
    for found in _WITHOUT_SPACES.finditer(word):
        if between := word[begin : found.start()]:
            terms += _of_word(between, asks)
        run, begin = unicodedata.normalize("NFKC", found[0]), found.end()
        terms += run
        terms += _pairs(run)
    return terms + (_of_word(word[begin:], asks) if word[begin:] else [])


def corrections(word: str) -> list[int]:
    """The terms of all words that differ by one letter, or by two that are exchanged."""
    if not word.isascii():
        return []
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    near = {a + b[1:] for a, b in cuts if b} | {a + b[1] + b[0] + b[2:] for a, b in cuts if len(b) > 1}
    near |= {a + one + b[1:] for a, b in cuts if b for one in _LETTERS}
    near |= {a + one + b for a, b in cuts for one in _LETTERS}
    return [*map(hash_of, sorted(near - {word}))]
