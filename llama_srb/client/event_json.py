"""Events from a server's JSON, and back; an error event as an exception. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

from llama_srb.client.errors import ClientError, RequestRefused, ServerError
from llama_srb.client.events import EVENTS, Error, Event
from llama_srb.client.reader import read_as

REFUSED = frozenset({"invalid_request", "context_exceeded"})
"""The codes of error events that mean a faulty request."""
_NAMES = {event: name for name, event in EVENTS.items()}
_FIELDS = {event: tuple(fields(event)) for event in EVENTS.values()}


def event_from(data: Mapping[str, Any]) -> Event | None:
    """Makes an event from a JSON object of the stream; None for an unknown event of a newer server.

    Unknown keys are ignored. ServerError if a key is missing or its value has another type.
    """
    kind = EVENTS.get(str(data.get("event")))
    if kind is None:
        return None
    try:
        event: Event = read_as(kind, data)
    except KeyError as missing:
        raise ServerError(f"an event of the server is incomplete: no {missing} in {data['event']}") from None
    except TypeError as error:
        raise ServerError(f"an event of the server is wrong: in {data['event']} {error}") from None
    return event


def as_json(event: Event) -> dict[str, Any]:
    """The event as the server writes it, without fields at their default."""
    values = {row.name: getattr(event, row.name) for row in _FIELDS[type(event)]}
    defaults = {row.name: row.default for row in _FIELDS[type(event)] if row.default is not MISSING}
    written = {key: one for key, one in values.items() if key not in defaults or one != defaults[key]}
    return {"event": _NAMES[type(event)], **written}


def failure(error: Error) -> ClientError:
    """Makes an exception from an error event."""
    kind = RequestRefused if error.code in REFUSED else ServerError
    return kind(error.message, code=error.code, param=error.param)
