"""Client and AsyncClient, for Python programs: n continuations of one prompt from a running llama-srb server.

They read the event stream (POST /v1/events) with httpx and share no code with the server. One blocks, the
other awaits; everything else (bodies, parsing, errors, calls) is in core, for both.
"""

from llama_srb.client.answer import Answer, Choice, Score
from llama_srb.client.async_client import AsyncClient, AsyncStream
from llama_srb.client.core import Message, Prompted
from llama_srb.client.errors import ClientError, ConnectionFailed, RequestRefused, ServerError, UnknownField
from llama_srb.client.events import (
    Done,
    Error,
    Event,
    Loading,
    Progress,
    Prompt,
    Queued,
    Start,
    Stop,
    Text,
    Then,
    as_json,
    event_from,
    failure,
)
from llama_srb.client.models import Model
from llama_srb.client.sync_client import Client, Stream

__all__ = [
    "Answer", "AsyncClient", "AsyncStream", "Choice", "Client", "ClientError", "ConnectionFailed", "Done",
    "Error", "Event", "Loading", "Message", "Model", "Progress", "Prompt", "Prompted", "Queued",
    "RequestRefused", "Score", "ServerError", "Start", "Stop", "Stream", "Text", "Then", "UnknownField",
    "as_json", "event_from", "failure",
]  # fmt: skip
