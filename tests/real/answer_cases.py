"""Requests to every route, with the status and content type of the answer: a table."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.real.answers import JSON, NDJSON, SSE
from tests.support.chats import HELLO, TOOLS, scripted

PLAIN, HTML, CSS, SCRIPT, PICTURE = "text/plain", "text/html", "text/css", "text/javascript", "image/svg+xml"
ONCE = "Once upon a time,"
TASK = "/v1/tasks/story"
FEW: dict[str, Any] = {"prompt": ONCE, "max_tokens": 2}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "A story!"}], "max_tokens": 2}
INFILL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")
RANKED: list[dict[str, Any]] = [
    {"n": 4, "rank_by": "typical", "dedupe": True, "temperature": 0},
    {"n": 2, "best_of": 4},
    {"n": 4, "rank_by": {"vote": {"regex": "[a-z]"}}, "diversity_stats": True},
]
THEN: dict[str, Any] = {"then": {"text": " So:", "regex": "[ab]{2}", "return_free": True}}
CALL: dict[str, Any] = {"messages": HELLO, "tools": TOOLS, "n": 2, "max_tokens": 150}
CALLING: dict[str, Any] = CALL | {"sequences": [scripted("<think>", "</think>", "<tool_call>"), scripted()]}
USE: dict[str, Any] = {
    "messages": HELLO, "max_tokens": 400, "tool_choice": {"type": "any"},
    "tools": [{"name": "weather", "input_schema": TOOLS[0]["function"]["parameters"]}], **scripted("<tool_call>", "</tool_call>"),
}  # fmt: skip
THOUGHT: dict[str, Any] = {"messages": HELLO, "max_tokens": 9, **scripted("<think>")}
ASKED: dict[str, Any] = {"input": "A story!", "max_output_tokens": 2}
ACTING: dict[str, Any] = {
    "input": HELLO, "tools": [{"type": "function", **tool["function"]} for tool in TOOLS],
    **scripted("<think>", "</think>", "<tool_call>"),
}  # fmt: skip
PATCHING: dict[str, Any] = ACTING | {"tools": [{"type": "custom", "name": "patch"}], "max_output_tokens": 40}
MUSING: dict[str, Any] = {"input": HELLO, "max_output_tokens": 9, **scripted("<think>")}


@dataclass(frozen=True)
class Case:
    """A request, and its answer's status and content type. path: only if it is not the route's."""

    route: str
    body: Any
    status: int
    form: str
    path: str
    model: str
    sent_as: str = JSON


def of(
    route: str,
    *bodies: Any,
    status: int = 200,
    form: str = JSON,
    path: str = "",
    model: str = "storyteller",
    sent_as: str = JSON,
) -> list[Case]:
    at = path or route.split()[1]
    return [Case(route, body, status, form, at, model, sent_as) for body in bodies or (None,)]


NOTES, DOCUMENTS = "/v1/memories/notes", "/v1/memories/{memory}/documents"
CAT = b"The cat sleeps on the warm roof. It dreams of fish, and of a mouse that was far too quick for it."


# fmt: off
CASES = [
    *of("POST /v1/completions",
        FEW | {"stream": False}, FEW | {"model": "other"}, FEW | {"stream": False} | THEN,
        FEW | {"stream": False, "echo": True, "logprobs": 1, "n": 2, "foo": 1},
        FEW | {"stream": False, "prompt": [ONCE, "The end"], "n": 2, "logprobs": 0, "foo": 1},
        *(FEW | {"stream": False, "max_tokens": 6, **ranked} for ranked in RANKED),
        *(FEW | {"stream": False, "prompt": [ONCE, "The"], "max_tokens": 6, **ranked} for ranked in RANKED)),
    *of("POST /v1/completions", {"prompt": "a", "suffix": "b", "stream": False, "max_tokens": 2}, model="able"),
    *of("POST /v1/completions",
        FEW, FEW | {"stream": True}, FEW | {"n": 2, "echo": True, "logprobs": 1, "foo": 1},
        FEW | {"stream": True, "n": 2, "echo": True, "logprobs": 1, "foo": 1, "stream_options": {"include_usage": True}},
        FEW | {"stream": True, "prompt": [ONCE, "The end"], "n": 2, "echo": True, "foo": 1},
        *(FEW | {"stream": True, "stream_options": {"include_usage": True}, **ranked} for ranked in RANKED),
        *(FEW | {"stream": True, "prompt": [ONCE, "The"], **ranked} for ranked in RANKED), form=SSE),
    *of("POST /v1/completions", {"n": 0}, status=400),
    *of("POST /openai/v1/completions", FEW, FEW | {"n": 2, "echo": True, "logprobs": 1}),
    *of("POST /openai/v1/completions", FEW | {"stream": True}, form=SSE),
    *of("POST /v1/completions", b" " * (16 << 20) + b" ", status=413),
    *of("GET /v1/tasks"),
    *of("POST /v1/tasks/{name}/completions", FEW | {"stream": False, "foo": 1}, path=TASK + "/completions"),
    *of("POST /v1/tasks/{name}/completions", FEW, FEW | {"stream": True}, form=SSE, path=TASK + "/completions"),
    *of("POST /v1/tasks/{name}/completions", FEW | {"top_k": 1}, status=400, path=TASK + "/completions"),
    *of("POST /v1/tasks/{name}/completions", FEW, status=404, path="/v1/tasks/other/completions"),
    *of("POST /v1/tasks/{name}/chat", CHAT | {"stream": False}, path=TASK + "/chat"),
    *of("POST /v1/tasks/{name}/chat", CHAT, CHAT | {"stream": True}, form=SSE, path=TASK + "/chat"),
    *of("POST /v1/tasks/{name}/chat", FEW, status=400, path=TASK + "/chat"),
    *of("GET /v1/tasks/{name}/live", form=SSE, path=TASK + "/live?prompt=cat&n=2"),
    *of("GET /v1/tasks/{name}/live", status=400, path=TASK + "/live"),
    *of("POST /v1/prompt", {"prompt": ONCE}, {"prompt": [417, 435]}, CHAT, FEW | {"model": "story", "foo": 1}, CHAT | {"model": "story"}),
    *of("POST /v1/prompt", {"continue": {"id": "1", "index": 0}}, {"prompt": ["a", "b"]}, status=400),
    *of("POST /v1/trials", FEW | {"toml": "[tasks.new]\npostfix = '!'"}, CHAT | {"toml": "[tasks.new]"}, FEW | {"model": "story"}, form=SSE),
    *of("POST /v1/trials", FEW, FEW | {"toml": "[tasks.new]\nfoo = 1"}, status=400),
    *of("POST /v1/trials", FEW | {"model": "other"}, status=404),
    *of("POST /v1/trials/prompt", FEW | {"toml": "[tasks.new]\npostfix = '!'", "foo": 1}, FEW | {"model": "story"}),
    *of("GET /v1/memories"),
    *of(f"PUT {DOCUMENTS}/{{document}}", CAT, status=201, path=NOTES + "/documents/cat?year=1900&tag=a&tag=b", sent_as=PLAIN),
    *of(f"PUT {DOCUMENTS}/{{document}}", CAT, path=NOTES + "/documents/cat?year=1901", sent_as=PLAIN),
    *of(f"PUT {DOCUMENTS}/{{document}}", CAT + b" Or a dog.", form=SSE, path=NOTES + "/documents/dog", sent_as=PLAIN),
    *of(f"PUT {DOCUMENTS}/{{document}}", CAT, status=415, path=NOTES + "/documents/cat"),
    *of(f"PUT {DOCUMENTS}/{{document}}", CAT, status=404, path="/v1/memories/other/documents/cat", sent_as=PLAIN),
    *of(f"PUT {DOCUMENTS}/{{document}}", b" ", status=400, path=NOTES + "/documents/cat", sent_as=PLAIN),
    *of(f"GET {DOCUMENTS}", path=NOTES + "/documents"), *of(f"GET {DOCUMENTS}", path=NOTES + "/documents?limit=1"),
    *of(f"GET {DOCUMENTS}", status=400, path=NOTES + "/documents?limit=0"),
    *of(f"GET {DOCUMENTS}/{{document}}", path=NOTES + "/documents/cat"),
    *of(f"GET {DOCUMENTS}/{{document}}", status=404, path=NOTES + "/documents/bird"),
    *of("POST /v1/memories/{memory}/search", {"query": "cat"}, {"query": "cat", "k": 1, "foo": 1}, {"query": "cat", "search": "hybrid", "highlights": True}, path=NOTES + "/search"),
    *of("POST /v1/memories/{memory}/search", {"k": 1}, {"query": "cat", "k": 0}, status=400, path=NOTES + "/search"),
    *of(f"DELETE {DOCUMENTS}/{{document}}", path=NOTES + "/documents/dog"),
    *of(f"DELETE {DOCUMENTS}/{{document}}", status=404, path=NOTES + "/documents/dog"),
    *of("POST /v1/chat/completions",
        CHAT, CHAT | {"model": "other", "n": 3, "logprobs": True, "top_logprobs": 1, "foo": 1},
        *(CHAT | ranked for ranked in RANKED)),
    *of("POST /v1/chat/completions", CALLING, CALLING | {"logprobs": True}, THOUGHT, model="able"),
    *of("POST /v1/chat/completions",
        *(one | {"stream": True, "stream_options": {"include_usage": True}} for one in (
            CHAT, CHAT | {"n": 3, "logprobs": True, "top_logprobs": 1, "foo": 1},
            *(CHAT | ranked for ranked in RANKED))), form=SSE),
    *of("POST /v1/chat/completions", CALLING | {"stream": True}, THOUGHT | {"stream": True, "logprobs": True},
        form=SSE, model="able"),
    *of("POST /v1/chat/completions", {"messages": [{"content": "x"}]}, status=400),
    *of("POST /chat/completions", CHAT), *of("POST /chat/completions", CHAT | {"stream": True}, form=SSE),
    *of("POST /openai/v1/chat/completions", CHAT),
    *of("POST /openai/v1/chat/completions", CHAT | {"stream": True}, form=SSE),
    *of("POST /v1/responses",
        ASKED, ASKED | {"model": "other", "top_logprobs": 1, "foo": 1}, ASKED | {"best_of": 4},
        ASKED | {"instructions": "Be brief.", "metadata": {"a": "b"}, "truncation": "auto", "include": ["x"]}),
    *of("POST /v1/responses", ACTING, MUSING, model="able"),
    *of("POST /v1/responses",
        *(one | {"stream": True} for one in (ASKED, ASKED | {"top_logprobs": 1, "foo": 1}, ASKED | {"best_of": 4})),
        form=SSE),
    *of("POST /v1/responses", ACTING | {"stream": True}, MUSING | {"stream": True, "top_logprobs": 1},
        PATCHING | {"stream": True, "timings_per_token": True, "return_progress": True}, form=SSE, model="able"),
    *of("POST /v1/responses", {"input": 7}, ASKED | {"n": 2}, status=400),
    *of("POST /responses", ASKED), *of("POST /responses", ASKED | {"stream": True}, form=SSE),
    *of("POST /openai/v1/responses", ASKED),
    *of("POST /openai/v1/responses", ASKED | {"stream": True}, form=SSE),
    *of("POST /v1/chat/completions/input_tokens", CHAT), *of("POST /chat/completions/input_tokens", CHAT),
    *of("POST /v1/chat/completions/input_tokens", CALL, model="able"),
    *of("POST /v1/chat/completions/input_tokens", {}, status=400),
    *of("POST /v1/responses/input_tokens", ASKED), *of("POST /v1/responses/input_tokens", ACTING, model="able"),
    *of("POST /v1/responses/input_tokens", {}, status=400),
    *of("POST /responses/input_tokens", ASKED), *of("POST /openai/v1/responses/input_tokens", ASKED),
    *of("POST /v1/fim/completions",
        FEW | {"random_seed": 3}, FEW | {"suffix": None, "n": 2, "foo": 1}),
    *of("POST /v1/fim/completions", FEW | {"stream": True, "stream_options": {"include_usage": True}}, form=SSE),
    *of("POST /v1/fim/completions", FEW | {"suffix": "The end."}, {}, status=400),
    *of("POST /v1/fim/completions", {"prompt": "a", "suffix": "b", "max_tokens": 2}, model="able"),
    *of("POST /v1/events",
        FEW, FEW | {"n": 40}, FEW | {"n": 2, "echo": True, "logprobs": 2, "foo": 1, "stop": ["a"]},
        {"prompt": ONCE * 150, "max_tokens": 1, "cache": False}, FEW | THEN | {"n": 2}, *(FEW | ranked for ranked in RANKED), form=SSE),
    *of("POST /v1/events", CALLING, CALLING | {"logprobs": 1}, THOUGHT, form=SSE, model="able"),
    *of("POST /v1/events", {"prompt": 7}, status=400),
    *of("POST /v1/completions/{id}/extend", {"add": 1}, status=404, path="/v1/completions/17/extend"),
    *of("POST /v1/completions/{id}/extend", {"add": -1}, status=400, path="/v1/completions/17/extend"),
    *of("POST /v1/prefix", {"prompt": ONCE, "foo": 1}, {"prompt": ONCE}, CHAT),
    *of("POST /v1/prefix", {"prompt": 7}, status=400),
    *of("POST /v1/score", {"texts": "a"}, {"prompt": ONCE, "texts": [" a", "b", [417]], "logprobs": 1, "foo": 1}),
    *of("POST /v1/score", {"texts": []}, status=400),
    *of("POST /v1/embeddings",
        {"input": [ONCE, "x"], "foo": 1}, {"input": ONCE, "dimensions": 8},
        {"input": ONCE, "encoding_format": "base64"}),
    *of("POST /v1/embeddings", {"input": 7}, status=400), *of("POST /openai/v1/embeddings", {"input": ONCE}),
    *of("DELETE /v1/completions/{id}", status=404, path="/v1/completions/17"),
    *of("DELETE /v1/completions/{id}/{index}", status=404, path="/v1/completions/17/0"),
    *of("GET /v1/ws", status=400),
    *of("GET /v1/models"), *of("GET /models"), *of("GET /openai/v1/models"),
    *of("GET /v1/models/{name}", path="/v1/models/storyteller"),
    *of("GET /openai/v1/models/{name}", path="/openai/v1/models/storyteller"),
    *of("GET /v1/models/{name}", status=404, path="/v1/models/other"),
    *of("POST /v1/load_lora_adapter", {"lora_name": "a", "lora_path": "a.gguf"}, status=403),
    *of("POST /v1/load_lora_adapter", {"lora_name": "a"}, status=400),
    *of("POST /v1/load_lora_adapter", {"lora_name": "a", "lora_path": "adapter.gguf"}, form=PLAIN, model="able"),
    *of("POST /v1/load_lora_adapter", {"lora_name": "b", "lora_path": "able.gguf"}, status=400, model="able"),
    *of("POST /v1/load_lora_adapter", {"lora_name": "b", "lora_path": "none.gguf"}, status=404, model="able"),
    *of("POST /v1/unload_lora_adapter", {"lora_name": "pirate"}, form=PLAIN, model="able"),
    *of("POST /v1/unload_lora_adapter", {"lora_name": "a"}, status=404),
    *of("POST /v1/unload_lora_adapter", {}, status=400),
    *of("GET /v1/adapters"), *of("GET /lora-adapters"), *of("GET /v1/presets"), *of("GET /v1/samplers"),
    *of("GET /openapi.json"), *of("GET /health"), *of("GET /health/live"), *of("GET /health/ready"),
    *of("POST /drain"), *of("POST /drain", path="/drain?wait=5"), *of("DELETE /drain"),
    *of("POST /drain", status=400, path="/drain?wait=soon"),
    *of("GET /v1/stats"), *of("GET /v1/loads"), *of("GET /server_info"), *of("GET /model_info"), *of("GET /metrics", form=PLAIN), *of("GET /", form=HTML),
    *of("GET /studio/{file}", form=HTML, path="/studio/index.html"),
    *of("GET /studio/{file}", form=CSS, path="/studio/ui/style.css"),
    *of("GET /studio/{file}", form=SCRIPT, path="/studio/app.js"),
    *of("GET /studio/{file}", form=PICTURE, path="/studio/icon.svg"),
    *of("GET /studio/{file}", status=404, path="/studio/none.css"),

    *of("POST /completion",
        FEW, FEW | {"n": 3, "n_probs": 2, "foo": 1}, FEW | {"prompt": [[417, 435]], "return_tokens": True},
        FEW | {"n_probs": 3, "post_sampling_probs": True}, *(FEW | ranked for ranked in RANKED)),
    *of("POST /completion",
        *(one | {"stream": True} for one in (
            FEW, FEW | {"n": 3, "n_probs": 2, "foo": 1}, FEW | {"return_tokens": True},
            FEW | {"n_probs": 3, "post_sampling_probs": True}, *(FEW | ranked for ranked in RANKED))), form=SSE),
    *of("POST /completions", FEW), *of("POST /completions", FEW | {"stream": True}, form=SSE),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b"}, status=501),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 2, "n": 2}, model="able"),
    *of("POST /infill", {"input_prefix": "a", "input_suffix": "b", "n_predict": 2, "stream": True},
        form=SSE, model="able"),
    *of("POST /tokenize", {"content": ONCE}, {"content": "an 狐", "with_pieces": True},
        {"prompt": ONCE, "add_special_tokens": False}, {}),
    *of("POST /v1/tokenize", {"prompt": ONCE}, {"messages": HELLO, "return_token_strs": True}),
    *of("POST /apply-template", {"messages": HELLO}), *of("POST /apply-template", {}, status=400),
    *of("POST /detokenize", {"tokens": [417, 435]}), *of("POST /v1/detokenize", {"tokens": [417]}),
    *of("GET /tokenizer_info"), *of("GET /tokenizer_info", model="able"),
    *of("GET /props"), *of("GET /props", model="able"), *of("GET /slots"),
    *of("POST /embedding", {"content": ONCE}, {"input": [ONCE, [417, 435]], "dimensions": 8}),
    *of("POST /embedding", {}, status=400),
    *of("POST /embeddings", {"input": ONCE}), *of("POST /embeddings", {"input": []}, status=400),

    *of("POST /api/v1/generate",
        FEW, FEW | {"n": 3, "logprobs": True, "trim_stop": False, "stop": [" "], "foo": 1, "genkey": "K"},
        *(FEW | ranked for ranked in RANKED)),
    *of("POST /api/extra/generate/stream",
        FEW, FEW | {"n": 3, "logprobs": True, "foo": 1, "genkey": "S"}, *(FEW | ranked for ranked in RANKED), form=SSE),
    *of("POST /api/extra/generate/check", {"genkey": "no"}, {"genkey": "K"}, {}),
    *of("GET /api/extra/generate/check"),
    *of("POST /api/extra/abort", {"genkey": "no"}),
    *of("POST /api/extra/last_logprobs", {"genkey": "no"}, {"genkey": "K"}, {"genkey": "S"}),
    *of("GET /api/extra/last_logprobs"), *of("GET /api/extra/perf"),
    *of("POST /api/extra/tokencount", {"prompt": ONCE}), *of("POST /api/extra/detokenize", {"ids": [417]}),
    *of("POST /api/v1/token-count", {"prompt": ONCE}),
    *of("GET /api/v1/model"), *of("GET /api/v1/info/version"), *of("GET /api/v1/config/max_context_length"),
    *of("GET /api/v1/config/max_length"), *of("GET /api/v1/config/soft_prompts_list"),
    *of("GET /api/v1/config/soft_prompt"), *of("GET /api/extra/version"),
    *of("GET /api/latest/model"), *of("GET /api/latest/info/version"), *of("POST /api/latest/generate", FEW),
    *of("GET /api/latest/config/max_context_length"), *of("GET /api/latest/config/max_length"),
    *of("GET /api/latest/config/soft_prompts_list"), *of("GET /api/latest/config/soft_prompt"),
    *of("GET /api/extra/true_max_context_length"), *of("GET /api/extra/preloadstory"),

    *of("POST /v1/internal/encode", {"text": ONCE}), *of("POST /v1/internal/decode", {"tokens": [417]}),
    *of("POST /v1/internal/token-count", {"text": ONCE}),
    *of("POST /v1/internal/logits", FEW, FEW | {"use_samplers": True, "top_logits": 3, "n": 4, "foo": 1}),
    *of("POST /v1/internal/logits", {"prompt": ONCE, "top_logits": 0.5}, status=400),
    *of("POST /v1/internal/chat-prompt", {"messages": HELLO}), *of("POST /v1/internal/chat-prompt", {}, status=400),
    *of("POST /v1/internal/stop-generation", None, {}),
    *of("POST /v1/abort", None, {}),
    *of("GET /v1/internal/health"), *of("GET /v1/internal/lora/list"), *of("GET /v1/internal/model/info"),
    *of("GET /v1/internal/model/list"),
    *of("POST /v1/token/encode", {"text": ONCE, "add_bos_token": False}, {"text": HELLO}, {"prompt": ONCE}),
    *of("POST /v1/token/decode", {"tokens": [417]}), *of("GET /v1/model"), *of("GET /v1/model/list"),
    *of("GET /v1/model/draft/list"), *of("GET /v1/lora/list"),
    *of("POST /v1/lora/load", {"loras": [{"name": "a"}]}, status=403), *of("POST /v1/lora/load", {}, status=400),
    *of("POST /v1/lora/load", {"loras": [{"name": "adapter", "scaling": 0.5}, {"name": "none"}]}, model="able"),
    *of("POST /v1/lora/unload", None, {}, model="able"),
    *of("POST /v1/sampling/override/switch", {"overrides": {"top_k": {"override": 39, "force": False}}}, {"preset": "plain"}),
    *of("POST /v1/sampling/override/switch", {}, {"preset": "none"}, {"overrides": {"top_q": {"override": 1}}}, status=400),
    *of("GET /v1/sampling/override/list"), *of("GET /v1/sampling/overrides"),
    *of("POST /v1/sampling/override/unload", None, {"model": "storyteller"}),
    *of("GET /v1/template/list", status=501), *of("POST /v1/template/switch", {"name": "x"}, status=501),
    *of("POST /v1/template/unload", {}, status=501),

    *of("POST /api/generate",
        {"model": "storyteller"}, {"keep_alive": 0},
        *(FEW | {"stream": False} | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED))),
    *of("POST /api/generate",
        *(FEW | more for more in ({}, {"logprobs": True, "top_logprobs": 2}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED)),
        form=NDJSON),
    *of("POST /api/generate", {"prompt": "a", "suffix": "b", "num_predict": 2}, {"prompt": "Why?", "num_predict": 9, **scripted("<think>")},
        form=NDJSON, model="able"),
    *of("POST /api/generate", {"model": "other"}, status=404),
    *of("POST /api/chat",
        {"messages": [], "keep_alive": 0},
        *(CHAT | {"stream": False} | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED))),
    *of("POST /api/chat", CALLING | {"stream": False}, THOUGHT | {"stream": False}, model="able"),
    *of("POST /api/chat",
        *(CHAT | more for more in ({}, {"n": 2, "logprobs": True, "foo": 1}, *RANKED)), form=NDJSON),
    *of("POST /api/chat", CALLING, THOUGHT, form=NDJSON, model="able"),
    *of("POST /api/chat", {"messages": HELLO, "n": 0}, status=400),
    *of("POST /complete", FEW, {"prompt": ONCE, "configuration": {"n": 3, "max_tokens": 2}}, {"prompt": ONCE, "max_tokens": 2, "length_penalty": 2}),
    *of("POST /complete", {"configuration": {}}, {"prompt": ONCE, "configuration": 3}, {"prompt": ONCE, "stream": True}, {"prompt": ONCE, "unknown_field": 1}, status=400),
    *of("POST /chat", {"prompt": "A story!", "temperature": 0.5, "top_k": 5, "top_p": 0.9, "stop_sequence": ["#"], "max_tokens": 2}, {"message": "A story!", "configuration": {"n": 2, "max_tokens": 2}}, CHAT),
    *of("POST /chat", {"message": 3}, {}, status=400),
    *of("POST /embed", [ONCE, "The end"], {"text": ONCE}),
    *of("POST /embed", [ONCE, 3], status=400),
    *of("POST /api/embed", {"model": "storyteller", "input": [ONCE, "The end"]}, {"input": "The end. " * 3000}),
    *of("POST /api/embed", {"model": "other", "input": "x"}, status=404),
    *of("POST /api/embeddings", {"prompt": ONCE}, {"prompt": "The end. " * 3000}),
    *of("POST /api/embeddings", {}, status=400),
    *of("POST /api/show", {"model": "storyteller"}), *of("POST /api/show", {"model": "storyteller:latest"}),
    *of("POST /api/show", {"model": "other"}, status=404),
    *of("POST /api/pull", {"model": "storyteller", "stream": False}), *of("POST /api/pull", {"model": "storyteller"}, form=NDJSON),
    *of("POST /api/pull", {"model": "other"}, status=404), *of("POST /api/pull", {}, status=400),
    *of("GET /api/tags"), *of("GET /api/ps"), *of("GET /api/version"),

    *of("POST /v1/messages", CHAT, CHAT | {"model": "other", "foo": 1, "stop_sequences": ["a"]}),
    *of("POST /v1/messages", CHAT | {"stream": True}, CHAT | {"stream": True, "foo": 1}, form=SSE),
    *of("POST /v1/messages", USE, THOUGHT, model="able"),
    *of("POST /v1/messages", USE | {"stream": True}, THOUGHT | {"stream": True}, form=SSE, model="able"),
    *of("POST /v1/messages", {"messages": 7}, CHAT | {"n": 2}, CHAT | {"thread": {"type": "create"}}, status=400),
    *of("POST /v1/messages/count_tokens", CHAT), *of("POST /v1/messages/count_tokens", USE, model="able"),
    *of("POST /v1/messages/count_tokens", {}, status=400),
]
# fmt: on
