"""`llama-srb config check FILE`: a line a model, or a line for each fault; it starts nothing."""

from __future__ import annotations

import re
from pathlib import Path
from textwrap import indent

import pytest

from llama_srb import config
from llama_srb.config import OPTIONS
from llama_srb.config.tables import FIELDS
from llama_srb.models import gguf_header
from tests.support.bench import Bench
from tests.support.models import write_adapter, write_model
from tests.support.places import ROOT, STORYTELLER
from tests.unit.test_model_tables import EXAMPLE_OF_THE_DOCS

EXAMPLE = ROOT / "config.example.toml"
SIZE = STORYTELLER.stat().st_size


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """A folder with a model and an adapter, as the file of the docs names them."""
    (tmp_path / "models").mkdir()
    (tmp_path / "adapters").mkdir()
    (tmp_path / "models/storyteller.gguf").symlink_to(STORYTELLER)
    write_adapter(tmp_path / "adapters/pirate.gguf", "qwen3", 0)
    return Bench(tmp_path)


def checked(bench: Bench, text: str, **environ: str) -> tuple[int, list[str], list[str]]:
    """Exit code, lines on stdout, and lines on stderr without the folder and the program's name."""
    (bench.folder / "srb.toml").write_text(text)
    done = bench.run("config", "check", "srb.toml", **environ)
    said = done.stderr.replace("llama-srb: ", "").replace(f"{bench.folder}/", "")
    return done.returncode, done.stdout.replace(f"{bench.folder}/", "").splitlines(), said.splitlines()


def test_the_file_of_the_docs_is_right(bench: Bench) -> None:
    assert indent(EXAMPLE_OF_THE_DOCS, "    ") in (ROOT / "docs/operations.md").read_text()
    when = "at the start, unloaded after 10m without requests"
    line = f"storyteller\tgpt-3.5-turbo\tmodels/storyteller.gguf\t{SIZE}\t16384\t{when}"
    assert checked(bench, EXAMPLE_OF_THE_DOCS) == (0, [line], [])


def test_the_example_is_right(bench: Bench) -> None:
    done = bench.run("config", "check", str(EXAMPLE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"storyteller\tgpt-3.5-turbo\t{ROOT}/models/storyteller.gguf\t{SIZE}\t")
    assert done.stdout.endswith("\tat the start\n")


def test_each_line_of_the_example_is_a_setting_and_each_setting_has_a_line(tmp_path: Path) -> None:
    text = re.sub(r"^# ([a-z_]+ = |\[)", r"\1", EXAMPLE.read_text(), flags=re.MULTILINE)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "storyteller.gguf").touch()
    (tmp_path / "srb.toml").write_text(text)
    settings = config.load({}, config=str(tmp_path / "srb.toml"), environ={})
    assert [model.name for model in settings.models] == ["storyteller", "llama3.1"]
    top, _, table = text.partition("\n[models.storyteller]\n")
    server = {option.name for option in OPTIONS} - set(FIELDS.values())
    assert set(re.findall(r"^(\w+) = ", top, re.MULTILINE)) == server
    first, _, second = table.split("\n[models.")  # two, since prompt and prompt_file exclude each other
    fields = set(re.findall(r"^(\w+) = ", first + second, re.MULTILINE))
    assert fields | {"adapters"} == FIELDS.keys()


def test_the_defaults_of_the_example_are_the_servers(tmp_path: Path) -> None:
    """But for the lines without a default, which show an example."""
    text = EXAMPLE.read_text()
    shown = dict(re.findall(r"^# ([a-z_]+) = (.+?) *(?:#.*)?$", text, re.MULTILINE))
    rows = {option.name: option.default for option in OPTIONS if option.default not in (None, ())}
    names = sorted((shown.keys() & rows.keys()) - {"engine"})
    (tmp_path / "srb.toml").write_text("".join(f"{name} = {shown[name]}\n" for name in names))
    given, default = (
        config.load({}, config=str(tmp_path / "srb.toml"), environ={}),
        config.load({}, environ={}),
    )
    assert len(names) > 20
    assert {name: getattr(given, name) for name in names} == {name: getattr(default, name) for name in names}


def test_a_line_for_each_model_says_when_it_is_loaded(bench: Bench) -> None:
    write_model(bench.folder / "tiny.gguf", "qwen3")
    text = """
        [models.a]
        path = "models/storyteller.gguf"
        [models."b c"]
        path = "tiny.gguf"
        unload_after = 90
        [models.c]
        path = "hf:user/repo"
    """
    code, lines, said = checked(bench, text, LLAMA_SRB_CACHE=str(bench.folder / "cache"))
    size = (bench.folder / "tiny.gguf").stat().st_size
    contexts = [gguf_header.read(path).context for path in (STORYTELLER, bench.folder / "tiny.gguf")]
    asked = "when a request asks for it"
    assert code == 0
    assert [line.split("\t") for line in lines] == [
        ["a", "", "models/storyteller.gguf", str(SIZE), str(contexts[0]), asked],
        [
            "b c",
            "",
            "tiny.gguf",
            str(size),
            str(contexts[1]),
            f"{asked}, unloaded after 90s without requests",
        ],
        ["c", "", "hf:user/repo", "", "", asked],
    ]
    assert said == [
        "hf:user/repo:Q4_K_M is not downloaded; llama-srb models pull hf:user/repo:Q4_K_M does that, "
        "else serve when it starts"
    ]


def test_one_model_without_a_table_is_checked_too(bench: Bench) -> None:
    code, lines, said = checked(bench, 'model = "models/storyteller.gguf"\nalias = "a,b"')
    assert (code, said) == (0, [])
    assert lines[0].startswith(f"a\tb,storyteller,storyteller.gguf\tmodels/storyteller.gguf\t{SIZE}\t")
    assert lines[0].endswith("\tat the start")


ONE = '[models.a]\npath = "models/storyteller.gguf"\n'
FAULTS = [
    ("port = 99999", ["port in srb.toml is 99999; it must be less than or equal to 65535"]),
    (ONE + "ctxx = 1", ["models.a.ctxx in srb.toml is not a setting of a model; did you mean ctx?"]),
    (ONE + "sampling = { temperature = 'x' }",
     ['models.a.sampling is wrong: temperature is "x"; it must be a number between 0 and 100']),
    ("model = 'none.gguf'", ["model: none.gguf: there is no such file"]),
    ("[models.a]\npath = 'hf:nothing'\n", [
        "models.a.path: 'hf:nothing' is no name of a hub; write hf:USER/REPO, hf:USER/REPO:Q8_0 or "
        "hf:USER/REPO:FILE.gguf"]),
    ("[models.a]\npath = 'adapters/pirate.gguf'\n",
     ["models.a.path: adapters/pirate.gguf is an adapter, not a model"]),
    (ONE + "lora = ['srb.toml', 'models/storyteller.gguf']\nadapters_dir = 'none'\n"
     "[models.a.adapters]\nx = 'x.gguf'\n[models.b]\npath = 'b.gguf'", [
        "models.a.lora: srb.toml: not a GGUF file",
        "models.a.lora: models/storyteller.gguf is not an adapter",
        "models.a.adapters.x: x.gguf: there is no such file",
        "models.a.adapters_dir: none is no folder",
        "models.b.path: b.gguf: there is no such file"]),
    ("[models.a]\npath = 'a-00001-of-00002.gguf'",
     ["models.a.path: a-00002-of-00002.gguf: there is no such file"]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "faults"), FAULTS)
def test_faults_are_lines_on_stderr_with_exit_code_2(bench: Bench, text: str, faults: list[str]) -> None:
    (bench.folder / "a-00001-of-00002.gguf").symlink_to(STORYTELLER)
    assert checked(bench, text) == (2, [], faults)


def test_variables_are_not_used(bench: Bench) -> None:
    code, lines, _ = checked(bench, ONE, LLAMA_SRB_MODEL="x.gguf", LLAMA_SRB_MODELS__Q__CTX="1")
    assert (code, len(lines)) == (0, 1)
    assert not bench.journal.exists()
