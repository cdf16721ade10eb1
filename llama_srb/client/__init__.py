"""Client and AsyncClient, for Python programs: n continuations of one prompt from a running llama-srb server.

Speaks the event stream (POST /v1/events) with httpx and shares no code with the server. The two clients
differ only in who waits: what a body is, what bytes mean, which error an answer is, what is asked for beside
streams stands once, in core.
"""

from llama_srb.client.async_client import AsyncClient, AsyncStream
from llama_srb.client.core import Message, Prompted
from llama_srb.client.events import (
    Answer,
    Choice,
    ClientError,
    ConnectionFailed,
    Done,
    Error,
    Event,
    Progress,
    Prompt,
    Queued,
    RequestRefused,
    Score,
    ServerError,
    Start,
    Stop,
    Text,
    UnknownField,
    as_json,
    event_from,
    failure,
)
from llama_srb.client.sync_client import Client, Stream

__all__ = [
    "Answer", "AsyncClient", "AsyncStream", "Choice", "Client", "ClientError", "ConnectionFailed", "Done",
    "Error", "Event", "Message", "Progress", "Prompt", "Prompted", "Queued", "RequestRefused", "Score",
    "ServerError", "Start", "Stop", "Stream", "Text", "UnknownField", "as_json", "event_from", "failure",
]  # fmt: skip
