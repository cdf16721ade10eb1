"""What requests say about documents and searches. Pure.

The metadata of a document stand in the query of the address, as `?year=1900&book=genesis`, or as JSON in the
header `X-Metadata`, or in both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import orjson

from llama_srb.memory.filters import Filter, parse_filter
from llama_srb.memory.records import (
    MAX_FOUND,
    MAX_QUERY,
    Metadata,
    checked_metadata,
    checked_text,
)
from llama_srb.request.json_text import read_json
from llama_srb.request.parse import read_fields
from llama_srb.request.values import (
    MAX_AROUND,
    SEARCHES,
    RequestError,
    SearchBy,
    named,
    share,
    switch,
    whole,
    wrong,
)

METADATA = "X-Metadata"
KEY = "api_key"  # of other paths' queries; here it would be stored
DEFAULT_FOUND, DEFAULT_LISTED, MOST_LISTED = 5, 100, 500


def metadata_of(query: Sequence[tuple[str, str]], header: str | None) -> Metadata:
    """The metadata of a document; RequestError. query: names may repeat, which makes a list."""
    values: dict[str, list[object]] = {}
    for name, text in query:
        values.setdefault(name, []).append(_value(text))
    in_header = _in_header(header) if header is not None else {}
    if KEY in values:
        message = f"{KEY} in the address would be stored; send Authorization: Bearer KEY"
        raise RequestError(message, param=KEY)
    if both := sorted(values.keys() & in_header.keys()):
        raise RequestError(f"{both[0]} is in the address and in {METADATA}; give it once", param="metadata")
    return checked_metadata(in_header | {name: one if one[1:] else one[0] for name, one in values.items()})


def _in_header(text: str) -> dict[str, Any]:
    try:
        found = read_json(METADATA, text.encode(errors="surrogateescape"), param="metadata")
    except ValueError as error:
        raise RequestError(f"{METADATA} is not JSON: {error}", param="metadata") from None
    if not isinstance(found, dict):
        raise wrong(METADATA, found, "an object of JSON", "metadata")
    return found


def _value(text: str) -> object:
    """A number, true or false as JSON writes them; else the text."""
    try:
        found = orjson.loads(text)
    except ValueError:
        return text
    return found if isinstance(found, bool | int | float) else text


@dataclass(frozen=True, slots=True)
class Search:
    """A search. by: None: as the memory is searched. warnings: about unknown fields.

    around: how many neighbours of a chunk its text has. headings: they stand in front of it. highlights: the
    places of words are wanted.
    """

    query: str
    k: int
    filter: Filter
    by: SearchBy | None
    around: int
    headings: bool
    highlights: bool
    warnings: tuple[str, ...]


def search_of(body: Mapping[str, Any], *, strict: bool = False) -> Search:
    """Reads the body of a search; RequestError."""
    readers: dict[str, Callable[[object], Any]] = {
        "query": lambda value: checked_text(value, "query", MAX_QUERY),
        "k": lambda value: whole("k", value, 1, MAX_FOUND),
        "search": partial(named, "search", SEARCHES),
        "around": lambda value: whole("around", value, 0, MAX_AROUND),
        "headings": partial(switch, "headings"),
        "highlights": partial(switch, "highlights"),
        "per_document": lambda value: whole("per_document", value, 1, MAX_FOUND),
        "diversity": partial(share, "diversity"),
        "filter": lambda value: value,
        "post_filter": lambda value: value,
    }
    given = read_fields(body, readers, required="query", strict=strict)
    filter = parse_filter(given.get("filter"), given.get("post_filter"))
    filter = replace(filter, per_document=given.get("per_document"), diversity=given.get("diversity", 0.0))
    return Search(
        given["query"], given.get("k", DEFAULT_FOUND), filter, given.get("search"), given.get("around", 0),
        given.get("headings", False), given.get("highlights", False), given["warnings"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list of documents. after, skip: those before it; skip: of the documents named `after`."""

    limit: int = DEFAULT_LISTED
    after: str = ""
    skip: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Page:
        """Reads ?limit= and ?after=, which is an earlier page's `next`; RequestError."""
        for name in query:
            if name not in ("limit", "after"):
                raise RequestError(f"{name} is not a parameter here; there are limit and after", param=name)
        limit, after = query.get("limit", str(DEFAULT_LISTED)), query.get("after", "")
        if not limit.isascii() or not limit.isdecimal():
            raise wrong("limit", limit, f"between 1 and {MOST_LISTED}")
        skip, colon, id = after.partition(":")
        if after and not (colon and len(skip) <= 3 and skip.isascii() and skip.isdecimal()):
            raise wrong("after", after, "`next` of an earlier page")
        return cls(whole("limit", int(limit[:9]), 1, MOST_LISTED), id, int(skip or 0))
