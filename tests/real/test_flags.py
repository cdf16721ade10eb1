"""llama.cpp's own table of flags, which the engine prints, is walked: each has a row here, and acts or not.

A flag that the engine gets sets the parameter of llama.cpp that PARAMETERS has; test_flag_effects.py tries
others for what they do.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

import pytest

from llama_srb.flags import BY_NAME, FLAGS
from llama_srb.flags.flag_actions import Ours, Passed
from tests.support.places import BINARY
from tests.support.rows import each_row


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


@each_row("flag", FLAGS, ids=lambda flag: flag.name)
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
    passed = {name for flag in FLAGS if isinstance(flag.action, Passed) for name in flag.names}
    assert acting == passed | {name for name in BY_NAME if BY_NAME[name].name in own}
    assert all(isinstance(BY_NAME[name].action, Ours) for name in own)


@each_row("flag", FLAGS, ids=lambda flag: flag.name)
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
    "--fit": (["off"], False),
    "--fit-target": (["300"], 300),
    "--fit-ctx": (["2048"], 2048),
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
    "--spec-draft-model": (["small.gguf"], "small.gguf"),
    "--spec-draft-ngl": (["3"], 3),
    "--spec-draft-device": (["none"], 1),
    "--spec-draft-type-k": (["q8_0"], "q8_0"),
    "--spec-draft-type-v": (["q4_0"], "q4_0"),
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
    "--reasoning-budget": (["9"], 9),
    "--reasoning-budget-message": (["So."], "So."),
    "--verbose": ([], 2**31 - 1),
    "--verbosity": (["1"], 1),
}
ELSEWHERE = {  # flags that test_flag_effects.py tries for what they do
    "--lora-init-without-apply", "--chat-template-file", "--cpu-moe", "--n-cpu-moe", "--n-cpu-ffn",
    "--log-disable", "--log-file", "--log-jsonl", "--no-log-jsonl", "--log-colors", "--log-prefix",
    "--no-log-prefix", "--log-timestamps", "--no-log-timestamps",
}  # fmt: skip
NEEDS_A_DEVICE = {  # a server of RPC, several GPUs: how it ends here
    "--rpc": (2, "--rpc has 1; each address must be host:port"),
    "--tensor-split": (2, "system only has"),
}


def test_each_flag_that_acts_is_tried() -> None:
    names = {flag.name for flag in FLAGS if isinstance(flag.action, Passed)}
    tried = {flag.name for flag in FLAGS if flag.name in PARAMETERS}
    assert names <= tried | ELSEWHERE | NEEDS_A_DEVICE.keys()


@each_row("name", PARAMETERS)
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
    code, reason = NEEDS_A_DEVICE[flag]
    assert (ended.returncode, reason in ended.stderr) == (code, True), ended.stderr


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
