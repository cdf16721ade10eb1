"""OpenAI's responses: tools and tool_choice as those of a chat. Pure.

A chat knows functions only. A custom tool, whose input is a text, becomes a function with this text as its
one argument; a namespace's tools become functions with the namespace in their names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llama_srb.request.values import RequestError, is_text, shown, wrong

Json: TypeAlias = dict[str, Any]

INPUT = "input"  # the argument of a custom tool
CHOICES = ("auto", "none", "required")
ANY_OBJECT: Json = {"type": "object", "properties": {}}
TEXT_INPUT: Json = {
    "type": "object",
    "properties": {INPUT: {"type": "string"}},
    "required": [INPUT],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool as the client named it. function: as a chat has it."""

    name: str
    function: Json
    namespace: str | None = None
    is_custom: bool = False


@dataclass(frozen=True, slots=True)
class Tools:
    """by_name: the tools by their names in the chat. warnings: the tools that this server does not have."""

    by_name: Mapping[str, Tool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    def chosen(self, choice: object) -> Json:
        """The fields of a chat for a tool_choice; RequestError if it is wrong."""
        names = [*self.by_name]
        if isinstance(choice, dict):
            choice, names = self._named(choice)
        elif choice is not None and choice not in CHOICES:
            raise wrong("tool_choice", choice, "one of " + ", ".join(CHOICES) + ", or an object with a type")
        if choice == "required" and not names:
            message = 'tool_choice is "required", but tools has no function that can be called'
            raise RequestError(message, param="tool_choice")
        if not names:
            return {}
        tools = [{"type": "function", "function": self.by_name[name].function} for name in names]
        return {"tools": tools, "tool_choice": choice}

    def _named(self, choice: Json) -> tuple[object, list[str]]:
        """The choice and the tools of an object: one tool by its name, or a list of allowed ones."""
        kind = choice.get("type")
        if kind in ("function", "custom"):
            return "required", [self._name("tool_choice", choice)]
        if kind != "allowed_tools":
            wanted = 'of type "function", "custom" or "allowed_tools": this server has no tools of its own'
            raise wrong("tool_choice", choice, wanted)
        mode, allowed = choice.get("mode"), choice.get("tools")
        if mode not in ("auto", "required"):
            raise wrong("tool_choice.mode", mode, '"auto" or "required"')
        if not isinstance(allowed, list):
            raise wrong("tool_choice.tools", allowed, "a list of tools")
        ours = [one for one in allowed if isinstance(one, dict) and one.get("type") in ("function", "custom")]
        return mode, [self._name("tool_choice.tools", one) for one in ours]

    def _name(self, field: str, one: Json) -> str:
        """The name in the chat of a tool that tool_choice names."""
        for name, tool in self.by_name.items():
            if one.get("name") in (tool.name, name) and tool.is_custom == (one["type"] == "custom"):
                return name
        raise wrong(field, one, "one of tools by its type and name")


def chat_name(name: str, namespace: object) -> str:
    """The name of a tool in the chat."""
    return f"{namespace}__{name}" if namespace else name


def tools_of(value: object) -> Tools:
    """Reads the field tools; null is absent."""
    if value is not None and not isinstance(value, list):
        raise wrong("tools", value, "a list of tools")
    found: dict[str, Tool] = {}
    warnings: list[str] = []
    for i, one in enumerate(value or ()):
        kind = one.get("type") if isinstance(one, dict) else None
        if not isinstance(kind, str):
            raise wrong(f"tools[{i}]", one, "an object with a type", "tools")
        if kind not in READERS:
            warnings.append(f"tools[{i}] is of type {shown(kind)}, which this server does not have")
            continue
        for tool in READERS[kind](f"tools[{i}]", one):
            found[chat_name(tool.name, tool.namespace)] = tool
    return Tools(found, tuple(warnings))


def whole_tool(tool: Json) -> Json:
    """A tool as an answer repeats it: of a function, what the request left out, too."""
    if tool["type"] != "function":
        return tool
    return {"description": None, "parameters": None, "strict": True} | tool


def _function(place: str, tool: Json) -> Iterator[Tool]:
    name, parameters = _name_of(place, tool), tool.get("parameters")
    if not isinstance(parameters, dict | None):
        raise wrong(f"{place}.parameters", parameters, "a JSON schema", "tools")
    function = _chat_function(name, _description(place, tool), parameters or ANY_OBJECT)
    yield Tool(name, function | ({"strict": True} if tool.get("strict") is True else {}))


def _custom(place: str, tool: Json) -> Iterator[Tool]:
    """A grammar of its input becomes a part of the description: the model reads it, nothing enforces it."""
    name, description, form = _name_of(place, tool), _description(place, tool), tool.get("format")
    if not isinstance(form, dict | None):
        raise wrong(f"{place}.format", form, "an object", "tools")
    if form and form.get("type") == "grammar":
        description += f"\n\n{INPUT} matches this grammar ({form.get('syntax')}):\n{form.get('definition')}"
    yield Tool(name, _chat_function(name, description.strip(), TEXT_INPUT), is_custom=True)


def _namespace(place: str, tool: Json) -> Iterator[Tool]:
    namespace, inner = _name_of(place, tool), tool.get("tools")
    if not isinstance(inner, list):
        raise wrong(f"{place}.tools", inner, "a list of tools", "tools")
    for i, one in enumerate(inner):
        kind = one.get("type") if isinstance(one, dict) else None
        if kind not in ("function", "custom"):
            raise wrong(f"{place}.tools[{i}]", one, 'a tool of type "function" or "custom"', "tools")
        for made in READERS[kind](f"{place}.tools[{i}]", one):
            function = {**made.function, "name": chat_name(made.name, namespace)}
            yield Tool(made.name, function, namespace, made.is_custom)


READERS: Mapping[str, Callable[[str, Json], Iterator[Tool]]] = {
    "function": _function,
    "custom": _custom,
    "namespace": _namespace,
}


def _name_of(place: str, tool: Json) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name or not is_text(name):
        raise wrong(f"{place}.name", name, "a text, not empty", "tools")
    return name


def _description(place: str, tool: Json) -> str:
    description = tool.get("description")
    if not isinstance(description, str | None):
        raise wrong(f"{place}.description", description, "a text", "tools")
    return description or ""


def _chat_function(name: str, description: str, parameters: Json) -> Json:
    return {"name": name, "description": description, "parameters": parameters}
