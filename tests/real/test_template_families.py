"""What the chat templates of real models take, and what holds for the answers: llama.cpp's models/templates.

In the gate a few of them, one of each form of calls; all of them with LONG=1 (scripts/long).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from benchmarks import peers
from tests.support.chats import HELLO, TOOLS, message
from tests.support.lines import Answer, Lines
from tests.support.long import amount
from tests.support.models import CHAT_TOKENS, write_model
from tests.support.rows import each_row

FOLDER = Path(peers.setting("CMAKE_HOME_DIRECTORY"), "models/templates")
GATE = [
    "Qwen-Qwen3-0.6B", "meta-llama-Llama-3.1-8B-Instruct", "mistralai-Mistral-Nemo-Instruct-2407",
    "deepseek-ai-DeepSeek-V3.1", "google-gemma-2-2b-it", "openai-gpt-oss-120b", "GLM-4.6", "Qwen3.5-4B",
    "meetkai-functionary-medium-v3.2", "MiniMax-M3", "google-gemma-4-31B-it",
    "LFM2.5-Instruct",
]  # fmt: skip
ALL = sorted(path.stem for path in FOLDER.glob("*.jinja"))
FAMILIES = ALL if amount(0, 1) else GATE

WITHOUT_TOOLS = {
    "HuggingFaceTB-SmolLM3-3B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B", "google-gemma-2-2b-it",
    "llama-cpp-rwkv-world", "microsoft-Phi-3.5-mini-instruct",
    "ByteDance-Seed-OSS",  # llama.cpp finds no parser for tools that have an enum
    "ibm-granite-granite-3.3-2B-Instruct",  # nor how this one calls a tool
}  # fmt: skip
IN_FRONT = ("deepseek", "llama-cpp", "mistralai-Mistral-Nemo", "tencent", "upstage")
"""Templates that put all of the system's messages in front, wherever they stand."""


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A family's name, and an engine whose model has its template."""
    path = tmp_path_factory.mktemp("family") / "family.gguf"
    template = (FOLDER / f"{request.param}.jinja").read_text()
    write_model(path, "llama", chat_template=template, control=list(CHAT_TOKENS), context=8192)
    with Lines("-c", "32768", model=path) as engine:
        yield request.param, engine


def chats(engine: Lines, *several: dict[str, Any]) -> list[Answer]:
    return engine.answers(engine.send(*({"op": "chat", "messages": HELLO} | one for one in several)))


def prompts(engine: Lines, *several: dict[str, Any]) -> list[str]:
    """The prompts of chats, or the errors."""
    results = engine.answers(engine.send(*({"op": "template"} | one for one in several)))
    return [(event := one.events[-1]).get("prompt") or event["message"] for one in results]


def test_chats_tools_and_schemas_are_taken(family: Any) -> None:
    name, engine = family
    schema = {"type": "object", "properties": {"a": {"enum": ["x"]}}, "additionalProperties": False}
    fields: list[dict[str, Any]] = [{}, {"json_schema": schema}, {"enable_thinking": False}]
    if name not in WITHOUT_TOOLS:
        fields += [{"tools": TOOLS}, {"tools": one_tool(schema)["tools"], "json_schema": schema}]
    answers = chats(engine, *({"n": 2, "max_tokens": 30, **one} for one in fields))
    assert [answer.done["completion_tokens"] > 2 for answer in answers] == [True] * len(fields)
    assert message(answers[0], 0)["content"] or message(answers[0], 0)["reasoning"]


def test_an_answer_that_must_call_a_tool_has_no_text(family: Any) -> None:
    """With random weights at temperature 1: each sequence calls a tool, or still thinks."""
    name, engine = family
    asked = {"tools": TOOLS, "tool_choice": "required", "enable_thinking": False, "n": 8, "max_tokens": 150}
    (answer,) = chats(engine, asked)
    if name in WITHOUT_TOOLS:
        assert answer.events[-1]["event"] == "error"
        return
    made = [message(answer, i) for i in range(8)]
    assert [one["content"].strip() for one in made] == [""] * 8
    assert {call["name"] for one in made for call in one["calls"]} <= {"weather", "time"}
    ended = [stop["index"] for stop in answer.stops if stop["finish_reason"] == "stop"]
    assert all(made[i]["calls"] for i in ended)


PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "when": {"allOf": [{"type": "string", "maxLength": 3}, {"pattern": "^[a-z]+$"}]},
        "count": {"type": "integer", "minimum": 3, "exclusiveMaximum": 20},
        "unit": {"$ref": "#/$defs/unit"},
        "maybe": {"type": ["string", "null"], "maxLength": 2},
        "places": {
            "type": "object",
            "patternProperties": {"^x[a-c]?$": {"type": "number", "minimum": 0, "maximum": 1}},
            "additionalProperties": False,
            "maxProperties": 2,
        },
    },
    "required": ["when", "count"],
    "anyOf": [{"required": ["unit"]}, {"properties": {"count": {"maximum": 5}}}],
    "dependentRequired": {"places": ["maybe"]},
    "additionalProperties": False,
    "$defs": {"unit": {"enum": ["C", "F"]}},
}
BY_PARTS = ("MiniMax-M3",)
"""Templates that write calls in nested tags: only parts of a schema hold there."""
ENDLESS = {
    "deepseek-ai-DeepSeek-V3.2", "deepseek-ai-DeepSeek-V4", "deepseek-ai-DeepSeek-V4-Flash-0731",
    "muse-glimmer", "tencent-Hy3",
}  # fmt: skip
"""With random weights their calls do not end, as thoughts of others: white space has no bound behind them."""


def one_tool(parameters: dict[str, Any], *, strict: bool = True) -> dict[str, Any]:
    function = {"name": "weather", "description": "", "parameters": parameters, "strict": strict}
    return {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}


def test_arguments_obey_the_whole_schema(family: Any) -> None:
    """With random weights; and a keyword without an exact meaning is refused, or left out with a warning."""
    name, engine = family
    if name in WITHOUT_TOOLS:
        return
    unique = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True, "items": {}}}}
    asked = {
        "enable_thinking": False, "n": 8, "max_tokens": 250, "json_whitespace": "compact",
        "parallel_tool_calls": False,
    }  # fmt: skip
    strict, refused, warned = chats(
        engine,
        {**asked, **one_tool(PARAMETERS)},
        {**asked, **one_tool(unique)},
        {**asked, **one_tool(unique, strict=False), "max_tokens": 2},
    )
    if name in BY_PARTS:
        assert "cannot hold; the tool may not be strict" in strict.events[-1]["message"]
        assert "cannot hold as a whole" in warned.start["warnings"][0]
        return
    if "While executing" in strict.events[-1].get("message", ""):
        return  # the template cannot print such a schema
    ended = [stop["index"] for stop in strict.stops if stop["finish_reason"] == "stop"]
    made = [call["arguments"] for i in ended for call in message(strict, i)["calls"]]
    assert {one for one in made if faults(one)} == set()
    assert made or message(strict, 0)["reasoning"] or name in ENDLESS
    where = 'the tool "weather": /properties/a/uniqueItems: '
    assert refused.events[-1]["message"].startswith(where)
    assert warned.start["warnings"][0].startswith(where)


KINDS: list[dict[str, Any]] = [
    {
        "type": "object",
        "properties": {"kind": {"const": "a"}, "count": {"type": "integer", "minimum": 3, "maximum": 20}},
        "required": ["kind", "count"],
        "additionalProperties": False,
    },
    {
        "type": "object",
        "properties": {"kind": {"const": "b"}, "when": {"type": "string", "pattern": "^[a-z]{1,3}$"}},
        "required": ["kind", "when"],
        "additionalProperties": False,
    },
]
ROOTS: list[dict[str, Any]] = [
    {"oneOf": KINDS},
    {"anyOf": KINDS},
    {"allOf": [{"$ref": "#/$defs/b"}, {"minProperties": 2}], "$defs": {"b": KINDS[1]}},
    {"type": "object", "properties": {}, "additionalProperties": False},
]


def test_arguments_obey_a_schema_that_gives_its_members_below_the_root(family: Any) -> None:
    name, engine = family
    if name in WITHOUT_TOOLS or name in BY_PARTS:
        return
    asked = {
        "enable_thinking": False, "n": 4, "max_tokens": 200, "json_whitespace": "compact",
        "parallel_tool_calls": False,
    }  # fmt: skip
    answers = chats(engine, *({**asked, **one_tool(root)} for root in ROOTS))
    n_made = 0
    for root, answer in zip(ROOTS, answers, strict=True):
        if "While executing" in answer.events[-1].get("message", ""):
            continue  # the template cannot print such a schema
        assert answer.done, root
        ended = [stop["index"] for stop in answer.stops if stop["finish_reason"] == "stop"]
        made = [call["arguments"] for i in ended for call in message(answer, i)["calls"]]
        assert {one for one in made if faults(one, root)} == set(), root
        n_made += len(made)
    assert n_made or message(answers[-1], 0)["reasoning"] or name in ENDLESS


def faults(arguments: str, schema: dict[str, Any] = PARAMETERS) -> list[Any]:
    return [*jsonschema.Draft202012Validator(schema).iter_errors(json.loads(arguments))]


CALL = {"name": "weather", "arguments": '{"unit": "C"}'}
RESULT = {"role": "tool", "tool_call_id": "abcdefghi", "content": "It rains."}
ARGUMENTS = [None, "", " ", '{"a": 1', "[1]", '{"a": 1e999}', 5, [1], {"unit": "C"}]


def with_call(arguments: Any) -> dict[str, Any]:
    """A chat with a call in its past; arguments None: the call has none."""
    function = {**CALL, "arguments": arguments} if arguments is not None else {"name": "weather"}
    call = {
        "role": "assistant",
        "tool_calls": [{"id": "abcdefghi", "type": "function", "function": function}],
    }
    return {"messages": [*HELLO, call, RESULT], "tools": TOOLS}


def test_a_call_in_the_past_may_have_any_arguments(family: Any) -> None:
    name, engine = family
    whole, *others = prompts(engine, with_call(CALL["arguments"]), *map(with_call, ARGUMENTS))
    if name in WITHOUT_TOOLS:
        return
    made = zip(ARGUMENTS, others, strict=True)
    assert {str(given): prompt for given, prompt in made if RESULT["content"] not in prompt} == {}
    assert others[-1].replace(" ", "") == whole.replace(" ", "")


def said(*several: str) -> list[dict[str, str]]:
    """Messages of one word each: the role and the word."""
    return [dict(zip(("role", "content"), one.split(), strict=True)) for one in several]


SYSTEMS = [
    ("system First", "developer Second", "user Third"),
    ("developer First", "system Second", "user Third"),
    ("system First", "system Second", "user Third"),
    ("system First", "user Second", "assistant Third", "system Fourth", "user Fifth"),
    ("user First", "system Second"),
]


def test_no_message_of_system_or_developer_is_lost_or_refused(family: Any) -> None:
    name, engine = family
    chats = [said(*several) for several in SYSTEMS]
    made = prompts(engine, *({"messages": messages} for messages in chats))
    for messages, prompt in zip(chats, made, strict=True):
        places = [prompt.find(one["content"]) for one in messages]
        assert -1 not in places, (messages, prompt)
        if messages[0]["role"] == "user" or len(messages) > 3:
            assert places == sorted(places) or name.startswith(IN_FRONT), (messages, prompt)


TWO_SYSTEMS = {"Qwen-Qwen3-0.6B": True, "google-gemma-2-2b-it": False}


@each_row(("name", "stands"), list(TWO_SYSTEMS.items()))
def test_a_prompt_stays_as_it_is_where_the_template_takes_the_messages(
    name: str, stands: bool, tmp_path: Path
) -> None:
    """Where it does not, the user tells what the system says, in one message with his own."""
    path = tmp_path / "family.gguf"
    template = (FOLDER / f"{name}.jinja").read_text()
    write_model(path, "llama", chat_template=template, control=list(CHAT_TOKENS), context=8192)
    with Lines("-c", "8192", model=path) as engine:
        messages = said("system First", "user Second", "assistant Third", "system Fourth", "user Fifth")
        (prompt,) = prompts(engine, {"messages": messages})
    assert ("<|im_start|>system\nFourth<|im_end|>" in prompt) is stands, prompt
    assert ("<start_of_turn>user\nFourth\n\nFifth<end_of_turn>" in prompt) is not stands, prompt
