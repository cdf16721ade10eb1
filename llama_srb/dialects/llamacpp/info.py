"""llama.cpp's server: paths that generate nothing. Pure."""

from collections.abc import Mapping
from typing import Any, Literal, NotRequired, TypeAlias, cast

from typing_extensions import TypedDict

from llama_srb.dialects.common.fields import ids_of, switch, text_of
from llama_srb.dialects.common.reply import InfoEndpoint, Json, ServerInfo, from_server_info
from llama_srb.dialects.common.response_types import Count
from llama_srb.request.fields import CHAT
from llama_srb.request.parse import request_from
from llama_srb.request.values import RequestError

# ----------------------------------------------------------------------------------------------------
# Answers
# ----------------------------------------------------------------------------------------------------


class TokenPiece(TypedDict):
    """A token's text, or its bytes if they are only a part of a character."""

    id: Count
    piece: str | list[Count]


class Tokenized(TypedDict):
    """The token ids; vLLM's clients also get count, max_model_len and token_strs, null unless asked for."""

    count: NotRequired[Count]
    max_model_len: NotRequired[Count]
    tokens: list[Count] | list[TokenPiece]
    token_strs: NotRequired[list[str] | None]


class TokenizerInfo(TypedDict):
    """Special tokens as texts; null if the model has none. model_max_length: tokens of one sequence."""

    bos_token: str | None
    eos_token: str | None
    pad_token: str | None
    unk_token: str | None
    chat_template: str | None
    model_max_length: Count
    tokenizer_class: str


class Detokenized(TypedDict):
    """The text under two names: content for llama-server's clients, prompt for vLLM's."""

    content: str
    prompt: str


class ChatPrompt(TypedDict):
    prompt: str


class DefaultSettings(TypedDict):
    params: dict[str, Any]
    n_ctx: Count


class Modalities(TypedDict):
    vision: bool
    video: bool
    audio: bool


class Device(TypedDict):
    """A device that computes the model. Bytes: of weights, of cells, of buffers; all of its memory."""

    name: str
    description: str
    model: Count
    context: Count
    compute: Count
    total: Count


Drafts: TypeAlias = Literal["none", "texts", "model"]


class Props(TypedDict):
    """drafts: what next tokens may be guessed from: texts, or a draft model where texts say nothing.

    role and the fields after it: of a server of several models, if `?model=` names none of them.
    max_instances: the most models that are loaded at once, 0 without a limit.
    """

    default_generation_settings: DefaultSettings
    total_slots: Count
    model_alias: str
    model_ftype: str
    model_path: str
    modalities: Modalities
    endpoint_slots: bool
    endpoint_props: bool
    endpoint_metrics: bool
    chat_template: str
    build_info: str
    cpu_variant: str
    devices: list[Device]
    n_layers: Count
    n_gpu_layers: Count
    drafts: Drafts
    is_sleeping: bool
    role: NotRequired[Literal["router"]]
    max_instances: NotRequired[Count]
    models_autoload: NotRequired[bool]


class Slot(TypedDict):
    id: Count
    n_ctx: Count
    speculative: bool
    is_processing: bool


# ----------------------------------------------------------------------------------------------------
# Answers of the server and of engine commands
# ----------------------------------------------------------------------------------------------------


def op_of_tokenize(body: Json) -> str:
    """The tokens of messages are those of a chat's prompt."""
    return "tokenize" if body.get("messages") is None else "template"


def _tokenize(body: Json) -> Json:
    """Reads llama-server's field content, or vLLM's fields messages or prompt, which gets special tokens."""
    wants = {"pieces": True} if switch(body, "return_token_strs", False) else {}
    if body.get("messages") is not None:
        return {**template_arguments(body), "return_tokens": True, **wants}
    if body.get("prompt") is not None:
        special = switch(body, "add_special_tokens", True)
        return {"text": text_of(body, "prompt"), "add_special": special, **wants}
    asked = {"text": text_of(body, "content", ""), "add_special": switch(body, "add_special", False)}
    return asked | ({"pieces": True} if switch(body, "with_pieces", False) else {})


def _tokens(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Tokenized:
    tokens = result["tokens"]
    if body.get("prompt") is not None or body.get("messages") is not None:
        pieces = result.get("pieces")
        return {
            "count": len(tokens),
            "max_model_len": about.context,
            "tokens": tokens,
            "token_strs": pieces and [bytes(piece).decode(errors="replace") for piece in pieces],
        }
    if "pieces" not in result:
        return {"tokens": tokens}
    pieces = map(_piece, result["pieces"])
    with_pieces: list[TokenPiece] = [
        {"id": id, "piece": piece} for id, piece in zip(tokens, pieces, strict=True)
    ]
    return {"tokens": with_pieces}


def _piece(piece: list[int] | bytes) -> str | list[int]:
    """A token's text, or its bytes if they are only a part of a character."""
    try:
        return bytes(piece).decode()
    except UnicodeDecodeError:
        return list(piece)


def _content(body: Json, result: Mapping[str, Any], about: ServerInfo) -> Detokenized:
    return {"content": result["text"], "prompt": result["text"]}


def _tokenizer(about: ServerInfo) -> TokenizerInfo:
    """What vLLM says of its tokenizer to clients that use it from afar."""
    known = about.special_tokens
    return {
        "bos_token": known.get("bos_token"),
        "eos_token": known.get("eos_token"),
        "pad_token": known.get("pad_token"),
        "unk_token": known.get("unk_token"),
        "chat_template": about.chat_template or None,
        "model_max_length": about.context,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }


def template_arguments(body: Mapping[str, Any]) -> Json:
    """The engine's arguments of a chat template, checked as for a chat."""
    fields = {name: value for name, value in body.items() if name in (*CHAT, "reasoning_effort")}
    if fields.get("messages") is None:
        raise RequestError("messages is missing", param="messages")
    made = request_from(fields).engine_fields()
    return {name: value for name, value in made.items() if name in CHAT}


def _prompt(body: Json, result: Mapping[str, Any], about: ServerInfo) -> ChatPrompt:
    return {"prompt": result["prompt"]}


def _props(about: ServerInfo) -> Props:
    settings = request_from({"prompt": ""}, about.defaults).sampling.model_dump(mode="json")
    props: Props = {
        "default_generation_settings": {"params": settings, "n_ctx": about.context},
        "total_slots": about.parallel,
        "model_alias": about.model,
        "model_ftype": about.quantisation,
        "model_path": about.path,
        "modalities": {"vision": False, "video": False, "audio": False},
        "endpoint_slots": about.slots,
        "endpoint_props": False,
        "endpoint_metrics": False,
        "chat_template": about.chat_template,
        "build_info": f"llama-srb {about.version}",
        "cpu_variant": about.cpu,
        "devices": [cast(Device, dict(one)) for one in about.devices],
        "n_layers": about.layers,
        "n_gpu_layers": about.gpu_layers,
        "drafts": cast(Drafts, about.drafts),
        "is_sleeping": False,
    }
    if about.max_instances is not None:
        props |= {"role": "router", "max_instances": about.max_instances, "models_autoload": True}
    return props


def _slots(body: Json, result: Mapping[str, Any], about: ServerInfo) -> list[Slot]:
    """One slot for each parallel sequence. The engine only counts the busy ones: here the first are busy."""
    if not about.slots:
        raise RequestError("this server was started with --no-slots", status=501)
    busy = result["sequences"]
    return [
        {"id": i, "n_ctx": about.context, "speculative": about.drafts == "model", "is_processing": i < busy}
        for i in range(about.parallel)
    ]


TOKENIZE = InfoEndpoint(_tokens, op_of_tokenize, _tokenize)
DETOKENIZE = InfoEndpoint(_content, "detokenize", ids_of)
TEMPLATE = InfoEndpoint(_prompt, "template", template_arguments)
INFO_ENDPOINTS = {
    "/tokenize": TOKENIZE,
    "/v1/tokenize": TOKENIZE,
    "/detokenize": DETOKENIZE,
    "/v1/detokenize": DETOKENIZE,
    "/tokenizer_info": from_server_info(_tokenizer),
    "/apply-template": TEMPLATE,
    "/props": from_server_info(_props),
    "/slots": InfoEndpoint(_slots, "status"),
}
