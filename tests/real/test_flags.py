"""llama.cpp's own table of flags, which the engine prints, is walked: each has a row here, and acts or not.

A flag that the engine gets sets the parameter of llama.cpp that PARAMETERS has. Those of chats, logs, length
and pooling are tried for what they do.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter

from llama_srb.flags import BY_NAME, FLAGS
from llama_srb.flags.fates import Ours, Passed
from tests.support.lines import Lines
from tests.support.models import N_EMBD, write_adapter, write_model
from tests.support.paced import Paced
from tests.support.places import BINARY, STORYTELLER
from tests.support.serving import serving

SMALL = ("-c", "512", "-np", "2")


def run(*flags: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BINARY), *flags], capture_output=True, text=True, timeout=60, env=os.environ | env, check=False
    )


def listed(*flags: str) -> dict[str, dict[str, Any]]:
    """llama.cpp's options by each of their names, with the values that these flags set."""
    rows = json.loads(run("--list-flags", *flags).stdout)
    return {name: row for row in rows for name in (*row["names"], *row["off"])}


@pytest.fixture(scope="module")
def options() -> dict[str, dict[str, Any]]:
    return listed()


def test_each_flag_of_llama_cpp_has_a_row_and_no_row_has_another(options: dict[str, dict[str, Any]]) -> None:
    assert BY_NAME.keys() == options.keys()


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_a_row_is_as_llama_cpps(flag: Any, options: dict[str, dict[str, Any]]) -> None:
    rows = [options[name] for name in flag.names]
    assert all(row["values"] == flag.values for row in rows)
    assert all(row is rows[0] for row in rows)
    assert all(name in rows[0]["names"] for name in flag.names) or all(
        name in rows[0]["off"] for name in flag.names
    )


def test_the_engine_gets_exactly_the_flags_that_act_in_it(options: dict[str, dict[str, Any]]) -> None:
    own = {"--model", "--ctx-size", "--parallel", "--lora"}  # settings that the server gives the engine
    acting = {name for name, row in options.items() if row["acts"]}
    passed = {name for flag in FLAGS if isinstance(flag.fate, Passed) for name in flag.names}
    assert acting == passed | {name for name in BY_NAME if BY_NAME[name].name in own}
    assert all(isinstance(BY_NAME[name].fate, Ours) for name in own)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.name)
def test_the_engine_refuses_what_does_not_act_in_it(flag: Any, options: dict[str, dict[str, Any]]) -> None:
    asks = {"--help", "--version", "--cache-list", "--completion-bash", "--list-devices"}
    asks |= {"--cache-ram"}  # the engine has an option of this name, which counts bytes
    if options[flag.name]["acts"] or flag.name in asks:
        return
    ended = run("--list-flags", flag.names[0], *["1"] * flag.values)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == (
        f"llama-batched: {flag.names[0]} does not act here; docs/flags.md says what to use\n"
    )


# A flag's values, and the parameter that it sets
PARAMETERS: dict[str, tuple[list[str], object]] = {
    "--model": (["m.gguf"], "m.gguf"),
    "--ctx-size": (["99"], 99),
    "--parallel": (["5"], 5),
    "--lora": (["a,b"], [["a", 1.0], ["b", 1.0]]),
    "--lora-scaled": (["a:0.5"], [["a", 0.5]]),
    "--control-vector": (["a"], [["a", 1.0]]),
    "--control-vector-scaled": (["a:0.5"], [["a", 0.5]]),
    "--control-vector-layer-range": (["2", "3"], [2, 3]),
    "--override-kv": (["a.b=int:3"], ["a.b"]),
    "--check-tensors": ([], True),
    "--load-mode": (["none"], 0),
    "--lazy-mode": (["off"], 0),
    "--repack": ([], True),
    "--no-repack": ([], False),
    "--no-host": ([], True),
    "--threads": (["3"], 3),
    "--threads-batch": (["4"], 4),
    "--prio": (["1"], 1),
    "--numa": (["isolate"], 2),
    "--device": (["none"], []),
    "--gpu-layers": (["7"], 7),
    "--split-mode": (["row"], 2),
    "--main-gpu": (["1"], 1),
    "--override-tensor": (["blk.*=CPU"], [["blk.*", "CPU"]]),
    "--op-offload": ([], True),
    "--no-op-offload": ([], False),
    "--batch-size": (["64"], 64),
    "--ubatch-size": (["65"], 65),
    "--flash-attn": (["on"], 1),
    "--cache-type-k": (["q8_0"], "q8_0"),
    "--cache-type-v": (["f32"], "f32"),
    "--kv-offload": ([], True),
    "--no-kv-offload": ([], False),
    "--rope-scaling": (["yarn"], 2),
    "--rope-scale": (["4"], 0.25),
    "--rope-freq-base": (["5000"], 5000.0),
    "--rope-freq-scale": (["0.5"], 0.5),
    "--yarn-orig-ctx": (["77"], 77),
    "--yarn-ext-factor": (["0.5"], 0.5),
    "--yarn-attn-factor": (["0.5"], 0.5),
    "--yarn-beta-slow": (["2"], 2.0),
    "--yarn-beta-fast": (["16"], 16.0),
    "--pooling": (["last"], 3),
    "--jinja": ([], True),
    "--no-jinja": ([], False),
    "--chat-template": (["chatml"], "chatml"),
    "--chat-template-kwargs": (['{"a": 1}'], {"a": "1", "preserve_reasoning": "true"}),
    "--skip-chat-parsing": ([], True),
    "--no-skip-chat-parsing": ([], False),
    "--reasoning": (["off"], 0),
    "--reasoning-format": (["none"], "none"),
    "--reasoning-effort": (["low"], {"preserve_reasoning": "true", "reasoning_effort": '"low"'}),
    "--reasoning-preserve": ([], {"preserve_reasoning": "true"}),
    "--no-reasoning-preserve": ([], {"preserve_reasoning": "false"}),
    "--verbose": ([], 2**31 - 1),
    "--verbosity": (["1"], 1),
}
ELSEWHERE = {  # flags that tests below try for what they do
    "--lora-init-without-apply", "--chat-template-file", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn",
    "--log-disable", "--log-file", "--log-jsonl", "--no-log-jsonl", "--log-colors", "--log-prefix",
    "--no-log-prefix", "--log-timestamps", "--no-log-timestamps",
}  # fmt: skip
NEEDS_A_DEVICE = {"--rpc", "--tensor-split"}  # a server of RPC, several GPUs: refused with other numbers here


def test_each_flag_that_acts_is_tried() -> None:
    names = {flag.name for flag in FLAGS if isinstance(flag.fate, Passed)}
    tried = {flag.name for flag in FLAGS if flag.name in PARAMETERS}
    assert names <= tried | ELSEWHERE | NEEDS_A_DEVICE


@pytest.mark.parametrize("name", PARAMETERS)
def test_a_flag_sets_its_parameter(name: str) -> None:
    values, wanted = PARAMETERS[name]
    for spelling in BY_NAME[name].names:
        assert listed(spelling, *values)[name]["value"] == wanted


def test_weights_of_experts_and_layers_stay_on_the_cpu() -> None:
    def buffers(*flags: str) -> list[str]:
        return [buffer for _, buffer in listed(*flags)["--override-tensor"]["value"]]

    assert buffers("-cmoe") == ["CPU"]
    assert buffers("-ncmoe", "2") == buffers("-ncffn", "2") == ["CPU", "CPU"]


@pytest.mark.parametrize("flag", sorted(NEEDS_A_DEVICE))
def test_a_flag_for_devices_reaches_llama_cpp(flag: str) -> None:
    ended = run("--list-flags", flag, "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20")
    assert ended.returncode == 2
    assert "RPC" in ended.stderr or "system only has" in ended.stderr


def test_a_flag_may_have_underscores() -> None:
    assert listed("--rope_scale", "2")["--rope-scale"]["value"] == 0.5


def test_a_variable_that_does_not_act_is_named() -> None:
    ended = run("--list-flags", LLAMA_ARG_PORT="1", LLAMA_ARG_THREADS="3", LLAMA_ARG_EMBEDDINGS="1")
    rows = {name: row for row in json.loads(ended.stdout) for name in row["names"]}
    assert rows["-t"]["value"] == 3
    assert [line.split()[3] for line in ended.stderr.splitlines()] == [
        "LLAMA_ARG_PORT",
        "LLAMA_ARG_EMBEDDINGS",
    ]


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


@pytest.mark.parametrize(("flags", "prompt"), PROMPTS, ids=lambda value: str(value)[:40])
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


@pytest.mark.parametrize(("flags", "fields", "end"), THINKING, ids=str)
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


@pytest.mark.parametrize(
    ("flags", "limit"),
    [
        (["-c", "4096"], 1024),
        (["-c", "4096", "--rope-scale", "2"], 2048),
        (["-c", "1536", "--rope-freq-scale", "0.5"], 1536),
        (["-c", "4096", "--rope-scaling", "yarn", "--rope-scale", "2", "--yarn-orig-ctx", "1024"], 2048),
        (["-c", "4096", "--rope-freq-base", "50000"], 4096),
        (["-c", "4096", "--rope-scale", "1"], 1024),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_sequence_is_as_long_as_the_options_of_rope_scaling_say(
    flags: list[str], limit: int, tmp_path: Path
) -> None:
    with Paced(tmp_path / "log", "-np", "2", *flags) as engine:
        answer = engine.generate(prompt="Once", n=1, max_tokens=-1, sampling={"ignore_eos": True})
        warnings = [line for line in engine.log.splitlines() if "rope scaling" in line]
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
    assert (ended.returncode, ended.stderr) == (
        2,
        "llama-batched: --pooling is rank; it must be mean, cls or last\n",
    )


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
