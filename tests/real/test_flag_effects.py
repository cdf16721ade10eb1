"""What llama-server's flags do: logs, chats, lengths, vectors, adapters, and a whole line for a server."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from tests.real.test_flags import run
from tests.support.lines import Lines
from tests.support.models import N_EMBD, write_adapter, write_model
from tests.support.paced import Paced
from tests.support.places import STORYTELLER
from tests.support.rows import each_row
from tests.support.serving import serving

SMALL = ("-c", "512", "-np", "2")

# Logs


def test_logs_are_as_they_are_asked_for(tmp_path: Path) -> None:
    def log(*flags: str) -> str:
        file = tmp_path / "log"
        file.unlink(missing_ok=True)
        with Lines(*SMALL, "-lv", "5", "--log-file", str(file), *flags) as engine:
            engine.generate(prompt="Once", n=1, max_tokens=1)
        return file.read_text() if file.exists() else ""

    plain = log("--no-log-prefix", "--no-log-timestamps", "--log-colors", "off", "--no-log-jsonl")
    assert "llama_model_loader" in plain
    assert "\x1b[" not in plain
    assert "\x1b[" in log("--log-colors", "on")
    stamped = log("--log-prefix", "--log-timestamps").splitlines()[3]
    assert stamped not in plain
    assert stamped[0].isdigit()
    assert all("level" in json.loads(line) for line in log("--log-jsonl").splitlines() if line)
    assert log("--log-disable") == ""


# Chats

TALK = [{"role": "system", "content": "Book"}, {"role": "user", "content": "Hi"}]
SHOUT = (
    "{% for m in messages %}{{ m.role }}: {{ m.content|upper }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ voice or 'assistant' }}:{% endif %}"
)
PROMPTS: list[tuple[list[str], str]] = [
    ([], "<|im_start|>system\nBook<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"),
    (["--chat-template", SHOUT], "system: BOOK\nuser: HI\nassistant:"),
    (["--chat-template-file", "FILE"], "system: BOOK\nuser: HI\nassistant:"),
    (
        ["--chat-template", SHOUT, "--chat-template-kwargs", '{"voice": "Ann"}'],
        "system: BOOK\nuser: HI\nAnn:",
    ),
    (
        ["--no-jinja", "--chat-template", "llama3"],
        "<|start_header_id|>system<|end_header_id|>\n\nBook<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n"
        "Hi<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    (["--jinja", "--chat-template", "not a template"], "not a template"),
]


@each_row(("flags", "prompt"), PROMPTS, ids=lambda value: str(value)[:40])
def test_a_chat_template_may_be_given(flags: list[str], prompt: str, tmp_path: Path) -> None:
    file = tmp_path / "shout.jinja"
    file.write_text(SHOUT)
    with Lines(*SMALL, *(str(file) if flag == "FILE" else flag for flag in flags)) as engine:
        assert engine.ask("template", messages=TALK)["prompt"] == prompt


def test_a_request_has_variables_of_its_own_beside_those_of_the_server() -> None:
    flags = ("--chat-template", SHOUT, "--chat-template-kwargs", '{"voice": "Ann"}')
    with Lines(*SMALL, *flags) as engine:
        answer = engine.ask("template", messages=TALK, chat_template_kwargs={"voice": "Bob"})
    assert answer["prompt"].endswith("\nBob:")


def test_without_jinja_tools_are_refused() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with Lines(*SMALL, "--no-jinja", "--chat-template", "chatml") as engine:
        answer = engine.ask("template", messages=TALK, tools=[tool])
        fine = engine.generate_all({"op": "chat", "messages": TALK, "n": 1, "max_tokens": 2})[0]
    assert answer["message"] == "tools and tool_choice need a server without --no-jinja"
    assert fine.lengths == [2]


THOUGHTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content and (preserve_reasoning or loop.last) %}<think>{{ m.reasoning_content }}"
    "</think>"
    "{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
    "{% if reasoning_effort %}[{{ reasoning_effort }}]{% endif %}{% endif %}"
)
THINKING: list[tuple[list[str], dict[str, Any], str]] = [
    ([], {}, "<|im_start|>assistant\n"),
    (["--reasoning", "on"], {}, "<|im_start|>assistant\n"),
    (["-rea", "off"], {}, "<think>\n\n</think>\n\n"),
    (["--reasoning", "off"], {"enable_thinking": True}, "<|im_start|>assistant\n"),
    (["--reasoning", "on"], {"enable_thinking": False}, "<think>\n\n</think>\n\n"),
    (["--reasoning", "off"], {"chat_template_kwargs": {"enable_thinking": True}}, "<|im_start|>assistant\n"),
    (["--reasoning-effort", "low"], {}, "[low]"),
]


@each_row(("flags", "fields", "end"), THINKING, ids=str)
def test_thoughts_are_asked_for_or_not(
    flags: list[str], fields: dict[str, Any], end: str, chat_model: Path
) -> None:
    with Lines(*SMALL, "--chat-template", THOUGHTS, *flags, model=chat_model) as engine:
        assert engine.ask("template", messages=TALK, **fields)["prompt"].endswith(end)


@pytest.mark.parametrize(
    ("flag", "kept"), [("--reasoning-preserve", True), ("--no-reasoning-preserve", False)]
)
def test_earlier_thoughts_stay_or_not(flag: str, kept: bool, chat_model: Path) -> None:
    past = [
        {"role": "assistant", "content": "Yes", "reasoning_content": "Well"},
        {"role": "user", "content": "?"},
    ]
    with Lines(*SMALL, "--chat-template", THOUGHTS, flag, model=chat_model) as engine:
        assert ("<think>Well</think>" in engine.ask("template", messages=TALK + past)["prompt"]) is kept


def test_an_answer_is_parsed_as_the_flag_says(chat_model: Path) -> None:
    """With a grammar the answer is known: a thought, then a text."""
    fields = {"messages": TALK, "n": 1, "max_tokens": 60, "grammar": 'root ::= "<think>a</think>b"'}
    found = {}
    for flags in ((), ("--reasoning-format", "none"), ("--skip-chat-parsing",)):
        with Lines(*SMALL, "--chat-template", THOUGHTS, *flags, model=chat_model) as engine:
            answer = engine.generate_all({"op": "chat", **fields})[0]
        found[flags[:1]] = (
            "".join(event.get("reasoning", "") for event in answer.named("stream")),
            "".join(answer.texts),
        )
    assert found[()] == ("a", "b")
    assert found["--reasoning-format",][0] == found["--skip-chat-parsing",][0] == ""


# Lengths, vectors, adapters


@each_row(
    ("flags", "limit"),
    [
        (["-c", "4096"], 1024),
        (["-c", "4096", "--rope-scale", "2"], 2048),
        (["-c", "1536", "--rope-freq-scale", "0.5"], 1536),
        (["-c", "4096", "--rope-scaling", "yarn", "--rope-scale", "2", "--yarn-orig-ctx", "1024"], 2048),
        (["-c", "4096", "--rope-scaling", "yarn", "--rope-scale", "2"], 2048),
        (["-c", "4096", "--rope-scaling", "yarn"], 4096),
        (["-c", "4096", "--rope-freq-base", "50000"], 4096),
        (["-c", "4096", "--rope-scale", "1"], 1024),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_sequence_is_as_long_as_the_options_of_rope_scaling_say(
    flags: list[str], limit: int, tmp_path: Path
) -> None:
    with Paced(tmp_path / "log", "-np", "2", *flags) as engine:
        prompt = " the" * (limit - 20)  # a token each
        answer = engine.generate(prompt=prompt, n=1, max_tokens=-1, sampling={"ignore_eos": True})
        warnings = [line for line in engine.log.splitlines() if "rope scaling" in line]
    assert 0 < answer.lengths[0] < 40
    assert answer.start["prompt_tokens"] + answer.lengths[0] == limit
    assert len(warnings) == (limit > 1024)
    assert all(f"may have {limit} tokens" in line for line in warnings)


def test_without_ctx_there_is_room_for_a_scaled_sequence() -> None:
    with Lines("-np", "1", "--rope-scale", "4") as engine:
        answer = engine.generate(prompt="Once", n=1, max_tokens=1100, sampling={"ignore_eos": True})
    assert answer.lengths == [1100]


def vector(*flags: str) -> np.ndarray:
    with Lines(*SMALL, *flags) as engine:
        [made] = engine.generate_all({"op": "embed", "input": ["Once upon a time"]})
        return np.array(made.named("embedding")[0]["embedding"])


def test_pooling_says_which_vector_a_text_has() -> None:
    vectors = {flag: vector("--pooling", flag) for flag in ("mean", "cls", "last")}
    assert np.allclose(vector(), vectors["mean"])
    assert len({tuple(v.round(4)) for v in vectors.values()}) == 3
    ended = run("-m", str(STORYTELLER), "--pooling", "rank")
    assert ended.returncode == 1
    assert "storyteller.gguf has no head (cls.weight, cls.output.weight), so it cannot rank\n" in ended.stderr


def test_an_adapter_may_be_loaded_without_being_applied(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", "llama")
    write_adapter(tmp_path / "a.gguf", "llama", 1)

    def ids(*flags: str, **more: Any) -> list[list[int]]:
        with Lines(*SMALL, *flags, model=tmp_path / "m.gguf") as engine:
            fields = {"n": 1, "max_tokens": 8, "logprobs": 0, "sampling": {"temperature": 0}}
            return engine.generate(prompt="Once", **fields, **more).ids

    lora = ("--lora", str(tmp_path / "a.gguf"))
    assert ids(*lora, "--lora-init-without-apply") == ids() != ids(*lora)
    assert ids(*lora, "--lora-init-without-apply", lora=[{"id": 0, "scale": 1}]) == ids(*lora)


def test_a_control_vector_changes_what_is_generated(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", "llama")
    writer = GGUFWriter(tmp_path / "v.gguf", "controlvector")
    writer.add_string("controlvector.model_hint", "llama")
    writer.add_tensor("direction.1", np.linspace(-9, 9, N_EMBD, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    def logprob(*flags: str) -> float:
        with Lines(*SMALL, *flags, model=tmp_path / "m.gguf") as engine:
            fields = {"n": 1, "max_tokens": 1, "logprobs": 0, "sampling": {"temperature": 0}}
            return float(engine.generate(prompt="Once", **fields).tokens[0][0]["logprob"])

    file = str(tmp_path / "v.gguf")
    assert logprob("--control-vector", file) != logprob()
    assert logprob("--control-vector-scaled", f"{file}:0.5") != logprob("--control-vector", file)
    assert logprob("--control-vector", file, "--control-vector-layer-range", "2", "2") == logprob()


def test_a_step_is_no_larger_than_the_batch(tmp_path: Path) -> None:
    for number, (flags, size) in enumerate([(("-b", "96"), 96), (("-b", "96", "-ub", "64"), 64)]):
        with Paced(tmp_path / str(number), *SMALL, "-lv", "4", *flags) as engine:
            engine.wait_for_log(partial(re.search, rf"n_ubatch += {size}\n"))


# The server


def test_a_server_understands_a_line_for_llama_server() -> None:
    line = (
        "-m", str(STORYTELLER), "-c", "2048", "-np", "4", "--temp", "0", "-n", "5", "--alias", "tiny,big",
        "--tags", "a b,c", "--chat-template", SHOUT, "--metrics", "--no-slots", "--no-ui", "--no-mmproj",
    )  # fmt: skip
    with serving(*line) as server:
        model = server.json("GET", "/v1/models")[1]["data"][0]
        assert (model["id"], model["aliases"], model["tags"]) == ("big", ["big", "tiny"], ["a b", "c"])
        assert server.json("GET", "/v1/models/tiny")[0] == 200
        props = server.json("GET", "/props")[1]
        assert (props["model_alias"], props["total_slots"], props["chat_template"]) == ("big", 4, SHOUT)
        assert props["default_generation_settings"]["params"]["temperature"] == 0
        assert server.json("GET", "/slots")[0] == 501
        assert server.call("GET", "/")[0] == 404
        for limit in ({}, {"n_predict": -1}):
            text = server.json("POST", "/completion", {"prompt": "Once", **limit})[1]
            assert (text["model"], text["tokens_predicted"]) == ("big", 5)
        assert (
            server.json("POST", "/completion", {"prompt": "Once", "n_predict": 7})[1]["tokens_predicted"] == 7
        )
        chat = server.json("POST", "/v1/chat/completions", {"messages": TALK, "n": 2, "model": "tiny"})[1]
        assert chat["model"] == "tiny"
        assert chat["choices"][0]["message"] == chat["choices"][1]["message"]
        assert chat["usage"]["completion_tokens"] == 10
        assert server.json("POST", "/apply-template", {"messages": TALK})[1]["prompt"].startswith(
            "system: BOOK"
        )
        rows = {row["name"]: row["default"] for row in server.json("GET", "/v1/samplers")[1]["samplers"]}
        assert (rows["temperature"], rows["top_k"]) == (0, 40)
