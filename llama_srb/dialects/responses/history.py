"""OpenAI's responses: what a request names of earlier ones, as items. Pure.

An item's id has the id of its response: `msg_RESPONSE_0` is an item of the output, `msg_RESPONSE_i0` one of
the input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import orjson

from llama_srb.request.json_text import read_json
from llama_srb.request.values import MAX_MESSAGES, RequestError, shown, wrong

Json: TypeAlias = dict[str, Any]

PREFIX = "resp_"  # before the id of a response
REFERENCE = "item_reference"
ITEM_ID = re.compile(r"[a-z]+_([0-9a-f]{32})_(i?)\d{1,6}", re.ASCII)
NEVER = "this server keeps no responses (--responses 0)"
SEND_IT, SEND_ALL = "send the item itself", "send the whole conversation as input"
PREFIXES: Mapping[str, str] = {  # of the ids of items of the input
    "reasoning": "rs_", "function_call": "fc_", "function_call_output": "fco_", "custom_tool_call": "ctc_",
    "custom_tool_call_output": "ctco_",
}  # fmt: skip


class Kept(Protocol):
    """A response that is kept: its items as JSON."""

    @property
    def id(self) -> str: ...

    @property
    def input(self) -> bytes: ...

    @property
    def output(self) -> bytes: ...


Find: TypeAlias = Callable[[str], Kept | None]


@dataclass(frozen=True, slots=True)
class Named:
    """What a body names of earlier responses.

    response: the id of that which it goes on from. refers: it names items; items: the ids of their responses.
    """

    response: str | None
    refers: bool
    items: frozenset[str]

    @property
    def nothing(self) -> bool:
        return self.response is None and not self.refers


def named_in(body: Mapping[str, Any]) -> Named:
    """What a body names of earlier responses; RequestError if previous_response_id is no text."""
    before, items = body.get("previous_response_id"), body.get("input")
    if not isinstance(before, str | None):
        raise wrong("previous_response_id", before, "a text")
    references = [one.get("id") for one in items if is_reference(one)] if isinstance(items, list) else []
    found = [ITEM_ID.fullmatch(id) for id in references if isinstance(id, str)]
    return Named(id_of(before), bool(references), frozenset(one[1] for one in found if one))


def id_of(response: str | None) -> str | None:
    """The id of a response as it is kept."""
    return None if response is None else response.removeprefix(PREFIX)


def is_reference(item: object) -> bool:
    return isinstance(item, dict) and (item.get("type") == REFERENCE or item.keys() == {"id"})


def whole_input(value: object) -> list[Any]:
    """The input as a list of items; a value of another kind is refused later."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    return value if isinstance(value, list) else []


def response_gone(id: object, *, keeps: bool) -> RequestError:
    reason = "this response, or one before it, is not kept here (any more)" if keeps else NEVER
    message = f"previous_response_id is {shown(id)}, but {reason}: {SEND_ALL}"
    return RequestError(message, param="previous_response_id", code="previous_response_not_found")


def item_gone(place: str, id: object, *, keeps: bool) -> RequestError:
    reason = "it is not kept here (any more)" if keeps else NEVER
    message = f"{place} is the item {shown(id)}, but {reason}: {SEND_IT}"
    return RequestError(message, param=place, status=404, code="item_not_found")


class History:
    """Reads the items of kept responses, those of each response once.

    find: a response of the client. most: bytes that the conversation may have, in which an item may be many
    times. size: bytes of the request, and of what was read so far.
    """

    def __init__(self, find: Find, most: int, size: int = 0, *, keeps: bool = True) -> None:
        self._find, self._most, self.size, self._keeps = find, most, size, keeps
        self._read: dict[tuple[str, bool], dict[str, Json]] = {}  # items by id, of an input or an output

    def before(self, chain: Iterable[Kept], id: object) -> list[Json]:
        """The items of responses, the first one first; id: as the request names the last one."""
        found: list[Json] = []
        for one in chain:
            self._pay(len(one.input) + len(one.output))
            for item in (*_items(one.input), *_items(one.output)):
                if (there := self._item(item.get("id")) if is_reference(item) else item) is None:
                    raise response_gone(id, keeps=self._keeps)
                found.append(there)
            if len(found) > MAX_MESSAGES:
                message = (
                    f"the conversation has more than {MAX_MESSAGES} items: send its newest ones as input"
                )
                raise RequestError(message, param="previous_response_id")
        return found

    def input(self, items: object) -> object:
        """The input with the items that it names in their places; RequestError 404 if one is gone."""
        if not isinstance(items, list):
            return items
        return [self._named(f"input[{i}]", one) if is_reference(one) else one for i, one in enumerate(items)]

    def listed(self, kept: Kept) -> list[Json]:
        """The items of a response's input, each with an id; of those that are gone the reference."""
        own = [(one, self._item(one["id"]) if is_reference(one) else None) for one in _sent(kept)]
        return [found or one for one, found in own]

    def _named(self, place: str, reference: Json) -> Json:
        if (found := self._item(reference.get("id"))) is None:
            raise item_gone(place, reference.get("id"), keeps=self._keeps)
        return found

    def _item(self, id: object) -> Json | None:
        if not isinstance(id, str) or (match := ITEM_ID.fullmatch(id)) is None:
            return None
        place = match[1], bool(match[2])
        if place not in self._read:
            self._read[place] = self._items_of(*place)
        if (found := self._read[place].get(id)) is not None:
            self._pay(len(orjson.dumps(found)))
        return found

    def _items_of(self, response: str, is_input: bool) -> dict[str, Json]:
        if (kept := self._find(response)) is None:
            return {}
        items = _sent(kept) if is_input else _items(kept.output)
        return {item["id"]: item for item in items if not is_reference(item)}

    def _pay(self, size: int) -> None:
        self.size += size
        if self.size > self._most:
            message = f"the conversation with what it names has more than --max-body, {self._most} bytes"
            raise RequestError(f"{message}: send its newest items as input", param="input")


def _items(data: bytes) -> list[Json]:
    items: list[Json] = read_json("a kept response", data)
    return items


def _sent(kept: Kept) -> list[Json]:
    """The items of an input, each with an id."""
    items = enumerate(_items(kept.input))
    return [
        one if isinstance(one.get("id"), str) else {**one, "id": f"{_prefix(one)}{kept.id}_i{i}"}
        for i, one in items
    ]


def _prefix(item: Json) -> str:
    return PREFIXES.get(str(item.get("type")), "msg_")
