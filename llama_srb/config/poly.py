"""What Poly's configuration calls otherwise: who pastes one is told every difference at once. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .words import quoted

TOP: Mapping[str, str] = {
    "bind_address": 'host = "0.0.0.0" and port = 3000',
    "allowed_origins": "cors",
    "allowed_keys": "api_key_file, a file that `llama-srb keys add` writes",
    "public": "leave it out: without api_key_file and JWTs nobody needs a key",
    "jwt_private_key": "jwt_secret",
    "max_concurrent": "parallel, the sequences that run at a time",
    "cache_path": "leave it out: the variable HF_HUB_CACHE names the folder of downloads",
    "endpoints": "tables [models.NAME] and [tasks.NAME]",
}
TABLES: Mapping[str, Mapping[str, str]] = {
    "models": {
        "model_path": 'path = "FILE.gguf": GGUF, not GGML',
        "url": 'path = "hf:USER/REPO"',
        "architecture": "leave it out: the file says it",
        "use_gpu": 'engine_args = ["-ngl", "99"]',
        "gpu_layers": 'engine_args = ["-ngl", "NUMBER"]',
        "threads_per_session": 'engine_args = ["-t", "NUMBER"]',
        "batch_size": 'engine_args = ["-b", "NUMBER"]',
        "context_size": "ctx",
        "lora_adapters": "lora",
    },
    "memories": {
        "dimensions": "leave it out: the model says it",
        "chunk_max_tokens": "chunk_tokens",
        "pre_filter": "leave it out: texts are not changed before they are cut",
        "post_filter": "leave it out: chunks are not changed",
        "type": 'store = { file = "FILE" } or { qdrant = { url = "…", collection = "…" } }',
    },
    "tasks": {
        "memorization": 'recall = { memory = "NAME", store_prompts = true, retrieve = 2 }',
        "stop_sequences": "stop",
        "repetition_penalty_last_n": "repeat_last_n",
        "biaser": "json_schema = { … } or json_schema_file, in JSON schema's words (maxLength, minItems)",
        "batch_size": "engine_args of the model",
    },
}
"""By kind of table: Poly's name of a field, and what is written here instead."""
HORA = 'store = { file = "FILE" }'
CHAIN = "the fields of a request, as mirostat = 1; samplers has names in their order, with values or not"


def differences(found: Mapping[str, Any]) -> list[str]:
    """A line for each name in a file that is Poly's and none of ours."""
    lines = [f"{name}: {here}" for name, here in TOP.items() if name in found]
    for kind, names in TABLES.items():
        tables = found.get(kind)
        for name, table in tables.items() if isinstance(tables, Mapping) else ():
            if isinstance(table, Mapping):
                lines += [f"{kind}.{quoted(str(name))}.{line}" for line in _of_table(kind, table, names)]
    return lines


def _of_table(kind: str, table: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[str]:
    for field in table:
        if field in names:
            yield f"{field}: {names[field]}"
    store, samplers = table.get("store"), table.get("samplers")
    if kind == "memories" and isinstance(store, Mapping) and "hora" in store:
        yield f"store.hora: {HORA}"
    if kind == "tasks" and isinstance(samplers, list) and any("=" in str(one) for one in samplers):
        yield f"samplers: {CHAIN}"
