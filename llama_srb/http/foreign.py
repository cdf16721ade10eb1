"""The paths of other servers' APIs as one table: of it routes.py makes rows, openapi.py schemas. Pure data.

handler is a method of one of handlers/: `reply` generates, `ask` does not. Which dialect a path belongs to
decides the form of its errors; what a path answers is in that module of dialects/.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

Scopes: TypeAlias = tuple[str, ...]

JSON, SSE, NDJSON = "application/json", "text/event-stream", "application/x-ndjson"

NO_KEY: Scopes = ()  # what a route asks of a key: one of these scopes, or no key at all
COMPLETE: Scopes = ("complete",)
CHAT: Scopes = ("chat",)
COMPLETE_OR_CHAT: Scopes = ("complete", "chat")
EMBED: Scopes = ("embed",)
METRICS: Scopes = ("metrics",)
EVERY_KEY: Scopes = ("complete", "chat", "embed", "metrics")


@dataclass(frozen=True, slots=True)
class Path:
    """One row.

    scopes: one of them lets a key in. answers: schema by content type; request: properties of a body, None
    where there is none.
    """

    dialect: str
    method: str
    path: str
    scopes: Scopes
    handler: str
    summary: str
    answers: Mapping[str, Schema]
    request: Schema | None = None

    @property
    def name(self) -> str:
        """Of its schemas: /api/extra/version is ApiExtraVersion."""
        words = self.path.replace("_", "/").replace("-", "/").split("/")
        return "".join(word[:1].upper() + word[1:] for word in words)


# ----------------------------------------------------------------------------------------------------
# Schemas
# ----------------------------------------------------------------------------------------------------

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
SWITCH: Schema = {"type": "boolean"}
ANY: Schema = {}
MAYBE_COUNT: Schema = {"type": ["integer", "null"], "minimum": 0}
MAYBE_SWITCH: Schema = {"type": ["boolean", "null"]}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
MAYBE_OBJECT: Schema = {"type": ["object", "null"]}


def made_of(optional: str = "", **properties: Schema) -> Schema:
    """An object whose properties are all there, but for the optional ones."""
    required = [name for name in properties if name not in optional.split()]
    return {"type": "object", "properties": properties, "required": required}


def having(*names: str) -> Schema:
    """An object with these properties at least."""
    return {"type": "object", "required": list(names)}


def list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items}


IDS = list_of(COUNT)
VECTOR = list_of(NUMBER)
CONTENT: Schema = {"content": ANY, "input": ANY, "dimensions": ANY}
FRAMES: Schema = {"type": "string", "description": "Frames, one sequence's in each."}


def json_of(optional: str = "", **properties: Schema) -> dict[str, Schema]:
    return {JSON: made_of(optional, **properties)}


FINAL = made_of(  # without response_fields
    "timings warnings completion_probabilities",
    index=COUNT, content=TEXT, tokens=IDS, id_slot=COUNT, stop={"const": True}, model=TEXT,
    tokens_predicted=COUNT, tokens_evaluated=COUNT, generation_settings={"type": "object"}, prompt=TEXT,
    has_new_line=SWITCH, truncated=SWITCH, stop_type={"enum": ["eos", "word", "limit", "none"]},
    stopping_word=TEXT, tokens_cached=COUNT, timings={"type": "object"}, warnings=list_of(TEXT),
    completion_probabilities=list_of({"type": "object"}),
)  # fmt: skip
NATIVE = {JSON: {"anyOf": [FINAL, list_of(FINAL)]}, SSE: FRAMES}
NATIVE_VECTORS = {JSON: list_of(made_of(index=COUNT, embedding=list_of(VECTOR)))}
RESULT = made_of(
    text=TEXT, finish_reason={"enum": ["stop", "length"]}, logprobs=MAYBE_OBJECT, prompt_tokens=COUNT,
    completion_tokens=COUNT,
)  # fmt: skip
GENERATED = made_of(
    "response message thinking choices warnings logprobs",
    message={"type": "object"}, thinking=TEXT,
    model=TEXT, created_at=TEXT, response=TEXT, done={"const": True},
    done_reason={"enum": ["stop", "length", "load", "unload"]},
    total_duration=COUNT, load_duration=COUNT, prompt_eval_count=COUNT, prompt_eval_duration=COUNT,
    eval_count=COUNT, eval_duration=COUNT, choices=list_of({"type": "object"}), warnings=list_of(TEXT),
    logprobs=list_of({"type": "object"}),
)  # fmt: skip
OLLAMA_MODEL = made_of(
    "expires_at size_vram context_length",
    name=TEXT, model=TEXT, modified_at=TEXT, size=COUNT, digest=TEXT, details={"type": "object"},
    expires_at=TEXT, size_vram=COUNT, context_length=COUNT,
)  # fmt: skip
CARD = made_of(
    id=TEXT, object={"const": "model"}, created=COUNT, owned_by=TEXT, parameters={"type": "object"}
)

PROMPT: Schema = {
    "prompt": ANY, "n": ANY, "stream": MAYBE_SWITCH, "response_fields": {"type": ["array", "null"]},
}  # fmt: skip
KOBOLD: Schema = {
    "prompt": ANY, "n": ANY, "max_length": ANY, "memory": MAYBE_TEXT, "genkey": MAYBE_TEXT,
    "trim_stop": MAYBE_SWITCH, "max_context_length": MAYBE_COUNT,
    "logprobs": {"type": ["boolean", "integer", "null"]},
}  # fmt: skip
GENKEY: Schema = {"genkey": MAYBE_TEXT}
SO_FAR = json_of("warnings", results=list_of(made_of(text=TEXT)), warnings=list_of(TEXT))
LAST_LOGPROBS = json_of("warnings", logprobs=MAYBE_OBJECT, warnings=list_of(TEXT))
OLLAMA: Schema = {
    "model": TEXT, "prompt": MAYBE_TEXT, "suffix": MAYBE_TEXT, "stream": MAYBE_SWITCH, "raw": MAYBE_SWITCH,
    "system": MAYBE_TEXT, "options": MAYBE_OBJECT, "format": ANY,
    "n": ANY, "logprobs": MAYBE_SWITCH, "top_logprobs": ANY, "truncate": MAYBE_SWITCH,
}  # fmt: skip
TOKENIZED = made_of("count max_model_len", tokens={"type": "array"}, count=COUNT, max_model_len=COUNT)
TOKENIZE: Schema = {
    "with_pieces": MAYBE_SWITCH,
    "content": MAYBE_TEXT, "prompt": MAYBE_TEXT, "add_special": MAYBE_SWITCH,
    "add_special_tokens": MAYBE_SWITCH,
}  # fmt: skip
DECODED = json_of(content=TEXT, prompt=TEXT)
ENCODED = json_of(tokens=IDS, length=COUNT)
ENCODE: Schema = {"text": TEXT, "add_bos_token": MAYBE_SWITCH}
TOKENS: Schema = {"tokens": IDS}
MESSAGES: Schema = {"type": "array"}

# ----------------------------------------------------------------------------------------------------
# The paths
# ----------------------------------------------------------------------------------------------------

# fmt: off
PATHS = (
    Path("llamacpp", "POST", "/completion", COMPLETE, "reply",
        "llama-server's own form: n objects, or frames.", NATIVE, PROMPT),
    Path("llamacpp", "POST", "/completions", COMPLETE, "reply", "The same.", NATIVE, PROMPT),
    Path("llamacpp", "POST", "/infill", COMPLETE, "reply",
        "What stands between input_prefix and input_suffix, if the model has tokens for that.", NATIVE,
        {"input_prefix": TEXT, "input_suffix": TEXT, "input_extra": {"type": ["array", "null"]}, **PROMPT}),
    Path("llamacpp", "POST", "/tokenize", COMPLETE, "ask",
        "Token ids of content (llama-server), or of prompt with the first token (vLLM).",
        {JSON: TOKENIZED}, TOKENIZE),
    Path("llamacpp", "POST", "/apply-template", COMPLETE_OR_CHAT, "ask",
        "The prompt that a chat would have.", json_of(prompt=TEXT),
        {"messages": MESSAGES, "tools": ANY, "chat_template_kwargs": ANY}),
    Path("llamacpp", "POST", "/v1/tokenize", COMPLETE, "ask", "The same (Aphrodite).",
        {JSON: TOKENIZED}, TOKENIZE),
    Path("llamacpp", "POST", "/detokenize", COMPLETE, "ask", "The text of tokens.", DECODED, TOKENS),
    Path("llamacpp", "POST", "/v1/detokenize", COMPLETE, "ask", "The same.", DECODED, TOKENS),
    Path("llamacpp", "GET", "/props", EVERY_KEY, "ask", "The model and the defaults of sampling.",
        {JSON: having("default_generation_settings", "total_slots", "chat_template")}),
    Path("llamacpp", "GET", "/slots", EVERY_KEY, "ask", "A slot for each of --parallel sequences.",
        {JSON: list_of(made_of(id=COUNT, n_ctx=COUNT, speculative=SWITCH, is_processing=SWITCH))}),
    Path("llamacpp", "POST", "/embedding", EMBED, "vectors", "Vectors of texts.", NATIVE_VECTORS, CONTENT),
    Path("llamacpp", "POST", "/embeddings", EMBED, "vectors", "The same.", NATIVE_VECTORS, CONTENT),

    Path("koboldai", "POST", "/api/v1/generate", COMPLETE, "reply",
        "n results; old text-generation-webui's blocking API, too.",
        json_of("warnings", results=list_of(RESULT), warnings=list_of(TEXT)), KOBOLD),
    Path("koboldai", "POST", "/api/extra/generate/stream", COMPLETE, "reply",
        "Frames `event: message`.", {SSE: FRAMES}, KOBOLD),
    Path("koboldai", "POST", "/api/extra/generate/check", COMPLETE, "kobold_check",
        "What the caller's generation of a genkey has said until now.", SO_FAR, GENKEY),
    Path("koboldai", "GET", "/api/extra/generate/check", COMPLETE, "kobold_check",
        "The same without a genkey.", SO_FAR),
    Path("koboldai", "POST", "/api/extra/abort", COMPLETE, "kobold_abort",
        "Ends the caller's generation of a genkey.",
        json_of(success={"enum": ["true", "false"]}, done=TEXT), GENKEY),
    Path("koboldai", "POST", "/api/extra/last_logprobs", COMPLETE, "kobold_logprobs",
        "The tokens of the caller's generation of a genkey.", LAST_LOGPROBS, GENKEY),
    Path("koboldai", "GET", "/api/extra/last_logprobs", COMPLETE, "kobold_logprobs",
        "The same without a genkey.", LAST_LOGPROBS),
    Path("koboldai", "GET", "/api/extra/perf", COMPLETE, "kobold_perf",
        "How long the caller's last generation took.",
        json_of(last_process=NUMBER, last_eval=NUMBER, last_token_count=COUNT, last_input_count=COUNT,
                last_seed={"type": "integer"}, queue=COUNT, idle=COUNT, uptime=NUMBER)),
    Path("koboldai", "POST", "/api/extra/tokencount", COMPLETE, "ask", "How many tokens, and which.",
        json_of(value=COUNT, ids=IDS), {"prompt": TEXT, "special": MAYBE_SWITCH}),
    Path("koboldai", "POST", "/api/extra/detokenize", COMPLETE, "ask", "The text of tokens.",
        json_of(result=TEXT, success=SWITCH), {"ids": IDS}),
    Path("koboldai", "POST", "/api/v1/token-count", COMPLETE, "ask", "Old text-generation-webui's count.",
        json_of(results=list_of(made_of(tokens=COUNT))), {"prompt": TEXT}),
    Path("koboldai", "GET", "/api/v1/model", EVERY_KEY, "ask", "The model's name.", json_of(result=TEXT)),
    Path("koboldai", "GET", "/api/v1/info/version", EVERY_KEY, "ask", "The version of KoboldAI's API.",
        json_of(result=TEXT)),
    Path("koboldai", "GET", "/api/v1/config/max_context_length", EVERY_KEY, "ask", "Tokens of one sequence.",
        json_of(value=COUNT)),
    Path("koboldai", "GET", "/api/v1/config/max_length", EVERY_KEY, "ask", "max_length when it is not given.",
        json_of(value=COUNT)),
    Path("koboldai", "GET", "/api/v1/config/soft_prompts_list", EVERY_KEY, "ask", "None.",
        json_of(values=list_of(ANY))),
    Path("koboldai", "GET", "/api/v1/config/soft_prompt", EVERY_KEY, "ask", "None.", json_of(value=TEXT)),
    Path("koboldai", "GET", "/api/extra/version", EVERY_KEY, "ask",
        "The version of KoboldCpp whose features are here.", {JSON: having("result", "version")}),
    Path("koboldai", "GET", "/api/extra/true_max_context_length", EVERY_KEY, "ask", "Tokens of one sequence.",
        json_of(value=COUNT)),
    Path("koboldai", "GET", "/api/extra/preloadstory", EVERY_KEY, "ask", "None.", {JSON: {"type": "object"}}),

    Path("openai", "POST", "/v1/internal/encode", COMPLETE, "ask", "text-generation-webui: token ids.",
        ENCODED, ENCODE),
    Path("openai", "POST", "/v1/internal/decode", COMPLETE, "ask", "text-generation-webui: text.",
        json_of(text=TEXT), TOKENS),
    Path("openai", "POST", "/v1/internal/token-count", COMPLETE, "ask",
        "text-generation-webui: how many tokens.", json_of(length=COUNT), ENCODE),
    Path("openai", "POST", "/v1/internal/logits", COMPLETE, "reply",
        "text-generation-webui: how likely each of the likeliest next tokens is.",
        json_of("warnings", logits={"type": "object"}, warnings=list_of(TEXT)),
        {"prompt": ANY, "use_samplers": MAYBE_SWITCH, "top_logits": MAYBE_COUNT}),
    Path("openai", "POST", "/v1/internal/chat-prompt", COMPLETE_OR_CHAT, "ask",
        "text-generation-webui: the prompt that a chat would have.", json_of(prompt=TEXT),
        {"messages": MESSAGES}),
    Path("openai", "POST", "/v1/internal/stop-generation", COMPLETE_OR_CHAT, "stop_generation",
        "text-generation-webui: ends what the caller generates by OpenAI's paths.",
        {JSON: {"const": "OK"}}),
    Path("openai", "GET", "/v1/internal/health", EVERY_KEY, "ask", "text-generation-webui: it answers.",
        json_of(status=TEXT)),
    Path("openai", "GET", "/v1/internal/lora/list", EVERY_KEY, "ask",
        "text-generation-webui: none; requests name adapters by id (/v1/adapters).",
        json_of(lora_names=list_of(TEXT))),
    Path("openai", "GET", "/v1/internal/model/info", EVERY_KEY, "ask", "text-generation-webui: the model.",
        json_of(model_name=TEXT, lora_names=list_of(TEXT), loader=TEXT)),
    Path("openai", "GET", "/v1/internal/model/list", EVERY_KEY, "ask", "text-generation-webui: all models.",
        json_of(model_names=list_of(TEXT))),
    Path("openai", "POST", "/v1/token/encode", COMPLETE, "ask", "TabbyAPI: token ids.", ENCODED, ENCODE),
    Path("openai", "POST", "/v1/token/decode", COMPLETE, "ask", "TabbyAPI: text.",
        json_of(text=TEXT), TOKENS),
    Path("openai", "GET", "/v1/model", EVERY_KEY, "ask", "TabbyAPI: the model.", {JSON: CARD}),
    Path("openai", "GET", "/v1/model/list", EVERY_KEY, "ask", "TabbyAPI: all models.",
        json_of(object={"const": "list"}, data=list_of(CARD))),

    Path("ollama", "POST", "/api/generate", COMPLETE, "reply", "Lines of JSON, or one object.",
        {JSON: GENERATED, NDJSON: FRAMES}, OLLAMA),
    Path("ollama", "POST", "/api/chat", CHAT, "reply", "n answers to a chat: lines of JSON, or one object.",
        {JSON: GENERATED, NDJSON: FRAMES}, {"messages": MESSAGES, "tools": ANY, "think": ANY, **OLLAMA}),
    Path("ollama", "POST", "/api/embed", EMBED, "vectors", "Vectors of texts.",
        json_of("warnings", model=TEXT, embeddings=list_of(VECTOR), total_duration=COUNT, load_duration=COUNT,
                prompt_eval_count=COUNT, warnings=list_of(TEXT)),
        {"model": TEXT, "input": ANY, "dimensions": ANY, "truncate": MAYBE_SWITCH}),
    Path("ollama", "POST", "/api/embeddings", EMBED, "vectors", "The vector of one text.",
        json_of("warnings", embedding=VECTOR, warnings=list_of(TEXT)),
        {"model": TEXT, "prompt": ANY, "truncate": MAYBE_SWITCH}),
    Path("ollama", "POST", "/api/show", EVERY_KEY, "ask", "The model.",
        {JSON: having("details", "model_info", "template", "capabilities")},
        {"model": TEXT}),
    Path("ollama", "GET", "/api/tags", EVERY_KEY, "ask", "The model.", json_of(models=list_of(OLLAMA_MODEL))),
    Path("ollama", "GET", "/api/ps", EVERY_KEY, "ask", "The model, which is loaded.",
        json_of(models=list_of(OLLAMA_MODEL))),
    Path("ollama", "GET", "/api/version", EVERY_KEY, "ask", "The version of Ollama whose API this is.",
        json_of(version=TEXT)),
)
# fmt: on

ERRORS: dict[str, tuple[str, Schema]] = {  # of a dialect: the name of its schema, and that
    "llamacpp": ("LlamacppError", made_of(error=made_of(code={"type": "integer"}, message=TEXT, type=TEXT))),
    "koboldai": ("KoboldError", made_of(detail=made_of(msg=TEXT, type=TEXT))),
    "ollama": ("OllamaError", made_of(error=TEXT)),
}
