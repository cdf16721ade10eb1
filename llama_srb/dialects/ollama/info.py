"""Ollama: paths that generate nothing. Pure."""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import switch, text_of
from llama_srb.dialects.common.infill import can_infill
from llama_srb.dialects.common.reply import (
    InfoEndpoint,
    Json,
    ServerInfo,
    from_models,
    from_server_info,
)
from llama_srb.dialects.common.response_types import Count, Frames
from llama_srb.dialects.ollama.generation import OllamaError, time_of
from llama_srb.request.values import RequestError

DAY, LATEST = 86_400.0, 1e9  # seconds
VERSION = "0.12.0"  # of Ollama: clients check it before they use newer fields

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class Details(TypedDict):
    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(TypedDict):
    """digest: a hash of the file's path, size and time, since reading the file would take too long."""

    name: str
    model: str
    modified_at: str
    size: Count
    digest: str
    details: Details


class OllamaModels(TypedDict):
    models: list[OllamaModel]


class OllamaLoadedModel(OllamaModel):
    expires_at: str
    size_vram: Count
    context_length: Count


class OllamaLoadedModels(TypedDict):
    models: list[OllamaLoadedModel]


class ShownModel(TypedDict):
    """model_info: keys are GGUF's metadata keys."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, str | int]
    capabilities: list[str]
    modified_at: str


class OllamaVersion(TypedDict):
    version: str


class Pulled(TypedDict):
    status: Literal["success"]


PULLED = Frames(Pulled | OllamaError, "One line of JSON.")


# ----------------------------------------------------------------------------------------------------
# Answers of the server
# ----------------------------------------------------------------------------------------------------


def _details(about: ServerInfo) -> Details:
    return {
        "parent_model": about.parent,
        "format": "gguf",
        "family": about.architecture,
        "families": [about.architecture],
        "parameter_size": _short(about.parameters),
        "quantization_level": about.quantisation,
    }


def _short(count: int) -> str:
    """A short form of a count: 4458752 as 4.46M."""
    for size, letter in ((10**9, "B"), (10**6, "M"), (10**3, "K")):
        if count >= size:
            return f"{count / size:.3g}{letter}"
    return str(count)


def _entry(about: ServerInfo) -> OllamaModel:
    name = f"{about.model}:latest"
    file = f"{about.path}|{about.size_bytes}|{about.modified}"
    return {
        "name": name,
        "model": name,
        "modified_at": time_of(about.modified),
        "size": about.size_bytes,
        "digest": hashlib.sha256(file.encode()).hexdigest(),
        "details": _details(about),
    }


def _tags(models: Sequence[ServerInfo]) -> OllamaModels:
    return {"models": list(map(_entry, models))}


def _running(models: Sequence[ServerInfo]) -> OllamaLoadedModels:
    return {"models": [_loaded(one) for one in models if one.state == "loaded" and not one.parent]}


def _loaded(about: ServerInfo) -> OllamaLoadedModel:
    """A loaded model. expires_at is a day from now if it stays as long as the server runs."""
    leaves = about.now + DAY if about.leaves is None else min(about.leaves, about.now + LATEST)
    return {
        **_entry(about),
        "expires_at": time_of(leaves),
        "size_vram": 0,
        "context_length": about.context,
    }


def _version(about: ServerInfo) -> OllamaVersion:
    return {"version": VERSION}


def _show(body: Json, result: Mapping[str, Any], about: ServerInfo) -> ShownModel:
    return {
        "modelfile": f"FROM {about.model}",
        "parameters": "",
        "template": about.chat_template or "{{ .Prompt }}",
        "details": _details(about),
        "model_info": {
            "general.architecture": about.architecture,
            "general.parameter_count": about.parameters,
            f"{about.architecture}.context_length": about.context,
        },
        "capabilities": ["completion", *_insert(about), *_tools(about), *_thinking(about)],
        "modified_at": time_of(about.modified),
    }


def pulled(body: Mapping[str, Any]) -> tuple[Pulled, bool]:
    """The answer of /api/pull, which fetches nothing, and whether it is a stream.

    RequestError if no model is named.
    """
    if not text_of(body, "model", text_of(body, "name", "")):
        raise RequestError("model is missing", param="model")
    return {"status": "success"}, switch(body, "stream", True)


def _insert(about: ServerInfo) -> list[str]:
    return ["insert"] if can_infill(about.infill) else []


def _tools(about: ServerInfo) -> list[str]:
    """The capability tools, if the model's chat template reads the variable `tools`."""
    return ["tools"] if "tools" in about.chat_template else []


def _thinking(about: ServerInfo) -> list[str]:
    """The capability thinking, if the template has one of the marks that templates have for thoughts."""
    marks = ("enable_thinking", "reasoning_content", "<think>", "thinking")
    return ["thinking"] if any(mark in about.chat_template for mark in marks) else []


INFO_ENDPOINTS = {
    "/api/tags": from_models(_tags),
    "/api/ps": from_models(_running),
    "/api/show": InfoEndpoint(_show),
    "/api/version": from_server_info(_version),
}
