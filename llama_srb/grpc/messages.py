"""The messages of llama_srb.proto: a request becomes a body as HTTP's, events become messages. No I/O.

The classes are made from llama_srb.binpb, which scripts/proto compiles; there is no generated code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from google.protobuf import descriptor_pool, message_factory
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.struct_pb2 import Struct, Value

from llama_srb.dialects.common.response_types import NOTHING, Noted, with_warnings
from llama_srb.dialects.embeddings import Embeddings
from llama_srb.engine import events as engine
from llama_srb.engine.event_rows import public_rows, wire_name
from llama_srb.engine.events import Event, TokenList
from llama_srb.request.json_text import MAX_VALUES
from llama_srb.request.values import RequestError

Json: TypeAlias = dict[str, Any]

PACKAGE = "llama_srb.v1"
SERVICE = f"{PACKAGE}.LlamaSrb"
TAGS = bytes(tag | more for tag in (0x0A, 0x12, 0x22, 0x52) for more in (0, 0x80))
"""The bytes that begin a value of a list or a Struct: tags of the fields 1, 2, 4 and 10, in both forms."""
MORE = "fields"  # the field of a request that has the fields without one of their own

POOL = descriptor_pool.Default()
POOL.AddSerializedFile(Path(__file__).with_name("llama_srb.binpb").read_bytes())


def message_class(name: str) -> Any:
    """The class of a message of llama_srb.proto."""
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))


# ----------------------------------------------------------------------------------------------------
# Requests
# ----------------------------------------------------------------------------------------------------


def parsed(name: str, data: bytes) -> Message:
    """A request of this message. RequestError: it is none, or has too many values, which block the server."""
    if (marks := len(data) - len(data.translate(None, TAGS))) > MAX_VALUES:
        found = f"the message has {marks} bytes that may begin a value; it may have {MAX_VALUES}"
        raise RequestError(f"{found}: send fewer values")
    try:
        message: Message = message_class(name).FromString(data)
    except DecodeError as error:
        raise RequestError(f"the message is no {PACKAGE}.{name}: {error}") from None
    return message


def body_of(message: Message) -> Json:
    """The request as the JSON body that HTTP's clients send. RequestError: a field is set twice."""
    body = _fields_of(message)
    more: Json = body.pop(MORE, {})
    for name in more.keys() & body.keys():
        raise RequestError(f"{name} is set, and is in {MORE}, too; set it once", param=name)
    return body | more


def chat_body(message: Message) -> Json:
    """As body_of(), with what OpenAI's form of a chat has in other places."""
    body = body_of(message)
    if body.get("logprobs") is not None and not isinstance(body["logprobs"], bool):
        body |= {"logprobs": True, "top_logprobs": body["logprobs"]}
    for one in body.get("messages", ()) if getattr(message, "messages", None) else ():
        one.setdefault("content", None)
        if "tool_calls" in one:
            one["tool_calls"] = [_openai_call(call) for call in one["tool_calls"]]
    return body | {"stream": True}


def _openai_call(call: Json) -> Json:
    function = {"name": call.get("name", ""), "arguments": call.get("arguments", "")}
    return {"id": call.get("id", ""), "type": "function", "function": function}


def _fields_of(message: Message) -> Json:
    """The fields that are set, by name."""
    return {field.name: _value_of(field, value) for field, value in message.ListFields()}


def _value_of(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Struct):
        return _object(value)
    if field.message_type is not None:
        return [_fields_of(one) for one in value]  # the requests have no other single messages
    return value if isinstance(value, str | int | float) else list(value)


def _object(struct: Struct) -> Json:
    """A Struct as JSON: numbers without a fraction are whole numbers."""
    return {name: _json(value, name) for name, value in struct.fields.items()}


def _json(value: Value, name: str) -> Any:
    match kind := value.WhichOneof("kind"):
        case "number_value":
            return _number(value.number_value, name)
        case "struct_value":
            return _object(value.struct_value)
        case "list_value":
            return [_json(one, name) for one in value.list_value.values]
        case "string_value" | "bool_value":
            return getattr(value, kind)
    return None


def _number(value: float, name: str) -> int | float:
    if not math.isfinite(value):
        raise RequestError(f"{name} is {value}; it must be a number", param=name)
    return int(value) if value.is_integer() else value


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------

_EVENT = message_class("Event")
_ROWS: Mapping[type[Any], tuple[str, tuple[str, ...]]] = {  # the names of gRPC's events and of their fields
    kind: (wire_name(kind), tuple(public_rows(kind)))
    for kind in engine.PUBLIC
    if wire_name(kind) in _EVENT.DESCRIPTOR.fields_by_name
}


def messages_of(events: Iterable[Event], notes: Noted = NOTHING) -> Iterator[Any]:
    """Events as messages, in order; the start event gets the notes. Internal events are skipped."""
    for event in events:
        kind = type(event)
        if kind in _ROWS and not (isinstance(event, engine.Loading) and not event.id):
            name, keys = _ROWS[kind]
            more = with_warnings(notes, event) if isinstance(event, engine.Start) else {}
            fields = _fields(event, keys) | more
            yield _EVENT(**{name: fields})


def _fields(event: Event, names: tuple[str, ...]) -> Json:
    values = ((name, getattr(event, name)) for name in names)
    return {name: _plain(value) for name, value in values if value is not None}


def _plain(value: Any) -> Any:
    """The value of a field, where tokens without a logprob have none."""
    if isinstance(value, TokenList):
        return [*map(_token, value)]
    if isinstance(value, engine.DiversityStats):
        return {name: one for name, one in asdict(value).items() if one is not None}
    if isinstance(value, tuple) and any(isinstance(one, engine.Vote) for one in value):
        return list(map(asdict, value))
    return value


def _token(token: Mapping[str, Any]) -> Json:
    """The fields of a token; those of its alternatives, which are tokens, too."""
    made = {name: one for name, one in token.items() if one is not None and name in _TOKEN}
    if "bytes" in made:
        made["bytes"] = bytes(made["bytes"])
    return made | {name: [*map(_token, made[name])] for name in ("top", "processed_top") if name in made}


_TOKEN = frozenset(message_class("Token").DESCRIPTOR.fields_by_name)


def embed_reply(body: Embeddings, warnings: tuple[str, ...]) -> Any:
    """The answer to Embed, from that of /v1/embeddings."""
    return message_class("EmbedReply")(
        data=[{"values": one["embedding"]} for one in body["data"]],
        model=body["model"],
        prompt_tokens=body["usage"]["prompt_tokens"],
        warnings=warnings,
    )
