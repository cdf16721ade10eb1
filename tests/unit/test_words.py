"""The field's words: private names and phrases that were replaced stay away, scope by scope."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT
from tests.support.rows import each_row

# A scope is its name and the patterns of its files; "!" before a pattern leaves its files out.
SCOPES = {
    "docs": ("docs/*.md",),
    "front pages": ("README.md", "CHANGELOG.md", "benchmarks/README.md"),
    "studio": ("llama_srb/studio/**/*.*", "!llama_srb/studio/vendor/*"),
    "scripts": ("api.py", "build.sh", "scripts/*", "benchmarks/**/*.py"),
    "engine": ("engine/**/*.h", "engine/**/*.cpp"),
    "llama_srb": ("llama_srb/**/*.py",),
    "tests": ("tests/**/*.py", "tests/**/*.h", "tests/**/*.cpp", "!tests/unit/test_words.py"),
}

# What is no longer written → what is written instead. Names are matched as whole words, as they are spelled;
# everyday words that were names, too, are edited by hand.
NAMES = {
    "n_beside": "prefill budget",
    "spellings": "aliases",
    "Folded": "BodyBuilder, CompletionBody, TextsBody",
    "Gathered": "Transcript",
    "go_on": "continue_from",
    "_condemn": "_fail",
    "_bury": "_on_process_end",
    "_moody": "_stateful_sampler",
    "HINTS": "NON_SAMPLING_FIELDS",
    "MANIFOLD": "SHARED_HANDLERS",
    "tokens.py": "jwt.py",
    "isTwin": "isDuplicate",
    "putBack": "reschedule",
    "Arrivals": "IncomingMessages",
    "LOOKS": "CHECKS",
    "ChunkEnds": "ChunkExtras",
    "NOBODY_READS": "READER_LEFT",
    "OWN_WORDS": "OWN_PREFIX",
    "TURN_RETRY": "SLOT_RETRY",
    "TokenError": "JwtError",
    "_Growing": "_Sequence",
    "_Turns": "_Slices",
    "_couple": "_set_diversity",
    "_errands": "_command_tokens",
    "_greeted": "_address",
    "_let_in": "_authorized",
    "_obey": "_run",
    "_spread": "_distribute_lists",
    "give_back": "release",
    "in_turn": "one_at_a_time",
    "is_whole": "is_eligible",
    "look_again": "check",
    "looking_on": "polling",
    "marks_of": "ranking_fields",
    "most_held": "max_held",
    "our_errors": "as_client_errors",
    "take_back": "revert_patches",
    "was_there": "was_running",
}

# Matched in any case, over the ends of lines and the margins of comments.
PHRASES = {
    "as operators know it": "this name is documented",
    "at leisure": "trim to budget",
    "becomes of it": "how it ends",
    "give back": "preempt",
    "given back": "preempted",
    "gives back": "is preempted",
    "gives cells back": "is preempted",
    "gives its cells back": "is preempted",
    "gives its own cells back": "is preempted",
    "had a turn": "the event loop ran",
    "has a turn": "the event loop runs",
    "in looks": "counts checks",
    "is believed": "is accepted",
    "its turns": "the event loop runs",
    "may never end": "subprocess with limits",
    "near enough": "about",
    "numbered through": "counted over all",
    "put back": "preempted, restored",
    "puts back": "preempts, restores",
    "said the same": "is a duplicate",
    "says the same again": "is a duplicate",
    "take turns": "are scheduled fairly, alternate",
    "takes turns": "is scheduled fairly, alternates",
    "their turn": "are scheduled",
    "too young": "the youngest",
    "turns between": "fair scheduling between",
    "twin": "duplicate",
    "what becomes of": "how it ends",
    "what came of": "the result",
    "what has come": "the text so far",
    "what is kept": "snapshot, prefix cache",
    "what leaves": "what is evicted",
    "what stands between": "infill",
    "who is next": "schedule",
    "whoever": "the concrete noun",
    "whose it is": "its client",
}

# (file, name or phrase): values on the wire, and names that others gave.
EXCEPTED: set[tuple[str, str]] = set()

MARGIN = re.compile(r"[\s/*#]+")
WORD = re.compile(r"(?<![\w.])\w+(?=(\.py\b)?)")


def files(scope: str) -> Iterator[Path]:
    left_out = {file for pattern in SCOPES[scope] if pattern[0] == "!" for file in ROOT.glob(pattern[1:])}
    for pattern in SCOPES[scope]:
        yield from sorted(file for file in ROOT.glob(pattern) if file.is_file() and file not in left_out)


def hits(text: str) -> set[str]:
    """The replaced words of a text, which is read once for names and once for phrases."""
    words = {found[0] + suffix for found in WORD.finditer(text) for suffix in ("", found[1] or "")}
    line = MARGIN.sub(" ", text).lower()
    phrases = {phrase for phrase in PHRASES if phrase in line and re.search(rf"\b{phrase}\b", line)}
    return (words & NAMES.keys()) | phrases


@each_row("scope", SCOPES)
def test_replaced_words_stay_away(scope: str) -> None:
    found = {(str(file.relative_to(ROOT)), word) for file in files(scope) for word in hits(file.read_text())}
    instead = NAMES | PHRASES
    assert [f"{file}: {word!r}, say {instead[word]!r}" for file, word in sorted(found - EXCEPTED)] == []


@each_row("scope", SCOPES)
def test_each_pattern_of_a_scope_finds_files(scope: str) -> None:
    assert all(list(ROOT.glob(pattern.removeprefix("!"))) for pattern in SCOPES[scope])


def test_exceptions_are_needed() -> None:
    assert {(file, word) for file, word in EXCEPTED if word not in hits((ROOT / file).read_text())} == set()


@each_row(
    ("text", "word"),
    [
        ("// it is put\n// back", "put back"),
        ("Put  back", "put back"),
        ("class Gathered:", "Gathered"),
        ("a twin of it", "twin"),
        ("see tokens.py", "tokens.py"),
    ],
)
def test_a_word_is_found_however_it_is_written(text: str, word: str) -> None:
    assert word in hits(text)


@pytest.mark.parametrize(
    "text", ["gathered", "input back", "between", "go_one", "Folded_in", "a.go_on", "tokens.pyc"]
)
def test_parts_of_other_words_are_none(text: str) -> None:
    assert hits(text) == set()
