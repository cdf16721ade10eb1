"""Checks commands by the engine's own table of fields: fields.json is what `llama-batched --fields` prints.

tests/real/test_fields.py checks that the two are equal. The table is JSON Schema; only its keywords
are implemented.
"""

from __future__ import annotations

import json
import os.path
from typing import Any

from .stories import as_chatml, tokens_of

with open(os.path.join(os.path.dirname(__file__), "fields.json"), encoding="utf-8") as file:
    TABLE: dict[str, Any] = json.load(file)
N_CTX = 16384
TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
UNNAMED = ("sampling", "sequences")  # errors name their fields without the name of the object


class Refused(Exception):
    """An invalid command."""

    def __init__(
        self, param: str, message: str, code: str = "invalid_request", sizes: dict[str, int] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.param = code, param
        self.sizes = sizes or {}  # of a prompt that is too long


def check(command: Any) -> None:
    """Raises Refused for a command that protocol 1 does not allow."""
    if not isinstance(command, dict):
        raise Refused("", "the command is no object")
    for name in ("op", "id"):
        if not isinstance(command.get(name), str):
            raise Refused(name, f"{name} must be a string")
    if command["op"] not in TABLE["commands"]:
        raise Refused("op", f"there is no op {command['op']!r}")
    check_object(command["op"], command, TABLE["commands"][command["op"]])
    if command["op"] in ("chat", "template"):
        command["prompt"] = as_chatml(command["messages"])
    if command["op"] in ("generate", "prefix", "chat"):
        check_prompt(command)


def check_object(name: str, value: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> None:
    for field, inner in value.items():
        if field not in schema["properties"]:
            raise Refused(name if prefix else field, f"{name} has no field {field!r}")
        check_value(prefix + field, inner, schema["properties"][field])
    for field in schema["required"]:
        if field not in value:
            raise Refused(name if prefix else field, f"{prefix}{field} is missing")


def check_value(name: str, value: Any, schema: dict[str, Any]) -> None:
    schema = next((one for one in schema.get("anyOf", ()) if has_type(value, one)), schema)
    if not has_type(value, schema):
        raise Refused(name, f"{name} has the wrong type: {value!r}")
    if "$ref" in schema:
        object_name = schema["$ref"].rpartition("/")[2]
        prefix = "" if object_name in UNNAMED else object_name + "."
        check_object(object_name, value, TABLE["$defs"][object_name], prefix)
    if value not in schema.get("enum", [value]):
        raise Refused(name, f"{name} is {value!r}; it must be one of {schema['enum']}")
    for bounds, number in ((("minimum", "maximum"), value), (("minItems", "maxItems"), length(value))):
        low, high = (schema.get(bound, number) for bound in bounds)
        if bounds[0] in schema and not low <= number <= high:
            raise Refused(name, f"{name} is {number}; it must be between {low} and {high}")
    if isinstance(value, list) and "items" in schema:
        for item in value:
            check_value(name, item, schema["items"])


def length(value: Any) -> int:
    return len(value) if isinstance(value, list) else 0


def has_type(value: Any, schema: dict[str, Any]) -> bool:
    if "anyOf" in schema:
        return any(has_type(value, one) for one in schema["anyOf"])
    kind = "object" if "$ref" in schema else schema["type"]
    return isinstance(value, TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))


def check_prompt(command: dict[str, Any]) -> None:
    if ("prompt" in command) == ("tokens" in command) and not (
        "continue" in command and "tokens" not in command
    ):
        raise Refused("prompt", "one of prompt and tokens must be given")
    size = len(tokens_of(command)) + 1
    if size > N_CTX:
        message = f"the prompt has {size - 1} tokens, the context {N_CTX}"
        raise Refused("prompt", message, "context_exceeded", {"n_prompt_tokens": size - 1, "n_ctx": N_CTX})
