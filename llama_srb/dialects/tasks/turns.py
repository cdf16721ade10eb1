"""The messages of a chat on a WebSocket: turns, choices; events with the number of a turn. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

import orjson
from pydantic import Field
from typing_extensions import TypeAliasType, TypedDict

from llama_srb.dialects import event_types, events
from llama_srb.dialects.common.response_types import NOTHING, Count, Noted
from llama_srb.dialects.messages import with_fields
from llama_srb.engine.events import Event
from llama_srb.request.parse import parse_body
from llama_srb.request.values import RequestError, is_text, wrong

# ----------------------------------------------------------------------------------------------------
# Messages
# ----------------------------------------------------------------------------------------------------


class Turned(TypedDict):
    """turn: the number of the turn, from 0."""

    turn: Count


class TurnLoading(event_types.LoadingEvent, Turned):
    pass


class TurnQueued(event_types.QueuedEvent, Turned):
    pass


class TurnStart(event_types.StartEvent, Turned):
    pass


class TurnPrompt(event_types.PromptEvent, Turned):
    pass


class TurnProgress(event_types.ProgressEvent, Turned):
    pass


class TurnStream(event_types.StreamEvent, Turned):
    pass


class TurnStop(event_types.StopEvent, Turned):
    pass


class TurnThen(event_types.ThenEvent, Turned):
    pass


class TurnExtend(event_types.ExtendEvent, Turned):
    pass


class TurnDone(event_types.DoneEvent, Turned):
    pass


class TurnChosen(Turned):
    """The chat goes on from this candidate of the turn."""

    event: Literal["chosen"]
    index: Count


class TurnError(event_types.ErrorEvent):
    """With turn it ends this turn, which is then no part of the chat; without it a command has failed."""

    turn: NotRequired[Count]


TurnMessage = TypeAliasType(
    "TurnMessage",
    Annotated[
        TurnLoading
        | TurnQueued
        | TurnStart
        | TurnPrompt
        | TurnProgress
        | TurnStream
        | TurnStop
        | TurnThen
        | TurnExtend
        | TurnDone
        | TurnChosen
        | TurnError,
        Field(discriminator="event"),
    ],
)

# ----------------------------------------------------------------------------------------------------
# Commands and events
# ----------------------------------------------------------------------------------------------------

OPS = ("turn", "choose", "cancel")
OF_THE_CHAT = ("messages", "prompt", "continue", "tools")  # fields that the turns are in place of


@dataclass(frozen=True, slots=True)
class Command:
    """A client's command; body: the other fields of the message. text: of the user, in a turn."""

    op: str
    body: Mapping[str, Any]
    text: str = ""


def parse(message: str | bytes) -> Command:
    """Reads one message of a client; RequestError if a field is wrong."""
    body = parse_body(message.encode(errors="surrogatepass") if isinstance(message, str) else message)
    op = body.pop("op", None)
    if op not in OPS:
        raise wrong("op", op, "one of " + ", ".join(OPS))
    if op != "turn":
        return Command(op, body)
    text = body.pop("text", None)
    if not isinstance(text, str) or not is_text(text):
        raise wrong("text", text, "a text")
    for name in OF_THE_CHAT:
        if body.get(name) is not None:
            raise RequestError(f"{name} is given; a turn of this chat has only text", param=name)
    return Command(op, body, text)


def render(turn: int, batch: Iterable[Event], notes: Noted = NOTHING) -> Iterator[str]:
    """Events as messages with the turn's number."""
    for event in batch:
        if frame := events.render([event], notes):
            yield with_fields(frame.decode().removeprefix("data: ").rstrip("\n"), turn=turn)


def chosen(turn: int, index: int) -> str:
    made: TurnChosen = {"event": "chosen", "turn": turn, "index": index}
    return orjson.dumps(made).decode()


def error(message: str, *, turn: int | None = None, param: str | None = None, code: str | None = None) -> str:
    """An error message. With turn this turn has ended."""
    fields = {"event": "error", "code": code or "invalid_request", "message": message, "param": param}
    given = {name: value for name, value in (*fields.items(), ("turn", turn)) if value is not None}
    return orjson.dumps(given).decode()
