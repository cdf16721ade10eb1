"""Anthropic's messages: system prompt, messages and tools in OpenAI's form, which the engine reads. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias

import orjson

from llama_srb.dialects.common.reply import Json
from llama_srb.request.values import RequestError, wrong

Block: TypeAlias = Mapping[str, Any]

NO_MESSAGES: list[Json] = [{"role": "user", "content": ""}]  # of messages that say nothing
BILLING = re.compile(r"\Ax-anthropic-billing-header:(?:\s*\w+=[^;\n]*;)+\s*")
"""Claude Code's note to Anthropic, which differs in each request: no prefix of a prompt would be known."""

CHOICES = {"auto": "auto", "any": "required", "none": "none"}

# ----------------------------------------------------------------------------------------------------
# Messages
# ----------------------------------------------------------------------------------------------------


def messages_of(system: object, messages: object) -> list[Json]:
    """All messages; the system prompt is the first one. RequestError names a block that cannot be read.

    Some templates accept a system message only at the beginning, and no two messages of the user in sequence.
    So a later system message is told by the user, and such messages are combined, as Anthropic's API does.
    """
    if messages is None:
        raise RequestError("messages is missing", param="messages")
    if not isinstance(messages, list) or not messages:
        raise wrong("messages", messages, "a list of messages, at least one")
    said: list[Json] = [{"role": "system", "content": text}] if (text := _system(system)) else []
    for i, message in enumerate(messages):
        said += _message(f"messages[{i}]", message)
    return [*_combined(said)] or NO_MESSAGES


def _combined(messages: list[Json]) -> Iterator[Json]:
    n = next((i for i, one in enumerate(messages) if one["role"] != "system"), len(messages))
    later = ({**one, "role": "user"} if one["role"] == "system" else one for one in messages[n:])
    for role, group in groupby((*messages[:n], *later), key=itemgetter("role")):
        if role in ("system", "user"):
            yield {"role": role, "content": _content([text for one in group for text in _texts(one)])}
        else:
            yield from group


def _texts(message: Json) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part["text"] for part in content]


def _system(value: object) -> str | list[Json]:
    if value is None:
        return ""
    if isinstance(value, str):
        return BILLING.sub("", value)
    if not isinstance(value, list):
        raise wrong("system", value, "a text or a list of blocks of type text")
    texts = [_text(f"system[{i}]", block) for i, block in enumerate(_blocks("system", value, ("text",)))]
    return _content([text for text in (BILLING.sub("", text) for text in texts) if text])


def _message(name: str, message: object) -> Iterable[Json]:
    role = message.get("role") if isinstance(message, dict) else None
    if not isinstance(message, dict) or not isinstance(role, str) or role not in BLOCKS:
        raise wrong(f"{name}.role", role, '"user" or "assistant"', "messages")
    content = message.get("content")
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    if not isinstance(content, list):
        raise wrong(f"{name}.content", content, "a text or a list of blocks", "messages")
    types, convert = BLOCKS[role]
    return convert(role, f"{name}.content", _blocks(f"{name}.content", content, types))


def _blocks(name: str, blocks: list[Any], types: tuple[str, ...]) -> list[Block]:
    """The same blocks; RequestError for one of another type."""
    for i, block in enumerate(blocks):
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise wrong(f"{name}[{i}]", block, "a block with a type", name.partition("[")[0])
        if kind not in types:
            message = f"{kind} input is not supported: {name}[{i}] must be of type {' or '.join(types)}"
            raise RequestError(message, param=name.partition("[")[0])
    return blocks


def _user(role: str, name: str, blocks: list[Block]) -> Iterator[Json]:
    """Results of tools are messages of their own, in the order of the blocks."""
    named = [(f"{name}[{i}]", block) for i, block in enumerate(blocks)]
    for are_results, group in groupby(named, key=lambda one: one[1]["type"] == "tool_result"):
        if are_results:
            yield from (_result(*one) for one in group)
        else:
            yield {"role": role, "content": _content([_text(*one) for one in group])}


def _result(name: str, block: Block) -> Json:
    content = block.get("content", "")
    if isinstance(content, list):
        inner = _blocks(f"{name}.content", content, ("text",))
        content = _content([_text(f"{name}.content[{i}]", one) for i, one in enumerate(inner)])
    if not isinstance(content, str | list):
        raise wrong(f"{name}.content", content, "a text or a list of blocks of type text", "messages")
    return {"role": "tool", "tool_call_id": _field(name, block, "tool_use_id"), "content": content}


def _assistant(role: str, name: str, blocks: list[Block]) -> Iterator[Json]:
    """One message: its text and its thinking may be several blocks."""
    of_type: dict[str, list[Any]] = {"text": [], "thinking": [], "tool_use": []}
    for i, block in enumerate(blocks):
        if (kind := block["type"]) in of_type:  # redacted thinking can be read only by Anthropic
            of_type[kind].append(READERS[kind](f"{name}[{i}]", block))
    message: Json = {"role": role, "content": "".join(of_type["text"])}
    if of_type["thinking"]:
        message["reasoning_content"] = "".join(of_type["thinking"])
    if of_type["tool_use"]:
        message["tool_calls"] = of_type["tool_use"]
    yield message


def _text(name: str, block: Block) -> str:
    return _field(name, block, "text")


def _thinking(name: str, block: Block) -> str:
    return _field(name, block, "thinking")


def _call(name: str, block: Block) -> Json:
    given = block.get("input")
    if given is not None and not isinstance(given, dict):
        raise wrong(f"{name}.input", given, "an object", "messages")
    arguments = orjson.dumps(given or {}).decode()
    function = {"name": _field(name, block, "name"), "arguments": arguments}
    return {"id": _field(name, block, "id"), "type": "function", "function": function}


def _field(name: str, block: Block, key: str) -> str:
    value = block.get(key)
    if not isinstance(value, str):
        raise wrong(f"{name}.{key}", value, "a text", name.partition("[")[0])
    return value


def _content(texts: list[str]) -> str | list[Json]:
    """One text as it is; several as parts, which the model's template joins."""
    if len(texts) == 1:
        return texts[0]
    return [{"type": "text", "text": text} for text in texts] or ""


READERS: Mapping[str, Callable[[str, Block], Any]] = {
    "text": _text, "thinking": _thinking, "tool_use": _call,
}  # fmt: skip
BLOCKS: Mapping[str, tuple[tuple[str, ...], Callable[[str, str, list[Block]], Iterable[Json]]]] = {
    "user": (("text", "tool_result"), _user),
    "assistant": (("text", "thinking", "redacted_thinking", "tool_use"), _assistant),
    "system": (("text",), _user),
}

# ----------------------------------------------------------------------------------------------------
# Tools
# ----------------------------------------------------------------------------------------------------


def tools_of(tools: object) -> list[Json]:
    """Tools as functions; RequestError for a tool that only Anthropic's servers or models know."""
    if tools is None:
        return []
    if not isinstance(tools, list):
        raise wrong("tools", tools, "a list of tools")
    return [_tool(f"tools[{i}]", tool) for i, tool in enumerate(tools)]


def _tool(name: str, tool: object) -> Json:
    if not isinstance(tool, dict):
        raise wrong(name, tool, "an object: name, description, input_schema", "tools")
    kind = tool.get("type")
    if kind not in (None, "custom"):
        message = (
            f"{name} is of type {kind}, which this server does not have; a tool must have an input_schema"
        )
        raise RequestError(message, param="tools")
    schema, description = tool.get("input_schema"), tool.get("description")
    if not isinstance(schema, dict):
        raise wrong(f"{name}.input_schema", schema, "a JSON schema", "tools")
    if description is not None and not isinstance(description, str):
        raise wrong(f"{name}.description", description, "a text", "tools")
    function: Json = {
        "name": _field(name, tool, "name"),
        "description": description or "",
        "parameters": schema,
    }
    if tool.get("strict") is True:
        function["strict"] = True
    return {"type": "function", "function": function}


def choice_of(choice: object, tools: list[Json]) -> Json:
    """The request fields of tool_choice; tools: in OpenAI's form."""
    if choice is None:
        return {}
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or kind not in (*CHOICES, "tool"):
        raise wrong("tool_choice", choice, 'an object whose type is "auto", "any", "tool" or "none"')
    if not tools:
        if kind in ("any", "tool"):
            raise RequestError(f"tool_choice is {kind}, but there are no tools", param="tool_choice")
        return {}
    if kind == "tool":
        _require_known(choice.get("name"), tools)
    named = {"type": "function", "function": {"name": choice.get("name")}}
    one_call = choice.get("disable_parallel_tool_use")
    if one_call is not None and not isinstance(one_call, bool):
        raise wrong("tool_choice.disable_parallel_tool_use", one_call, "true or false", "tool_choice")
    return {"tool_choice": CHOICES.get(str(kind), named)} | (
        {"parallel_tool_calls": False} if one_call else {}
    )


def _require_known(name: object, tools: list[Json]) -> None:
    names = [tool["function"]["name"] for tool in tools]
    if name not in names:
        raise wrong("tool_choice.name", name, "one of " + ", ".join(names), "tool_choice")
