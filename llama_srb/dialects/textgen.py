"""text-generation-webui's and TabbyAPI's paths beside /v1/completions, which takes their fields. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from llama_srb.dialects.llamacpp import ids_of, switch, text_of
from llama_srb.dialects.reply import About, Json, Question


def _text(body: Json) -> Json:
    """TabbyAPI has a switch for the first token; text-generation-webui always puts it."""
    special = switch(body, "add_bos_token", True)
    return {"text": text_of(body, "text"), "add_special": special}


def _tokens(body: Json, result: Mapping[str, Any], about: About) -> Json:
    return {"tokens": result["tokens"], "length": len(result["tokens"])}


def _length(body: Json, result: Mapping[str, Any], about: About) -> Json:
    return {"length": len(result["tokens"])}


def _decoded(body: Json, result: Mapping[str, Any], about: About) -> Json:
    return {"text": result["text"]}


def _info(body: Json, result: Mapping[str, Any], about: About) -> Json:
    return {"model_name": about.model, "lora_names": [], "loader": "llama.cpp"}


def _card(about: About) -> Json:
    """TabbyAPI's; SillyTavern reads id."""
    parameters = {
        "max_seq_len": about.context,
        "cache_size": about.context,
        "max_batch_size": about.parallel,
        "prompt_template": None,
        "use_vision": False,
    }
    return {
        "id": about.model,
        "object": "model",
        "created": int(about.modified),
        "owned_by": "llama-srb",
        "parameters": parameters,
    }


ENCODE = Question(_tokens, "tokenize", _text)
DECODE = Question(_decoded, "detokenize", ids_of)
QUESTIONS = {
    "/v1/internal/encode": ENCODE,
    "/v1/internal/decode": DECODE,
    "/v1/internal/token-count": Question(_length, "tokenize", _text),
    "/v1/internal/model/info": Question(_info),
    "/v1/internal/model/list": Question(lambda body, result, about: {"model_names": [about.model]}),
    "/v1/token/encode": ENCODE,
    "/v1/token/decode": DECODE,
    "/v1/model": Question(lambda body, result, about: _card(about)),
    "/v1/model/list": Question(lambda body, result, about: {"object": "list", "data": [_card(about)]}),
}
