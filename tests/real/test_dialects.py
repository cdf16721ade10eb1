"""Other servers' APIs: n texts, options of answers and errors, each in the API's own form."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from tests.support.models import CHAT_TEMPLATE, CHAT_TOKENS, write_model
from tests.support.rows import each_row
from tests.support.serving import Server, serving

ONCE = "Once upon a time,"
CHAT = [{"role": "user", "content": "A story!"}]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("presets")
    (folder / "greedy.toml").write_text('about = "Nothing by chance."\ntemp = 0\nmax_tokens = 3\n')
    with serving("--ctx", "8192", "--presets", str(folder)) as server:
        yield server


FEW: dict[str, Any] = {"prompt": ONCE, "max_tokens": 2}
# n, in every form


def test_llama_server_n_is_an_array_of_objects_and_frames_with_an_index(server: Server) -> None:
    status, answer = server.json("POST", "/completion", FEW | {"n": 3, "seed": 7})
    assert (status, [one["index"] for one in answer]) == (200, [0, 1, 2])
    assert [one["generation_settings"]["seed"] for one in answer] == [7, 8, 9]
    assert all(one["stop_type"] == "limit" and one["tokens_predicted"] == 2 for one in answer)
    frames = server.events(FEW | {"n": 3, "seed": 7, "stream": True}, "/completion")
    assert all(type(frame["content"]) is str and 0 <= frame["index"] < 3 for frame in frames)
    assert sorted(frame["index"] for frame in frames if frame["stop"]) == [0, 1, 2]
    assert frames[-1]["timings"]["predicted_n"] == 2


def test_kobold_n_is_that_many_results(server: Server) -> None:
    assert len(server.json("POST", "/api/v1/generate", FEW | {"n": 3})[1]["results"]) == 3
    data = server.call("POST", "/api/extra/generate/stream", FEW | {"n": 3})[2].decode()
    messages = [json.loads(line[6:]) for line in data.splitlines() if line.startswith("data: ")]
    assert {message["index"] for message in messages} == {0, 1, 2}


def test_ollama_n_is_lines_with_an_index_of_which_only_the_last_is_done(server: Server) -> None:
    lines = server.call("POST", "/api/generate", FEW | {"n": 3})[2].splitlines()
    parts = list(map(json.loads, lines))
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert sorted(part["index"] for part in parts if "done_reason" in part) == [0, 1, 2]
    assert parts[-1]["eval_count"] == 6
    whole = server.json("POST", "/api/generate", FEW | {"n": 3, "stream": False})[1]
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]
    assert whole["response"] == whole["choices"][0]["response"]


def test_the_best_of_more_come_first(server: Server) -> None:
    fields = FEW | {"n": 2, "best_of": 4}
    assert len(server.json("POST", "/completion", fields)[1]) == 2
    assert len(server.json("POST", "/api/v1/generate", fields)[1]["results"]) == 2


# Options of an answer


def test_probabilities_after_the_samplers_have_llama_servers_form(server: Server) -> None:
    body = FEW | {"n_probs": 3, "post_sampling_probs": True, "temperature": 1, "top_p": 1, "min_p": 0}
    for token in server.json("POST", "/completion", body)[1]["completion_probabilities"]:
        assert token.keys() == {"id", "token", "bytes", "prob", "top_probs"}
        assert [one.keys() for one in token["top_probs"]] == [{"id", "token", "bytes", "prob"}] * 3
        assert 0 < sum(one["prob"] for one in token["top_probs"]) <= 1.001
    frames = server.events(body | {"stream": True}, "/completion")
    assert all("prob" in frame["completion_probabilities"][0] for frame in frames if not frame["stop"])


def test_response_fields_are_all_that_is_answered(server: Server) -> None:
    body = FEW | {"response_fields": ["content", "timings/predicted_n", "no/such"]}
    one = server.json("POST", "/completion", body)[1]
    assert one == {"content": one["content"], "timings/predicted_n": 2}
    assert [each.keys() for each in server.json("POST", "/completion", body | {"n": 2})[1]] == [
        one.keys()
    ] * 2
    *texts, last = server.events(body | {"stream": True}, "/completion")
    assert "".join(frame["content"] for frame in texts).startswith(" ")
    assert last == {"content": "", "timings/predicted_n": 2}


def test_kobolds_logprobs_are_five_alternatives_or_as_many_as_asked_for(server: Server) -> None:
    for said, n in ((True, 5), (3, 3)):
        result = server.json("POST", "/api/v1/generate", FEW | {"logprobs": said})[1]["results"][0]
        assert [len(token["top_logprobs"]) for token in result["logprobs"]["content"]] == [n, n]
    for none in (False, None):
        assert (
            server.json("POST", "/api/v1/generate", FEW | {"logprobs": none})[1]["results"][0]["logprobs"]
            is None
        )


LOADED = [
    ("/api/generate", {"model": "storyteller"}, "load"),
    (
        "/api/generate",
        {"model": "storyteller", "prompt": "", "stream": True, "options": {"num_predict": 9}},
        "load",
    ),
    ("/api/generate", {"model": "storyteller:latest", "keep_alive": 0}, "unload"),
    ("/api/chat", {"model": "storyteller", "messages": []}, "load"),
]


@pytest.mark.parametrize(("path", "body", "reason"), LOADED, ids=str)
def test_ollamas_clients_load_a_model_by_an_empty_prompt(
    server: Server, path: str, body: dict[str, Any], reason: str
) -> None:
    answer = server.json("POST", path, body)[1]
    assert (answer["done"], answer["done_reason"], answer["eval_count"]) == (True, reason, 0)
    said = answer["response"] if path == "/api/generate" else answer["message"]["content"]
    assert said == ""


def test_ollama_fields_without_effect_here_are_warned_of(server: Server) -> None:
    body = FEW | {"stream": False, "images": ["aGk="], "template": "{{ .Prompt }}", "context": [1, 2]}
    warnings = server.json("POST", "/api/generate", body)[1]["warnings"]
    assert [warning.split()[0] for warning in warnings] == ["images", "template", "context"]


# Vectors


def test_vectors_are_those_of_openais_form(server: Server) -> None:
    texts = [ONCE, "The end"]
    rows = [one["embedding"] for one in server.json("POST", "/v1/embeddings", {"input": texts})[1]["data"]]
    native = server.json("POST", "/embedding", {"content": texts})[1]
    assert [one["embedding"][0] for one in native] == [pytest.approx(row, abs=1e-3) for row in rows]
    ollama = server.json("POST", "/api/embed", {"input": texts})[1]["embeddings"]
    assert ollama == [pytest.approx(row, abs=1e-3) for row in rows]
    assert server.json("POST", "/api/embeddings", {"prompt": ONCE})[1]["embedding"] == pytest.approx(
        rows[0], abs=1e-3
    )


# Stops


STOP = {"prompt": ONCE, "max_tokens": 60, "stop": ["a"], "seed": 3}


def test_each_dialect_reports_the_stop_in_its_own_form(server: Server) -> None:
    native = server.json("POST", "/completion", STOP)[1]
    assert (native["stop_type"], native["stopping_word"]) == ("word", "a")
    kobold = server.json("POST", "/api/v1/generate", STOP | {"trim_stop": False})[1]["results"][0]
    assert (kobold["finish_reason"], kobold["text"][-1], kobold["text"].count("a")) == ("stop", "a", 1)
    ollama = server.json("POST", "/api/generate", STOP | {"stream": False})[1]
    assert (ollama["done_reason"], "a" in ollama["response"]) == ("stop", False)


# Errors, in each dialect's form


ERRORS = [
    ("/completion", {"prompt": 7}, 400, lambda e: e["error"]["type"] == "invalid_request_error" and e["error"]["code"] == 400),
    ("/completion", {"prompt": "a " * 4000}, 400, lambda e: (e["error"]["type"], e["error"]["n_prompt_tokens"] > 1024, e["error"]["n_ctx"]) == ("exceed_context_size_error", True, 1024)),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a " * 4000}]}, 400, lambda e: (e["error"]["type"], e["error"]["code"], e["error"]["n_ctx"]) == ("exceed_context_size_error", "context_length_exceeded", 1024)),
    ("/v1/embeddings", {"input": [[5] * 1025]}, 400, lambda e: (e["error"]["code"], e["error"]["n_prompt_tokens"], e["error"]["n_ctx"]) == ("context_length_exceeded", 1025, 1024)),
    ("/v1/score", {"texts": [[5] * 1025]}, 400, lambda e: (e["error"]["code"], e["error"]["n_prompt_tokens"], e["error"]["n_ctx"]) == ("context_length_exceeded", 1026, 1024)),
    ("/infill", {"input_prefix": "a", "input_suffix": "b"}, 501, lambda e: e["error"]["type"] == "not_supported_error"),
    ("/apply-template", {}, 400, lambda e: e["error"]["message"] == "messages is missing"),
    ("/apply-template", {"messages": [7]}, 400, lambda e: "messages[0] is 7" in e["error"]["message"]),
    ("/tokenize", {"content": 7}, 400, lambda e: "content is 7" in e["error"]["message"]),
    ("/detokenize", {"tokens": [1 << 40]}, 400, lambda e: "tokens" in e["error"]["message"]),
    ("/api/v1/generate", {"prompt": "x", "temperature": -1}, 400, lambda e: "temperature is -1" in e["detail"]["msg"]),
    ("/api/v1/generate", b"{", 400, lambda e: "not JSON" in e["detail"]["msg"]),
    ("/api/extra/abort", {"genkey": 7}, 400, lambda e: "genkey is 7" in e["detail"]["msg"]),
    ("/api/extra/tokencount", {}, 400, lambda e: e["detail"]["msg"] == "prompt is missing"),
    ("/v1/internal/encode", {}, 400, lambda e: e["error"]["message"] == "text is missing"),
    ("/v1/token/decode", {"tokens": "x"}, 400, lambda e: e["error"]["param"] == "tokens"),
    ("/v1/token/decode", {"tokens": [99999]}, 400, lambda e: e["error"]["param"] == "tokens"),
    ("/v1/score", {"prompt": "x", "texts": ["a", [99999]]}, 400, lambda e: e["error"]["param"] == "texts"),
    ("/v1/score", {"prompt": [99999], "texts": [[5]]}, 400, lambda e: e["error"]["param"] == "prompt"),
    ("/v1/embeddings", {"input": [[99999]]}, 400, lambda e: e["error"]["param"] == "input"),
    ("/api/generate", {"prompt": "x", "options": {"top_k": "y"}}, 400, lambda e: "top_k" in e["error"]),
    ("/api/generate", {"prompt": "x", "options": 7}, 400, lambda e: "options is 7" in e["error"]),
    ("/api/generate", {"prompt": "x", "format": "xml"}, 400, lambda e: "format" in e["error"]),
    ("/api/chat", {"messages": "x"}, 400, lambda e: "messages is" in e["error"]),
    ("/api/chat", {"messages": [{"role": "assistant", "tool_calls": [7]}]}, 400, lambda e: "messages is 7" in e["error"]),
    ("/api/generate", {"prompt": "x", "model": "other"}, 404, lambda e: "not found" in e["error"]),
    ("/api/chat", {"messages": [{"role": "user", "content": "?", "images": ["aGk="]}]}, 400, lambda e: "images" in e["error"]),
    ("/completion", {"prompt": "x", "response_fields": "content"}, 400, lambda e: "response_fields is" in e["error"]["message"]),
    ("/props", {}, 405, lambda e: e["error"]["type"] == "invalid_request_error" and e["error"]["code"] == 405),
    ("/api/v1/model", {}, 405, lambda e: "takes GET" in e["detail"]["msg"]),
    ("/api/tags", {}, 405, lambda e: "takes GET" in e["error"]),
    ("/api/generate", b" " * (16 << 20) + b" ", 413, lambda e: "--max-body" in e["error"]),
]  # fmt: skip


@each_row(
    ("path", "body", "status", "reads"), ERRORS, ids=lambda value: "" if callable(value) else str(value)[:40]
)
def test_errors_have_the_dialects_form(server: Server, path: str, body: Any, status: int, reads: Any) -> None:
    got, answer = server.json("POST", path, body)
    assert (got, reads(answer)) == (status, True), answer


# Presets


def test_presets_are_listed_and_used_and_overridden(server: Server) -> None:
    presets = {preset["name"]: preset for preset in server.json("GET", "/v1/presets")[1]["data"]}
    assert presets["greedy"] == {
        "name": "greedy", "title": "Greedy", "about": "Nothing by chance.",
        "fields": {"temperature": 0, "max_tokens": 3},
    }  # fmt: skip
    assert {"creative", "no-loops"} <= presets.keys()
    for name in presets:
        assert server.json("POST", "/completion", FEW | {"preset": name})[0] == 200
    native = server.json("POST", "/completion", {"prompt": ONCE, "preset": "greedy"})[1]
    assert (native["tokens_predicted"], native["generation_settings"]["temperature"]) == (3, 0)
    other = server.json("POST", "/completion", {"prompt": ONCE, "preset": "greedy", "temp": 1.5})[1]
    assert other["generation_settings"]["temperature"] == 1.5


# Tokens


def test_pieces_of_tokens_are_texts_or_bytes(server: Server) -> None:
    tokens = server.json("POST", "/tokenize", {"content": "an 狐", "with_pieces": True})[1]["tokens"]
    pieces = [token["piece"] for token in tokens]
    assert pieces[0] == "an"
    assert any(isinstance(piece, list) for piece in pieces), "a character of several tokens"
    assert b"".join(p.encode() if isinstance(p, str) else bytes(p) for p in pieces).decode() == "an 狐"


def test_special_tokens_of_the_tokenizers_facts_are_single_tokens(server: Server, able: Server) -> None:
    """lm-eval's remote tokenizer encodes their texts, and takes the first token."""
    for one, template in ((server, None), (able, CHAT_TEMPLATE.read_text())):
        facts = one.json("GET", "/tokenizer_info")[1]
        assert (facts["eos_token"], facts["chat_template"]) == ("<|endoftext|>", template)
        body = {"prompt": facts["eos_token"], "add_special_tokens": False}
        assert one.json("POST", "/tokenize", body)[1]["tokens"] == [0]


def test_mistrals_fim_is_infill_answered_as_a_chat(able: Server) -> None:
    body = {"prompt": "Once", "suffix": " time", "max_tokens": 3, "random_seed": 3, "model": "able"}
    whole = able.json("POST", "/v1/fim/completions", body)[1]
    infill = "<|fim_prefix|>Once<|fim_suffix|> time<|fim_middle|>"
    same = {"prompt": infill, "seed": 3, "max_tokens": 3, "model": "able"}
    assert whole["usage"]["prompt_tokens"] == len(
        able.json("POST", "/tokenize", {"prompt": infill})[1]["tokens"]
    )
    again = [able.json("POST", path, one)[1]["choices"][0]
             for path, one in (("/v1/completions", same), ("/v1/fim/completions", body))]  # fmt: skip
    assert again[0]["text"] == again[1]["message"]["content"]
    frames = able.events(body | {"stream": True, "n": 2}, "/v1/fim/completions")
    deltas = [frame["choices"][0] for frame in frames]
    assert {one["index"] for one in deltas} == {0, 1}
    said = "".join(one["delta"].get("content") or "" for one in deltas if one["index"] == 0)
    assert said == again[1]["message"]["content"]


# Next-token probabilities, ending a generation


def test_logits_are_the_probabilities_of_the_next_token(server: Server) -> None:
    raw = server.json("POST", "/v1/internal/logits", {"prompt": ONCE, "top_logits": 100})[1]["logits"]
    assert list(raw.values()) == sorted(raw.values(), reverse=True)
    assert 0.9 < sum(raw.values()) <= 1.001
    few = {"prompt": ONCE, "use_samplers": True, "top_k": 2, "top_p": 1, "min_p": 0, "temperature": 1}
    left = server.json("POST", "/v1/internal/logits", few)[1]["logits"]
    assert list(left) == list(raw)[:2]
    assert sum(left.values()) == pytest.approx(1, abs=1e-3)


def test_stop_generation_ends_what_openais_paths_generate_and_nothing_else(server: Server) -> None:
    body = {"prompt": ONCE, "n": 2, "max_tokens": -1, "ignore_eos": True, "stream": True}
    with closing(server.connect()) as ours, closing(server.connect()) as kobolds:
        ours.request("POST", "/v1/completions", json.dumps(body))
        kobolds.request("POST", "/api/extra/generate/stream", json.dumps(body | {"max_length": -1}))
        first, second = ours.getresponse(), kobolds.getresponse()
        assert b"choices" in first.readline()
        assert server.json("POST", "/v1/internal/stop-generation") == (200, "OK")
        rest = first.read()
        assert (rest.count(b'"finish_reason":"length"'), rest[-8:]) == (2, b"[DONE]\n\n")
        assert b"event: message" in second.readline()
        for _ in range(12):
            assert second.readline(), "it goes on"


# Infill and chats, with a model that has both


INFILL = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|file_sep|>")


@pytest.fixture(scope="module")
def able(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A model with tokens for infill, and with a chat template."""
    path = tmp_path_factory.mktemp("able") / "able.gguf"
    template = CHAT_TEMPLATE.read_text()
    write_model(path, "llama", chat_template=template, control=[*CHAT_TOKENS, *INFILL], context=4096)
    with serving("--model", str(path), "--ctx", "8192") as server:
        yield server


def test_infill_puts_prefix_and_suffix_between_the_models_tokens(able: Server) -> None:
    body = {"input_prefix": "Once", "input_suffix": " time", "prompt": " upon", "n_predict": 2, "n_cmpl": 2}
    body |= {"input_extra": [{"filename": "a.txt", "text": "Hello"}]}
    first, second = able.json("POST", "/infill", body)[1]
    whole = "<|file_sep|>a.txt\nHello<|fim_prefix|>Once<|fim_suffix|> time<|fim_middle|> upon"
    assert (first["prompt"], second["index"]) == (whole, 1)
    ids = able.json("POST", "/tokenize", {"prompt": whole})[1]["tokens"]
    assert first["tokens_evaluated"] == len(ids)
    texts = [able.json("POST", "/detokenize", {"tokens": [id]})[1]["content"] for id in ids]
    assert [text for text in texts if text in INFILL] == [INFILL[3], *INFILL[:3]], "each is one token"


def test_openais_and_ollamas_suffix_is_infill_if_the_model_has_it(able: Server, server: Server) -> None:
    fields = {"prompt": "Once", "suffix": " time", "max_tokens": 1}
    n_tokens = len(
        able.json("POST", "/tokenize", {"prompt": "".join(["Once", *INFILL[:3], " time"])})[1]["tokens"]
    )
    answer = able.json("POST", "/v1/completions", fields | {"model": "able"})[1]
    assert (answer["usage"]["prompt_tokens"], "warnings" in answer) == (n_tokens, False)
    ollama = able.json("POST", "/api/generate", fields | {"model": "able", "stream": False})[1]
    assert ollama["prompt_eval_count"] == n_tokens
    warned = server.json("POST", "/v1/completions", fields | {"stream": False})[1]
    assert warned["warnings"] == ["suffix is not used: the model has no infill tokens"]
    status, error = server.json("POST", "/api/generate", fields)
    assert (status, error) == (400, {"error": "storyteller does not support insert"})


def test_the_template_writes_the_prompt_of_a_chat(able: Server) -> None:
    prompt = able.json("POST", "/apply-template", {"messages": CHAT})[1]["prompt"]
    assert "A story!" in prompt
    assert prompt != "A story!"
    raw = able.json(
        "POST", "/api/generate", {"prompt": prompt, "raw": True, "stream": False, "num_predict": 1}
    )[1]
    told = able.json(
        "POST", "/api/generate", {"prompt": "A story!", "stream": False, "options": {"num_predict": 1}}
    )[1]
    chat = able.json("POST", "/api/chat", {"messages": CHAT, "stream": False, "options": {"num_predict": 1}})[
        1
    ]
    assert raw["prompt_eval_count"] == told["prompt_eval_count"] == chat["prompt_eval_count"]
    assert chat["message"]["role"] == "assistant"


BEGUN = [*CHAT, {"role": "assistant", "content": "Once upon"}]


@each_row(
    ("fields", "goes_on"),
    [
        ({}, True),
        ({"continue_final_message": True}, True),
        ({"continue_final_message": False}, False),
        ({"add_generation_prompt": True}, False),
        ({"messages": [*BEGUN, CHAT[0]]}, False),
        ({"messages": [*CHAT, {"role": "assistant", "content": ""}]}, False),
    ],
)
def test_a_last_assistant_message_is_continued(able: Server, fields: dict[str, Any], goes_on: bool) -> None:
    body = {"messages": BEGUN, **fields}
    prompt = able.json("POST", "/apply-template", body)[1]["prompt"]
    assert prompt.endswith("Once upon") == goes_on
    n_tokens = able.json("POST", "/tokenize", {"prompt": prompt})[1]["count"]
    for path in ("/v1/chat/completions", "/chat/completions"):
        answer = able.json("POST", path, body | {"max_tokens": 1})[1]
        assert answer["usage"]["prompt_tokens"] == n_tokens
    if len(fields) == 0:
        ollama = able.json("POST", "/api/chat", body | {"stream": False, "num_predict": 1})[1]
        assert ollama["prompt_eval_count"] == n_tokens


def test_a_chat_of_n_answers_has_an_index_a_line(able: Server) -> None:
    body = {"messages": CHAT, "n": 3, "options": {"num_predict": 4, "ignore_eos": True}}
    parts = list(map(json.loads, able.call("POST", "/api/chat", body)[2].splitlines()))
    assert {part["index"] for part in parts} == {0, 1, 2}
    assert [part["done"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert all("".join(p["message"]["content"] for p in parts if p["index"] == i) for i in range(3))
