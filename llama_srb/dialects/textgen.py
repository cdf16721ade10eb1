"""text-generation-webui's and TabbyAPI's own paths; their completions are /v1/completions. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import (
    InfoEndpoint,
    Json,
    Reply,
    ServerInfo,
    from_models,
    from_server_info,
)
from llama_srb.dialects.common.response_types import Count, Frames, Warned, warned
from llama_srb.dialects.common.token_names import by_name
from llama_srb.dialects.llamacpp import TEMPLATE
from llama_srb.dialects.llamacpp.info import template_arguments
from llama_srb.request.parse import refuse_locked, request_from
from llama_srb.request.values import MAX_LOGPROBS, whole

TOP = 50  # the default number of likeliest tokens
READ_HERE = frozenset({"stream", "model", "user", "use_samplers", "top_logits", "suffix"})
ONE = {  # token of one text, and no second answer; an end token has no text
    "n": 1, "max_tokens": 1, "min_tokens": 1, "stop": None, "best_of": None, "then": None,
}  # fmt: skip


# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class LogitsAnswer(Warned):
    """Probabilities by the tokens' texts."""

    logits: dict[str, float]


class Encoded(TypedDict):
    tokens: list[Count]
    length: Count


class Length(TypedDict):
    length: Count


class Decoded(TypedDict):
    text: str


class Status(TypedDict):
    status: Literal["ok"]


class LoraNames(TypedDict):
    lora_names: list[str]


class WebuiModel(LoraNames):
    model_name: str
    loader: str


class ModelNames(TypedDict):
    model_names: list[str]


class CardParameters(TypedDict):
    max_seq_len: Count
    cache_size: Count
    max_batch_size: Count
    prompt_template: str | None
    use_vision: bool


class ModelCard(TypedDict):
    """A model in TabbyAPI's form; SillyTavern reads its id."""

    id: str
    object: Literal["model"]
    created: Count
    owned_by: str
    parameters: CardParameters


class ModelCards(TypedDict):
    object: Literal["list"]
    data: list[ModelCard]


class LoraCard(TypedDict):
    id: str
    object: Literal["lora"]


class LoraCards(TypedDict):
    object: Literal["list"]
    data: list[LoraCard]


class LoadStep(TypedDict):
    """The progress of a load in TabbyAPI's form, in percent: of modules, which are 100, module are loaded."""

    model_type: Literal["model"]
    module: Count
    modules: Count
    status: Literal["processing", "finished"]


class LoadEnd(LoadStep, Warned):
    pass


class LoadFault(TypedDict):
    message: str


class LoadFailed(TypedDict):
    error: LoadFault


LOAD_STEPS = Frames(LoadStep | LoadEnd | LoadFailed, "Server-sent events, the last of which is the end.")

# ----------------------------------------------------------------------------------------------------
# Loads
# ----------------------------------------------------------------------------------------------------

MODULES = 100
LOAD_READ = frozenset({"model_name", "name", "skip_queue"})


def load_step(progress: float) -> LoadStep:
    """progress: 0 to 1."""
    module = round(MODULES * progress)
    return {"model_type": "model", "module": module, "modules": MODULES, "status": "processing"}


def load_end(body: Mapping[str, Any]) -> LoadEnd:
    """The last frame of a load; it names the fields of the body that other loaders have."""
    names = [name for name, value in body.items() if name not in LOAD_READ and value not in (None, {}, [])]
    unused = (f"{name} is not used: the server's settings of the model hold" for name in names)
    last: LoadEnd = {"model_type": "model", "module": MODULES, "modules": MODULES, "status": "finished"}
    return {**last, **warned(tuple(unused))}


def load_failed(reason: str) -> LoadFailed:
    return {"error": {"message": reason}}


def loaded_name(body: Mapping[str, Any], default: str | None = None) -> str:
    """The model of a load or an unload: `model_name`, in older versions of TabbyAPI `name`."""
    name = "name" if body.get("model_name") is None and body.get("name") is not None else "model_name"
    return text_of(body, name, default)


# ----------------------------------------------------------------------------------------------------
# Answers from events
# ----------------------------------------------------------------------------------------------------


class Logits(Reply):
    """The answer of /v1/internal/logits: the next token's probabilities by text, the likeliest first."""

    def __init__(self, body: Mapping[str, Any], about: ServerInfo) -> None:
        top = whole("top_logits", body.get("top_logits") or TOP, 1, MAX_LOGPROBS)
        mode = "processed" if switch(body, "use_samplers", False) else "raw"
        ours = {**ONE, "logprobs": top, "logprobs_mode": mode}
        defaults = about.defaults_of(1, 1, stream=False)
        refuse_locked(["logprobs"], defaults.locked)  # the whole answer is nothing else
        super().__init__(request_from(body, defaults, known=READ_HERE, ours=ours), about, stream=False)

    def body(self) -> LogitsAnswer:
        first = next(iter(self.texts[0].tokens), {})  # there is none if the request was cancelled
        probabilities = {name: math.exp(one) for name, one in by_name(first.get("top", ())).items()}
        return {"logits": probabilities, **warned(self.request.warnings, self.start)}


# ----------------------------------------------------------------------------------------------------
# Answers of the server and of engine commands
# ----------------------------------------------------------------------------------------------------


def _text(body: Json) -> Json:
    """TabbyAPI's field add_bos_token says whether BOS is added; text-generation-webui always adds it."""
    special = switch(body, "add_bos_token", True)
    return {"text": text_of(body, "text"), "add_special": special}


def _op_of_encode(body: Json) -> str:
    return "template" if isinstance(body.get("text"), list) else "tokenize"


def _encoded(body: Json) -> Json:
    """TabbyAPI's text may be the messages of a chat; mikupad's name for it is prompt."""
    if isinstance(body.get("text"), list):
        fields = {name: value for name, value in body.items() if name != "text"}
        return {**template_arguments({**fields, "messages": body["text"]}), "return_tokens": True}
    return _text({**body, "text": body.get("text", body.get("prompt"))})


def _tokens(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Encoded:
    return {"tokens": result["tokens"], "length": len(result["tokens"])}


def _length(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Length:
    return {"length": len(result["tokens"])}


def _decoded(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Decoded:
    return {"text": result["text"]}


def _info(about: ServerInfo) -> WebuiModel:
    return {"model_name": about.model, "lora_names": [], "loader": "llama.cpp"}


def _health(about: ServerInfo) -> Status:
    return {"status": "ok"}


def _loras(about: ServerInfo) -> LoraNames:
    return {"lora_names": []}


def _names(models: Sequence[ServerInfo]) -> ModelNames:
    return {"model_names": [one.model for one in models]}


def _cards(models: Sequence[ServerInfo]) -> ModelCards:
    return {"object": "list", "data": list(map(_card, models))}


def _drafts(models: Sequence[ServerInfo]) -> ModelCards:
    """The loader of SillyTavern's users asks for this list before it shows any model."""
    return {"object": "list", "data": []}


def _lora_cards(models: Sequence[ServerInfo]) -> LoraCards:
    adapters = [one.model for one in models if one.parent and not one.is_task]
    cards: list[LoraCard] = [{"id": name, "object": "lora"} for name in adapters]
    return {"object": "list", "data": cards}


def _card(about: ServerInfo) -> ModelCard:
    parameters: CardParameters = {
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
INFO_ENDPOINTS = {
    "/v1/internal/encode": ENCODE,
    "/v1/internal/decode": DECODE,
    "/v1/internal/token-count": InfoEndpoint(_length, "tokenize", _text),
    "/v1/internal/chat-prompt": TEMPLATE,
    "/v1/internal/health": from_server_info(_health),
    "/v1/internal/lora/list": from_server_info(_loras),
    "/v1/internal/model/info": from_server_info(_info),
    "/v1/internal/model/list": from_models(_names),
    "/v1/token/encode": InfoEndpoint(_tokens, _op_of_encode, _encoded),
    "/v1/token/decode": DECODE,
    "/v1/model": from_server_info(_card),
    "/v1/model/list": from_models(_cards),
    "/v1/model/draft/list": from_models(_drafts),
    "/v1/lora/list": from_models(_lora_cards),
}
REPLIES = {"/v1/internal/logits": Logits}
