"""Models by name: from tables of the file, variables, files and folders to the settings of each model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from llama_srb.bundled import CHECKOUT
from llama_srb.config import Settings, SettingsError, changes, load, tables
from llama_srb.models import defaults
from llama_srb.models.served import share_engines
from tests.support.rows import each_row

EXAMPLE_OF_THE_DOCS = """
default_model = "storyteller"
models_memory = "12GiB"
[models.storyteller]
path = "models/storyteller.gguf"       # or "hf:user/repo:Q4_K_M"
aliases = ["gpt-3.5-turbo"]
ctx = 16384
unload_after = "10m"                   # or "never"
preload = true
sampling = { temperature = 0.9 }       # this model's defaults
engine_args = ["-ngl", "99"]
[models.storyteller.adapters]
pirate = "adapters/pirate.gguf"
"""


def loaded(
    folder: Path,
    text: str | None,
    options: dict[str, Any] | None = None,
    environ: dict[str, str] | None = None,
    files: Sequence[str] = (),
    more_flags: Sequence[str] = (),
) -> Settings:
    """Settings with this text as file; FOLDER in options and variables is the file's folder."""
    file = folder / "srb.toml"
    file.write_text(text or "")
    options, environ = (
        {name: value.replace("FOLDER", str(folder)) if isinstance(value, str) else value
         for name, value in (given or {}).items()}
        for given in (options, environ)
    )  # fmt: skip
    config = None if text is None else str(file)
    return load(options, config=config, environ=environ, files=files, more_flags=more_flags)


def test_a_table_is_the_settings_of_a_model(tmp_path: Path) -> None:
    settings = loaded(tmp_path, EXAMPLE_OF_THE_DOCS)
    assert (settings.default_model, settings.models_memory, settings.name) == ("storyteller", 12 << 30, "")
    assert settings.model == CHECKOUT / "models" / "storyteller.gguf"
    [model] = settings.served
    assert settings.models == (model,)
    assert model == settings.default
    assert model.model == tmp_path / "models" / "storyteller.gguf"
    assert model.model_names == ("storyteller", "gpt-3.5-turbo")
    assert (model.name, model.ctx, model.unload_after, model.preload) == ("storyteller", 16384, 600.0, True)
    assert (model.field_defaults, model.engine_args) == ({"temperature": 0.9}, ("-ngl", "99"))
    assert model.adapters == {"pirate": tmp_path / "adapters" / "pirate.gguf"}


def test_one_model_without_a_table_is_served_as_it_was(tmp_path: Path) -> None:
    settings = loaded(tmp_path, "n = 3")
    assert (settings.models, settings.served, settings.default) == ((), (settings,), settings)


def test_the_top_level_has_the_defaults_of_the_tables(tmp_path: Path) -> None:
    text = """
        ctx = 100
        n = 4
        unload_after = "1h"
        sampling = { temperature = 0.5, top_k = 3 }
        [models.a]
        path = "a.gguf"
        [models.b]
        path = "hf:u/b"
        ctx = 200
        max_n = 2
        unload_after = "never"
        sampling = { temperature = 0.9 }
        engine_args = ["--temp", "0.1", "-t", "4"]
    """
    a, b = loaded(tmp_path, text, more_flags=["-t", "2"]).models
    assert [(m.ctx, m.n, m.max_n, m.unload_after) for m in (a, b)] == [
        (100, 4, 1024, 3600.0),
        (200, 2, 2, None),
    ]
    assert [m.field_defaults for m in (a, b)] == [
        {"temperature": 0.5, "top_k": 3}, {"temperature": 0.9, "top_k": 3},
    ]  # fmt: skip
    assert [m.engine_args for m in (a, b)] == [("-t", "2"), ("-t", "2", "--temp", "0.1", "-t", "4")]
    assert [str(m.model) for m in (a, b)] == [str(tmp_path / "a.gguf"), "hf:u/b"]


def test_a_flag_of_the_server_may_need_one_of_each_model(tmp_path: Path) -> None:
    kinds = 'engine_args = ["--spec-type", "draft-simple"]\n'
    model = '[models.a]\npath = "a.gguf"\nengine_args = ["-md", "small.gguf"]\n'
    assert loaded(tmp_path, kinds + model).models[0].field_defaults == {"draft": True}
    with pytest.raises(SettingsError, match="--spec-type draft-simple needs --spec-draft-model"):
        loaded(tmp_path, kinds + model + '[models.b]\npath = "b.gguf"\n')


def test_the_default_model_may_be_named_by_an_alias_or_an_adapter(tmp_path: Path) -> None:
    tables = '[models.a]\npath = "a"\n[models.b]\npath = "b"\naliases = "x"\nadapters = { y = "y" }\n'
    found = [loaded(tmp_path, top + tables).default.name for top in (
        "", 'default_model = "b"\n', 'default_model = "x"\n', 'default_model = "y"\n',
    )]  # fmt: skip
    assert found == ["a", "b", "b", "b"]


ONE = '[models.a]\npath = "a.gguf"\n'
TWO = ONE + '[models."b.c-d"]\npath = "b.gguf"\n'
VARIABLES: list[tuple[dict[str, str], str, object]] = [
    ({"LLAMA_SRB_MODELS__A__CTX": "7"}, "ctx", [7, None]),
    ({"LLAMA_SRB_MODELS__a__CTX": "7"}, "ctx", [7, None]),
    ({"LLAMA_SRB_MODELS__B_C_D__CTX": "7", "LLAMA_SRB_CTX": "5"}, "ctx", [5, 7]),
    ({"LLAMA_SRB_MODELS__A__PREFIX_CACHE_SIZE": "1K"}, "prefix_cache_size", [1024, 16 << 30]),
    ({"LLAMA_SRB_MODELS__A__ALIASES": "x, y z"}, "alias", [("x", "y z"), ()]),
    ({"LLAMA_SRB_MODELS__A__PATH": "z.gguf"}, "model", [Path("z.gguf"), Path("{folder}/b.gguf")]),
    ({"LLAMA_SRB_MODELS__A__SAMPLING": '{"seed": 1}'}, "sampling", [{"seed": 1}, {}]),
    ({"LLAMA_SRB_MODELS__A__ADAPTERS": "p=q.gguf"}, "adapters", [{"p": Path("q.gguf")}, {}]),
    ({"LLAMA_SRB_MODELS__NEW__PATH": "z.gguf", "LLAMA_SRB_MODELS__NEW__CTX": "9"}, "ctx", [None, None, 9]),
    ({"LLAMA_SRB_MODELS__NEW__PATH": "z.gguf"}, "name", ["a", "b.c-d", "new"]),
    ({"LLAMA_SRB_MODELS__A__CTX": ""}, "ctx", [None, None]),
]


@each_row(("environ", "name", "values"), VARIABLES, ids=lambda value: str(value)[:50])
def test_variables_change_and_add_models(
    tmp_path: Path, environ: dict[str, str], name: str, values: list[object]
) -> None:
    found = [getattr(model, name) for model in loaded(tmp_path, TWO, environ=environ).models]
    assert str(found) == str(values).replace("{folder}", str(tmp_path))


def test_variables_alone_may_name_a_model(tmp_path: Path) -> None:
    [model] = loaded(tmp_path, None, environ={"LLAMA_SRB_MODELS__TINY__PATH": "t.gguf"}).models
    assert (model.name, model.model) == ("tiny", Path("t.gguf"))


Refusal = tuple[str, dict[str, str], str]
FIELDS: list[Refusal] = [
    (ONE + "ctxx = 1", {}, "models.a.ctxx in FILE is not a setting of a model; did you mean ctx?"),
    (ONE + "model = 'x'", {}, "models.a.model in FILE is not a setting of a model; did you mean path?"),
    (ONE + "alias = 'x'", {}, "models.a.alias in FILE is not a setting of a model; did you mean aliases?"),
    (ONE + "qwertz = 'x'", {}, "models.a.qwertz in FILE is not a setting of a model"),
    (
        ONE + "port = 1",
        {},
        "models.a.port in FILE is a setting of the server; write port at the top level of the file, "
        "above the first [table]",
    ),
    (
        ONE + "cache_ram = '1G'",
        {},
        "models.a.cache_ram in FILE is a setting of the server; write cache_ram at the top level of the "
        "file, above the first [table]",
    ),
    (
        "[models.llama3.1]\npath = 'x'",
        {},
        "models.llama3.1 in FILE is not a setting of a model; a model's name with a dot has quotation marks: "
        '[models."llama3.1"]',
    ),
    ('[models."a b"]\nctx = 1', {}, 'models."a b" has no path; write path = "FILE.gguf" or "hf:USER/REPO"'),
    ("[models]", {}, "[models] of the --config file is empty; write a table [models.NAME]"),
    ("models = 5", {}, "models in FILE is 5; it must be tables, [models.NAME]"),
    ("[models]\na = 'x.gguf'", {}, "models.a in FILE is 'x.gguf'; it must be a table of settings"),
    ("modles = 5", {}, "modles in FILE is not a setting; did you mean models?"),
    (ONE + "ctx = 0", {}, "models.a.ctx in FILE is 0; it must be greater than or equal to 1"),
    (
        ONE + "unload_after = 'x'",
        {},
        "models.a.unload_after in FILE is 'x'; it must be a time as 30s, 10m, 2h or 1d, or never",
    ),
    (ONE + "tags = 5", {}, "models.a.tags in FILE is 5; it must be a list"),
    (ONE + "sampling = 5", {}, "models.a.sampling in FILE is 5; it must be a table"),
    (ONE + "[models.a.adapters]\nx = 5", {}, "models.a.adapters.x in FILE is 5; it must be a path"),
    (ONE + "n = 9\nmax_n = 8", {}, "models.a.n in FILE is 9; it must be at most models.a.max_n in FILE, 8"),
    ("max_n = 8\n" + ONE + "n = 9", {}, "models.a.n in FILE is 9; it must be at most max_n in FILE, 8"),
    (
        ONE + "engine_args = ['--port', '1']",
        {},
        "models.a.engine_args in FILE: --port after -- is a setting of the server; use --port",
    ),
    (
        ONE + "engine_args = ['-t', '2', '-nglx', '3']",
        {},
        "models.a.engine_args in FILE: -nglx is no flag of llama.cpp; did you mean -ngl?",
    ),
    (
        ONE + "adapters = { x = 'a:b' }",
        {},
        "models.a.adapters.x in FILE is 'FOLDER/a:b'; it must be a path without : , and \"",
    ),
]
VARIABLE_FAULTS: list[Refusal] = [
    (
        ONE,
        {"LLAMA_SRB_MODELS__A__CTXX": "1"},
        "LLAMA_SRB_MODELS__A__CTXX in the environment is not a setting of a model; "
        "did you mean LLAMA_SRB_MODELS__A__CTX?",
    ),
    (
        ONE,
        {"LLAMA_SRB_MODELS__A__PORT": "1"},
        "LLAMA_SRB_MODELS__A__PORT in the environment is a setting of the server; use LLAMA_SRB_PORT",
    ),
    (ONE, {"LLAMA_SRB_MODELS__A__CTX": "x"}, "LLAMA_SRB_MODELS__A__CTX is 'x'; it must be a whole number"),
    (
        '[models.teller]\npath = "x"',
        {"LLAMA_SRB_MODELS__TELER__CTX": "1"},
        "LLAMA_SRB_MODELS__TELER__CTX in the environment is for a model TELER, which there is not; "
        "did you mean TELLER?",
    ),
    (
        ONE,
        {"LLAMA_SRB_MODELS__CTX": "1"},
        "LLAMA_SRB_MODELS__CTX in the environment is for a model without a name, which there is not",
    ),
    (
        '[models.a-b]\npath = "x"\n[models.a_b]\npath = "y"',
        {"LLAMA_SRB_MODELS__A_B__CTX": "1"},
        "LLAMA_SRB_MODELS__A_B__CTX in the environment is for each of the models a-b, a_b; "
        "set it in their tables",
    ),
]
NAMES: list[Refusal] = [
    (TWO + "aliases = ['a']", {}, "'a' is the name of models.a and an alias of models.\"b.c-d\""),
    (
        TWO + "adapters = { x = 'x' }\n[models.e]\npath = 'e'\naliases = 'x'",
        {},
        "'x' is an adapter of models.\"b.c-d\" and an alias of models.e; a name stands for one model",
    ),
    ("adapters = { x = 'x' }\n" + TWO, {}, "'x' is an adapter of models.a and an adapter of models."),
    (ONE + "adapters = { a = 'x' }", {}, "'a' is the name of models.a and an adapter of models.a"),
    ('[models.""]\npath = "x"', {}, 'models."".path in FILE is for a model whose name is empty'),
    (ONE + "aliases = ['x?']", {}, "'x?' cannot be an alias of models.a: it has '?'; it may not have"),
    (ONE + "aliases = \"x\\ny\"", {}, "'x\\ny' cannot be an alias of models.a: it has a character that"),
    (ONE + "aliases = ['/x']", {}, "'/x' cannot be an alias of models.a: it may not begin or end with a"),
    (ONE + "aliases = ['x/../y']", {}, "'x/../y' cannot be an alias of models.a: it may not begin or end"),
    (ONE + f"aliases = ['{'x' * 201}']", {}, f"'{'x' * 201}' cannot be an alias of models.a: it has 201"),
    ("adapters = { 'x,' = 'x' }", {}, "'x,' cannot be an adapter of the model: it has ','"),
    ("default_model = 'stroy'\n[models.story]\npath = 'x'", {},
     "default_model in FILE is 'stroy'; it must be one of story; did you mean story?"),
    ("default_model = 'x'", {}, "default_model in FILE is 'x'; it must be the name of a table [models.NAME]"),
]  # fmt: skip


@each_row(("text", "environ", "message"), [*FIELDS, *VARIABLE_FAULTS, *NAMES])
def test_a_fault_is_named_with_its_place(
    tmp_path: Path, text: str, environ: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text, environ=environ)
    said = str(caught.value).replace(str(tmp_path / "srb.toml"), "FILE").replace(str(tmp_path), "FOLDER")
    assert said.startswith(message)
    assert "\n" not in said


def test_names_of_a_hub_with_a_slash_and_colon_are_names(tmp_path: Path) -> None:
    text = '[models."user/repo:Q4_K_M"]\npath = "hf:user/repo"\naliases = ["Märchen erzählt", "a@b+c"]'
    [model] = loaded(tmp_path, text).models
    assert model.model_names == ("user/repo:Q4_K_M", "Märchen erzählt", "a@b+c")


def folder_of(tmp_path: Path, *names: str) -> Path:
    for name in names:
        path = tmp_path / "models" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return tmp_path / "models"


IN_A_FOLDER = (
    "tiny.gguf", "mmproj-tiny.gguf", "tiny.mmproj.gguf", "mtp-tiny.gguf", "notes.txt",
    "vision/vision-Q8.gguf", "vision/mmproj-F16.gguf",
    "large/large-00001-of-00002.gguf", "large/large-00002-of-00002.gguf",
    "flat-00001-of-00002.gguf", "flat-00002-of-00002.gguf", "empty/readme.md", "deep/deeper/x.gguf",
)  # fmt: skip


def test_a_folder_of_models_is_read_as_llama_servers_router_reads_it(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, *IN_A_FOLDER)
    settings = loaded(tmp_path, "models_dir = 'models'")
    assert {model.name: str(model.model.relative_to(folder)) for model in settings.models} == {
        "flat": "flat-00001-of-00002.gguf",
        "large": "large/large-00001-of-00002.gguf",
        "tiny": "tiny.gguf",
        "vision": "vision/vision-Q8.gguf",
    }


def test_a_table_without_a_path_is_for_the_model_of_the_folder(tmp_path: Path) -> None:
    folder_of(tmp_path, "a.gguf", "b.gguf")
    text = "[models.b]\nctx = 5\n[models.c]\npath = 'c.gguf'\n"
    environ = {"LLAMA_SRB_MODELS__A__CTX": "4"}
    settings = loaded(tmp_path, text, {"models_dir": "FOLDER/models"}, environ)
    assert [(model.name, model.ctx) for model in settings.models] == [("b", 5), ("c", None), ("a", 4)]
    assert [model.in_folder for model in settings.models] == [True, False, True]


def test_files_of_the_command_line_are_models_by_their_stems(tmp_path: Path) -> None:
    files = ["x/a.gguf", "hf:user/b:Q8_0", "c-00001-of-00003.gguf"]
    settings = loaded(tmp_path, "model = 'other.gguf'", files=files)
    assert [(model.name, str(model.model)) for model in settings.models] == [
        ("a", "x/a.gguf"), ("user/b:Q8_0", "hf:user/b:Q8_0"), ("c", "c-00001-of-00003.gguf"),
    ]  # fmt: skip


def test_one_file_of_the_command_line_is_the_model(tmp_path: Path) -> None:
    for text in (None, "model = 'other.gguf'\nalias = 'x'"):
        settings = loaded(tmp_path, text, files=["x/a.gguf"])
        assert (settings.models, settings.model) == ((), Path("x/a.gguf"))


SEVERAL: list[tuple[str | None, dict[str, Any], dict[str, str], list[str], str]] = [
    (ONE, {"model": "x.gguf"}, {}, [], "--model is for a server of one model, but there are models by name"),
    (ONE, {}, {"LLAMA_SRB_MODEL": "x"}, [], "LLAMA_SRB_MODEL is for a server of one model, but there are"),
    ("model = 'x'\n" + ONE, {}, {}, [], "model in FILE is for a server of one model, but there are models"),
    ("alias = 'x'\n" + ONE, {}, {}, [], "alias in FILE is for a server of one model, but there are models"),
    (ONE, {}, {}, ["x.gguf"], "x.gguf and [models] of the --config file both name models; use one way"),
    (None, {"model": "y.gguf"}, {}, ["x.gguf"], "x.gguf and --model y.gguf both name a model; use one way"),
    (None, {}, {}, ["a.gguf", "b/a.gguf"], "a.gguf and b/a.gguf have the same name, a; give them names by"),
    (None, {"models_dir": "FOLDER/models", "model": "x"}, {}, [], "--model is for a server of one model"),
    (None, {"models_dir": "FOLDER/none"}, {}, [], "--models-dir is 'FOLDER/none': No such file or directory"),
    (None, {"models_dir": "FOLDER/models/e"}, {}, [], "--models-dir is 'FOLDER/models/e'; there is no GGUF"),
    (
        "models_dir = 'models'\n[models.b]\npath = 'z/b.gguf'", {}, {}, [],
        "models.b.path in FILE is 'FOLDER/z/b.gguf', but FOLDER/models/b.gguf has the same name, b;",
    ),
    ("models_dir = 'models'\n[models.q]\nctx = 5", {}, {}, [], "models.q has no path; write path = "),
]  # fmt: skip


@each_row(("text", "options", "environ", "files", "message"), SEVERAL)
def test_two_ways_to_name_models_are_not_mixed(
    tmp_path: Path, text: str | None, options: dict[str, Any], environ: dict[str, str], files: list[str],
    message: str,
) -> None:  # fmt: skip
    folder_of(tmp_path, "b.gguf", "e/readme.md")
    with pytest.raises(SettingsError) as caught:
        loaded(tmp_path, text, options, environ, files)
    said = str(caught.value).replace(str(tmp_path / "srb.toml"), "FILE").replace(str(tmp_path), "FOLDER")
    assert said.startswith(message)


DEFAULTS = [
    (
        ONE + "sampling = { temperature = 'hot' }",
        'models.a.sampling is wrong: temperature is "hot"; it must be',
    ),
    (
        ONE + "sampling = { temprature = 1 }",
        'models.a.sampling is wrong: "temprature" is not a known field; did',
    ),
    ("sampling = { top_k = -9 }\n" + ONE, "sampling is wrong: top_k is -9; it must be"),
    (ONE + "override = { prompt = 'x' }", "models.a.override is wrong: prompt can be no override"),
    (ONE + "engine_args = ['--temp', '-7']", "a flag of llama.cpp is wrong: temperature is -7.0; it must be"),
]


@pytest.mark.parametrize(("text", "message"), DEFAULTS)
def test_defaults_of_fields_are_checked_as_those_of_a_request(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        defaults.check(loaded(tmp_path, text))
    assert str(caught.value).startswith(message)


def test_adapters_by_name_come_after_the_others_and_are_off(tmp_path: Path) -> None:
    text = ONE + "lora = ['l.gguf', 'm.gguf']\nadapters = { p = 'p.gguf', q = 'q.gguf' }"
    [model] = loaded(tmp_path, text).models
    at = model.engine_command.index("--lora")
    folder = str(tmp_path)
    assert model.engine_command[at : at + 4] == (
        "--lora", f"{folder}/l.gguf,{folder}/m.gguf", "--lora-scaled", f"{folder}/p.gguf:0,{folder}/q.gguf:0",
    )  # fmt: skip


A, B = '[models.a]\npath = "a"\n', '[models.b]\npath = "b"\n'
CHANGES: list[tuple[str, str, tuple[list[str], list[str], list[str], tuple[str, ...]]]] = [
    (A, A, ([], [], [], ())),
    (A, A + B, (["b"], [], [], ())),
    (A + B, B, ([], [], ["a"], ())),
    (A + B, B + A, ([], [], [], ())),
    (A, A + "ctx = 5", ([], ["a"], [], ())),
    (A, A + "aliases = 'x'", ([], ["a"], [], ())),
    (A, '[models.a]\npath = "c"\n', ([], ["a"], [], ())),
    ("ctx = 5\n" + A + "ctx = 6\n" + B, "ctx = 7\n" + A + "ctx = 6\n" + B, ([], ["b"], [], ())),
    ("port = 1\nmax_queue = 3\n" + A, "port = 2\nmax_queue = 4\n" + A, ([], [], [], ("port", "max_queue"))),
    ("models_max = 1\n" + A, "models_max = 2\n" + A, ([], [], [], ())),
    ("model = 'm'", A, (["a"], [], [""], ("model",))),
    ("model = 'm'", "model = 'k'\nn = 3", ([], [""], [], ("model", "n"))),
]


@each_row(("old", "new", "expected"), CHANGES)
def test_changes_of_the_sources_are_of_models_or_need_a_restart(
    tmp_path: Path, old: str, new: str, expected: object
) -> None:
    found = changes.between(loaded(tmp_path, old), loaded(tmp_path, new), live=["models_max"])
    names = [[one.name for one in models] for models in (found.added, found.removed)]
    changed = [now.name for before, now in found.changed if before.name == now.name]
    assert (names[0], changed, names[1], found.after_restart) == expected


def test_settings_that_need_a_restart_keep_their_values_in_each_model(tmp_path: Path) -> None:
    old = loaded(tmp_path, "cache_ram = 1\nmax_queue = 1\n" + A)
    new = loaded(tmp_path, "cache_ram = 2\nmax_queue = 2\nmodels_max = 2\n" + A + B)
    found = changes.with_old(new, old, ["cache_ram", "max_queue"])
    assert {(one.cache_ram, one.max_queue, one.models_max) for one in (found, *found.models)} == {(1, 1, 2)}
    assert [one.name for one in found.models] == ["a", "b"]


ENGINES: dict[str, bool] = {  # what a table has more: whether its engines stay
    "aliases = ['x']": True,
    "tags = ['x']": True,
    "n = 2": True,
    "max_n = 9": True,
    "sampling = { temperature = 0.5 }": True,
    "override = { temperature = 0.5 }": True,
    "engine_args = ['--temp', '0.5']": True,
    "unload_after = '5m'": True,
    "preload = true": True,
    "adapters_dir = 'x'": True,
    "path = 'other'": False,
    "ctx = 5": False,
    "parallel = 5": False,
    "cache_cells = 5": False,
    "prefix_cache = 'x'": False,
    "packed_weights = 'x'": False,
    "logits_processor = 'x:make'": False,
    "rerank = true": False,
    "logits_processor_timeout = 5": True,
    "lora = ['x']": False,
    "adapters = { x = 'x' }": False,
    "engine = 'x'": False,
    "engine_env = ['X']": False,
    "engine_args = ['-ngl', '9']": False,
    "engine_args = ['--chat-template', 'chatml']": False,
    "engine_mode = 'per-request'": False,
    "max_engines = 2": False,
    "prompt = 'x'": False,
    "prompt_file = 'x'": False,
    "load_timeout = 5": False,
    "step_timeout = 50": False,
}


@each_row("more", ENGINES)
def test_what_concerns_engines_needs_new_ones(tmp_path: Path, more: str) -> None:
    table = "[models.a]\n" if more.startswith("path") else A
    [old], [new] = loaded(tmp_path, A).models, loaded(tmp_path, table + more).models
    assert old != new
    assert share_engines(old, new) == ENGINES[more]


def test_a_setting_of_a_model_is_in_the_table_of_those_that_concern_engines() -> None:
    assert {more.split(" ")[0] for more in ENGINES} >= tables.FIELDS.keys() - {"prefix_cache_size"}
