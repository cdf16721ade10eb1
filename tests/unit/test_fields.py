"""The engine's table of fields agrees with the server's commands, the fake engine's checks and the docs.

tests/fake_engine/fields.json is the table as `llama-batched --fields` prints it; tests/real/test_fields.py
compares it with the engine.
"""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from llama_srb.engine.commands import (
    encode_cancel,
    encode_extend,
    encode_generate,
    encode_prefix,
    encode_surplus,
)
from llama_srb.request import finish, values
from llama_srb.request.fields import (
    DIVERSITIES,
    FIRST_TOKENS,
    LOOPS,
    OVERRIDE_ROWS,
    RANDOM_SEED,
    REASONING_FORMATS,
    REQUEST_ROWS,
    SAMPLING_ROWS,
    TOOL_CHOICES,
    Extension,
    Row,
)
from llama_srb.request.parse import extension_from, request_from
from llama_srb.request.phrases import MAX_PHRASE, MAX_PHRASE_BIAS, MAX_PHRASES
from llama_srb.request.shapes import SIDES
from tests.fake_engine.fields import TABLE, Refused, check
from tests.support.places import ROOT
from tests.support.rows import each_row

COMMANDS, OBJECTS = (
    {name: schema["properties"] for name, schema in TABLE[group].items()} for group in ("commands", "$defs")
)
ENVELOPE = {"op", "id", "client", "priority"}
OURS = {  # fields that the engine does not know
    "timeout", "best_of", "rank_by", "diversity_stats", "story", "return_tokens_as_token_ids",
}  # fmt: skip
ENGINES = {  # fields of a generate command that are none of a request
    "tokens", "sampling", "sum_logprobs", "certainty",
}  # fmt: skip
TYPES = {"int": "integer", "float": "number", "bool": "boolean", "text": "string", "repetition": None,
         "bool or object": None}  # fmt: skip


def bounds(row: Row) -> tuple[Any, Any]:
    """Those of seeds are the engine's after they are folded."""
    return (0, RANDOM_SEED) if row.name == "seed" else (row.low, row.high)


def test_the_rows_of_sampling_are_the_engines() -> None:
    assert SAMPLING_ROWS.keys() == OBJECTS["sampling"].keys()
    assert OVERRIDE_ROWS.keys() == OBJECTS["sequences"].keys() - {"replay"}  # which is for benchmarks


@each_row("row", OVERRIDE_ROWS.values(), ids=OVERRIDE_ROWS)
def test_a_row_of_sampling_has_the_engines_type_and_bounds(row: Row) -> None:
    schema = OBJECTS["sequences"][row.name]
    assert schema.get("type") == TYPES.get(row.type, "array")  # an object's is in its own table
    if row.is_number:
        assert bounds(row) == (schema["minimum"], schema["maximum"])


def test_the_rows_of_a_request_are_the_engines() -> None:
    known = COMMANDS["generate"].keys() | COMMANDS["chat"].keys()
    assert REQUEST_ROWS.keys() - OURS == known - ENVELOPE - ENGINES


@pytest.mark.parametrize(
    "row", [row for row in REQUEST_ROWS.values() if row.is_number and row.name not in OURS]
)
def test_a_number_of_a_request_is_within_the_engines_bounds(row: Row) -> None:
    schema = COMMANDS["chat" if row.group == "chat" else "generate"][row.name]
    assert schema["type"] == TYPES[row.type]
    assert row.low is not None
    assert schema["minimum"] <= row.low <= (row.high or row.low) <= schema["maximum"]


def test_the_names_of_choices_are_the_engines() -> None:
    ours = {"diversity": DIVERSITIES, "first_token": FIRST_TOKENS, "tool_choice": TOOL_CHOICES,
            "reasoning_format": REASONING_FORMATS, "logprobs_mode": ("raw", "processed", "both")}  # fmt: skip
    assert {name: COMMANDS["chat"][name]["enum"] for name in ours} == {n: list(c) for n, c in ours.items()}


def test_the_bounds_of_values_are_the_engines() -> None:
    stop, position, adapter = COMMANDS["generate"]["stop"], OBJECTS["continue"], OBJECTS["lora"]
    assert TABLE["nesting"] == values.MAX_DEPTH
    assert (stop["maxItems"], stop["items"]["maxLength"]) == (values.MAX_TEXTS, values.MAX_TEXT_BYTES)
    assert (position["index"]["maximum"], position["at"]["maximum"]) == (values.MAX_INDEX, values.INT32_MAX)
    assert (adapter["scale"]["minimum"], adapter["scale"]["maximum"]) == (
        -values.MAX_ADAPTER_SCALE,
        values.MAX_ADAPTER_SCALE,
    )
    prune = OBJECTS["prune"]
    assert (prune["at"]["maxItems"], tuple(prune["by"]["enum"])) == (finish.MAX_PRUNE_POINTS, finish.SCORES)
    for unit in ("sentences", "paragraphs"):
        assert OBJECTS["end"][unit]["maximum"] == finish.MAX_PASSAGES
    assert OBJECTS["repetition_detection"]["min_count"]["maximum"] == finish.MAX_LOOP
    phrases = COMMANDS["generate"]["phrase_bias"]
    assert phrases["maxItems"] == MAX_PHRASES
    assert OBJECTS["phrase_bias"]["text"]["maxLength"] == MAX_PHRASE
    assert OBJECTS["phrase_bias"]["bias"]["maximum"] == MAX_PHRASE_BIAS
    assert COMMANDS["generate"]["loop_detect_window"]["maximum"] == finish.MAX_LOOP
    assert tuple(COMMANDS["generate"]["loops"]["enum"]) == LOOPS
    assert COMMANDS["embed"]["input"]["maxItems"] == values.MAX_EMBEDDED
    assert COMMANDS["score"]["texts"]["maxItems"] == values.MAX_SCORED
    assert COMMANDS["generate"]["cache_salt"]["maxLength"] == 4 * values.MAX_SALT  # bytes of a character
    assert COMMANDS["generate"]["truncation_side"]["enum"] == list(SIDES)


# Sent commands

SAMPLE: dict[str, Any] = {
    "dry_sequence_breakers": ["."],
    "logit_bias": {"5": False},
    "samplers": ["top_k"],
    "ignore_eos": True,
    "temperature_last": True,
    "do_sample": False,
}
SAMPLED = {name: SAMPLE.get(name, row.high) for name, row in SAMPLING_ROWS.items()} | {"seed": 7}
COMMON: dict[str, Any] = {
    "n": 2, "max_tokens": 9, "min_tokens": 1, "stop": ["a"], "banned_strings": ["b"], "private_tokens": ["p"],
    "logprobs": 3, "echo": True, "token_healing": True, "logprobs_mode": "processed", "cache": False,
    "lora": [{"id": 0, "scale": 0.5}], "rank_by": "logprob", "prompt_logprobs": 0, "return_token_ids": True,
    "return_entropies": True, "stop_token_ids": [1], "allowed_token_ids": [2],
    "include_stop_str_in_output": True, "skip_special_tokens": False, "end": {"sentences": 2},
    "repetition_detection": {"max_pattern_size": 9, "min_count": 3}, "loop_detect_window": 9,
    "loops": "rewind", "phrase_bias": [{"text": "a", "bias": 1, "once": True}],
    "sequences": [{"seed": 1, "stop": ["c"]}, {"top_k": 2}], "dedupe": True,
    "cache_salt": "s", "truncate_prompt_tokens": -1, "truncation_side": "right",
    "lenient": True, "json_additional": True, "property_order": "any", "json_whitespace": "free",
    "negative_prompt": "bad", "draft": True, "logits_processor": {"a": 1},
}  # fmt: skip
PLAIN: list[dict[str, Any]] = [
    {"prompt": "Once", **COMMON, **SAMPLED},
    {"prompt": [1, 2], "diversity": "arithmetic", "first_token": "distinct"},
    {"prompt": [{"text": "Once"}, {"text": " upon", "special": True}]},
    {"continue": {"id": "17", "index": 0, "at": 3, "exact": True}},
    {"prompt": "Once", "rank_by": "certainty", "finish": {"first": 6}, "prune": {"at": [8, 16], "keep": 2}},
    {"prompt": "Once", "then": {"text": "So:", "json_schema": {}, "stop": ["a"], "max_tokens": 9}},
    *({"prompt": "Once", name: text} for name, text in
      {"grammar": 'root ::= "a"', "json_schema": {"type": "object"}, "regex": "a+", "choice": ["a"],
       "structural_tag": {"format": {"type": "any_text"}}}.items()),
]  # fmt: skip
HELLO = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "He"}]
TOOL = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CHATS: list[dict[str, Any]] = [
    {"messages": HELLO, **COMMON, **SAMPLED, "parallel_tool_calls": True, "tools": [TOOL],
     "tool_choice": "auto", "reasoning_format": "none", "enable_thinking": False,
     "chat_template_kwargs": {"a": 1}, "add_generation_prompt": False, "continue_final_message": True,
     "plain_content": True, "thinking_budget_tokens": 9, "thinking_budget_message": "So."},
    {"messages": HELLO, "then": {"text": "So:", "regex": "a"}},
    {"messages": HELLO[:1], "continue": {"id": "17", "index": 0, "at": 3}},
    *({"messages": HELLO, **{name: value for name, value in body.items() if name != "prompt"}}
      for body in PLAIN if "prompt" in body),
]  # fmt: skip


def sent(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [json.loads(encode_generate("17", request_from(body), "client", 1)) for body in bodies]


def test_a_completions_command_has_the_fields_that_the_engine_reads() -> None:
    commands = sent(PLAIN)
    for command in commands:
        check(dict(command))
    assert set().union(*commands) == COMMANDS["generate"].keys()
    assert commands[0]["sampling"].keys() == OBJECTS["sampling"].keys()


def test_a_chats_command_has_the_fields_that_the_engine_reads() -> None:
    commands = sent(CHATS)
    for command in commands:
        check(dict(command))
    assert set().union(*commands) == COMMANDS["chat"].keys()


def test_the_other_commands_have_the_fields_that_the_engine_reads() -> None:
    adapter = {"lora": [{"id": 0, "scale": 1}], "cache_salt": "s", "truncate_prompt_tokens": 7}
    adapter["truncation_side"] = "left"
    prefixes = [
        encode_prefix("17", request_from({"prompt": prompt} | adapter), "c", 1) for prompt in ("a", [1])
    ]
    extensions = [
        encode_extend("17", Extension()),
        encode_extend("17", extension_from({"add": 1, "max_tokens": 3, "fork": {"index": 0, "at": 2}})),
    ]
    lines = {
        "prefix": prefixes,
        "extend": extensions,
        "cancel": [encode_cancel("17"), encode_cancel("17", 1), encode_surplus("17")],
    }
    for op, encoded in lines.items():
        commands = [json.loads(line) for line in encoded]
        for command in commands:
            check(command)
        assert set().union(*commands) | {"client", "priority"} == COMMANDS[op].keys()


# The fake engine

VALID: list[dict[str, Any]] = [
    {"op": "generate", "id": "1", "prompt": "a", "banned_strings": ["b"]},
    {"op": "template", "id": "1", "messages": [{"role": "user", "content": "Hello"}]},
    {"op": "tokenize", "id": "1", "text": "a", "pieces": True},
    {"op": "score", "id": "1", "texts": ["a", [1]]},
    {"op": "load_adapter", "id": "1", "adapter": {"id": 7, "path": "a.gguf", "scale": 0}},
    {"op": "unload_adapter", "id": "1", "adapter": 7},
]
INVALID: list[tuple[dict[str, Any], str]] = [
    ({"op": "generate", "prompt": "a", "sampling": {"top_q": 1}}, "top_q"),
    ({"op": "generate", "prompt": "a", "sampling": {"top_p": 2}}, "top_p"),
    ({"op": "generate", "prompt": "a", "sequences": [{"top_k": 1.5}]}, "top_k"),
    ({"op": "generate", "continue": {"id": "1", "index": -1}}, "continue.index"),
    ({"op": "generate", "prompt": "a", "lora": [{"scale": 1}]}, "lora"),
    ({"op": "score", "texts": []}, "texts"),
    ({"op": "chat", "messages": [], "tool_choice": "perhaps"}, "tool_choice"),
    ({"op": "tokenize"}, "text"),
    ({"op": "load_adapter", "adapter": {"id": 7}}, "adapter"),
    ({"op": "load_adapter", "adapter": {"id": -1, "path": "a.gguf"}}, "adapter.id"),
    ({"op": "unload_adapter", "adapter": "a"}, "adapter"),
]  # fmt: skip


@each_row("command", VALID, ids=json.dumps)
def test_the_fake_engine_accepts_commands_that_the_engine_accepts(command: dict[str, Any]) -> None:
    check(command)


@each_row(("command", "param"), INVALID, ids=json.dumps)
def test_the_fake_engine_refuses_commands_that_the_engine_refuses(
    command: dict[str, Any], param: str
) -> None:
    with pytest.raises(Refused) as caught:
        check({"id": "1"} | command)
    assert caught.value.param == param


# The documentation

PAGE = (ROOT / "docs/engine-protocol.md").read_text()
DOCUMENTED = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", PAGE.partition("## Events")[0], re.MULTILINE))


@each_row("op", COMMANDS)
def test_the_page_names_every_field_of_a_command(op: str) -> None:
    names = COMMANDS[op].keys() - ENVELOPE - (COMMANDS["generate"].keys() if op == "chat" else set())
    named = set(re.findall(r"`(\w+)`", DOCUMENTED[op]))
    assert names <= named | (COMMANDS["chat"].keys() if op == "template" else set())


def test_the_page_names_every_command() -> None:
    assert DOCUMENTED.keys() == COMMANDS.keys()
