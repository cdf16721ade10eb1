"""The WebSocket's messages: commands, and the event stream's events with the client's own ids. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, NotRequired

import orjson
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects import event_types, events
from llama_srb.dialects.common.response_types import NOTHING, Noted
from llama_srb.engine.events import Event, Loading, Queued, Start
from llama_srb.request.parse import parse_body
from llama_srb.request.values import wrong

# ----------------------------------------------------------------------------------------------------
# Messages
# ----------------------------------------------------------------------------------------------------


class Named(TypedDict):
    """id: the client's id of its request."""

    id: str


class StartMessage(event_types.StartEvent):
    """id: the client's id of the request. request: the server's id of it."""

    request: str


class PromptMessage(event_types.PromptEvent, Named):
    pass


class ProgressMessage(event_types.ProgressEvent, Named):
    pass


class StreamMessage(event_types.StreamEvent, Named):
    pass


class StopMessage(event_types.StopEvent, Named):
    pass


class ThenMessage(event_types.ThenEvent, Named):
    pass


class ExtendMessage(event_types.ExtendEvent, Named):
    pass


class DoneMessage(event_types.DoneEvent, Named):
    pass


class ErrorMessage(event_types.ErrorEvent, Named):
    """Without op it ends the request with this id. id is empty if the message had no valid id."""

    op: NotRequired[str]


Message = TypeAliasType(
    "Message",
    Annotated[
        event_types.LoadingEvent
        | event_types.QueuedEvent
        | StartMessage
        | PromptMessage
        | ProgressMessage
        | StreamMessage
        | StopMessage
        | ThenMessage
        | ExtendMessage
        | DoneMessage
        | ErrorMessage,
        Field(discriminator="event"),
    ],
)

# ----------------------------------------------------------------------------------------------------
# Commands and events
# ----------------------------------------------------------------------------------------------------

OPS = ("generate", "cancel", "extend")
MAX_ID = 128  # characters


@dataclass(frozen=True, slots=True)
class Command:
    """A client's command for its request `id`; body: the other fields of the message."""

    op: str
    id: str
    body: Mapping[str, Any]


def parse(message: str | bytes) -> Command:
    """Reads one message of a client; RequestError if a field is wrong."""
    body = parse_body(message.encode(errors="surrogatepass") if isinstance(message, str) else message)
    op, id = body.pop("op", None), body.pop("id", None)
    if op not in OPS:
        raise wrong("op", op, "one of " + ", ".join(OPS))
    if not isinstance(id, str) or not 0 < len(id) <= MAX_ID:
        raise wrong("id", id, f"a text of 1 to {MAX_ID} characters")
    return Command(op, id, body)


def render(id: str, batch: Iterable[Event], notes: Noted = NOTHING) -> Iterator[str]:
    """Events as messages with the client's id; the start event also has the server's id of the request."""
    for event in batch:
        named = replace(event, id=id) if isinstance(event, Start | Queued | Loading) else event
        if not (frame := events.render([named], notes)):
            continue
        text = frame.decode().removeprefix("data: ").rstrip("\n")
        if isinstance(event, Start):
            yield with_fields(text, request=event.id)
        else:
            yield text if named is not event else with_fields(text, id=id)


def error(
    message: str, *, id: str = "", op: str = "", param: str | None = None, code: str = "invalid_request"
) -> str:
    """An error message. Without op the request of this id has ended; with op only the command has failed."""
    fields = {"event": "error", "code": code, "message": message, "id": id, "op": op, "param": param}
    return orjson.dumps({name: value for name, value in fields.items() if value or name == "id"}).decode()


def with_fields(text: str, **fields: object) -> str:
    """A JSON object with these fields added at its end."""
    return f"{text[:-1]}, {orjson.dumps(fields).decode()[1:]}"
