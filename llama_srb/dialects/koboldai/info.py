"""KoboldAI and KoboldCpp: paths that generate nothing. Pure."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import InfoEndpoint, Json, ServerInfo, from_server_info
from llama_srb.dialects.common.response_types import Count
from llama_srb.dialects.koboldai.generation import MAX_TOKENS

VERSION = "1.104"  # of KoboldCpp: KoboldAI Lite offers the features of this version, up to adaptive-p
API_VERSION = "1.2.5"  # of KoboldAI's API: has stop_sequence and use_default_badwordsids

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class TextResult(TypedDict):
    result: str


class CountValue(TypedDict):
    value: Count


class SoftPrompts(TypedDict):
    """This server has no soft prompts."""

    values: Annotated[list[Any], Field(max_length=0)]


class SoftPrompt(TypedDict):
    """This server has no soft prompt."""

    value: str


class NoStory(TypedDict):
    """This server has no preloaded story."""


class TokenCount(TypedDict):
    value: Count
    ids: list[Count]


class DetokenizedText(TypedDict):
    result: str
    success: bool


class WebuiTokenCount(TypedDict):
    tokens: Count


class TokenCounts(TypedDict):
    results: list[WebuiTokenCount]


class KoboldVersion(TypedDict):
    """The version, and which of KoboldCpp's features this server has."""

    result: str
    version: str
    protected: bool
    txt2img: bool
    vision: bool
    audio: bool
    transcribe: bool
    multiplayer: bool
    websearch: bool
    tts: bool
    embeddings: bool
    music: bool
    savedata: bool
    admin: bool
    router: bool
    guidance: bool
    mcp: bool
    jinja: bool


# ----------------------------------------------------------------------------------------------------
# Answers of the server and of engine commands
# ----------------------------------------------------------------------------------------------------


def _version(about: ServerInfo) -> KoboldVersion:
    return {
        "result": "KoboldCpp",
        "version": VERSION,
        "protected": False,
        "txt2img": False,
        "vision": False,
        "audio": False,
        "transcribe": False,
        "multiplayer": False,
        "websearch": False,
        "tts": False,
        "embeddings": False,
        "music": False,
        "savedata": False,
        "admin": False,
        "router": False,
        "guidance": True,
        "mcp": False,
        "jinja": bool(about.chat_template),
    }


def _model(about: ServerInfo) -> TextResult:
    return {"result": f"koboldcpp/{about.model}"}


def _api_version(about: ServerInfo) -> TextResult:
    return {"result": API_VERSION}


def _context(about: ServerInfo) -> CountValue:
    return {"value": about.context}


def _max_length(about: ServerInfo) -> CountValue:
    return {"value": MAX_TOKENS}


def _no_soft_prompts(about: ServerInfo) -> SoftPrompts:
    return {"values": []}


def _no_soft_prompt(about: ServerInfo) -> SoftPrompt:
    return {"value": ""}


def _no_story(about: ServerInfo) -> NoStory:
    return {}


def _token_count(body: Json, result: Mapping[str, Any], about: ServerInfo) -> TokenCount:
    return {"value": len(result["tokens"]), "ids": result["tokens"]}


def _text(body: Json, result: Mapping[str, Any], about: ServerInfo) -> DetokenizedText:
    return {"result": result["text"], "success": True}


def _webui_token_count(body: Json, result: Mapping[str, Any], about: ServerInfo) -> TokenCounts:
    return {"results": [{"tokens": len(result["tokens"])}]}


def _special(body: Json) -> Json:
    return {"text": text_of(body, "prompt"), "add_special": switch(body, "special", True)}


LATEST = {  # paths of KoboldAI's own API, which AI Horde's workers ask for as those of its latest version
    f"/api/v1/{name}": f"/api/latest/{name}"
    for name in (
        "generate", "model", "info/version", "config/max_context_length", "config/max_length",
        "config/soft_prompts_list", "config/soft_prompt",
    )
}  # fmt: skip


def latest(path: str) -> str:
    """The name under /api/latest of a path; empty if it has none."""
    return LATEST.get(path, "")


_ENDPOINTS = {
    "/api/v1/model": from_server_info(_model),
    "/api/v1/info/version": from_server_info(_api_version),
    "/api/v1/config/max_context_length": from_server_info(_context),
    "/api/v1/config/max_length": from_server_info(_max_length),
    "/api/v1/config/soft_prompts_list": from_server_info(_no_soft_prompts),
    "/api/v1/config/soft_prompt": from_server_info(_no_soft_prompt),
    "/api/extra/version": from_server_info(_version),
    "/api/extra/true_max_context_length": from_server_info(_context),
    "/api/extra/preloadstory": from_server_info(_no_story),
    "/api/extra/tokencount": InfoEndpoint(_token_count, "tokenize", _special),
    "/api/extra/detokenize": InfoEndpoint(_text, "detokenize", lambda body: ids_of(body, "ids")),
    "/api/v1/token-count": InfoEndpoint(_webui_token_count, "tokenize", _special),
}
INFO_ENDPOINTS = _ENDPOINTS | {LATEST[path]: one for path, one in _ENDPOINTS.items() if path in LATEST}
