"""The field `rank_by`: a ranker's name, or an object whose one key is the name. Pure.

It knows what a ranker needs; engine/ranking knows how one orders texts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import re2

from llama_srb.request.shapes import from_json
from llama_srb.request.values import RequestError, is_text, shown, wrong

PLACE = "{text}"  # in a judge's prompt
MOST_PLACES = 4  # of the text, in one prompt
MAX_QUESTION = 100_000  # characters of a judge's prompt
MAX_PATTERN = 1000  # characters
MAX_FOLLOWING = 10_000  # characters
MAX_QUERY = 10_000  # characters
MAX_PATTERN_MEMORY = 1 << 20  # bytes of the compiled pattern and its states
SIMILARITIES = ("overlap", "embeddings")
Reader = Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class RankBy:
    """A ranker and its fields.

    by: how texts are compared. model: the one that computes embeddings; None: the only embedding model.
    regex: finds the answer in a text, for a vote. prompt, answers: a question about {text}, and what a judge
    may say: the first one is praise. text: what is to follow each text. query: what each text answers.
    """

    name: str
    by: str = "overlap"
    model: str | None = None
    regex: str | None = None
    prompt: str | None = None
    answers: tuple[str, ...] = ()
    text: str | None = None
    query: str | None = None

    @property
    def needs_vectors(self) -> bool:
        return self.by == "embeddings"

    @property
    def most_tokens(self) -> int:
        """An upper bound for what is scored behind each text: a token has at least one byte."""
        return len((self.text or "").encode())

    def question(self, text: str) -> str:
        """A judge's prompt about a text."""
        assert self.prompt is not None
        return self.prompt.replace(PLACE, text)


def _similarity(value: object) -> object:
    if value not in SIMILARITIES:
        raise wrong("by", value, "one of " + ", ".join(SIMILARITIES))
    return value


def _model(value: object) -> object:
    if not is_text(value) or not value:
        raise wrong("model", value, "a model's name")
    return value


def _pattern(value: object) -> object:
    if not is_text(value) or not value:
        raise wrong("regex", value, "a regular expression")
    assert isinstance(value, str)
    if len(value) > MAX_PATTERN:
        raise RequestError(f"regex has {len(value)} characters; it may have {MAX_PATTERN}")
    try:
        compiled(value)
    except re2.error as error:
        raise RequestError(f"regex is {shown(value)}, which RE2 refuses: {_reason(error)}") from None
    return value


def _bounded(name: str, wanted: str, most: int) -> Reader:
    """A reader of a text that is not empty, of at most so many characters."""

    def read(value: object) -> object:
        if not is_text(value) or not value:
            raise wrong(name, value, wanted)
        if (length := len(str(value))) > most:
            raise RequestError(f"{name} has {length} characters; it may have {most}")
        return value

    return read


def _question(value: object) -> object:
    if not is_text(value) or PLACE not in str(value):
        raise wrong("prompt", value, f"a text with {PLACE} in the place of the text that is judged")
    if (count := str(value).count(PLACE)) > MOST_PLACES:
        raise RequestError(f"prompt has {PLACE} {count} times; it may have it {MOST_PLACES} times")
    if (length := len(str(value))) > MAX_QUESTION:
        raise RequestError(f"prompt has {length} characters; it may have {MAX_QUESTION}")
    return value


def _answers(value: object) -> object:
    wanted = "two different texts, the praise first"
    if not isinstance(value, list | tuple) or len(value) != 2 or value[0] == value[1]:
        raise wrong("answers", value, wanted)
    if not all(is_text(one) and one for one in value):
        raise wrong("answers", value, wanted)
    return tuple(value)


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)


def compiled(pattern: str) -> Any:
    """The pattern, for texts as UTF-8; re2.error. RE2 takes linear time to find a match."""
    options = re2.Options()
    options.max_mem = MAX_PATTERN_MEMORY
    options.log_errors = False  # they would go to stderr
    return re2.compile(pattern, options)


_COMPARED: Mapping[str, Reader] = {"by": _similarity, "model": _model}
RANKERS: Mapping[str, Mapping[str, Reader]] = {
    "logprob": {},
    "typical": {},
    "diversity": _COMPARED,
    "medoid": _COMPARED,
    "vote": {"regex": _pattern},
    "certainty": {},
    "judge": {"prompt": _question, "answers": _answers, "model": _model},
    "following": {"text": _bounded("text", "the text that is to follow", MAX_FOLLOWING)},
    "reward": {"model": _model, "query": _bounded("query", "the text that is answered", MAX_QUERY)},
}
TITLES: Mapping[str, str] = {
    "logprob": "the likeliest first",
    "certainty": "the surest first",
    "typical": "the most typical first",
    "diversity": "good and different ones first",
    "medoid": "those first that are most like the others",
}
"""Names for writers of the rankers that need nothing else."""
REQUIRED = {"vote": ("regex",), "judge": ("prompt", "answers"), "following": ("text",), "reward": ("model",)}
WANTED = ", ".join(
    [f"one of {', '.join(name for name in RANKERS if name not in REQUIRED)}"]
    + [f"{{{name}: {{{', '.join(fields)}}}}}" for name, fields in REQUIRED.items()]
)


def read_rank_by(value: object) -> object:
    """A name, an object with one key, or that as JSON; errors name its fields as rank_by.vote.regex."""
    if value is None or isinstance(value, RankBy):
        return value
    given = from_json("rank_by", value)
    name, fields = _one_key(given) if isinstance(given, dict) else (given, {})
    if not isinstance(name, str) or name not in RANKERS:
        raise wrong("rank_by", value, WANTED)
    if not isinstance(fields, dict):
        raise wrong(f"rank_by.{name}", fields, "an object", "rank_by")
    fields = {key: one for key, one in fields.items() if one is not None}
    for missing in [key for key in REQUIRED.get(name, ()) if key not in fields]:
        raise RequestError(f"rank_by.{name}.{missing} is missing", param=f"rank_by.{name}.{missing}")
    made = RankBy(name, **{key: _read(name, key, one) for key, one in fields.items()})
    if made.model is not None and not made.needs_vectors and name not in ("judge", "reward"):
        message = f"rank_by.{name}.model is given, but by is {made.by}; only embeddings need a model"
        raise RequestError(message, param=f"rank_by.{name}.model")
    return made


def _one_key(value: Mapping[str, Any]) -> tuple[str, Any]:
    if len(value) != 1:
        names = ", ".join(map(shown, list(value)[:8])) or "none"
        raise RequestError(f"rank_by has {len(value)} keys ({names}); it must have one", param="rank_by")
    return next(iter(value.items()))


def _read(name: str, key: str, value: object) -> Any:
    readers = RANKERS[name]
    if key not in readers:
        only = f"has no field {shown(key)}, only {', '.join(readers)}"
        fault = only if readers else f"takes no fields, but {shown(key)} is given"
        raise RequestError(f"rank_by.{name} {fault}", param="rank_by")
    try:
        return readers[key](value)
    except RequestError as error:
        where = f"rank_by.{name}."
        raise RequestError(where + error.message, param=where + key) from None
