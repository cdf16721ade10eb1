"""The table that --fields prints is equal to the repository's copy, and the engine reads commands by it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.lines import BINARY, LIMIT, Event, Lines
from tests.support.places import ROOT
from tests.support.rows import each_row

COPY = ROOT / "tests/fake_engine/fields.json"
TABLE = json.loads(COPY.read_text())
UNNAMED = ("sampling", "sequences")  # errors name their fields without the name of the object
LISTS = ("sequences", "lora", "prompt", "phrase_bias", "samplers", "banned_strings")  # of these objects
VALUES: tuple[Any, ...] = (None, True, 7.5, "text", [True], {"unknown": 1})
FIELDS = [
    (op, name, schema)
    for op, command in TABLE["commands"].items()
    for name, schema in command["properties"].items()
    if name not in ("op", "id")  # checked in tests/real/test_protocol.py: the answer depends on them
]
NESTED = [(owner, name) for owner, object in TABLE["$defs"].items() for name in object["properties"]]


@pytest.fixture(scope="module")
def engine() -> Iterator[Lines]:
    with Lines("-np", "2", "-c", "1024") as engine:
        yield engine


def test_the_copy_in_the_repository_is_what_the_engine_prints() -> None:
    printed = subprocess.run([BINARY, "--fields"], stdout=subprocess.PIPE, check=True, timeout=LIMIT).stdout
    assert printed == COPY.read_bytes(), (
        "run build/bin/llama-batched --fields > tests/fake_engine/fields.json"
    )


OWNERS = {
    "fork": "extend",
    "adapter": "load_adapter",
}  # the command that an object is a field of, if not generate


def valid(op: str) -> dict[str, Any]:
    """Valid values for the fields that a command must have."""
    values: dict[str, Any] = {
        "prefix": {"prompt": "a"}, "generate": {"prompt": "a"}, "chat": {"messages": []},
        "pin": {"name": "a", "prompt": "a"}, "unpin": {"name": "a"},
        "score": {"texts": ["a"]}, "embed": {"input": ["a"]}, "tokenize": {"text": "a"},
        "rerank": {"query": "a", "documents": ["b"]},
        "count_tokens": {"texts": ["a"]}, "detokenize": {"tokens": []}, "template": {"messages": []},
        "load_adapter": {"adapter": {"id": 0, "path": "a.gguf"}}, "unload_adapter": {"adapter": 0},
    }  # fmt: skip
    return {"op": op, **values.get(op, {})}


def error_of(engine: Lines, command: dict[str, Any]) -> Event:
    engine.send(command)
    while (event := engine.read())["event"] == "accepted":
        pass
    assert event["event"] == "error", f"{command} was taken"
    return event


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the schema allows the value's JSON type."""
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    names = {
        type(None): "null",
        bool: "boolean",
        float: "number",
        str: "string",
        list: "array",
        dict: "object",
    }
    return names[type(value)] == schema.get("type", "object")


def holding(owner: str, object: dict[str, Any]) -> dict[str, Any]:
    """The command's field that has this object."""
    value = [object] if owner in LISTS else object
    return {"sampling": {owner: value}} if owner == "samplers" else {owner: value}


@each_row(("op", "name", "schema"), FIELDS, ids=[f"{op} {name}" for op, name, _ in FIELDS])
def test_a_field_of_the_table_is_refused_by_name_when_its_type_is_wrong(
    engine: Lines, op: str, name: str, schema: dict[str, Any]
) -> None:
    for value in VALUES:
        if not fits(value, schema):
            error = error_of(engine, valid(op) | {name: value})
            assert (error["code"], error["param"]) == ("invalid_request", name)
            assert error["message"].startswith(f"{name} is ")


@each_row(("owner", "name"), NESTED, ids=[".".join(names) for names in NESTED])
def test_a_field_of_an_object_is_refused_by_name_when_its_type_is_wrong(
    engine: Lines, owner: str, name: str
) -> None:
    op = OWNERS.get(owner, "generate")
    error = error_of(engine, valid(op) | holding(owner, {name: None}))
    known = name if owner in UNNAMED else f"{owner}.{name}"
    assert (error["param"], error["message"].partition(";")[0]) == (known, f"{known} is null")


@each_row("op", TABLE["commands"])
def test_a_field_that_is_not_in_the_table_is_refused_as_unknown(engine: Lines, op: str) -> None:
    error = error_of(engine, valid(op) | {"temprature": 1})
    assert (error["param"], error["message"]) == ("temprature", f'{op} has no field "temprature"')


@each_row("owner", TABLE["$defs"])
def test_a_field_that_an_object_does_not_have_is_refused_as_unknown(engine: Lines, owner: str) -> None:
    error = error_of(engine, valid(OWNERS.get(owner, "generate")) | holding(owner, {"temprature": 1}))
    assert error["param"] == ("temprature" if owner in UNNAMED else owner)
    assert error["message"] == f'{owner} has no field "temprature"'


@each_row("op", TABLE["commands"])
def test_a_command_without_a_required_field_is_refused(engine: Lines, op: str) -> None:
    for name in set(TABLE["commands"][op]["required"]) - {"op", "id"}:
        error = error_of(engine, {key: value for key, value in valid(op).items() if key != name})
        assert (error["param"], error["message"]) == (name, f"{name} is missing")
