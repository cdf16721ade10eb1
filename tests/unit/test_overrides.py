"""An operator's overrides: forced values, values that are added to lists, and defaults."""

from __future__ import annotations

from typing import Any

import pytest

from llama_srb.request.fields import CANONICAL, OVERRIDE_ROWS, ROWS, STRUCTURES
from llama_srb.request.overrides import LISTS, NOT_HERE
from llama_srb.request.parse import Defaults, canonical, read_overrides, request_from
from llama_srb.request.values import RequestError
from tests.support.rows import each_row
from tests.unit.test_request import VALUES

Json = dict[str, Any]
FORCED = sorted({*CANONICAL.values()} - {*NOT_HERE})
OTHER: Json = {  # a value that is not that of VALUES
    "tool_choice": "auto", "diversity": "none", "first_token": "any", "cache": True, "json_schema": {},
    "truncation_side": "left",
}  # fmt: skip


def made(body: Json, **overrides: Any) -> Any:
    defaults = Defaults(overrides=read_overrides(overrides))
    start = {} if body.keys() & {"prompt", "messages", "continue"} else {"prompt": "Once"}
    return request_from({**start, **body}, defaults)


def value_of(request: Any, name: str) -> Any:
    return getattr(request.sampling if name in type(request.sampling).model_fields else request, name)


@each_row("name", FORCED)
def test_a_forced_value_holds_whatever_the_client_says(name: str) -> None:
    value = VALUES.get(name, 1)
    about = {"messages": VALUES["messages"]} if ROWS[name].group == "chat" else {"prompt": "Once"}
    expected = value_of(request_from({**about, name: value}), name)
    for body in ({}, {name: OTHER.get(name, 3)}, {name: "?"}, {name: None}):
        request = made(about | body, **{name: {"override": value, "force": True}})
        assert value_of(request, name) == expected, body
        assert value_of(made(about | body, **{name: value}), name) == expected or isinstance(value, dict)
        warned = bool(body.get(name) is not None and body[name] != value)
        assert (
            any(f"{name} is not used: by the operator's override it is" in one for one in request.warnings)
            is warned
        )


@each_row(
    "alias", [alias for alias, name in CANONICAL.items() if name == "temperature" or name == "repeat_penalty"]
)
def test_no_alias_and_no_sequence_passes(alias: str) -> None:
    request = made({alias: 1.5, "n": 2, "sequences": [{alias: 0.5}, {}]}, **{alias: 0.25})
    assert value_of(request, CANONICAL[alias]) == 0.25
    assert not any(one.model_fields_set for one in request.sequences)
    assert len(request.warnings) == 2


@each_row("name", OVERRIDE_ROWS)
def test_a_sequence_has_no_value_of_its_own_of_what_is_forced(name: str) -> None:
    about = {"messages": VALUES["messages"], "n": 2}
    request = made(about | {"sequences": [{name: 0}, {}]}, **{name: VALUES.get(name, 1)})
    assert not any(name in one.model_fields_set for one in request.sequences)


def test_lists_of_numbers_and_presets_do_not_pass_either() -> None:
    for body in ({"temperature": [0.1, 0.2]}, {"temperature": {"from": 0, "to": 1}}, {"preset": "p"},
                 {"dynatemp_low": 0, "dynatemp_high": 1}):  # fmt: skip
        overrides = read_overrides({"temperature": 0.25})
        defaults = Defaults(overrides=overrides, presets={"p": {"temperature": 1.0}})
        assert request_from({"prompt": "x", "n": 2, **body}, defaults).sampling.temperature == 0.25, body


@each_row("chain", ["temp:7 > tfs:0.5", "temp:7 > tfs:0.5 > temp:1"])
def test_values_in_the_chain_of_samplers_do_not_pass_either(chain: str) -> None:
    for body in ({"samplers": chain}, {"sequences": [{"samplers": chain}, {}]}):
        request = made(body | {"n": 2}, temperature=0.25)
        given = [made.given for made in (request.sampling, *request.sequences)]
        assert "7" not in str([one.get(name) for one in given for name in ("temperature", "samplers")])
        assert len(request.warnings) == 1
        with pytest.raises(RequestError, match=r"temperature is set by the server; leave it out"):
            request_from({"prompt": "x", "n": 2, **body}, Defaults(locked={"temperature": "the server"}))


def test_a_bodys_field_goes_before_a_value_in_its_presets_chain() -> None:
    presets = {"p": canonical({"samplers": "temp:2 > tfs:0.5"})}
    sampling = request_from({"prompt": "x", "preset": "p", "tfs": 0.9}, Defaults(presets=presets)).sampling
    assert sampling.given == {"samplers": ["temperature", "tfs"], "temperature": 2.0, "tfs": 0.9}


@each_row("name", STRUCTURES)
def test_a_forced_structure_leaves_no_other(name: str) -> None:
    others = {other: VALUES[other] for other in STRUCTURES if other != name}
    for body in ({other: value} for other, value in others.items()):
        request = made(body, **{name: VALUES[name]})
        assert [one for one in STRUCTURES if getattr(request, one) is not None] == [name]
    assert made({"then": {"text": "x", "regex": "a"}}, **{name: VALUES[name]}).then is None


def test_added_values_stand_in_front_of_a_clients_list() -> None:
    added = {"stop": {"override": ["a", "b"], "additive": True}}
    assert made({}, **added).stop == ("a", "b")
    assert made({"stop": "c"}, **added).stop == ("a", "b", "c")
    assert made({"stop": ["b", "c"]}, **added).stop == ("a", "b", "c")
    own = made({"n": 2, "sequences": [{"stop": ["c"]}, {}]}, **added).sequences
    assert (own[0].stop, own[1].model_fields_set) == (("a", "b", "c"), set())
    bans = {"banned_tokens": {"override": [5], "additive": True}}
    assert made({"logit_bias": {"7": 1.0}}, **bans).sampling.logit_bias == ((5, False), (7, 1.0))
    assert made(
        {"allowed_tokens": "3,4"}, allowed_token_ids={"override": [1], "additive": True}
    ).allowed_token_ids == (1, 3, 4)


def test_without_force_it_is_a_default_that_hides_nothing() -> None:
    given = read_overrides({"top_k": {"override": 0}, "min_p": {"override": 0.5, "force": False}})
    assert (given.forced, given.added, given.defaults) == ({}, {}, {"top_k": 0, "min_p": 0.5})
    assert read_overrides({"top_k": {"override": None, "force": True}}).forced == {}


def test_of_two_the_first_goes_first_and_n_has_a_bound() -> None:
    firm = read_overrides({"top_k": 5, "n": 9, "top_p": {"override": 0.5}})
    loose = read_overrides({"top_k": 7, "min_p": 0.5, "top_p": {"override": 0.75}})
    both = firm.over(loose)
    assert (both.forced, both.defaults) == ({"top_k": 5, "n": 9, "min_p": 0.5}, {"top_p": 0.75})
    assert both.at_most(4).forced["n"] == 4
    assert both.at_most(20) == both
    assert Defaults(overrides=both).of_one().overrides.forced == {"top_k": 5, "min_p": 0.5}


WRONG: list[tuple[Json, str]] = [
    ({"temperture": 1}, '"temperture" is not a known field; did you mean "temperature"?'),
    ({"temperature": 101}, "temperature is 101; it must be between 0 and 100"),
    ({"temperature": {"override": -1}}, "temperature is -1; it must be between 0 and 100"),
    (
        {"temperature": {"override": 1, "force": "yes"}},
        'temperature.force is "yes"; it must be true or false',
    ),
    (
        {"temperature": {"override": 1, "additive": True}},
        "temperature is no list: nothing can be added to it; force it, or not",
    ),
    *(({name: "x"}, f"{name} can be no override: it is a client's") for name in NOT_HERE),
    ({"grammar": 'root ::= "a"', "regex": "a"}, "only one of grammar and regex may be given"),
]


@each_row(("given", "message"), WRONG, ids=str)
def test_a_wrong_override_is_an_error_that_names_it(given: Json, message: str) -> None:
    with pytest.raises(RequestError) as refused:
        read_overrides(given)
    assert message in refused.value.message or given.keys() == {"grammar", "regex"}


def test_only_lists_can_be_added_to() -> None:
    assert {name for name in ROWS if ROWS[name].type in LISTS} == {
        "stop", "banned_strings", "private_tokens", "dry_sequence_breakers", "samplers", "stop_token_ids",
        "allowed_token_ids", "logit_bias",
    }  # fmt: skip
