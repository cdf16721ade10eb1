"""How much memory a model takes: estimated before its load, measured afterwards."""

from __future__ import annotations

from llama_srb.config import Settings
from llama_srb.models.gguf_header import ModelInfo


def needed(settings: Settings, info: ModelInfo) -> int:
    """The bytes that the engines of a model are estimated to need."""
    return info.size_bytes


def memory_of(pid: int) -> int:
    """Resident bytes of a process; 0 if unknown: not Linux, or the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line.split() for line in status if line.startswith("VmRSS:")]
    except OSError:
        return 0
    return int(lines[0][1]) << 10 if lines else 0
