"""Requests: every field under every alias, values at and beyond bounds, and the messages of refusals."""

import contextlib
import json
import math
import random
import time
from typing import Any

import orjson
import pytest

from llama_srb.request.fields import (
    CANONICAL,
    CHAT,
    MOST_BIASES,
    ROWS,
    SAMPLING_ROWS,
    STRUCTURES,
    CompletionRequest,
    Sampling,
    request_table,
    samplers_table,
)
from llama_srb.request.parse import KNOWN_NAMES, Defaults, extension_from, parse_body, request_from
from llama_srb.request.sequence_name import SequenceName
from llama_srb.request.shapes import Part
from llama_srb.request.steps import LLAMA_SAMPLERS
from llama_srb.request.values import MAX_DEPTH, RequestError
from tests.clients.silly_tavern import PRESETS, WHOLE, sent
from tests.support.rows import each_row


def parsed(**fields: Any) -> CompletionRequest:
    return request_from({"prompt": "Once", **fields}, Defaults())


def sampling(**fields: Any) -> dict[str, Any]:
    given: dict[str, Any] = parsed(**fields).engine_fields().get("sampling", {})
    return given


def refusal(**fields: Any) -> RequestError:
    with pytest.raises(RequestError) as caught:
        parsed(**fields)
    return caught.value


def test_only_given_fields_go_to_the_engine() -> None:
    assert parsed().engine_fields() == {"prompt": "Once", "n": 8, "max_tokens": 128}
    assert sampling(temperature=0.8) == {"temperature": 0.8}


def test_a_request_with_all_fields_becomes_the_engines_json() -> None:
    request = request_from(
        {
            "prompt": [1, 2, 3],
            "n": 2,
            "max_tokens": 5,
            "min_tokens": 2,
            "stop": "\n",
            "seed": 7,
            "logprobs": 0,
            "cache": False,
            "banned_strings": ["shivers down"],
            "sequences": [{"temp": 0}, {"stop": ["x"]}],
        }
    )
    assert orjson.loads(orjson.dumps(request.engine_fields())) == {
        "tokens": [1, 2, 3],
        "n": 2,
        "max_tokens": 5,
        "min_tokens": 2,
        "stop": ["\n"],
        "sampling": {"seed": 7},
        "sequences": [{"temperature": 0.0}, {"stop": ["x"]}],
        "logprobs": 0,
        "cache": False,
        "banned_strings": ["shivers down"],
    }


def test_a_field_of_null_is_absent() -> None:
    assert parsed(**dict.fromkeys(CANONICAL.keys() - {"prompt"})).engine_fields() == parsed().engine_fields()


def test_continue_needs_no_prompt_and_takes_an_id_as_openai_writes_it() -> None:
    body = {"continue": {"id": "cmpl-17", "index": 2, "at": 5}, "n": 1}
    command = {"continue": {"id": "17", "index": 2, "at": 5}, "n": 1, "max_tokens": 128}
    assert request_from(body).engine_fields() == command
    assert request_from({**body, "prompt": "?"}).engine_fields() == {"prompt": "?", **command}
    assert request_from({**body, "prompt": [5]}).engine_fields() == {"tokens": [5], **command}


def test_python_may_name_a_sequence_to_continue() -> None:
    request = CompletionRequest(continue_=SequenceName(2, id="17"), n=1)
    assert request.engine_fields()["continue"] == {"id": "17", "index": 2}


def test_an_extension_is_read_with_its_warnings() -> None:
    body = {"add": 4.0, "max_tokens": -1, "fork": {"index": 2, "at": None}, "ad": 1}
    extension = extension_from(body)
    assert extension.engine_fields() == {"add": 4, "max_tokens": -1, "fork": {"index": 2}}
    assert extension.warnings == ('"ad" is not a known field; did you mean "add"?',)
    with pytest.raises(RequestError, match="did you mean"):
        extension_from(body, strict=True)
    assert extension_from({"fork": None}).engine_fields() == {"add": 1}


def test_request_and_sampling_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        parsed().n = 3
    with pytest.raises(ValueError, match="frozen"):
        Sampling().top_k = 3


TALK = [{"role": "user", "content": "Hello"}]
VALUES: dict[str, Any] = {
    "prompt": "x",
    "n": 2,
    "stop": ["x"],
    "sequences": [{}] * 8,
    "echo": True,
    "cache": False,
    "ignore_eos": True,
    "banned_strings": ["x"],
    "private_tokens": ["x"],
    "then": {"text": "x"},
    "story": {"memory": "x"},
    "token_healing": True,
    "dry_sequence_breakers": ["x"],
    "logit_bias": [[1, 2.0]],
    "samplers": ["top_k"],
    "adaptive_decay": 0.5,
    "continue": {"id": "17", "index": 0},
    "grammar": 'root ::= "x"',
    "json_schema": {"type": "object"},
    "lenient": True,
    "json_additional": True,
    "property_order": "any",
    "json_whitespace": "free",
    "regex": "x",
    "choice": ["x"],
    "structural_tag": {"format": {"type": "any_text"}},
    "diversity": "arithmetic",
    "first_token": "distinct",
    "rank_by": "typical",
    "finish": {"first": 1},
    "prune": {"at": [8], "keep": 1},
    "end": {"sentences": 1},
    "repetition_detection": {"max_pattern_size": 4, "min_count": 3},
    "loops": "rewind",
    "phrase_bias": [{"text": "a", "bias": 1}],
    "diversity_stats": True,
    "dedupe": True,
    "messages": [{"role": "user", "content": "x"}],
    "tools": [{"type": "function", "function": {"name": "x"}}],
    "tool_choice": "none",
    "reasoning_format": "none",
    "chat_template_kwargs": {"x": 1},
    "lora": [{"id": 1}],
    "logprobs_mode": "processed",
    "return_token_ids": True,
    "return_tokens_as_token_ids": True,
    "return_entropies": True,
    "stop_token_ids": [1],
    "allowed_token_ids": [1],
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "thinking_budget_message": "So.",
    "cache_salt": "x",
    "truncation_side": "right",
    "negative_prompt": "x",
    "logits_processor": {"a": 1},
}
VALUES |= {name: True for name in (*CHAT, *SAMPLING_ROWS) if ROWS[name].type == "bool"}


@each_row(("alias", "name"), CANONICAL.items())
def test_every_alias_reaches_its_field(alias: str, name: str) -> None:
    value = VALUES.get(name, 1)
    about = {"messages": VALUES["messages"]} if name in CHAT else {"prompt": "Once"}
    request = request_from({**about, alias: value})
    assert request == request_from({**about, name: value})
    assert name in {
        given.removesuffix("_") for given in request.model_fields_set | request.sampling.model_fields_set
    }
    assert not request.warnings


def test_a_canonical_name_wins_over_its_alias_with_a_warning() -> None:
    request = parsed(temp=0.1, temperature=0.9)
    assert request.sampling.temperature == 0.9
    assert request.warnings == ("temp is not used, because temperature is given too",)
    assert not parsed(temp=0.5, temperature=0.5).warnings


def test_max_completion_tokens_wins_over_max_tokens() -> None:
    for body in (
        {"max_tokens": 50, "max_completion_tokens": 2},
        {"max_completion_tokens": 2, "max_tokens": 50},
    ):
        request = request_from({"prompt": "x", **body})
        assert (request.max_tokens, request.warnings) == (
            2, ("max_tokens is not used, because max_completion_tokens is given too",),
        )  # fmt: skip
    assert request_from({"prompt": "x", "max_tokens": 2, "max_completion_tokens": 2}).warnings == ()
    assert request_from({"prompt": "x", "max_tokens": 3, "max_completion_tokens": None}).max_tokens == 3


BOUNDED = [row for row in ROWS.values() if row.is_number and row.name != "n"]
INSIDE = [
    (row.name, bound)
    for row in BOUNDED
    for bound in (row.low, row.high)
    if bound is not None and row.name != "seed"
]
OUTSIDE = [(row.name, row.low - 1) for row in BOUNDED if row.low is not None]
OUTSIDE += [(row.name, row.high + 1) for row in BOUNDED if row.high is not None]


def with_room(name: str, value: float) -> dict[str, Any]:
    """The field, together with the fields whose values bound it."""
    more = {"min_tokens": {"max_tokens": -1}, "thinking_budget_tokens": {"prompt": None, "messages": TALK}}
    return {name: value, **more.get(name, {})}


@each_row(("name", "value"), INSIDE)
def test_a_value_at_a_bound_is_accepted_unchanged(name: str, value: float) -> None:
    request = parsed(**with_room(name, value))
    assert value in (getattr(request, name, None), getattr(request.sampling, name, None))


@each_row(("name", "value"), OUTSIDE)
def test_a_value_beyond_a_bound_is_refused(name: str, value: float) -> None:
    error = refusal(**with_room(name, value))
    assert error.param == name
    assert error.message.startswith(f"{name} is ")
    assert ROWS[name].bounds in error.message


NO_NUMBERS = [True, False, "1", math.nan, math.inf, -math.inf, {}, [[]], [1, 2, 3], 10**30, "\ud800"]


@each_row(
    ("name", "value"),
    [
        (name, value)
        for name, row in ROWS.items()
        if row.is_number
        for value in NO_NUMBERS
        if (name, value) != ("logprobs", False)  # koboldcpp's "none"
        if name != "draft" or not isinstance(value, bool)
    ],
)
def test_fields_of_numbers_take_only_numbers(name: str, value: object) -> None:
    error = refusal(**{name: value})
    assert error.param is not None
    assert name in error.param


@each_row("name", [name for name, row in ROWS.items() if row.type == "int"])
def test_fields_of_whole_numbers_take_only_whole_numbers(name: str) -> None:
    assert "1.5" in refusal(**{name: 1.5}).message
    parsed(**{"n": 1} | with_room(name, 2.0))


@each_row("name", [name for name, row in ROWS.items() if row.type == "bool"])
def test_switches_take_only_true_or_false(name: str) -> None:
    assert refusal(**{name: 1}).message == f"{name} is 1; it must be true or false"


def test_biases_have_a_bound_for_all_sequences_together() -> None:
    half = {"logit_bias": [[5, 1]] * (MOST_BIASES // 2)}
    parsed(n=2, sequences=[half, half])
    refused = refusal(n=2, logit_bias=[[5, 1]], sequences=[half, half])
    assert (refused.param, refused.message) == (
        "logit_bias",
        "logit_bias has 400001 entries in all sequences; at most 400000",
    )


# What tests/support/bad_input.py has is sent over HTTP and stands there.
MESSAGES: list[tuple[dict[str, Any], str | None, str]] = [
    ({"temperature": -1}, "temperature", "temperature is -1; it must be between 0 and 100"),
    ({"temperature": math.nan}, "temperature", "temperature is NaN; it must be between 0 and 100"),
    ({"min_tokens": 200}, "min_tokens", "min_tokens is 200; it must be at most max_tokens, 128"),
    ({"stop": ["a", 7]}, "stop", 'stop is ["a", 7]; it must be a text or a list of texts'),
    ({"prompt": 5}, "prompt", "prompt is 5; it must be a text or a list of token ids"),
    ({"prompt": ["a", "b"]}, "prompt", 'prompt is ["a", "b"]; it must be a text or a list of token ids'),
    ({"prompt": [1, -1]}, "prompt", "prompt is [1, -1]; it must be a text or a list of token ids"),
    ({"prompt": [True]}, "prompt", "prompt is [true]; it must be a text or a list of token ids"),
    (
        {"logit_bias": {"5": True}},
        "logit_bias",
        "logit_bias for 5 is true; it must be a number between -1e9 and 1e9, or false",
    ),
    ({"logit_bias": [[1.5, 1]]}, "logit_bias", "logit_bias names 1.5; it must be a token id or a text"),
    ({"samplers": 3}, "samplers", "samplers is 3; it must be a list of sampler names"),
    (
        {"sampler_order": [6, 7]},
        "sampler_order",
        "sampler_order is [6, 7]; it must be a list of numbers from 0 to 6",
    ),
    ({"temperature": [1, 2]}, "temperature", "temperature is a list of 2; it must have n, 8"),
    (
        {"temperature": {"from": 1}},
        "temperature",
        'temperature is {"from": 1}; it must be a number, a list of n numbers, or {"from": 0.5, "to": 1}',
    ),
    (
        {"n": 2, "temperature": [1, -2]},
        "sequences[1].temperature",
        "sequences[1].temperature is -2; it must be between 0 and 100",
    ),
    ({"sequences": {}}, "sequences", "sequences is {}; it must be a list of objects, one per sequence"),
    (
        {"n": 1, "sequences": [{"top_k": "x"}]},
        "sequences[0].top_k",
        'sequences[0].top_k is "x"; it must be a whole number between -1 and 2147483647',
    ),
    (
        {"n": 1, "sequences": [{"stop": 7}]},
        "sequences[0].stop",
        "sequences[0].stop is 7; it must be a text or a list of texts",
    ),
    (
        {"n": 1, "max_tokens": 3, "sequences": [{"min_tokens": 4}]},
        "min_tokens",
        "min_tokens is 4; it must be at most max_tokens, 3",
    ),
    (
        {"dynatemp_low": 2, "dynatemp_high": 1},
        "dynatemp_low",
        "dynatemp_low is 2; it must be at most dynatemp_high, 1",
    ),
]


@each_row(("fields", "param", "message"), MESSAGES, ids=lambda value: repr(value)[:50])
def test_a_refusal_names_field_value_and_bound(fields: dict[str, Any], param: str, message: str) -> None:
    error = refusal(**fields)
    assert (error.message, error.param, error.status) == (message, param, 400)


def test_a_refusal_does_not_repeat_a_long_text() -> None:
    assert len(refusal(temperature="x" * 10_000).message) < 200
    assert len(refusal(stop=[7] * 10_000).message) < 200


DEFAULT_DRY = ["\n", ":", '"', "*"]
KOBOLDS_ORDER = [
    "encoder_repetition_penalty", "no_repeat_ngram", "dry", "top_n_sigma", "penalties", "top_k", "top_a",
    "tfs", "typ_p", "epsilon_cutoff", "eta_cutoff", "top_p", "min_p", "temperature", "smoothing", "xtc",
]  # fmt: skip
SHAPES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"logit_bias": {"5": -1, "7": False}}, {"logit_bias": [[5, -1.0], [7, False]]}),
    ({"logit_bias": [[5, -1], [" the", False]]}, {"logit_bias": [[5, -1.0], [" the", False]]}),
    ({"logit_bias": {}}, {"logit_bias": []}),
    ({"dry_sequence_breakers": ["a", ""]}, {"dry_sequence_breakers": ["a"]}),
    ({"dry_sequence_breakers": '["\\n", ":", "\\"", "*"]'}, {"dry_sequence_breakers": DEFAULT_DRY}),
    ({"dry_sequence_breakers": '"\\n", ":", "\\"", "*"'}, {"dry_sequence_breakers": DEFAULT_DRY}),
    ({"dry_sequence_breakers": "a,*,b c"}, {"dry_sequence_breakers": ["a", "*", "b c"]}),
    ({"dry_sequence_breakers": ""}, {"dry_sequence_breakers": []}),
    ({"samplers": "kpt"}, {"samplers": ["top_k", "top_p", "temperature"]}),
    ({"samplers": "edskypmxt"}, {"samplers": list(LLAMA_SAMPLERS[:9])}),
    ({"samplers": ["top-k", "TYPICAL_P", "temp"]}, {"samplers": ["top_k", "typ_p", "temperature"]}),
    ({"samplers": []}, {"samplers": []}),
    (
        {"samplers": "dry > Top-K: 40 >xtc:0.5:0.1>temp:1;infill, tfs"},
        {
            "samplers": ["dry", "top_k", "xtc", "temperature", "infill", "tfs"],
            "top_k": 40,
            "xtc_probability": 0.5,
            "xtc_threshold": 0.1,
            "temperature": 1,
        },
    ),
    ({"samplers": ["top_k:9", "dry"], "top_k": 9}, {"samplers": ["top_k", "dry"], "top_k": 9}),
    (
        {"samplers": "temp:2 > top_k:50 > xtc:.5 > temp:1e-1:0.05 > xtc > top_k", "top_k": 3},
        {
            "samplers": [
                {"name": "temperature", "temperature": 2},
                {"name": "top_k", "top_k": 50},
                {"name": "xtc", "xtc_probability": 0.5},
                {"name": "temperature", "temperature": 0.1, "dynatemp_range": 0.05},
                "xtc",
                "top_k",
            ],
            "top_k": 3,
        },
    ),
    ({"sampler_order": [6, 0, 1, 3, 4, 2, 5]}, {"samplers": KOBOLDS_ORDER}),
    (
        {"sampler_priority": "repetition_penalty\nquadratic_sampling\nmirostat\ntfs\ntop_k"},
        {"samplers": ["penalties", "smoothing", "tfs", "top_k"]},
    ),
    ({"banned_tokens": [3, 4]}, {"logit_bias": [[3, False], [4, False]]}),
    (
        {"custom_token_bans": "3, 4", "logit_bias": {"1": 2}},
        {"logit_bias": [[1, 2.0], [3, False], [4, False]]},
    ),
    ({"dynatemp_low": 0.5, "dynatemp_high": 1.5}, {"temperature": 1.0, "dynatemp_range": 0.5}),
    ({"min_temp": 1, "max_temp": 1, "temperature": 0.7}, {"temperature": 0.7}),
    ({"dynamic_temperature": False, "dynatemp_low": 0.5, "dynatemp_high": 1.5}, {}),
    ({"repeat_last_n": -1, "dry_range": -1}, {"repeat_last_n": -1, "dry_penalty_last_n": -1}),
    ({"top_k": 40.0}, {"top_k": 40}),
]


@each_row(("fields", "expected"), SHAPES, ids=lambda value: repr(value)[:50])
def test_each_form_of_a_setting_becomes_one_value(fields: dict[str, Any], expected: dict[str, Any]) -> None:
    request = parsed(**fields)
    assert request.engine_fields().get("sampling", {}) == expected
    assert not request.warnings


def test_banned_phrases_and_banned_tokens_share_a_field_of_other_servers() -> None:
    request = parsed(banned_tokens=["shivers down", 7], bad_words=["x"])
    assert set(request.banned_strings) >= {"shivers down"}
    assert request.sampling.logit_bias == ((7, False),)


SCHEMA = {"type": "object", "properties": {"z": {}, "a": {}}}
SCHEMA_TEXT = '{"type":"object","properties":{"z":{},"a":{}}}'
TAG = {"type": "structural_tag", "format": {"type": "json_schema", "json_schema": SCHEMA}}
TAG_TEXT = '{"type":"structural_tag","format":{"type":"json_schema","json_schema":' + SCHEMA_TEXT + "}}"


@each_row(
    ("fields", "name", "value"),
    [
        ({"grammar": 'root ::= "x"'}, "grammar", 'root ::= "x"'),
        ({"regex": "x+"}, "regex", "x+"),
        ({"choice": ["b", "a"]}, "choice", ("b", "a")),
        ({"choice": "only"}, "choice", ("only",)),
        ({"json_schema": SCHEMA}, "json_schema", SCHEMA_TEXT),
        ({"json_schema": json.dumps(SCHEMA)}, "json_schema", SCHEMA_TEXT),
        ({"response_format": {"type": "json_object"}}, "json_schema", '{"type":"object"}'),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}},
            "json_schema",
            SCHEMA_TEXT,
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            "json_schema",
            SCHEMA_TEXT,
        ),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", SCHEMA_TEXT),
        ({"structured_outputs": {"regex": "x", "choice": None}}, "regex", "x"),
        ({"structural_tag": TAG}, "structural_tag", TAG_TEXT),
        ({"response_format": TAG}, "structural_tag", TAG_TEXT),
        ({"structured_outputs": {"structural_tag": TAG_TEXT}}, "structural_tag", TAG_TEXT),
    ],
)
def test_each_notation_of_a_structure_reaches_the_engine(
    fields: dict[str, Any], name: str, value: object
) -> None:
    engine_fields = parsed(**fields).engine_fields()
    assert {key: engine_fields[key] for key in STRUCTURES if key in engine_fields} == {name: value}
    assert not parsed(**fields).warnings


@pytest.mark.parametrize("fields", [{"grammar": ""}, {"regex": ""}, {"response_format": {"type": "text"}}])
def test_an_empty_structure_is_none(fields: dict[str, Any]) -> None:
    assert parsed(**fields).engine_fields() == parsed().engine_fields()


def test_a_list_for_a_number_is_one_value_per_sequence() -> None:
    fields = parsed(n=3, temperature=[0.6, None, 1.2], seed=7, max_tokens=[1, 2, 3]).engine_fields()
    assert fields["sequences"] == [
        {"temperature": 0.6, "max_tokens": 1},
        {"max_tokens": 2},
        {"temperature": 1.2, "max_tokens": 3},
    ]
    assert fields["sampling"] == {"seed": 7}


def test_a_list_of_settings_that_are_no_numbers_is_one_per_sequence() -> None:
    found = {"max_pattern_size": 4, "min_count": 3}
    fields = parsed(
        n=2, loops=["end", "rewind"], repetition_detection=[found, None], logits_processor=[True, {"a": 1}]
    ).engine_fields()
    made = {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 3}
    assert fields["sequences"] == [
        {"loops": "end", "repetition_detection": made, "logits_processor": True},
        {"loops": "rewind", "logits_processor": {"a": 1}},
    ]
    assert refusal(n=2, loops=["end", "x"]).message.startswith("sequences[1].loops is")
    assert "true, false or an object" in refusal(logits_processor="yes").message
    assert parsed(logits_processor="true").logits_processor is True


def test_from_and_to_are_spread_over_the_sequences() -> None:
    fields = parsed(n=4, temperature={"from": 0.6, "to": 1.2}, top_k={"from": 10, "to": 41}).engine_fields()
    assert [one["temperature"] for one in fields["sequences"]] == [0.6, 0.8, 1.0, 1.2]
    assert [one["top_k"] for one in fields["sequences"]] == [10, 20, 31, 41]
    assert parsed(n=1, temperature={"from": 0.6, "to": 1.2}).sequences[0].temperature == 0.6
    with pytest.raises(
        RequestError, match=r"sequences\[1\].temperature is 200.0; it must be between 0 and 100"
    ):
        parsed(n=2, temperature={"from": 1, "to": 200})


def test_a_sequences_own_setting_wins_over_a_list() -> None:
    request = parsed(n=2, temp=[0.1, 0.2], sequences=[{"temperature": 0.9}, {}])
    assert [own.temperature for own in request.sequences] == [0.9, 0.2]


def test_empty_sequences_are_none() -> None:
    assert "sequences" not in parsed(n=2, sequences=[{}, {"seed": -1}]).engine_fields()


@pytest.mark.parametrize("seed", [-1, 2**32 - 1])
def test_a_random_seed_is_left_to_the_engine(seed: int) -> None:
    assert "sampling" not in parsed(seed=seed).engine_fields()
    assert sampling(seed=0) == {"seed": 0}


SEEDS = [
    ({}, 7, [7, 8, 9]),
    ({"seed": 2**32 - 3}, 2**32 - 3, [2**32 - 3, 2**32 - 2, 0]),
    ({"seed": [3, 2**32 - 1, -1]}, 7, [3, 8, 9]),
    ({"sequences": [{"seed": 2**32 - 1}, {"seed": 0}, {"seed": -1}]}, 7, [7, 0, 9]),
]


@pytest.mark.parametrize(("fields", "first", "seeds"), SEEDS)
def test_a_sequence_without_a_seed_uses_the_requests_seed(
    fields: dict[str, Any], first: int, seeds: list[int]
) -> None:
    request = parsed(n=3, **fields)
    assert [request.seed_of(index, first) for index in range(3)] == seeds
    told = [own.get("seed") for own in request.engine_fields().get("sequences", [])]
    assert not {-1, 2**32 - 1} & set(told)


FOLDED = [
    (2**32 - 2, 2**32 - 2),
    (2**32, 1),
    (2 * (2**32 - 1), 0),
    (2**64 - 1, 0),
    (-2, 2**32 - 2),  # as llama-server has it
    (-(2**32) - 1, 0),
    (-(2**63), 0),
]


@each_row(("seed", "own"), FOLDED)
def test_seeds_of_64_bits_are_folded(seed: int, own: int) -> None:
    assert parsed(seed=seed).sampling.seed == own
    assert parsed(n=2, seed=[seed, 5]).engine_fields()["sequences"] == [{"seed": own}, {"seed": 5}]


SPREAD = Defaults(diversity="arithmetic")


@each_row(
    ("fields", "engine"),
    [
        ({}, "arithmetic"),
        ({"diversity": "none"}, None),
        ({"mirostat": 2}, None),
        ({"adaptive_target": 0.3}, None),
        ({"samplers": ["adaptive_p"]}, None),
        ({"n": 2, "temperature": [0.5, 1.0]}, None),
        ({"n": 2, "sequences": [{"max_tokens": 3, "stop": "x", "seed": 5}, {}]}, "arithmetic"),
    ],
    ids=repr,
)
def test_a_default_of_diversity_applies_where_it_is_possible(
    fields: dict[str, Any], engine: str | None
) -> None:
    request = request_from({"prompt": "x", **fields}, SPREAD)
    assert request.engine_fields().get("diversity") == engine
    assert request_from({"prompt": "x", **fields}).diversity == "none"


def test_the_engine_generates_best_of_candidates() -> None:
    request = parsed(n=2, best_of=5)
    assert (request.n, request.candidates, request.ranked) == (2, 5, True)
    assert {"n": 5, "sum_logprobs": True}.items() <= request.engine_fields().items()
    for best_of in (0, 1, 2):
        request = parsed(n=2, best_of=best_of)
        assert (request.candidates, request.ranked) == (2, False)
    assert parsed(n=2, rank_by="logprob").ranked


@pytest.mark.parametrize(("whole", "fields"), [(True, "again"), (False, "mark")])
def test_retries_need_an_answer_in_one_body(whole: bool, fields: str) -> None:
    request = request_from({"prompt": "x", "dedupe": True}, Defaults(whole=whole))
    assert request.engine_fields()["dedupe"] == fields
    assert "dedupe" not in request_from({"prompt": "x"}, Defaults(whole=whole)).engine_fields()


@pytest.mark.parametrize("name", ["stop", "banned_strings", "dry_sequence_breakers"])
def test_texts_are_limited_as_in_the_engine(name: str) -> None:
    parsed(**{name: ["x" * 4096] * 1024})
    assert refusal(**{name: ["x"] * 1025}).message == f"{name} has 1025 texts; it may have 1024"
    assert refusal(**{name: ["é" * 2049]}).message == f"{name} has a text of 4098 bytes; it may have 4096"


WARNINGS = [
    ({"temprature": 1}, '"temprature" is not a known field; did you mean "temperature"?'),
    ({"xyzzy": 1}, '"xyzzy" is not a known field'),
    ({"samplers": "top_k:7", "temp": 1, "top_k": 8}, "top_k is not used, because samplers has top_k:7"),
    (
        {"samplers": "temp:2 > dry > temp:1", "temp": 3, "dry_base": 2},
        "temperature is not used, because samplers has temperature:2",
    ),
    ({"length_penalty": 0.6}, "length_penalty is 0.6, but there is no such setting here; it is not used"),
]


@pytest.mark.parametrize(("fields", "warning"), WARNINGS, ids=lambda value: repr(value)[:30])
def test_fields_without_effect_cause_warnings(fields: dict[str, Any], warning: str) -> None:
    assert parsed(**fields).warnings == (warning,)


@each_row("client", ["koboldcpp", "llamacpp", "ooba", "tabby", "aphrodite"])
@each_row("preset", PRESETS.values(), ids=PRESETS)
def test_presets_of_silly_tavern_cause_no_warning(client: str, preset: dict[str, Any]) -> None:
    read_before = frozenset({"model", "stream", "stream_options"})
    assert request_from(sent(client, WHOLE).fields | preset, known=read_before).warnings == ()


NEUTRAL = {
    "top_a": 0,
    "tfs": 1,
    "tfs_z": 1.0,
    "smoothing_factor": 0.0,
    "smoothing_curve": 1,
    "encoder_repetition_penalty": 1,
    "no_repeat_ngram_size": 0,
    "penalty_alpha": 0,
    "epsilon_cutoff": 0,
    "eta_cutoff": 0,
    "skew": 0,
    "rep_pen_slope": 1,
    "preset": "None",
    "json_schema": "",
    "logprobs": False,
    "n": 3,
    "best_of": 3,
}


def test_unsupported_settings_are_accepted_at_their_neutral_value() -> None:
    assert not parsed(**NEUTRAL).warnings


def test_strict_refuses_unknown_fields() -> None:
    with pytest.raises(RequestError, match="did you mean") as caught:
        request_from({"prompt": "x", "temprature": 1}, Defaults(strict=True))
    assert caught.value.param == "temprature"
    with pytest.raises(RequestError) as caught:
        request_from({"prompt": "x", "n": 1, "sequences": [{"temprature": 1}]}, Defaults(strict=True))
    assert caught.value.param == "sequences[0].temprature"
    request_from({"prompt": "x", "user": "me"}, Defaults(strict=True), known=frozenset({"user"}))


BODIES = [
    (b"", "the body is empty; it must be a JSON object"),
    (b" \n", "the body is empty; it must be a JSON object"),
    (b"{", "the body is not JSON"),
    (b'{"a":1}x', "the body is not JSON"),
    (b"[1]", "the body is [1]; it must be a JSON object"),
    (b"null", "the body is null; it must be a JSON object"),
    (b'"text"', 'the body is "text"; it must be a JSON object'),
    (b'{"prompt":"\xff"}', "the body is not UTF-8 (byte 11)"),
    (b"[" * 20_000, "the body is nested over 300 levels deep; it must be at most 64"),
    (b"[" * 20_000 + b"]" * 20_000, "the body is nested over 300 levels deep; it must be at most 64"),
    (
        b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
        "the body is nested over 300 levels deep; it must be at most 64",
    ),
    (b'{"prompt":"\\ud800"}', "prompt holds a lone surrogate, which is no character"),
    (b'{"temperature":NaN}', "temperature is NaN; JSON has no such number"),
    (b'{"temperature":1e999}', "temperature is Infinity; JSON has no such number"),
    (b'{"unknown":[-Infinity]}', "unknown is [-Infinity]; JSON has no such number"),
    (b'{"tokens":[' + b"1," * 1_000_001 + b"1]}", "the body has 1000003 commas and opening"),
]


@each_row(("body", "message"), BODIES, ids=lambda value: repr(value)[:30])
def test_a_body_that_is_no_object_is_refused_with_its_own_message(body: bytes, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_body(body)
    assert caught.value.message.startswith(message)
    assert len(caught.value.message) < 200


@each_row("inner", ["1", "NaN", '"\\ud800"', "[],[]", '{"a":{}}'])
@each_row("depth", [MAX_DEPTH + 1, *range(960, 1000), 1024, 1025])
def test_a_body_that_is_nested_too_deeply_is_refused_with_its_depth(depth: int, inner: str) -> None:
    more = {"[],[]": 1, '{"a":{}}': 2}.get(inner, 0)
    body = '{"prompt":' + nested(depth - 1 - more, inner) + ',"other":[]}'
    with pytest.raises(RequestError) as caught:
        parse_body(body.encode())
    assert caught.value.message == why_deep("the body", depth, MAX_DEPTH) or inner in NO_JSON


NO_JSON = ("NaN", '"\\ud800"')  # is said before how deep it stands


def why_deep(name: str, depth: int, most: int) -> str:
    """orjson reads at most 1024 levels, so a larger depth is not known."""
    found = depth if depth <= 1024 else "over 300"
    return f"{name} is nested {found} levels deep; it must be at most {most}"


def nested(depth: int, inner: str = "1") -> str:
    """JSON of nested lists, so many levels deep."""
    return "[" * depth + inner + "]" * depth


@pytest.mark.parametrize("text", ["[" * 99, "]" * 99, '"[', '\\[{"' * 99, "\\" * 99 + '"' + "{" * 99])
def test_brackets_in_texts_and_side_by_side_are_not_nesting(text: str) -> None:
    body = {"prompt": text, "a": [[text], {text: [text]}] * 99}
    for data in (orjson.dumps(body), json.dumps(body, indent=1).encode()):
        assert parse_body(data) == body


def test_a_body_may_be_nested_up_to_the_bound() -> None:
    assert parse_body(b'{"a":' + nested(MAX_DEPTH - 1).encode() + b"}")


AS_TEXT = ["json_schema", "messages", "tools", "chat_template_kwargs", "dry_sequence_breakers"]


@each_row("name", AS_TEXT)
@each_row("depth", [MAX_DEPTH, *range(960, 1000), 20_000])
def test_json_in_a_text_is_nested_no_deeper_than_in_a_body(name: str, depth: int) -> None:
    with pytest.raises(RequestError) as caught:
        request_from({"prompt": "x", name: nested(depth)})
    assert caught.value.message == why_deep(name, depth, MAX_DEPTH - 1)
    assert caught.value.param == name


LARGE = {
    "a brace too few": (b'{"prompt":"' + b"a" * 15_000_000 + b'"', "the body is not JSON"),
    "a million values and a comma": (b'{"a":[' + b"1," * 900_000 + b"]}", "the body is not JSON"),
    "a deep end": (
        b'{"a":"' + b"a" * 2_000_000 + b'","b":' + b"[" * 5_000_000,
        "the body has 5000002 commas and opening",
    ),
    "no character": (b'{"a":"' + b"a" * 2_000_000 + b'\\ud800"}', "the body is not JSON"),
}


@pytest.mark.parametrize(("body", "message"), LARGE.values(), ids=LARGE)
def test_a_large_body_that_is_no_json_is_refused_at_once(body: bytes, message: str) -> None:
    began = time.process_time()
    with pytest.raises(RequestError, match=message):
        parse_body(body)
    assert time.process_time() - began < 0.2


def test_a_body_is_an_object() -> None:
    assert parse_body('{"prompt": "é"}'.encode()) == {"prompt": "é"}


def test_the_tables_describe_every_field() -> None:
    rows = samplers_table()
    assert [row["name"] for row in rows] == list(SAMPLING_ROWS)
    assert all(row["meaning"] and row["group"] and row["type"] != "object" for row in rows)
    shown = [row for row in samplers_table() if row["type"] in ("int", "float", "bool")]
    assert [row["name"] for row in shown if not row["title"] or not row["about"]] == [], "for writers"
    titles = [row["title"] for row in samplers_table()]
    assert all(titles), "each sampling field has a name for writers"
    assert len(set(titles)) == len(titles)
    assert all(
        row["low"] is not None and row["high"] is not None for row in rows if row["type"] in ("int", "float")
    )
    assert {"prompt", "n", "max_tokens", "stop", "sequences"} <= {row["name"] for row in request_table()}
    orjson.dumps([rows, request_table()])


def test_no_two_fields_share_an_alias() -> None:
    aliases = [alias for row in ROWS.values() for alias in (row.name, *row.aliases)]
    assert len(aliases) == len(set(aliases))


def test_neutral_values_are_allowed_values() -> None:
    parsed(**{row.name: row.neutral for row in SAMPLING_ROWS.values() if row.neutral is not None})


def anything(dice: random.Random, depth: int = 0) -> Any:
    """A JSON value of any kind."""
    leaves = [
        None,
        True,
        False,
        0,
        -1,
        1,
        1.5,
        10**30,
        -1e308,
        "",
        "x",
        "1",
        "9" * 5000,
        "\ud800",
        "[",
        "1,2",
    ]
    if depth == 2 or dice.random() < 0.5:
        return dice.choice(leaves)
    items = [anything(dice, depth + 1) for _ in range(dice.randrange(4))]
    return items if dice.random() < 0.5 else {str(dice.choice(leaves)): item for item in items}


@each_row("name", sorted({*KNOWN_NAMES}))
def test_no_value_of_any_field_is_worse_than_a_refusal(name: str) -> None:
    dice = random.Random(name)
    for _ in range(200):
        with contextlib.suppress(RequestError):
            body = {"prompt": "x", "n": dice.choice([1, 2]), name: anything(dice)}
            orjson.dumps(request_from(body).engine_fields())


def test_a_million_unknown_fields_cost_little() -> None:
    body = {"prompt": "x", **{f"temperatur{i}": i for i in range(1_000_000)}}
    began = time.process_time()
    assert len(request_from(body).warnings) == 16
    assert time.process_time() - began < 30


# Chats

HELLO = TALK
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {"b": 1, "a": 2}}}


def chat_fields(**fields: Any) -> dict[str, Any]:
    return request_from({"messages": HELLO, **fields}).engine_fields()


def test_a_chat_reaches_the_engine_with_the_order_of_its_keys() -> None:
    sent = chat_fields(tools=[TOOL], chat_template_kwargs={"x": [1]}, add_generation_prompt=False)
    assert json.loads(sent["messages"]) == HELLO
    assert sent["tools"].index('"b"') < sent["tools"].index('"a"')
    assert sent["chat_template_kwargs"] == {"x": [1]}
    assert sent["add_generation_prompt"] is False
    assert "prompt" not in sent


def test_fields_of_a_message_that_templates_do_not_read_are_dropped() -> None:
    asked = {"role": "assistant", "content": None, "refusal": None, "annotations": [], "tool_calls": None}
    sent = chat_fields(messages=[asked, {"role": "user", "content": [{"type": "text", "text": "x"}]}])
    assert json.loads(sent["messages"])[0] == {"role": "assistant", "content": ""}


def test_a_tool_chosen_by_name_is_the_only_one_and_required() -> None:
    other = {"type": "function", "function": {"name": "time"}}
    named = {"type": "function", "function": {"name": "weather"}}
    sent = chat_fields(tools=[other, TOOL], tool_choice=named)
    assert (json.loads(sent["tools"]), sent["tool_choice"]) == ([TOOL], "required")


def test_reasoning_effort_is_an_argument_of_the_template() -> None:
    assert chat_fields(reasoning_effort="low")["chat_template_kwargs"] == {"reasoning_effort": "low"}
    assert chat_fields(reasoning_effort="none")["enable_thinking"] is False


@each_row(
    ("fields", "param", "message"),
    [
        ({"messages": []}, "messages", "messages is []; it must be a list of messages, at least one"),
        ({"messages": ["x"]}, "messages", 'messages[0] is "x"; it must be an object: role, content'),
        ({"messages": [{"content": "x"}]}, "messages", "messages[0].role is null; it must be a text"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages", "messages[0].content is 7; it must be"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages",
            'messages[0].content is {"type": "image_url", "image_url": "x"}; it must be a part of type text',
        ),
        ({"messages": HELLO * 10_001}, "messages", "messages has 10001 messages; it may have 10000"),
        ({"prompt": "x"}, "messages", "only one of messages and prompt may be given"),
        ({"tools": [{"type": "x"}]}, "tools", "tools is"),
        (
            {"tool_choice": "some"},
            "tool_choice",
            'tool_choice is "some"; it must be one of auto, none, required',
        ),
        ({"tool_choice": {"type": "function", "function": {"name": "x"}}}, "tool_choice", "tool_choice is"),
        ({"chat_template_kwargs": 1}, "chat_template_kwargs", "chat_template_kwargs is 1; it must be an"),
        ({"enable_thinking": "no"}, "enable_thinking", 'enable_thinking is "no"; it must be true or false'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_invalid_chat_is_refused_with_a_message(fields: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(RequestError) as caught:
        chat_fields(**fields)
    assert caught.value.param == param
    assert caught.value.message.startswith(message)
    assert len(caught.value.message) < 200


@each_row("name", [name for name in CHAT if name != "messages"])
def test_a_field_of_chats_needs_messages(name: str) -> None:
    others = {"thinking_budget_tokens": 5, "thinking_budget_message": "So."}
    given = {"tools": [TOOL], "tool_choice": "none", "reasoning_format": "auto", **others}
    value = given.get(name, True)
    with pytest.raises(RequestError, match="given without messages"):
        request_from({"prompt": "x", name: {} if name == "chat_template_kwargs" else value})


PARTS = [{"text": "a"}, {"text": "b", "special": True}]


def test_a_prompt_may_have_parts() -> None:
    request = request_from({"prompt": PARTS})
    assert request.prompt == (Part("a"), Part("b", special=True))
    assert request.engine_fields()["prompt"] == [{"text": "a", "special": False}, PARTS[1]]


@pytest.mark.parametrize(
    "part", [{}, {"text": 1}, {"text": "a", "more": 1}, {"text": "a", "special": 1}, {"text": "\ud800"}]
)
def test_a_wrong_part_is_named(part: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=r"^prompt\[1\] is ") as raised:
        request_from({"prompt": [{"text": "a"}, part]})
    assert raised.value.param == "prompt"


def test_arguments_of_a_past_call_that_are_no_object_are_a_warning() -> None:
    def call(arguments: Any) -> dict[str, Any]:
        return {"type": "function", "function": {"name": "f", "arguments": arguments}}

    given = ["{}", "", None, {"a": 1}, '{"a": 1', "[1]", '{"a": 1e999}', "x" * 100_000]
    calls = {"role": "assistant", "tool_calls": [call(one) for one in given]}
    request = request_from({"messages": [{"role": "user", "content": "?"}, calls]})
    told = [warning.partition(" is ")[0] for warning in request.warnings]
    assert told == [f"messages[1].tool_calls[{j}].function.arguments" for j in (4, 5, 6)]


def test_a_call_can_be_required_only_of_tools() -> None:
    for tools in ({}, {"tools": []}):
        with pytest.raises(RequestError, match="there are no tools") as caught:
            request_from({"messages": [{"role": "user", "content": "?"}], "tool_choice": "required", **tools})
        assert caught.value.param == "tool_choice"
