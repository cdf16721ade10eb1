"""Filters: each operator, and the error for each wrong filter."""

from __future__ import annotations

from typing import Any

import pytest

from llama_srb.memory.filters import OPERATORS, parse_filter
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

METADATA = {"year": 1900, "title": "War and Peace", "tags": ["war", 7], "read": True, "price": 9.5, "one": 1}


@each_row(
    ("conditions", "passes"),
    [
        ({"year": 1900}, True),
        ({"year": 1900.0}, True),
        ({"year": "1900"}, False),
        ({"read": True}, True),
        ({"read": 1}, False),
        ({"none": 1}, False),
        ({"year": {"eq": 1901}}, False),
        ({"year": {"ne": 1901}}, True),
        ({"none": {"ne": 1}}, True),
        ({"year": {"lt": 1900}}, False),
        ({"year": {"lte": 1900}}, True),
        ({"year": {"gt": 1899, "lt": 1901}}, True),
        ({"year": {"gte": 1901}}, False),
        ({"title": {"lt": "X"}}, True),
        ({"title": {"lt": 5}}, False),
        ({"read": {"gte": 0}}, False),
        ({"year": {"in": [1, 1900]}}, True),
        ({"year": {"in": ["1900", True]}}, False),
        ({"one": {"in": [True]}}, False),
        ({"one": {"in": [2, 1.0]}}, True),
        ({"read": {"in": [1]}}, False),
        ({"read": {"in": [1, True]}}, True),
        ({"tags": {"in": ["war"]}}, False),
        ({"year": {"not_in": [1900]}}, False),
        ({"none": {"not_in": [1]}}, True),
        ({"tags": {"contains": "war"}}, True),
        ({"tags": {"contains": "peace"}}, False),
        ({"tags": {"contains": 7}}, True),
        ({"title": {"contains": "Peace"}}, True),
        ({"title": {"contains": 7}}, False),
        ({"year": {"contains": 1}}, False),
        ({"none": {"exists": True}}, False),
        ({"none": {"exists": False}}, True),
        ({"year": {"exists": True}, "price": {"lt": 10}}, True),
        ({"year": {"exists": True}, "price": {"lt": 9}}, False),
    ],
)
def test_conditions_on_metadata(conditions: dict[str, Any], passes: bool) -> None:
    filter = parse_filter({"metadata": conditions}, {"metadata": conditions})
    assert filter.takes(METADATA) is filter.keeps(0.5, METADATA) is passes


def test_conditions_on_the_score() -> None:
    filter = parse_filter({"score": {"gte": 0.5, "lt": 0.9}})
    assert [filter.takes_score(score) for score in (0.4, 0.5, 0.8, 0.9)] == [False, True, True, False]
    assert [filter.ends_at(score) for score in (0.4, 0.5, 0.95)] == [True, False, False]
    assert parse_filter().takes_score(-1)


@each_row(
    ("value", "says"),
    [
        (7, "filter is 7; it must be an object"),
        ({"metdata": {}}, 'filter has "metdata"; it may have metadata, score; did you mean metadata?'),
        ({"metadata": [1]}, "filter.metadata is [1]; it must be an object"),
        ({"metadata": {"year": {"gth": 1}}}, 'filter.metadata.year has "gth"; it may have eq'),
        ({"metadata": {"year": {"gth": 1}}}, "did you mean gt?"),
        ({"metadata": {"year": [1]}}, "filter.metadata.year is [1]; it must be an object of eq"),
        ({"metadata": {"year": None}}, "filter.metadata.year is null"),
        (
            {"metadata": {"year": {"lt": True}}},
            "filter.metadata.year.lt is true; it must be a text or a number",
        ),
        ({"metadata": {"year": {"in": []}}}, "it must be a list of 1 to 1000"),
        ({"metadata": {"year": {"in": 5}}}, "filter.metadata.year.in is 5"),
        ({"metadata": {"year": {"exists": 1}}}, "filter.metadata.year.exists is 1; it must be true or false"),
        ({"score": 0.5}, "filter.score is 0.5; it must be an object of lt, lte, gt, gte"),
        ({"score": {"eq": 0.5}}, 'filter.score has "eq"'),
        ({"score": {"gt": "x"}}, 'filter.score.gt is "x"; it must be a number'),
        ({"metadata": {str(i): i for i in range(65)}}, "filter has 65 conditions; it must have at most 64"),
        (
            {"metadata": {str(i): {"in": [*range(1000)]} for i in range(17)}},
            "the lists of filter have 17,000 values; they must have at most 16,000",
        ),
    ],
)
def test_a_wrong_filter_is_named(value: object, says: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_filter(value)
    assert says in error.value.message
    assert error.value.param == "filter"


def test_each_operator_names_what_it_wants() -> None:
    for name in OPERATORS:
        with pytest.raises(RequestError, match=rf"post_filter.metadata.x.{name} is \{{\}}; it must be "):
            parse_filter(None, {"metadata": {"x": {name: {}}}})
