"""How much memory a model takes: estimated before its load, measured afterwards.

The estimate is an upper bound for usual models: all cells in use. tests/real/test_memory.py compares both.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from llama_srb.config import Settings
from llama_srb.models import gguf_header
from llama_srb.models.fingerprint import parts_of
from llama_srb.models.gguf_header import BLOCK_SIZES, ModelFileError, ModelInfo

BASE = 64 << 20  # bytes of an engine's program, libraries and threads
DEFAULT_CELLS = 65536  # as in engine/model/fit.cpp
SPARE_IDS = 64  # sequence ids beside those of the sequences (engine/cache), each with its row of logits
BATCH = 512  # tokens of a step, unless -ub says otherwise
VOCABULARY = 152_000  # tokens, if the header does not say: a large vocabulary
UNPACKED = frozenset({"F32", "F16", "BF16"})
"""Weights of other types are copied for the CPU's products; what was copied is unmapped (patches/0017)."""
CACHE_TYPES = {
    "f32": 0,
    "f16": 1,
    "bf16": 30,
    "q8_0": 8,
    "q4_0": 2,
    "q4_1": 3,
    "iq4_nl": 20,
    "q5_0": 6,
    "q5_1": 7,
}
"""Values of --cache-type-k and -v: ggml's numbers, as in BLOCK_SIZES."""
DRAFT = ("-md", "--model-draft", "--spec-draft-model")
DRAFT_CELLS = 16384  # as in engine/schedule/draft_model.cpp
ON_GPU = ("-ngl", "--gpu-layers", "--n-gpu-layers", "-dev", "--device")


def needed(settings: Settings, info: ModelInfo, n_ctx: int | None = None, backend: str | None = None) -> int:
    """The bytes that a model's engines are estimated to need.

    n_ctx, backend: of an earlier load; None: the model was not loaded yet.
    """
    command = settings.engine_command
    on_cpu = _value(command, *ON_GPU) is None if backend is None else backend == "CPU"
    twice = _embedding(info) if on_cpu and info.quantisation not in UNPACKED else 0
    own = BASE + _weights(info) + twice + growth(settings, info, n_ctx) + _draft(command)
    return own * _engines(settings)


def _draft(command: Sequence[str]) -> int:
    """Bytes of the draft model; 0 where there is none, or none that can be read: its load says that."""
    path = _value(command, *DRAFT)
    try:
        info = gguf_header.read(path) if path else None
    except ModelFileError:
        info = None
    if info is None:
        return 0
    cells = _whole(_value(command, "-c", "--ctx-size")) or min(cells_of(info, command), DRAFT_CELLS)
    return int(_weights(info) + cells * cell_bytes(info, ()) + _work(info, command))


def placed(settings: Settings, n_bytes: int) -> int:
    """The bytes that a model's engines need if n_bytes of one lie on its devices; 0: it does not say."""
    return (BASE + n_bytes) * _engines(settings) if n_bytes else 0


def _engines(settings: Settings) -> int:
    """How many engines of a model may run at once."""
    return settings.max_engines if settings.engine_mode == "per-request" else 1


def growth(settings: Settings, info: ModelInfo, n_ctx: int | None = None) -> int:
    """The bytes that an engine takes as its cells and buffers come into use after its load."""
    command = settings.engine_command
    cells = (n_ctx or cells_of(info, command)) * cell_bytes(info, command)
    return int(cells) + _work(info, command)


def _weights(info: ModelInfo) -> int:
    """The size of the model's files."""
    parts = [path for path in parts_of(info.path) if path.is_file()]
    return sum(path.stat().st_size for path in parts) or info.size_bytes


def _embedding(info: ModelInfo) -> int:
    """Bytes of the vectors of all tokens, of 8 bits; they are copied if the output uses them, too."""
    return (info.n_tokens or VOCABULARY) * _fact(info, "embedding_length", 0)


def cell_bytes(info: ModelInfo, command: Sequence[str]) -> float:
    """Bytes of one token in the KV cache."""
    heads = _fact(info, "attention.head_count", 1)
    size = _fact(info, "embedding_length", 0) // max(heads, 1)
    rows = (
        ("attention.key_length", ("-ctk", "--cache-type-k")),
        ("attention.value_length", ("-ctv", "--cache-type-v")),
    )
    of_a_head = sum(_fact(info, key, size) * _type_bytes(_value(command, *flags)) for key, flags in rows)
    return _fact(info, "block_count", 0) * _fact(info, "attention.head_count_kv", heads) * of_a_head


def _type_bytes(name: str | None) -> float:
    elements, size = BLOCK_SIZES[CACHE_TYPES.get(name or "f16", 1)]
    return size / elements


def cells_of(info: ModelInfo, command: Sequence[str]) -> int:
    """The cells of an engine: the setting, or as engine/model/fit.cpp chooses without it."""
    if given := _whole(_value(command, "-c", "--ctx-size")):
        return given
    trained, parallel = info.context or 512, _whole(_value(command, "-np", "--parallel")) or 1
    wanted = min(trained * parallel, max(trained, DEFAULT_CELLS))
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(512, min(wanted, int(free / 4 / max(cell_bytes(info, command), 1.0)))) // 256 * 256


def _work(info: ModelInfo, command: Sequence[str]) -> int:
    """Bytes of the buffers of one step: activations, and logits of a row for each sequence id."""
    parallel = _whole(_value(command, "-np", "--parallel")) or 1
    ids = 2 * parallel + SPARE_IDS
    batch = max(_whole(_value(command, "-ub", "--ubatch-size")) or BATCH, ids)
    width = 8 * _fact(info, "embedding_length", 0) + 3 * _fact(info, "feed_forward_length", 0)
    return 4 * (batch * width + 2 * ids * (info.n_tokens or VOCABULARY))


def _fact(info: ModelInfo, key: str, default: int) -> int:
    """A number of the header; the default if there is none, or one for each layer."""
    value: Any = info.metadata.get(f"{info.architecture}.{key}")
    return value if isinstance(value, int) else default


def _value(command: Sequence[str], *flags: str) -> str | None:
    """The value of the last of these flags; None if there is none."""
    found = [after for word, after in pairwise([*command, ""]) if word in flags]
    return found[-1] if found else None


def _whole(value: str | None) -> int:
    return int(value) if value is not None and value.isdigit() else 0


def memory_of(pid: int) -> int:
    """Resident bytes of a process; 0 if unknown: not Linux, or the process has ended."""
    try:
        with open(f"/proc/{pid}/status") as status:
            lines = [line.split() for line in status if line.startswith("VmRSS:")]
    except OSError:
        return 0
    return int(lines[0][1]) << 10 if lines else 0
