"""llama-server's flags on our command line: settings, defaults of requests, the engine's words, refusals."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from llama_srb import flags
from llama_srb.cli import MAIN
from llama_srb.config import OPTIONS, SettingsError, load
from llama_srb.flags import FLAGS, FlagError
from llama_srb.flags.flag_actions import Always, Default, Ours, Passed, Refused
from llama_srb.request.fields import ROWS
from llama_srb.request.parse import Defaults, canonical, request_from
from llama_srb.request.shapes import MOST_DRAFTED
from tests.support.rows import each_row

NAMES = [name for flag in FLAGS for name in flag.names]


def actions(kind: type) -> list[Any]:
    return [pytest.param(flag, id=flag.name) for flag in FLAGS if isinstance(flag.action, kind)]


def test_a_name_stands_in_one_row() -> None:
    assert len(NAMES) == len(set(NAMES))


@each_row("flag", actions(Default))
def test_a_default_is_that_of_a_request_field(flag: flags.Flag) -> None:
    assert flag.action.field in ROWS


# A llama-server command line, and ours in its place
OWN = {
    "--models-dir": (["m"], ["--models-dir", "m"]),
    "--models-max": (["4"], ["--models-max", "4"]),
    "--help": ([], ["--help"]),
    "--model": (["m.gguf"], ["--model", "m.gguf"]),
    "--hf-repo": (["a/b:Q8_0"], ["--model", "hf:a/b:Q8_0"]),
    "--offline": ([], ["--offline"]),
    "--rerank": ([], ["--rerank"]),
    "--alias": (["a b,c"], ["--alias", "a b,c"]),
    "--tags": (["x,y"], ["--tags", "x,y"]),
    "--lora": (["a,b"], ["--lora", "a,b"]),
    "--ctx-size": (["4096"], ["--ctx", "4096"]),
    "--parallel": (["4"], ["--parallel", "4"]),
    "-cram": (["100"], ["--cache-ram", "100M"]),
    "--cache-ram": (["4G"], ["--cache-ram", "4G"]),
    "--host": (["::1"], ["--host", "::1"]),
    "--port": (["1"], ["--port", "1"]),
    "--reuse-port": ([], ["--reuse-port"]),
    "--api-prefix": (["/llm"], ["--api-prefix", "/llm"]),
    "--api-key": (["a,b"], ["--api-key", "a,b"]),
    "--api-key-file": (["keys"], ["--api-key-file", "keys"]),
    "--ssl-key-file": (["k.pem"], ["--tls-key", "k.pem"]),
    "--ssl-cert-file": (["c.pem"], ["--tls-cert", "c.pem"]),
    "--cors-origins": (["http://a"], ["--cors", "http://a"]),
    "--timeout": (["9"], ["--write-timeout", "9", "--body-timeout", "9"]),
    "--sse-ping-interval": (["-1"], ["--keep-alive", "3600"]),
    "--slots": ([], ["--slots"]),
    "--no-slots": ([], ["--no-slots"]),
    "--ui": ([], ["--studio"]),
    "--no-ui": ([], ["--no-studio"]),
}


@each_row("flag", actions(Ours))
def test_a_setting_under_another_name_is_translated(flag: flags.Flag) -> None:
    values, words = OWN[flag.name]
    for name in flag.names:
        assert flags.translate([name, *values, "x"]) == ([*words, "x"], [])
    known = {option.flag.replace("--", prefix) for option in OPTIONS for prefix in ("--", "--no-")}
    assert {word for word in words if word.startswith("--")} <= {*known, "--help"}


DROPPED = [["-c", "0"], ["-np", "-1"]]


@pytest.mark.parametrize("words", DROPPED)
def test_a_value_that_means_the_default_is_left_out(words: list[str]) -> None:
    assert flags.translate(words) == ([], [])


FIELDS: dict[str, tuple[list[str], object]] = {
    "--predict": (["5"], 5),
    "--seed": (["42"], 42),
    "--temp": (["0.5"], 0.5),
    "--dynatemp-range": (["0.3"], 0.3),
    "--dynatemp-exp": (["2"], 2.0),
    "--top-k": (["7"], 7),
    "--top-p": (["0.6"], 0.6),
    "--min-p": (["0.2"], 0.2),
    "--typical": (["0.4"], 0.4),
    "--top-nsigma": (["1.5"], 1.5),
    "--xtc-probability": (["0.7"], 0.7),
    "--xtc-threshold": (["0.2"], 0.2),
    "--adaptive-target": (["0.3"], 0.3),
    "--adaptive-decay": (["0.5"], 0.5),
    "--repeat-penalty": (["1.2"], 1.2),
    "--repeat-last-n": (["9"], 9),
    "--presence-penalty": (["0.3"], 0.3),
    "--frequency-penalty": (["0.4"], 0.4),
    "--dry-multiplier": (["0.8"], 0.8),
    "--dry-base": (["2"], 2.0),
    "--dry-allowed-length": (["3"], 3),
    "--dry-penalty-last-n": (["5"], 5),
    "--dry-sequence-breaker": ([r"\n"], ["\n"]),
    "--mirostat": (["2"], 2),
    "--mirostat-lr": (["0.2"], 0.2),
    "--mirostat-ent": (["4"], 4.0),
    "--samplers": (["top_k:9 > temperature"], ["top_k:9 ", " temperature"]),
    "--sampler-seq": (["kt"], "kt"),
    "--ignore-eos": ([], True),
    "--logit-bias": (["15-1.5"], [[15, -1.5]]),
    "--grammar": (['root ::= "a"'], 'root ::= "a"'),
    "--grammar-file": (["FILE"], "text\n"),
    "--json-schema": (["{}"], "{}"),
    "--json-schema-file": (["FILE"], "text\n"),
    "--reverse-prompt": ([r"a\tb\\"], ["a\tb\\"]),
    "--cache-prompt": ([], True),
    "--no-cache-prompt": ([], False),
    "--spec-draft-n-max": (["7"], 7),
    "--spec-type": (["ngram-mod,ngram-simple"], True),
    "--spec-default": ([], True),
}


@each_row("flag", actions(Default))
def test_a_flag_sets_the_default_of_a_field(flag: flags.Flag, tmp_path: Path) -> None:
    values, wanted = FIELDS[flag.name]
    file = tmp_path / "file"
    file.write_text("text\n")
    for name in flag.names:
        words = [name, *(str(file) if value == "FILE" else value for value in values)]
        assert flags.sort(words).fields == {flag.action.field: wanted}
        assert flags.translate(words) == ([], words)
        assert load({}, environ={}, more_flags=words).field_defaults == {flag.action.field: wanted}


def test_some_flags_add_up_and_none_takes_all_away() -> None:
    assert flags.sort(["-r", "a", "-r", "b", "-l", "1+2", "-l", "2-inf"]).fields == {
        "stop": ["a", "b"],
        "logit_bias": [[1, 2.0], [2, False]],
    }
    breaker = "--dry-sequence-breaker"
    assert flags.sort([breaker, "x", breaker, "none", breaker, "y"]).fields == {
        "dry_sequence_breakers": ["y"]
    }


def test_a_draft_model_comes_with_guesses() -> None:
    model = ["-md", "small.gguf"]
    assert flags.sort(model).fields == {"draft": True}
    assert flags.sort(["--spec-type", "none", *model]).fields == {"draft": False}
    assert flags.sort([*model, "--spec-draft-n-max", "5"]).fields == {"draft": 5}
    assert flags.sort(["--spec-draft-n-max", "64"]).fields == {"draft": MOST_DRAFTED}
    for kinds in ("ngram-mod,draft-mtp", "ngram-simpel", "ngram-", "", ","):
        with pytest.raises(FlagError, match="; it must be none, or of draft-simple, ngram-simple"):
            flags.sort(["--spec-type", kinds])
    assert flags.sort(["--spec-type", "draft-simple", *model]).fields == {"draft": True}
    with pytest.raises(FlagError, match="--spec-type draft-simple needs --spec-draft-model"):
        flags.check_needs(["--spec-type", "draft-simple"])
    flags.check_needs(["--spec-type", "draft-simple", *model])
    flags.check_needs(["--chat-template", "draft-simple"])  # another flag's value
    with pytest.raises(FlagError, match="it must be 0 or more"):
        flags.sort(["--spec-draft-n-max", "-1"])


def test_a_bound_of_guesses_and_their_kinds_have_no_order() -> None:
    bound, four = ["--spec-draft-n-max", "4"], {"draft": 4}
    for kinds in (["--spec-type", "ngram-simple"], ["--spec-default"], ["-md", "small.gguf"]):
        assert flags.sort([*bound, *kinds]).fields == flags.sort([*kinds, *bound]).fields == four
    none = ["--spec-type", "none"]
    assert flags.sort([*bound, *none]).fields == flags.sort([*none, *bound]).fields == {"draft": False}
    assert flags.sort([*none, "--spec-type", "ngram-mod"]).fields == {"draft": True}


@each_row("flag", actions(Passed))
def test_other_flags_go_to_the_engine_from_both_sides_of_the_dashes(flag: flags.Flag) -> None:
    if flag.name == "--chat-template-file":
        return  # the file is read at once: below
    words = [flag.names[0], *["box:1" if flag.name == "--rpc" else "1"] * flag.values]
    assert flags.translate(words)[1] == words
    assert load({"engine_args": words}, environ={}).engine_command[-len(words) :] == tuple(words)


@each_row("flag", actions(Always))
def test_a_flag_for_what_is_always_so_is_accepted(flag: flags.Flag) -> None:
    for name in flag.names:
        assert flags.translate([name])[0] == []
        assert flags.sort([name]) == flags.Sorted()


@each_row("flag", actions(Refused))
def test_a_refusal_names_the_flag_and_what_to_use(flag: flags.Flag) -> None:
    for name in flag.names:
        for read in (flags.translate, flags.sort):
            with pytest.raises(FlagError) as caught:
                read([name, *["7"] * flag.values])
            assert str(caught.value) == f"{name} is not possible here: {flag.action.instead}"
    for value in flag.action.same.split():
        assert flags.sort([flag.name, value]) == flags.Sorted()


WRONG = [
    (["--temp"], "--temp needs a value"),
    (["--temp", "hot"], "--temp is 'hot'; it must be a number"),
    (["--top-k", "1.5"], "--top-k is '1.5'; it must be a whole number"),
    (["-l", "x"], "-l is 'x'; it must be a token id, + or -, and a number"),
    (["--grammar-file", "/none"], "--grammar-file is '/none'; cannot read it: No such file or directory"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_a_wrong_value_is_named(words: list[str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, environ={}, more_flags=words)
    assert str(caught.value) == message


OURS_WRONG = [
    (
        ["--cache-ram", "8192"],
        "--cache-ram is '8192'; that is 8192 bytes here; llama-server counts MiB: write 8192M",
    ),
    (["-cram", "-1"], "-cram is '-1'; host memory has a bound here: name it, in MiB"),
    (["--port"], "--port needs a value"),
]


@pytest.mark.parametrize(("words", "message"), OURS_WRONG)
def test_a_wrong_value_of_a_setting_is_named(words: list[str], message: str) -> None:
    with pytest.raises(FlagError) as caught:
        flags.translate(words)
    assert str(caught.value) == message


def test_a_line_for_llama_server_is_understood() -> None:
    line = (
        "-m x.gguf -c 4096 -ngl 99 --temp=0.7 --top_k 5 --jinja --alias tiny --port 8080 -np 4 --metrics "
        "--api-key k -v --n 3"
    )
    ours, others = flags.translate(line.split())
    assert " ".join(ours) == (
        "--model x.gguf --ctx 4096 --alias tiny --port 8080 --parallel 4 --api-key k --log-level debug --n 3"
    )
    done = flags.sort(others)
    assert (done.engine, done.fields) == (["-ngl", "99", "--jinja", "-v"], {"temperature": 0.7, "top_k": 5})


def test_flags_of_the_command_line_add_to_those_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    file.write_text('engine_args = "-ngl 9 --temp 0.5 --top-k 3"')
    settings = load({}, config=str(file), environ={}, more_flags=["--temp", "0.7"])
    assert settings.field_defaults == {"temperature": 0.7, "top_k": 3}
    assert settings.engine_command[-2:] == ("-ngl", "9")


def test_the_model_has_the_first_alias_in_alphabetical_order(tmp_path: Path) -> None:
    settings = load({"alias": "tiny, a b", "model": "x/m.gguf"}, environ={})
    assert settings.model_names == ("a b", "tiny", "m", "m.gguf")
    assert load({"model": "x/m.gguf"}, environ={}).model_names == ("m", "m.gguf")


@each_row(
    "address",
    [
        "box",
        "box:",
        ":50052",
        "box:x",
        "box:0",
        "box:65536",
        "box:-1",
        "[::1]:50052",
        "",
        "box:50052,",
        "box :5",
    ],
)
def test_an_rpc_server_without_a_host_and_a_port_is_refused(address: str) -> None:
    wrong = address.rpartition(",")[2]
    message = re.escape(f"--rpc has {wrong!r}; each address must be host:port with a port from 1 to 65535")
    for given in ({"more_flags": ["--rpc", address]}, {"options": {"engine_args": ("--rpc", address)}}):
        with pytest.raises(SettingsError, match=message):
            load(**{"options": {}, "environ": {}, **given})


def test_rpc_servers_are_a_host_and_a_port_each() -> None:
    words = ("--rpc", "192.168.7.2:50052,box-1.local:1,box:65535")
    assert load({}, environ={}, more_flags=words).engine_command[-2:] == words


def test_a_wrong_rpc_server_ends_the_command_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        MAIN.main(["serve", "--", "--rpc", "box"])
    assert ended.value.code == 2
    assert "--rpc has 'box'; each address must be host:port" in capsys.readouterr().err


def test_the_last_chat_template_counts(tmp_path: Path) -> None:
    file = tmp_path / "t.jinja"
    file.write_text("{{ 1 }}")
    words = ["--chat-template", "chatml", "--chat-template-file", str(file)]
    assert load({}, environ={}, more_flags=words).chat_template == "{{ 1 }}"
    assert load({}, environ={}, more_flags=[*words, *words[:2]]).chat_template == "chatml"
    assert load({}, environ={}).chat_template == ""
    with pytest.raises(SettingsError, match="--chat-template-file is 'none'"):
        load({}, environ={}, more_flags=["--chat-template-file", "none"])


OPERATOR = {"max_tokens": 5, "temperature": 0.5, "grammar": 'root ::= "a"', "stop": ["x"]}
BODIES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"max_tokens": 5, "temperature": 0.5, "grammar": 'root ::= "a"', "stop": ("x",)}),
    ({"max_tokens": 9, "temp": 1}, {"max_tokens": 9, "temperature": 1}),
    ({"n_predict": -1}, {"max_tokens": 5}),
    ({"regex": "b"}, {"grammar": None, "regex": "b"}),
    ({"stop": []}, {"stop": ()}),
]


@pytest.mark.parametrize(("body", "wanted"), BODIES)
def test_a_request_without_a_field_gets_the_operators_default(
    body: dict[str, Any], wanted: dict[str, Any]
) -> None:
    made = request_from({"prompt": "", **body}, Defaults(operator=canonical(OPERATOR)))
    got = {
        name: getattr(made, name, None) if name != "temperature" else made.sampling.temperature
        for name in wanted
    }
    assert got == wanted


def test_the_operators_defaults_go_before_those_of_a_dialect() -> None:
    defaults = Defaults(
        max_tokens=16, sampling={"temperature": 0.75, "top_k": 100}, operator={"temperature": 0.1}
    )
    made = request_from({"prompt": ""}, defaults)
    assert (made.max_tokens, made.sampling.temperature, made.sampling.top_k) == (16, 0.1, 100)
