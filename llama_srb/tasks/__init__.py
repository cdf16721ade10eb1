"""Configured tasks: text around a client's prompt, defaults of request fields, locked fields. Pure."""

from __future__ import annotations

from llama_srb.tasks.pins import pin_of, pins_of
from llama_srb.tasks.prompt import Piece, applied, harmless, last_turn, pieces_of, query_of
from llama_srb.tasks.tables import FILE, read
from llama_srb.tasks.task import Recall, Task
from llama_srb.tasks.tasks import Tasks

__all__ = [
    "FILE",
    "Piece",
    "Recall",
    "Task",
    "Tasks",
    "applied",
    "harmless",
    "last_turn",
    "pieces_of",
    "pin_of",
    "pins_of",
    "query_of",
    "read",
]
