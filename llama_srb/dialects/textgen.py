"""text-generation-webui's and TabbyAPI's paths beside /v1/completions, which takes their fields. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import InfoEndpoint, Json, Reply, ServerInfo, told
from llama_srb.dialects.llamacpp import TEMPLATE
from llama_srb.request.parse import request_from
from llama_srb.request.values import MAX_LOGPROBS, whole

TOP = 50  # of the likeliest tokens, if not said
READ_HERE = frozenset({"stream", "model", "user", "use_samplers", "top_logits", "suffix"})


class Logits(Reply):
    """Of /v1/internal/logits: probabilities of the next token by its text, the likeliest first."""

    def __init__(self, body: Mapping[str, Any], about: ServerInfo) -> None:
        top = whole("top_logits", body.get("top_logits") or TOP, 1, MAX_LOGPROBS)
        mode = "processed" if switch(body, "use_samplers", False) else "raw"
        one = {"n": 1, "max_tokens": 1, "min_tokens": 1, "stop": None, "best_of": None}  # an end is no text
        fields = {**body, **one, "logprobs": top, "logprobs_mode": mode}
        defaults = about.defaults_of(1, 1, stream=False)
        super().__init__(request_from(fields, defaults, known=READ_HERE), about, stream=False)

    def body(self) -> Any:
        probabilities: dict[str, float] = {}
        first = next(iter(self.texts[0].tokens), {})  # none if it was cancelled before
        for token in first.get("top", ()):
            probabilities.setdefault(token["text"], math.exp(token["logprob"]))
        return {"logits": probabilities} | self.warned


def _text(body: Json) -> Json:
    """TabbyAPI has a switch for the first token; text-generation-webui always puts it."""
    special = switch(body, "add_bos_token", True)
    return {"text": text_of(body, "text"), "add_special": special}


def _tokens(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    return {"tokens": result["tokens"], "length": len(result["tokens"])}


def _length(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    return {"length": len(result["tokens"])}


def _decoded(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Json:
    return {"text": result["text"]}


def _info(about: ServerInfo) -> Json:
    return {"model_name": about.model, "lora_names": [], "loader": "llama.cpp"}


def _card(about: ServerInfo) -> Json:
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


ENCODE = InfoEndpoint(_tokens, "tokenize", _text)
DECODE = InfoEndpoint(_decoded, "detokenize", ids_of)
QUESTIONS = {
    "/v1/internal/encode": ENCODE,
    "/v1/internal/decode": DECODE,
    "/v1/internal/token-count": InfoEndpoint(_length, "tokenize", _text),
    "/v1/internal/chat-prompt": TEMPLATE,
    "/v1/internal/health": told(lambda about: {"status": "ok"}),
    "/v1/internal/lora/list": told(lambda about: {"lora_names": []}),
    "/v1/internal/model/info": told(_info),
    "/v1/internal/model/list": told(lambda about: {"model_names": [about.model]}),
    "/v1/token/encode": ENCODE,
    "/v1/token/decode": DECODE,
    "/v1/model": told(_card),
    "/v1/model/list": told(lambda about: {"object": "list", "data": [_card(about)]}),
}
REPLIES = {"/v1/internal/logits": Logits}
