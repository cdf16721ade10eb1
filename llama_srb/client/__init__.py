"""Client and AsyncClient, for Python programs: n continuations of one prompt from a running llama-srb server.

They read the event stream (POST /v1/events) with httpx and share no code with the server. One blocks, the
other awaits; everything else (bodies, parsing, errors, calls) is in core, for both.
"""

from llama_srb.client.answer import Answer, Choice, Recalled, Score
from llama_srb.client.async_client import AsyncClient, AsyncMemory, AsyncStream, AsyncTask
from llama_srb.client.core import ABORT, Message, Prompted
from llama_srb.client.errors import ClientError, ConnectionFailed, RequestRefused, ServerError, UnknownField
from llama_srb.client.event_json import as_json, event_from, failure
from llama_srb.client.events import (
    Done,
    Error,
    Event,
    Loading,
    Progress,
    Prompt,
    PromptLogprobs,
    Queued,
    Start,
    Stop,
    Text,
    Then,
)
from llama_srb.client.memories import Chunk, Document, MemoryEntry, Stored
from llama_srb.client.models import Model
from llama_srb.client.sync_client import Client, Memory, Stream, Task
from llama_srb.client.tasks import MadePrompt, PromptPart, TaskEntry

__all__ = [
    "ABORT", "Answer", "AsyncClient", "AsyncMemory", "AsyncStream", "AsyncTask", "Choice", "Chunk", "Client",
    "ClientError", "ConnectionFailed", "Document", "Done", "Error", "Event", "Loading", "MadePrompt",
    "Memory", "MemoryEntry", "Message", "Model", "Progress", "Prompt", "PromptLogprobs",
    "PromptPart", "Prompted",
    "Queued", "Recalled", "RequestRefused", "Score", "ServerError", "Start", "Stop", "Stored", "Stream",
    "Task", "TaskEntry", "Text", "Then", "UnknownField", "as_json", "event_from", "failure",
]  # fmt: skip
