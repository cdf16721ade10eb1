"""SGLang's paths that gateways ask for: the server, its model, and how loaded its engines are. Pure.

SGLang makes n requests of one with n, so here each sequence counts as a request.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from typing_extensions import TypedDict

from llama_srb.dialects.common.reply import ServerInfo, from_server_info
from llama_srb.dialects.common.response_types import Count


class SglangServer(TypedDict):
    """context_length: tokens of one sequence. max_running_requests: sequences that run at the same time."""

    model_path: str
    served_model_name: str
    version: str
    context_length: Count
    max_running_requests: Count
    tp_size: Literal[1]
    dp_size: Literal[1]


class SglangModel(TypedDict):
    """model_type: the architecture in the model's file, which holds the tokenizer, too."""

    model_path: str
    tokenizer_path: str
    model_type: str
    is_generation: bool
    has_image_understanding: Literal[False]
    has_audio_understanding: Literal[False]


class EngineLoad(TypedDict):
    """The load of one model's engine: SGLang's data-parallel rank.

    num_used_tokens: cells of the KV cache that nothing can evict, of max_total_num_tokens; token_usage is
    their share, 0 to 1. utilization: sequences that run, as a share of max_running_requests.
    """

    dp_rank: Count
    num_running_reqs: Count
    num_waiting_reqs: Count
    num_total_reqs: Count
    num_used_tokens: Count
    max_total_num_tokens: Count
    token_usage: float
    utilization: float
    max_running_requests: Count


class TotalLoad(TypedDict):
    total_running_reqs: Count
    total_waiting_reqs: Count
    total_reqs: Count
    total_used_tokens: Count
    avg_token_usage: float
    avg_utilization: float


class EngineLoads(TypedDict):
    """timestamp: as ISO 8601. loads: one entry for each model."""

    timestamp: str
    version: str
    dp_rank_count: Count
    loads: list[EngineLoad]
    aggregate: TotalLoad


def engine_load(rank: int, *, running: int, waiting: int, used: int, cells: int, parallel: int) -> EngineLoad:
    """The load of an engine. cells: of its KV cache; 0 if it is not known. parallel: sequences at a time."""
    return {
        "dp_rank": rank,
        "num_running_reqs": running,
        "num_waiting_reqs": waiting,
        "num_total_reqs": running + waiting,
        "num_used_tokens": used,
        "max_total_num_tokens": cells,
        "token_usage": round(used / cells, 4) if cells else 0.0,
        "utilization": round(running / parallel, 4),
        "max_running_requests": parallel,
    }


def loads(found: Iterable[EngineLoad], version: str) -> EngineLoads:
    """The answer of /v1/loads."""
    found = list(found)
    count = max(len(found), 1)
    return {
        "timestamp": datetime.now(UTC).isoformat(),
        "version": _version(version),
        "dp_rank_count": len(found),
        "loads": found,
        "aggregate": {
            "total_running_reqs": sum(one["num_running_reqs"] for one in found),
            "total_waiting_reqs": sum(one["num_waiting_reqs"] for one in found),
            "total_reqs": sum(one["num_total_reqs"] for one in found),
            "total_used_tokens": sum(one["num_used_tokens"] for one in found),
            "avg_token_usage": round(sum(one["token_usage"] for one in found) / count, 4),
            "avg_utilization": round(sum(one["utilization"] for one in found) / count, 4),
        },
    }


def _version(version: str) -> str:
    return f"llama-srb {version}"


def _server(about: ServerInfo) -> SglangServer:
    return {
        "model_path": about.path,
        "served_model_name": about.model,
        "version": _version(about.version),
        "context_length": about.context,
        "max_running_requests": about.parallel,
        "tp_size": 1,
        "dp_size": 1,
    }


def _model(about: ServerInfo) -> SglangModel:
    return {
        "model_path": about.path,
        "tokenizer_path": about.path,
        "model_type": about.architecture,
        "is_generation": not about.only_embeds,
        "has_image_understanding": False,
        "has_audio_understanding": False,
    }


INFO_ENDPOINTS = {"/server_info": from_server_info(_server), "/model_info": from_server_info(_model)}
