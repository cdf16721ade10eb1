"""Settings from three sources: precedence, refusals, and the engine's command line that is made of them."""

import sys
from pathlib import Path

import pytest

from llama_srb import config
from llama_srb.bundled import CHECKOUT
from llama_srb.config import OPTIONS, OWNED_FLAGS, Settings, SettingsError, load, poly, split_arguments
from llama_srb.config.rows import Rows
from llama_srb.config.tables import FIELDS
from llama_srb.memory.tables import FIELDS as MEMORY_FIELDS
from llama_srb.tasks.tables import KNOWN as TASK_FIELDS
from tests.support.rows import each_row


def toml(folder: Path, text: str) -> str:
    path = folder / "srb.toml"
    path.write_text(text)
    return str(path)


def test_defaults_need_no_source() -> None:
    settings = load({}, environ={})
    assert (settings.host, settings.port, settings.n, settings.parallel) == ("127.0.0.1", 9090, 8, 32)
    assert settings.model == CHECKOUT / "models" / "storyteller.gguf"
    assert settings.engine == CHECKOUT / "build" / "bin" / "llama-batched"


def test_command_line_beats_environment_beats_file(tmp_path: Path) -> None:
    file = toml(tmp_path, "port = 1\nn = 2\nmax-body = '3K'\n")
    settings = load(
        {"port": "4", "n": None}, config=file, environ={"LLAMA_SRB_PORT": "5", "LLAMA_SRB_N": "6"}
    )
    assert (settings.port, settings.n, settings.max_body) == (4, 6, 3072)


def test_the_environment_may_name_the_file(tmp_path: Path) -> None:
    assert load({}, environ={"LLAMA_SRB_CONFIG": toml(tmp_path, "n = 3")}).n == 3


def test_paths_in_a_file_are_relative_to_its_folder(tmp_path: Path) -> None:
    assert load({}, config=toml(tmp_path, 'model = "m.gguf"'), environ={}).model == tmp_path / "m.gguf"
    assert load({}, config=toml(tmp_path, 'prefix_cache = "kv"'), environ={}).prefix_cache == tmp_path / "kv"


def test_a_path_may_begin_with_a_tilde() -> None:
    assert load({}, environ={"LLAMA_SRB_MODEL": "~/m.gguf"}).model == Path.home() / "m.gguf"


VALUES = [
    ("max_body", "16MiB", 16 << 20),
    ("max_body", "64m", 64 << 20),
    ("cache_ram", "2g", 2 << 30),
    ("max_body", "1000", 1000),
    ("strict", "yes", True),
    ("strict", "0", False),
    ("cors", "http://a, http://b", ("http://a", "http://b")),
    ("cors", ["http://a"], ("http://a",)),
    ("engine_args", "-t 4 --lora 'a b.gguf'", ("-t", "4", "--lora", "a b.gguf")),
    ("keep_alive", "0.5", 0.5),
    ("ctx", "4096", 4096),
    ("unload_after", "10m", 600.0),
    ("unload_after", "1.5 h", 5400.0),
    ("unload_after", 30, 30.0),
    ("unload_after", "never", None),
    ("models_memory", "12GiB", 12 << 30),
    ("sampling", '{"temperature": 0.9}', {"temperature": 0.9}),
    ("sampling", {"temperature": 0.9}, {"temperature": 0.9}),
    ("adapters", "a = x.gguf, b=/y.gguf", {"a": Path("x.gguf"), "b": Path("/y.gguf")}),
]


@each_row(("name", "written", "value"), VALUES)
def test_values_may_have_units_and_several_forms(name: str, written: object, value: object) -> None:
    assert getattr(load({name: written}, environ={}), name) == value


REFUSALS: list[tuple[dict[str, object], dict[str, str], str]] = [
    ({"port": "99999"}, {}, "--port is '99999'; it must be less than or equal to 65535"),
    ({"port": "x"}, {}, "--port is 'x'; it must be a whole number"),
    ({"n": "0"}, {}, "--n is '0'; it must be greater than or equal to 1"),
    ({"n": "9", "max_n": "8"}, {}, "--n is 9; it must be at most --max-n, 8"),
    ({"keep_alive": "nan"}, {}, "--keep-alive is 'nan'; it must be a finite number"),
    ({"strict": "maybe"}, {}, "--strict is 'maybe'; it must be true or false"),
    ({"max_body": "16 potatoes"}, {}, "--max-body is '16 potatoes'; it must be a whole number"),
    ({"engine_mode": "one"}, {}, "--engine-mode is 'one'; it must be 'resident' or 'per-request'"),
    (
        {"unload_after": "soon"},
        {},
        "--unload-after is 'soon'; it must be a time as 30s, 10m, 2h or 1d, or never",
    ),
    ({"unload_after": "0"}, {}, "--unload-after is 0.0; it must be greater than 0"),
    (
        {"sampling": "[1]"},
        {},
        """--sampling is '[1]'; it must be an object of JSON, as {"temperature": 0.9}""",
    ),
    ({"adapters": "x.gguf"}, {}, "--adapters is 'x.gguf'; it must be NAME=FILE, with commas between several"),
    ({}, {"LLAMA_SRB_PORT": "-1"}, "LLAMA_SRB_PORT is '-1'; it must be greater than or equal to 0"),
    (
        {},
        {"LLAMA_SRB_MODLE": "x"},
        "LLAMA_SRB_MODLE in the environment is not a setting; did you mean LLAMA_SRB_MODEL?",
    ),
]


@each_row(("options", "environ", "message"), REFUSALS, ids=lambda value: repr(value)[:40])
def test_a_refusal_names_the_option_as_it_was_written(
    options: dict[str, object], environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        load(options, environ=environ)
    assert str(caught.value) == message


def test_a_default_yields_to_a_given_setting(tmp_path: Path) -> None:
    fewer, more = load({"max_n": "4"}, environ={}), load({}, environ={"LLAMA_SRB_N": "2000"})
    assert [(s.n, s.max_n) for s in (fewer, more)] == [(4, 4), (2000, 2000)]
    assert load({"max_n": "16"}, environ={}).n == 8
    assert load({"n": "16"}, environ={}).max_n == 1024
    file = toml(tmp_path, "max_n = 4")
    with pytest.raises(SettingsError, match=f"LLAMA_SRB_N is 5; it must be at most max_n in {file}, 4"):
        load({}, config=file, environ={"LLAMA_SRB_N": "5"})


FILES = [
    ("prot = 1", "prot in {file} is not a setting; did you mean port?"),
    ("port = 99999", "port in {file} is 99999; it must be less than or equal to 65535"),
    ("port = ", "{file} is not TOML: "),
]


@pytest.mark.parametrize(("text", "message"), FILES)
def test_a_refusal_names_the_file(tmp_path: Path, text: str, message: str) -> None:
    file = toml(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load({}, config=file, environ={})
    assert str(caught.value).startswith(message.format(file=file))


TWICE = [
    ("port = 8080\nmodel = 'a.gguf'\n", "port: 8080\nmodel: a.gguf\n"),
    ("n = 4\nmax_n = 32\nstrict = true\n", "n: 4\nmax-n: 0x20\nstrict: true\nctx:\n"),
    (
        "[models.no]\npath = 'a.gguf'\nsampling = { top_p = 1e-1, stop = ['on', '1:30', '2026-01-01'] }\n"
        "[models.b]\npath = 'b.gguf'\nsampling = { top_p = 1e-1, stop = ['on', '1:30', '2026-01-01'] }\n",
        "models:\n  no:\n    path: a.gguf\n    sampling: &s {top_p: 1e-1, stop: [on, 1:30, 2026-01-01]}\n"
        "  b: {path: b.gguf, sampling: *s}\n",
    ),
    (
        "[models.a]\npath = 'a.gguf'\n[tasks.t]\nprelude = \"x\\n\"\nn = 3\nrecall = { memory = 'm' }\n"
        "[memories.m]\nstore = { file = 'm.db' }\n",
        "models: {a: {path: a.gguf}}\ntasks:\n  t:\n    prelude: |\n      x\n    n: 3\n"
        "    recall: {memory: m}\n"
        "memories: {m: {store: {file: m.db}}}\n",
    ),
    ("", ""),
]


@each_row(("in_toml", "in_yaml"), TWICE, ids=repr)
def test_yaml_says_the_same_as_toml(tmp_path: Path, in_toml: str, in_yaml: str) -> None:
    file, other = toml(tmp_path, in_toml), tmp_path / "srb.YAML"
    other.write_text(in_yaml)
    found = [load({}, config=str(name), environ={}) for name in (file, other)]
    assert repr(found[0]).replace(str(file), str(other)) == repr(found[1])
    assert load({}, environ={"LLAMA_SRB_CONFIG": str(other)}) == found[1]


NO_YAML = [
    ("prot: 1", "prot in {file} is not a setting; did you mean port?"),
    ("port: 99999", "port in {file} is 99999; it must be less than or equal to 65535"),
    ("port: [", "cannot read {file} as YAML: while parsing"),
    ("- port", "cannot read {file} as YAML: it is a list; it must be a table"),
    ("1: port", "cannot read {file} as YAML: the name 1 is no text"),
    ("port: 1\nport: 2", "cannot read {file} as YAML: the name port is there twice"),
    ("port: !!python/name:os.system", "cannot read {file} as YAML: could not determine a constructor"),
]


@each_row(("text", "message"), NO_YAML, ids=repr)
def test_a_refusal_names_the_yaml_file(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "srb.yml"
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        load({}, config=str(file), environ={})
    assert str(caught.value).startswith(message.format(file=file))


def test_without_pyyaml_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "srb.yaml"
    file.write_text("port: 1")
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(SettingsError, match=r"pip install 'llama-srb\[yaml\]'"):
        load({}, config=str(file), environ={})


POLYS = """
bind_address = "0.0.0.0:3000"
allowed_keys = ["a"]
max_concurrent = 4
[models.dutch]
model_path = "dutch.bin"
architecture = "gpt2"
use_gpu = true
threads_per_session = 8
context_size = 512
[memories.near]
store = { hora = { path = "near.index" } }
dimensions = 3200
chunk_max_tokens = 255
[tasks.tell]
model = "dutch"
prelude = "You tell stories."
prefix = "Q: "
postfix = " A: "
stop_sequences = ["Q:"]
biaser = { json_schema = { type = "boolean" } }
samplers = ["mirostat1:n_vocab=32000"]
memorization = { memory = "near", store_prompts = true, retrieve = 2 }
"""
DIFFERENT = [
    "bind_address: host", "allowed_keys: api_key_file", "max_concurrent: parallel",
    "models.dutch.model_path: path",
    "models.dutch.architecture: leave it out", 'models.dutch.use_gpu: engine_args = ["-ngl"',
    'models.dutch.threads_per_session: engine_args = ["-t"', "models.dutch.context_size: ctx",
    "memories.near.store.hora: store = { file", "memories.near.dimensions: leave it out",
    "memories.near.chunk_max_tokens: chunk_tokens", "tasks.tell.stop_sequences: stop",
    "tasks.tell.biaser: json_schema", "tasks.tell.samplers: the fields", "tasks.tell.memorization: recall",
]  # fmt: skip


def test_all_that_poly_calls_otherwise_is_told_at_once_with_the_names_here(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, config=str(toml(tmp_path, POLYS)), environ={})
    about, *lines = str(caught.value).split("\n  ")
    assert "names of Poly's configuration" in about
    pairs = zip(sorted(lines), sorted(DIFFERENT), strict=True)
    assert [(line, start) for line, start in pairs if not line.startswith(start)] == []


def test_no_name_of_poly_s_is_one_of_ours() -> None:
    assert poly.TOP.keys() & Rows.model_fields.keys() == set()
    assert poly.TABLES["models"].keys() & FIELDS.keys() == set()
    assert poly.TABLES["memories"].keys() & MEMORY_FIELDS.keys() == set()
    assert poly.TABLES["tasks"].keys() & set(TASK_FIELDS) == set()


@pytest.mark.parametrize("name", ["missing.toml", "."])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(SettingsError, match="cannot read"):
        load({}, config=str(tmp_path / name), environ={})


def test_other_variables_of_ours_are_no_settings() -> None:
    load({}, environ={"LLAMA_SRB_CACHE": "/tmp", "PATH": "/bin", "LLAMA_SRB_PORT": ""})


def test_the_engine_is_called_with_our_settings_first() -> None:
    settings = load({"engine": "e", "model": "m", "parallel": 2, "engine_args": ("-t", "4")}, environ={})
    assert settings.engine_command == ("e", "-m", "m", "-np", "2", "--cache-ram", str(4 << 30), "-t", "4")


def test_the_engine_gets_the_folder_for_prefixes() -> None:
    given = {
        "ctx": 99,
        "cache_cells": 0,
        "cache_ram": "1G",
        "prefix_cache": "~/kv",
        "prefix_cache_size": "3M",
    }
    command = " ".join(load(given, environ={}).engine_command)
    assert "-c 99 --cache-cells 0 --cache-ram 1073741824 --prefix-cache" in command
    assert command.endswith(f"{Path.home()}/kv --prefix-cache-size 3145728")


def test_the_engine_gets_the_folder_for_packed_weights() -> None:
    command = load({"packed_weights": "~/packed"}, environ={}).engine_command
    assert command[-2:] == ("--packed-weights", f"{Path.home()}/packed")


def test_a_logits_processor_needs_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load({"logits_processor": "own:make"}, environ={}).logits_processor == "own:make"
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(SettingsError, match=r"pip install 'llama-srb\[processor\]'"):
        load({"logits_processor": "own:make"}, environ={})


@each_row("flag", [*OWNED_FLAGS, "--ctx-size=9", "--ctx_size"])
def test_engine_flags_that_are_settings_are_refused(flag: str) -> None:
    with pytest.raises(SettingsError, match="after --") as caught:
        load({"engine_args": ("-t", "4", flag)}, environ={})
    assert flag in str(caught.value)


def test_arguments_after_two_dashes_go_to_the_engine() -> None:
    assert split_arguments(["--n", "3", "--", "-t", "4", "--", "x"]) == (["--n", "3"], ("-t", "4", "--", "x"))
    assert split_arguments(["--n", "3"]) == (["--n", "3"], None)


def test_settings_of_a_program_become_variables_and_are_read_again() -> None:
    given = {
        "adapters": {"a": "/x.gguf", "b": "/y.gguf"},
        "sampling": {"temperature": 0.5, "stop": ["a, b"]},
        "engine_args": ("-t", "4 5"),
        "unload_after": 90,
        "alias": None,
    }
    environ = {
        name: value for name, value in config.environment(given).items() if name.startswith("LLAMA_SRB")
    }
    settings = load({}, environ=environ)
    assert settings == load(given, environ={})
    assert (settings.sampling, settings.unload_after) == (given["sampling"], 90.0)


def test_every_setting_has_an_option_and_a_help_text() -> None:
    made = {"name", "in_folder", "models", "tasks", "memories"}  # of the tables of a file, or of a folder
    assert {option.name for option in OPTIONS} | {"engine_args"} | made == set(Settings.model_fields)
    assert all(option.meaning for option in OPTIONS)
    assert all(option.flag not in config.NOT_SETTINGS for option in OPTIONS)


KINDS = {
    "--model": "FILE",
    "--api-key-file": "FILE",
    "--prefix-cache": "DIR",
    "--host": "TEXT",
    "--jwt-issuer": "TEXT",
    "--port": "NUMBER",
    "--cache-ram": "SIZE",
    "--request-timeout": "SECONDS",
}


def test_an_option_says_what_kind_of_value_it_takes() -> None:
    """The help shows it, and shells complete the names of files."""
    kinds = {option.flag: option.kind for option in OPTIONS}
    assert {flag: kinds[flag] for flag in KINDS} == KINDS
