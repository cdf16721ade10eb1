"""The paths of other servers' APIs as one table, of which routes.py makes rows.

The dialect of a path decides the form of its errors; the types of its answers are in the dialect's module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from llama_srb.dialects import (
    anthropic,
    koboldai,
    llamacpp,
    ollama,
    openllm,
    responses,
    sglang,
    tabby,
    textgen,
)
from llama_srb.dialects.koboldai.info import (
    CountValue,
    DetokenizedText,
    KoboldVersion,
    NoStory,
    SoftPrompt,
    SoftPrompts,
    TextResult,
    TokenCount,
    TokenCounts,
)
from llama_srb.dialects.koboldai.watched import Aborted, LastLogprobs, Performance, TextsSoFar
from llama_srb.dialects.llamacpp.completion import LlamacppText
from llama_srb.dialects.llamacpp.info import ChatPrompt, Detokenized, Props, Slot, Tokenized, TokenizerInfo
from llama_srb.dialects.ollama.info import OllamaLoadedModels, OllamaModels, OllamaVersion, ShownModel
from llama_srb.dialects.rerank import RerankAnswer
from llama_srb.dialects.textgen import (
    Decoded,
    Encoded,
    Length,
    LogitsAnswer,
    LoraNames,
    ModelCard,
    ModelCards,
    ModelNames,
    Status,
)
from llama_srb.dialects.vectors import LlamacppVector, OllamaVector, OllamaVectors
from llama_srb.http.handlers.adapter_loads import AdapterRoutes
from llama_srb.http.handlers.compatibility import Compatibility
from llama_srb.http.handlers.control import Control
from llama_srb.http.handlers.generate import Generate
from llama_srb.http.handlers.health import Health
from llama_srb.http.handlers.loads import Loads
from llama_srb.http.handlers.overrides import OverrideRoutes
from llama_srb.http.handlers.responses import Responses
from llama_srb.http.route import JSON, NDJSON, SSE, Handler, Schema
from llama_srb.serving.keys.scopes import (
    ADMIN,
    CHAT,
    COMPLETE,
    COMPLETE_OR_CHAT,
    EMBED,
    EVERY_KEY,
    METRICS,
    Scopes,
)

reply, ask, vectors = Compatibility.reply, Compatibility.ask, Compatibility.vectors


@dataclass(frozen=True, slots=True)
class Path:
    """One row.

    scopes: a key must have one of them. answers: by content type, a type or a stream. request: the properties
    of the body; None: there is no body. works, list_as, queries: as a Route has them.
    """

    dialect: str
    method: str
    path: str
    scopes: Scopes
    handler: Handler
    summary: str
    answers: Mapping[str, Any]
    request: Schema | None = None
    works: bool = False
    list_as: str = ""
    queries: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The first part of its schema's name: ApiExtraVersion for /api/extra/version."""
        words = self.path.replace("_", "/").replace("-", "/").split("/")
        return "".join(word[:1].upper() + word[1:] for word in words)


# ----------------------------------------------------------------------------------------------------
# Schemas of requests
# ----------------------------------------------------------------------------------------------------

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
ANY: Schema = {}
MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
MAYBE_SWITCH: Schema = {"type": ["boolean", "null"]}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
MAYBE_OBJECT: Schema = {"type": ["object", "null"]}
MESSAGES: Schema = {"type": "array", "items": ANY}
LIST: Schema = {"type": "array", "items": ANY}
MAYBE_LIST: Schema = {"type": ["array", "null"], "items": ANY}
TEXT_OR_LIST: Schema = {"type": ["string", "array"], "items": ANY}


IDS: Schema = {"type": "array", "items": COUNT}
RERANK: Schema = {"query": TEXT, "documents": MAYBE_LIST, "texts": MAYBE_LIST, "top_n": MAYBE_COUNT}
CONTENT: Schema = {"content": ANY, "input": ANY, "dimensions": ANY}
PROMPT: Schema = {
    "prompt": ANY, "n": ANY, "stream": MAYBE_SWITCH, "response_fields": MAYBE_LIST,
}  # fmt: skip
KOBOLD: Schema = {
    "prompt": ANY, "n": ANY, "max_length": ANY, "memory": MAYBE_TEXT, "genkey": MAYBE_TEXT,
    "trim_stop": MAYBE_SWITCH, "max_context_length": MAYBE_COUNT,
    "logprobs": {"type": ["boolean", "integer", "null"]},
}  # fmt: skip
GENKEY: Schema = {"genkey": MAYBE_TEXT}
KEEP_ALIVE: Schema = {"type": ["number", "string", "null"]}
OLLAMA: Schema = {
    "model": TEXT, "prompt": MAYBE_TEXT, "suffix": MAYBE_TEXT, "stream": MAYBE_SWITCH, "raw": MAYBE_SWITCH,
    "system": MAYBE_TEXT, "options": MAYBE_OBJECT, "format": ANY,
    "n": ANY, "logprobs": MAYBE_SWITCH, "top_logprobs": ANY, "truncate": MAYBE_SWITCH,
    "keep_alive": KEEP_ALIVE,
}  # fmt: skip
TOKENIZE: Schema = {
    "with_pieces": MAYBE_SWITCH,
    "content": MAYBE_TEXT, "prompt": MAYBE_TEXT, "add_special": MAYBE_SWITCH,
    "add_special_tokens": MAYBE_SWITCH, "messages": MAYBE_LIST,
    "return_token_strs": MAYBE_SWITCH,
}  # fmt: skip
ENCODE: Schema = {"text": TEXT_OR_LIST, "prompt": TEXT, "add_bos_token": MAYBE_SWITCH}
TOKENS: Schema = {"tokens": IDS}
NAMED: Schema = {"model": TEXT}
CONFIGURED: Schema = {"configuration": MAYBE_OBJECT, "model": MAYBE_TEXT, "stream": MAYBE_SWITCH}
ANTHROPIC: Schema = {
    "model": MAYBE_TEXT, "messages": MESSAGES, "system": ANY, "tools": MAYBE_LIST,
    "tool_choice": MAYBE_OBJECT, "thinking": MAYBE_OBJECT, "output_config": MAYBE_OBJECT,
    "metadata": ANY,
}  # fmt: skip
RESPONSES: Schema = {
    "input": TEXT_OR_LIST, "model": MAYBE_TEXT, "instructions": MAYBE_TEXT,
    "stream": MAYBE_SWITCH, "max_output_tokens": ANY, "tools": MAYBE_LIST,
    "tool_choice": ANY, "parallel_tool_calls": MAYBE_SWITCH, "text": MAYBE_OBJECT, "reasoning": MAYBE_OBJECT,
    "include": MAYBE_LIST, "top_logprobs": MAYBE_COUNT, "metadata": MAYBE_OBJECT,
    "truncation": {"enum": ["auto", "disabled", None]}, "store": MAYBE_SWITCH,
    "previous_response_id": MAYBE_TEXT,
}  # fmt: skip

NATIVE = {JSON: LlamacppText | list[LlamacppText], SSE: llamacpp.TEXTS}
NATIVE_VECTORS = {JSON: list[LlamacppVector]}
RESPONSE = {JSON: responses.ResponseObject, SSE: responses.EVENTS}

# ----------------------------------------------------------------------------------------------------
# The paths
# ----------------------------------------------------------------------------------------------------


# fmt: off
def _responses(path: str) -> tuple[Path, ...]:
    """The rows of OpenAI's responses; path: of all of them."""
    one = path + "/{response_id}"
    rows = (
        Path("responses", "POST", path, CHAT, Responses.create_response,
            "One answer to a conversation, in the form of OpenAI's responses: items, or events.",
            RESPONSE, RESPONSES),
        Path("responses", "POST", path + "/input_tokens", CHAT, Responses.response_input_tokens,
            "The tokens of the prompt of a response.", {JSON: responses.InputTokens}, RESPONSES),
        Path("responses", "GET", one, CHAT, Responses.get_response,
            "A response of the caller that is kept.", {JSON: responses.ResponseObject}, works=True),
        Path("responses", "DELETE", one, CHAT, Responses.delete_response,
            "Forgets a response of the caller.", {JSON: responses.DeletedResponse}),
        Path("responses", "GET", one + "/input_items", CHAT, Responses.list_input_items,
            "The items that the caller has sent for a response.", {JSON: responses.InputItems}, works=True,
            queries=("limit", "after", "order")),
    )
    if path == "/v1/responses":
        return rows
    return tuple(
        replace(row, summary=f"The same as /v1/responses{row.path.removeprefix(path)}.") for row in rows
    )
_PATHS = (
    Path("llamacpp", "POST", "/completion", COMPLETE, reply,
        "n continuations in llama-server's form: objects, or frames.", NATIVE, PROMPT),
    Path("llamacpp", "POST", "/completions", COMPLETE, reply, "The same as /completion.", NATIVE, PROMPT),
    Path("llamacpp", "POST", "/infill", COMPLETE, reply,
        "The text between input_prefix and input_suffix, if the model has infill tokens.", NATIVE,
        {"input_prefix": TEXT, "input_suffix": TEXT, "input_extra": MAYBE_LIST, **PROMPT}),
    Path("llamacpp", "POST", "/tokenize", COMPLETE, ask,
        "Token ids of content (llama-server), or of prompt with special tokens (vLLM).",
        {JSON: Tokenized}, TOKENIZE),
    Path("llamacpp", "POST", "/apply-template", COMPLETE_OR_CHAT, ask,
        "The prompt of a chat, made by the model's template.", {JSON: ChatPrompt},
        {"messages": MESSAGES, "tools": ANY, "chat_template_kwargs": ANY}),
    Path("llamacpp", "POST", "/v1/tokenize", COMPLETE, ask, "The same as /tokenize (Aphrodite).",
        {JSON: Tokenized}, TOKENIZE),
    Path("llamacpp", "POST", "/detokenize", COMPLETE, ask, "The text of tokens.",
        {JSON: Detokenized}, TOKENS),
    Path("llamacpp", "POST", "/v1/detokenize", COMPLETE, ask, "The same as /detokenize.",
        {JSON: Detokenized}, TOKENS),
    Path("llamacpp", "GET", "/tokenizer_info", EVERY_KEY, ask,
        "Special tokens and chat template (vLLM), for clients that tokenize here.", {JSON: TokenizerInfo}),
    Path("llamacpp", "GET", "/props", EVERY_KEY, ask, "The model and the default sampling settings.",
        {JSON: Props}),
    Path("llamacpp", "GET", "/slots", EVERY_KEY, ask, "A slot for each of --parallel sequences.",
        {JSON: list[Slot]}, works=True),
    Path("llamacpp", "POST", "/models/load", ADMIN, Loads.router_load,
        "Begins to load a model, and answers at once; 400 if it is loaded or loads already.",
        {JSON: llamacpp.Success}, NAMED),
    Path("llamacpp", "POST", "/models/unload", ADMIN, Loads.router_unload,
        "Begins to unload a model, and answers at once; 400 if it is not loaded.",
        {JSON: llamacpp.Success}, NAMED),
    Path("llamacpp", "GET", "/models/sse", EVERY_KEY, Loads.models_sse,
        "Events about loads and unloads of models.", {SSE: llamacpp.MODEL_EVENTS}, works=True),
    Path("llamacpp", "POST", "/embedding", EMBED, vectors, "Vectors of texts.", NATIVE_VECTORS, CONTENT),
    Path("llamacpp", "POST", "/embeddings", EMBED, vectors, "The same as /embedding.",
        NATIVE_VECTORS, CONTENT),

    Path("llamacpp", "POST", "/reranking", EMBED, Generate.rerank,
        "Documents by what the model's head gives for them and a query.", {JSON: RerankAnswer}, RERANK),
    Path("llamacpp", "POST", "/v1/reranking", EMBED, Generate.rerank, "The same as /reranking.",
        {JSON: RerankAnswer}, RERANK),
    Path("openai", "POST", "/rerank", EMBED, Generate.rerank, "The same as /v1/rerank.",
        {JSON: RerankAnswer}, RERANK),
    Path("openai", "POST", "/v2/rerank", EMBED, Generate.rerank, "The same in Cohere's form.",
        {JSON: RerankAnswer}, RERANK),

    Path("koboldai", "POST", "/api/v1/generate", COMPLETE, reply,
        "n results; also the blocking API of old text-generation-webui.",
        {JSON: koboldai.KoboldResults}, KOBOLD),
    Path("koboldai", "POST", "/api/extra/generate/stream", COMPLETE, reply,
        "n results as frames `event: message`.", {SSE: koboldai.MESSAGES}, KOBOLD),
    Path("koboldai", "POST", "/api/extra/generate/check", COMPLETE, Compatibility.kobold_check,
        "The texts so far of the caller's generation with a genkey.", {JSON: TextsSoFar}, GENKEY),
    Path("koboldai", "GET", "/api/extra/generate/check", COMPLETE, Compatibility.kobold_check,
        "The same as POST, without a genkey.", {JSON: TextsSoFar}),
    Path("koboldai", "POST", "/api/extra/abort", COMPLETE, Compatibility.kobold_abort,
        "Ends the caller's generation with a genkey.",
        {JSON: Aborted}, GENKEY),
    Path("koboldai", "POST", "/api/extra/last_logprobs", COMPLETE, Compatibility.kobold_logprobs,
        "The tokens of the caller's generation with a genkey.", {JSON: LastLogprobs}, GENKEY),
    Path("koboldai", "GET", "/api/extra/last_logprobs", COMPLETE, Compatibility.kobold_logprobs,
        "The same as POST, without a genkey.", {JSON: LastLogprobs}),
    Path("koboldai", "GET", "/api/extra/perf", COMPLETE, Compatibility.kobold_perf,
        "How long the caller's last generation took.",
        {JSON: Performance}),
    Path("koboldai", "POST", "/api/extra/tokencount", COMPLETE, ask, "The number of tokens, and their ids.",
        {JSON: TokenCount}, {"prompt": TEXT, "special": MAYBE_SWITCH}),
    Path("koboldai", "POST", "/api/extra/detokenize", COMPLETE, ask, "The text of tokens.",
        {JSON: DetokenizedText}, {"ids": IDS}),
    Path("koboldai", "POST", "/api/v1/token-count", COMPLETE, ask,
        "The number of tokens (old text-generation-webui).",
        {JSON: TokenCounts}, {"prompt": TEXT}),
    Path("koboldai", "GET", "/api/v1/model", EVERY_KEY, ask, "The model's name.", {JSON: TextResult}),
    Path("koboldai", "GET", "/api/v1/info/version", EVERY_KEY, ask, "The version of KoboldAI's API.",
        {JSON: TextResult}),
    Path("koboldai", "GET", "/api/v1/config/max_context_length", EVERY_KEY, ask, "Tokens of one sequence.",
        {JSON: CountValue}),
    Path("koboldai", "GET", "/api/v1/config/max_length", EVERY_KEY, ask, "The default of max_length.",
        {JSON: CountValue}),
    Path("koboldai", "GET", "/api/v1/config/soft_prompts_list", EVERY_KEY, ask, "An empty list.",
        {JSON: SoftPrompts}),
    Path("koboldai", "GET", "/api/v1/config/soft_prompt", EVERY_KEY, ask, "An empty name.",
        {JSON: SoftPrompt}),
    Path("koboldai", "GET", "/api/extra/version", EVERY_KEY, ask,
        "The version of KoboldCpp whose API this server has.", {JSON: KoboldVersion}),
    Path("koboldai", "GET", "/api/extra/true_max_context_length", EVERY_KEY, ask, "Tokens of one sequence.",
        {JSON: CountValue}),
    Path("koboldai", "GET", "/api/extra/preloadstory", EVERY_KEY, ask, "An empty object.",
        {JSON: NoStory}),

    Path("openai", "POST", "/v1/internal/encode", COMPLETE, ask, "text-generation-webui: token ids.",
        {JSON: Encoded}, ENCODE),
    Path("openai", "POST", "/v1/internal/decode", COMPLETE, ask, "text-generation-webui: text.",
        {JSON: Decoded}, TOKENS),
    Path("openai", "POST", "/v1/internal/token-count", COMPLETE, ask,
        "text-generation-webui: the number of tokens.", {JSON: Length}, ENCODE),
    Path("openai", "POST", "/v1/internal/logits", COMPLETE, reply,
        "text-generation-webui: the probabilities of the likeliest next tokens.",
        {JSON: LogitsAnswer},
        {"prompt": ANY, "use_samplers": MAYBE_SWITCH, "top_logits": MAYBE_COUNT}),
    Path("openai", "POST", "/v1/internal/chat-prompt", COMPLETE_OR_CHAT, ask,
        "text-generation-webui: the prompt of a chat.", {JSON: ChatPrompt},
        {"messages": MESSAGES}),
    Path("openai", "POST", "/v1/internal/stop-generation", COMPLETE_OR_CHAT, Control.stop_generation,
        "text-generation-webui: ends the caller's generations on OpenAI's paths.",
        {JSON: Literal["OK"]}),
    Path("openai", "GET", "/v1/internal/health", EVERY_KEY, ask, "text-generation-webui: the server runs.",
        {JSON: Status}),
    Path("openai", "GET", "/v1/internal/lora/list", EVERY_KEY, ask,
        "text-generation-webui: an empty list; requests name adapters by id (/v1/adapters).",
        {JSON: LoraNames}),
    Path("openai", "GET", "/v1/internal/model/info", EVERY_KEY, ask, "text-generation-webui: the model.",
        {JSON: textgen.WebuiModel}),
    Path("openai", "GET", "/v1/internal/model/list", EVERY_KEY, ask, "text-generation-webui: all models.",
        {JSON: ModelNames}),
    Path("openai", "POST", "/v1/internal/model/load", ADMIN, Loads.webui_load,
        "text-generation-webui: loads a model by its name, and waits until it is loaded.",
        {JSON: Literal["OK"]}, {"model_name": TEXT, "args": MAYBE_OBJECT, "settings": MAYBE_OBJECT}),
    Path("openai", "POST", "/v1/internal/model/unload", ADMIN, Loads.unload_loaded,
        "text-generation-webui: unloads all models that are loaded, or the named one.",
        {JSON: None}, {"model_name": MAYBE_TEXT}),
    Path("openai", "POST", "/v1/token/encode", COMPLETE, ask, "TabbyAPI: token ids.",
        {JSON: Encoded}, ENCODE),
    Path("openai", "POST", "/v1/token/decode", COMPLETE, ask, "TabbyAPI: text.",
        {JSON: Decoded}, TOKENS),
    Path("openai", "GET", "/v1/model", EVERY_KEY, ask, "TabbyAPI: the model.", {JSON: ModelCard}),
    Path("openai", "GET", "/v1/model/list", EVERY_KEY, ask, "TabbyAPI: all models.",
        {JSON: ModelCards}),
    Path("openai", "GET", "/v1/model/draft/list", EVERY_KEY, ask,
        "TabbyAPI: an empty list; a model's draft is one of the server's settings.", {JSON: ModelCards}),
    Path("openai", "GET", "/v1/lora/list", EVERY_KEY, ask, "TabbyAPI: all adapters that have names.",
        {JSON: textgen.LoraCards}),
    Path("openai", "POST", "/v1/model/load", ADMIN, Loads.tabby_load,
        "TabbyAPI: loads a model by its name, with the progress as a stream.",
        {SSE: textgen.LOAD_STEPS}, {"model_name": MAYBE_TEXT, "name": MAYBE_TEXT}),
    Path("openai", "POST", "/v1/model/unload", ADMIN, Loads.unload_loaded,
        "TabbyAPI: unloads all models that are loaded, or the named one.",
        {JSON: None}, {"model_name": MAYBE_TEXT}),

    Path("openai", "POST", "/v1/lora/load", ADMIN, AdapterRoutes.tabby_load_lora_adapter,
        "TabbyAPI: loads adapters from the folder --adapters-dir, which all requests get that name none.",
        {JSON: tabby.LorasLoaded}, {"loras": LIST, "model": MAYBE_TEXT, "skip_queue": MAYBE_SWITCH}),
    Path("openai", "POST", "/v1/lora/unload", ADMIN, AdapterRoutes.tabby_unload_lora_adapter,
        "TabbyAPI: unloads the adapters that /v1/lora/load has loaded.", {JSON: None}, {"model": MAYBE_TEXT}),
    Path("openai", "GET", "/v1/sampling/override/list", EVERY_KEY, OverrideRoutes.list_overrides,
        "TabbyAPI: the fields that hold for all clients, and the presets.", {JSON: tabby.OverrideList}),
    Path("openai", "GET", "/v1/sampling/overrides", EVERY_KEY, OverrideRoutes.list_overrides,
        "The same as /v1/sampling/override/list.", {JSON: tabby.OverrideList}),
    Path("openai", "POST", "/v1/sampling/override/switch", ADMIN, OverrideRoutes.switch_overrides,
        "TabbyAPI: sets fields that hold for all clients, of all models or of one, until they are unloaded.",
        {JSON: None}, {"preset": MAYBE_TEXT, "overrides": MAYBE_OBJECT, "model": MAYBE_TEXT}),
    Path("openai", "POST", "/v1/sampling/override/unload", ADMIN, OverrideRoutes.unload_overrides,
        "TabbyAPI: unsets what /v1/sampling/override/switch has set.", {JSON: None}, {"model": MAYBE_TEXT}),
    Path("openai", "GET", "/v1/template/list", EVERY_KEY, OverrideRoutes.no_templates,
        "TabbyAPI: refused, since templates are the server's settings.", {}),
    Path("openai", "POST", "/v1/template/switch", ADMIN, OverrideRoutes.no_templates,
        "TabbyAPI: refused in the same way.", {}, {"name": MAYBE_TEXT}),
    Path("openai", "POST", "/v1/template/unload", ADMIN, OverrideRoutes.no_templates,
        "TabbyAPI: refused in the same way.", {}, {}),

    *_responses("/v1/responses"),
    *_responses("/responses"),
    *_responses("/openai/v1/responses"),
    Path("openai", "POST", "/v1/chat/completions/input_tokens", CHAT, Compatibility.count_tokens,
        "llama-server: the tokens of the prompt of a chat.",
        {JSON: responses.InputTokens}, {"messages": MESSAGES}),
    Path("openai", "POST", "/chat/completions/input_tokens", CHAT, Compatibility.count_tokens,
        "The same as /v1/chat/completions/input_tokens.",
        {JSON: responses.InputTokens}, {"messages": MESSAGES}),
    Path("ollama", "POST", "/api/generate", COMPLETE, reply,
        "n continuations: lines of JSON, or one object.",
        {JSON: ollama.Generated, NDJSON: ollama.TEXT_LINES}, OLLAMA),
    Path("ollama", "POST", "/api/chat", CHAT, reply, "n answers to a chat: lines of JSON, or one object.",
        {JSON: ollama.ChatAnswer, NDJSON: ollama.TURN_LINES},
        {"messages": MESSAGES, "tools": ANY, "think": ANY, **OLLAMA}),
    Path("ollama", "POST", "/api/embed", EMBED, vectors, "Vectors of texts.",
        {JSON: OllamaVectors},
        {"model": TEXT, "input": ANY, "dimensions": ANY, "truncate": MAYBE_SWITCH,
         "keep_alive": KEEP_ALIVE}),
    Path("ollama", "POST", "/api/embeddings", EMBED, vectors, "The vector of one text.",
        {JSON: OllamaVector},
        {"model": TEXT, "prompt": ANY, "truncate": MAYBE_SWITCH}),
    Path("ollama", "POST", "/api/show", EVERY_KEY, ask, "The model.",
        {JSON: ShownModel},
        {"model": TEXT}),
    Path("ollama", "POST", "/api/pull", EVERY_KEY, Compatibility.pull,
        "Success for the served model, whose file is here; fetches nothing.",
        {JSON: ollama.Pulled, NDJSON: ollama.PULLED},
        {"model": TEXT, "stream": MAYBE_SWITCH}),
    Path("ollama", "GET", "/api/tags", EVERY_KEY, ask, "The model.", {JSON: OllamaModels}),
    Path("ollama", "GET", "/api/ps", EVERY_KEY, ask, "The loaded models, and when each leaves.",
        {JSON: OllamaLoadedModels}),
    Path("ollama", "GET", "/api/version", EVERY_KEY, ask,
        "The version of Ollama whose API this server has.",
        {JSON: OllamaVersion}),

    Path("openllm", "POST", "/complete", COMPLETE, reply,
        "OpenLLM-Server's shape: the texts of n continuations, and the settings that were used.",
        {JSON: openllm.ConfiguredTexts}, {"prompt": ANY, **CONFIGURED}),
    Path("openllm", "POST", "/chat", CHAT, reply,
        "OpenLLM-Server's shape: the text of an answer to a message, and the settings that were used.",
        {JSON: openllm.ConfiguredChat},
        {"prompt": ANY, "message": ANY, "messages": MAYBE_LIST, **CONFIGURED}),
    Path("openllm", "POST", "/embed", EMBED, vectors,
        "OpenLLM-Server's shape: a list of vectors, of a list of texts.",
        {JSON: openllm.ConfiguredVectors}, {"input": ANY, "dimensions": ANY, "configuration": MAYBE_OBJECT},
        list_as="input"),

    Path("anthropic", "POST", "/v1/messages", CHAT, reply,
        "One answer to a chat: a message of content blocks, or its events.",
        {JSON: anthropic.AnthropicMessage, SSE: anthropic.EVENTS},
        {"max_tokens": ANY, "stream": MAYBE_SWITCH, "stop_sequences": MAYBE_LIST, **ANTHROPIC}),
    Path("anthropic", "POST", "/v1/messages/count_tokens", CHAT, Compatibility.count_tokens,
        "The tokens of the prompt of a chat.", {JSON: anthropic.CountedTokens}, ANTHROPIC),

    Path("sglang", "GET", "/server_info", EVERY_KEY, ask,
        "SGLang: the server, as gateways ask for it.", {JSON: sglang.SglangServer}),
    Path("sglang", "GET", "/model_info", EVERY_KEY, ask, "SGLang: the model.", {JSON: sglang.SglangModel}),
    Path("sglang", "GET", "/v1/loads", METRICS, Health.engine_loads,
        "SGLang: how loaded the engine of each model is, which gateways balance by.",
        {JSON: sglang.EngineLoads}, works=True),
)
# fmt: on


def _latest(path: Path) -> Path:
    """KoboldAI's other name for its API's version, which AI Horde's workers use."""
    return replace(path, path=koboldai.latest(path.path), summary=f"The same as {path.path}.")


PATHS = (*_PATHS, *(_latest(path) for path in _PATHS if koboldai.latest(path.path)))

ERRORS: Mapping[str, Any] = {  # error types by dialect; other dialects have OpenAI's
    "llamacpp": llamacpp.LlamacppError,
    "koboldai": koboldai.KoboldError,
    "ollama": ollama.OllamaError,
    "anthropic": anthropic.AnthropicError,
}
UNAVAILABLE: Mapping[str, Mapping[int, str]] = {  # what a dialect has instead of 503
    "anthropic": {
        529: "The queue is full, no engine runs, or the server stops.",
        504: "A time limit is over.",
    },
}
