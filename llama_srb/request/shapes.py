"""Normalises fields whose values have several shapes: each shape is converted to one, or is an error.

The rows of fields.py have the meaning of each field. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import starmap
from typing import Any, TypeAlias

import orjson

from llama_srb.request.json_text import read_json
from llama_srb.request.values import (
    MAX_ADAPTER_ID,
    MAX_ADAPTER_SCALE,
    MAX_ADAPTERS,
    MAX_BIAS,
    MAX_DEPTH,
    MAX_MESSAGES,
    MAX_SALT,
    MAX_TEXT_BYTES,
    MAX_TEXTS,
    RequestError,
    is_number,
    is_text,
    is_token,
    is_tokens,
    shown,
    token_id,
    whole,
    wrong,
)

LoraScales: TypeAlias = tuple[tuple[int | str, float], ...]  # by an adapter's id or its name


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a prompt. special: the names of control tokens in it are these tokens, else they are text."""

    text: str
    special: bool = False


def prompt(value: object) -> object:
    """A text, a list of token ids, or a list of parts: {"text", "special"}."""
    if isinstance(value, str):
        if not is_text(value):
            raise RequestError("prompt holds a lone surrogate, which is no character", param="prompt")
        return value
    if isinstance(value, list | tuple) and is_tokens(value):
        return tuple(value)
    if isinstance(value, list | tuple) and value and all(isinstance(one, dict | Part) for one in value):
        return tuple(starmap(_part, enumerate(value)))
    raise wrong("prompt", value, "a text or a list of token ids")


def _part(place: int, value: dict[str, Any] | Part) -> Part:
    if isinstance(value, Part):
        return value
    name, special = f"prompt[{place}]", value.get("special", False)
    if value.keys() - {"text", "special"} or not is_text(value.get("text")) or not isinstance(special, bool):
        raise wrong(name, value, 'an object {"text": a text, "special": true or false}', "prompt")
    return Part(value["text"], special)


def texts(name: str) -> Callable[[object], object]:
    """A text or a list of texts; empty ones are dropped, since an empty text would match everywhere."""

    def normalise(value: object) -> tuple[str, ...]:
        items: list[Any] = list(value) if isinstance(value, list | tuple) else [value]
        if not all(map(is_text, items)):
            raise wrong(name, value, "a text or a list of texts")
        if len(items) > MAX_TEXTS:
            raise RequestError(f"{name} has {len(items)} texts; it may have {MAX_TEXTS}", param=name)
        if (longest := max((len(item.encode()) for item in items), default=0)) > MAX_TEXT_BYTES:
            raise RequestError(
                f"{name} has a text of {longest} bytes; it may have {MAX_TEXT_BYTES}", param=name
            )
        return tuple(item for item in items if item)

    return normalise


def breakers(value: object) -> object:
    """A list of texts; or a JSON list as text, with or without its brackets: `"\\n", ":"`; or `a,b`."""
    if isinstance(value, str) and not set(value) & set('["'):
        value = value.split(",")
    if isinstance(value, str):
        try:
            value = _value_in("dry_sequence_breakers", value if value.lstrip()[:1] == "[" else f"[{value}]")
        except ValueError:
            raise wrong(
                "dry_sequence_breakers", value, 'a list of texts, or one as text: "\\n", ":"'
            ) from None
    if not isinstance(value, list | tuple):
        raise wrong("dry_sequence_breakers", value, "a list of texts")
    return texts("dry_sequence_breakers")(value)


def _bias_entry(key: object, bias: object) -> tuple[int | str, float | bool]:
    key = token_id(key)
    if not (is_token(key) or (isinstance(key, str) and key and is_text(key))):
        raise RequestError(
            f"logit_bias names {shown(key)}; it must be a token id or a text", param="logit_bias"
        )
    assert isinstance(key, int | str)
    if bias is False:
        return key, False
    if not (isinstance(bias, int | float) and is_number(bias) and abs(bias) <= MAX_BIAS):
        raise wrong(
            f"logit_bias for {shown(key)}", bias, "a number between -1e9 and 1e9, or false", "logit_bias"
        )
    return key, float(bias)


def logit_bias(value: object) -> object:
    """{id: bias}, or [[id | text, bias | false], …]; false bans the token."""
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list | tuple) or not all(
        isinstance(p, list | tuple) and len(p) == 2 for p in pairs
    ):
        raise wrong("logit_bias", value, "an object {id: bias} or a list of [id or text, bias or false]")
    return tuple(_bias_entry(key, bias) for key, bias in pairs)


def structure_text(name: str) -> Callable[[object], object]:
    """A grammar or a regular expression; an empty text is absent, as in other servers."""

    def normalise(value: object) -> object:
        if value is not None and not is_text(value):
            raise wrong(name, value, "a text")
        return value or None

    return normalise


def text(name: str) -> Callable[[object], object]:
    def check(value: object) -> object:
        if not is_text(value):
            raise wrong(name, value, "a text")
        return value

    return check


def _object(name: str) -> Callable[[object], object]:
    """An object, or one as text, as JSON; it keeps the order of properties, which is that in the output."""

    def normalise(value: object) -> object:
        if value == "":  # absent, as an empty grammar is
            return None
        if isinstance(value, str) and is_text(value):
            try:
                value = _value_in(name, value)
            except json.JSONDecodeError as error:
                where = f"line {error.lineno}, column {error.colno}"
                raise RequestError(f"{name}: {where}: {error.msg}", param=name) from None
        if value is not None and not isinstance(value, dict):
            raise wrong(name, value, "an object, or one as text")
        return None if value is None else _as_json(name, value)

    return normalise


schema, structural_tag = _object("json_schema"), _object("structural_tag")


def _as_json(name: str, value: object) -> str:
    """A value as JSON; it keeps the order of keys."""
    try:
        return orjson.dumps(value).decode()
    except orjson.JSONEncodeError as error:  # a Python object, or a number or character that JSON cannot have
        raise RequestError(f"{name} cannot be written as JSON: {error}", param=name) from None


def from_json(name: str, value: object) -> object:
    """Parses a value that may also be given as JSON text; other values are returned as they are."""
    if not isinstance(value, str) or not is_text(value):
        return value
    try:
        return _value_in(name, value)
    except json.JSONDecodeError:
        return value


def _value_in(name: str, text: str) -> Any:
    """Parses JSON text, which may have as many levels as a field's value in a body."""
    return read_json(name, text, MAX_DEPTH - 1, name)


_MESSAGE_KEYS = ("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "name")


def messages(value: object) -> object:
    """A list of messages; each has a role and a text, or parts of type text. Unknown keys are dropped."""
    if value is None:
        return None
    value = from_json("messages", value)
    if not isinstance(value, list | tuple) or not value:
        raise wrong("messages", value, "a list of messages, at least one")
    if len(value) > MAX_MESSAGES:
        raise RequestError(
            f"messages has {len(value)} messages; it may have {MAX_MESSAGES}", param="messages"
        )
    return _as_json("messages", [_message(f"messages[{i}]", one) for i, one in enumerate(value)])


def _message(name: str, value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(name, value, "an object: role, content", "messages")
    message = {key: value[key] for key in _MESSAGE_KEYS if value.get(key) is not None}
    if not isinstance(message.get("role"), str):
        raise wrong(f"{name}.role", message.get("role"), "a text", "messages")
    content = message.setdefault("content", "")
    if not isinstance(content, str | list):
        raise wrong(f"{name}.content", content, "a text or a list of parts of type text", "messages")
    for part in content if isinstance(content, list) else ():
        if not (isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)):
            raise wrong(f"{name}.content", part, "a part of type text, the only type here", "messages")
    return message


RANDOM_SEED = 2**32 - 1  # llama.cpp's LLAMA_DEFAULT_SEED, which means a random seed
LOWEST_SEED, HIGHEST_SEED = -(2**63), 2**64 - 1  # as OpenAI's and vLLM's clients send


def seed(value: object) -> object:
    """A seed of 64 bits as one of llama.cpp's generators, which have 32; those that fit stay as they are."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if type(value) is not int or not LOWEST_SEED <= value <= HIGHEST_SEED or -1 <= value <= RANDOM_SEED:
        return value
    return (value % 2**32 if value < 0 else value) % RANDOM_SEED


MOST_DRAFTED = 16


def draft(value: object) -> object:
    """How many tokens are guessed at most; true: as many as can be."""
    if isinstance(value, bool):
        return MOST_DRAFTED * value
    try:
        return None if value is None else whole("draft", value, 0, MOST_DRAFTED)
    except RequestError:
        wanted = f"true, false or a whole number between 0 and {MOST_DRAFTED}"
        raise wrong("draft", value, wanted) from None


SIDES = ("left", "right")
MAX_CHECKED = 1 << 16  # characters of arguments: more are not parsed for a warning


def unread_arguments(value: object) -> Iterator[str]:
    """A warning for each call in a chat's past whose arguments are text that is no JSON object."""
    left = MAX_CHECKED
    for i, message in enumerate(value if isinstance(value, list) else ()):
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        for j, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            text = function.get("arguments") if isinstance(function, dict) else None
            if not isinstance(text, str) or not text.strip() or (left := left - len(text)) < 0:
                continue
            if not _is_object(text):
                name = f"messages[{i}].tool_calls[{j}].function.arguments"
                yield f"{name} is no JSON object; the chat template is given it as text"


def _is_object(text: str) -> bool:
    try:
        return isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        return False


def tools(value: object) -> object:
    """A list of functions with names; an empty list is absent."""
    value = from_json("tools", value)
    if value in (None, [], ()):
        return None
    if not isinstance(value, list | tuple) or not all(map(tool_name, value)):
        raise wrong("tools", value, 'a list of {"type": "function", "function": {"name", …}}')
    return _as_json("tools", value)


def tool_name(tool: object) -> str | None:
    """The name of a tool's function; None if the tool is not a function with a name."""
    function = tool.get("function") if isinstance(tool, dict) and tool.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) else None


def kwargs(value: object) -> object:
    """An object, as JSON."""
    if value is None:
        return None
    value = from_json("chat_template_kwargs", value)
    if not isinstance(value, dict):
        raise wrong("chat_template_kwargs", value, "an object")
    return _as_json("chat_template_kwargs", value)


MAX_ARGUMENTS = 16 << 10  # bytes of JSON: the engine's limit


def processor(value: object) -> object:
    """Whether rows go to the operator's logits processor, or an object with its arguments."""
    if value is None or isinstance(value, bool):
        return bool(value)
    value = from_json("logits_processor", value)
    if isinstance(value, bool):
        return value
    if not isinstance(value, dict):
        raise wrong("logits_processor", value, "true, false or an object")
    if (size := len(_as_json("logits_processor", value))) > MAX_ARGUMENTS:
        raise RequestError(
            f"logits_processor has {size} bytes; it may have at most {MAX_ARGUMENTS}",
            param="logits_processor",
        )
    return value


def choices(value: object) -> object:
    """A list of at least one text; unlike stop strings, no text may be empty."""
    if value in ("", [], ()) or (isinstance(value, list | tuple) and not all(value)):
        raise wrong("choice", value, "a list of texts, at least one, none of them empty")
    return None if value is None else texts("choice")(value)


def one_of(name: str, names: tuple[str, ...]) -> Callable[[object], object]:
    """A reader of a value that is one of these names."""

    def normalise(value: object) -> object:
        if value is not None and value not in names:
            raise wrong(name, value, "one of " + ", ".join(names))
        return value

    return normalise


def lora_scales(value: object) -> object:
    """A list of {"id" or "name", "scale"}; scale is 1 if absent. Other adapters are off."""
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) > MAX_ADAPTERS:
        raise wrong("lora", value, f"a list of up to {MAX_ADAPTERS} objects {{id, scale}} or {{name, scale}}")
    return tuple(starmap(_lora_scale, enumerate(value)))


def _lora_scale(place: int, entry: object) -> tuple[int | str, float]:
    if isinstance(entry, tuple):
        return entry
    if not isinstance(entry, dict) or entry.keys() - {"scale"} not in ({"id"}, {"name"}):
        raise wrong(f"lora[{place}]", entry, "an object {id, scale} or {name, scale}", "lora")
    scale = 1.0 if entry.get("scale") is None else entry["scale"]
    if not is_number(scale) or abs(scale) > MAX_ADAPTER_SCALE:
        bounds = f"a number between -{MAX_ADAPTER_SCALE} and {MAX_ADAPTER_SCALE}"
        raise wrong(f"lora[{place}].scale", scale, bounds, "lora")
    if "id" in entry:
        return whole(f"lora[{place}].id", entry["id"], 0, MAX_ADAPTER_ID), float(scale)
    if not isinstance(entry["name"], str):
        raise wrong(f"lora[{place}].name", entry["name"], "an adapter's name", "lora")
    return entry["name"], float(scale)


def lora_fields(scales: LoraScales | None) -> dict[str, Any]:
    """The engine's field, with names where they were given; None leaves the adapters as they were loaded."""
    return {} if scales is None else {"lora": [{"id": which, "scale": scale} for which, scale in scales]}


def cells_fields(scales: LoraScales | None, salt: str | None) -> dict[str, Any]:
    """The engine's fields that say whose cells a prompt may use."""
    return lora_fields(scales) | ({} if salt is None else {"cache_salt": salt})


def cache_salt(value: object) -> object:
    """A text of 1 to MAX_SALT characters."""
    if value is None or (is_text(value) and isinstance(value, str) and 0 < len(value) <= MAX_SALT):
        return value
    raise wrong("cache_salt", value, f"a text of 1 to {MAX_SALT} characters")


def limit_fields(kept: int | None, side: str | None) -> dict[str, Any]:
    """The engine's fields that say to how many tokens a prompt is cut, and where."""
    given = {"truncate_prompt_tokens": kept, "truncation_side": side}
    return {name: value for name, value in given.items() if value is not None}


def kept_tokens(value: object) -> object:
    """The number of truncate_prompt_tokens, of which 0 is none; its row has the bounds."""
    if value == 0 and not isinstance(value, bool):
        raise wrong("truncate_prompt_tokens", value, "-1 or at least 1")
    return value


def logprobs_mode(value: object) -> object:
    """raw, processed or both, or vLLM's names: raw_logprobs, processed_logprobs."""
    mode = value.removesuffix("_logprobs") if isinstance(value, str) else value
    if mode not in ("raw", "processed", "both"):
        raise wrong("logprobs_mode", value, '"raw", "processed" or "both"')
    return mode


def ids(name: str, most: int | None = None) -> Callable[[object], object]:
    """A list of token ids, each once, or a text with commas; the engine knows which there are.

    most: of them; None: as many as there are.
    """

    def normalise(value: object) -> object:
        given = [token_id(part) for part in value.split(",")] if isinstance(value, str) and value else value
        given = given or ()
        if not isinstance(given, list | tuple) or (given and not is_tokens(given)):
            raise wrong(name, value, "a list of token ids")
        found = tuple(dict.fromkeys(given))
        if most is not None and len(found) > most:
            raise RequestError(f"{name} has {len(found)} token ids; it may have {most}", param=name)
        return found

    return normalise
