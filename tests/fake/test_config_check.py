"""`llama-srb config check FILE`: a line a model, or a line for each fault; it starts nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llama_srb import config
from llama_srb.config import OPTIONS
from llama_srb.config.tables import FIELDS
from llama_srb.memory.tables import FIELDS as MEMORY_FIELDS
from llama_srb.models import gguf_header
from llama_srb.request.fields import CANONICAL
from llama_srb.tasks.tables import OWN
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
    assert EXAMPLE_OF_THE_DOCS in (ROOT / "docs/settings.md").read_text()
    when = "at the start, unloaded after 10m without requests"
    line = f"storyteller\tgpt-3.5-turbo\tmodels/storyteller.gguf\t{SIZE}\t16384\t{when}"
    assert checked(bench, EXAMPLE_OF_THE_DOCS) == (0, [line], [])


def test_a_file_of_a_folder_that_would_be_left_out_is_a_line_and_no_fault(bench: Bench) -> None:
    (bench.folder / "models/cut.gguf").write_bytes(STORYTELLER.read_bytes()[:1000])
    cut = "models/cut.gguf: the file is truncated (1,000 bytes); download it again"
    code, lines, said = checked(bench, 'models_dir = "models"')
    assert (code, len(lines), said) == (0, 1, [f"a model of --models-dir is left out: {cut}"])
    assert checked(bench, 'models_dir = "models"\ndefault_model = "cut"') == (
        2,
        [],
        [f"models.cut.path: {cut}"],
    )


BLOCK = """
[models.storyteller]
path = "models/storyteller.gguf"

[models.minilm]
path = "models/storyteller.gguf"

[memories.bible]
embedding_model = "minilm"                 # a generation model may embed, too
store = { file = "data/bible.db" }         # or { qdrant = { url = …, collection = "bible" } }
chunk_tokens = 200
chunk_overlap = 40

[tasks.continue_story]
model = "storyteller"
prelude = "…"             # once a session, a pinned prefix
prefix = "\\n### User:\\n"
postfix = "\\n### Response:\\n"
n = 8
temperature = 0.9
stop = ["###"]
locked = ["n"]
private_tokens = ["<|secret|>"]
bias_prompt = "As JSON:"   # answer freely first, then go on under the schema, all n
json_schema = { type = "object" }          # or json_schema_file = "answer.json"
recall = { memory = "bible", retrieve = 2, store_prompts = true }
"""


def test_tasks_and_memories_are_checked(bench: Bench) -> None:
    code, lines, said = checked(bench, BLOCK)
    about = r"storyteller: the preludes of continue_story need about 1 of about \d+ tokens, as long as .*"
    assert (code, len(lines), len(said)) == (0, 2, 1)
    assert re.fullmatch(about, said[0])
    for wrong, fault in (
        ('model = "storytelle"', "tasks.continue_story.model in srb.toml is 'storytelle'; there is no such "
         "model; did you mean storyteller?"),
        ("temprature = 0.9", "tasks.continue_story.temprature in srb.toml is not a field of a task; did you "
         "mean temperature?"),
        ('recall = { memory = "babel" }', "tasks.continue_story.recall.memory in srb.toml is 'babel'; there "
         "is no table [memories.babel]; did you mean bible?"),
    ):  # fmt: skip
        key = wrong.split(" = ")[0].replace("temprature", "temperature")
        text = re.sub(rf"^{key} = .*$", wrong, BLOCK, flags=re.MULTILINE)
        assert checked(bench, text) == (2, [], [fault])
    words = re.sub(r"^embedding_model = .*$", "embedding_model = false", BLOCK, flags=re.MULTILINE)
    lacks = "the memory bible has no embedding model"
    for more, why in (
        ('search = "meaning"', f'search is "meaning", but {lacks}: "words" is possible'),
        ("post_filter = { score = { gt = 0.1 } }", f"post_filter has a score, but {lacks}"),
    ):
        text = words.replace('{ memory = "bible",', f'{{ memory = "bible", {more},')
        assert checked(bench, text) == (2, [], [f"tasks.continue_story.recall: {why}"])


PRELUDES = [  # of tasks, with a context of 100 tokens; the tokens that they are estimated to need
    (["a" * 199], 50),
    (["a" * 100, "b" * 92], 50),
    (["a" * 199, "a" * 199], 50),
    (["a" * 204], 52),
]


@pytest.mark.parametrize(("preludes", "tokens"), PRELUDES)
def test_a_line_estimates_what_preludes_need_and_whether_it_is_too_much(
    bench: Bench, preludes: list[str], tokens: int
) -> None:
    tasks = "".join(f"[tasks.t{i}]\nprelude = '{text}'\n" for i, text in enumerate(preludes))
    text = f"model = 'models/storyteller.gguf'\nctx = 100\n{tasks}"
    code, _, said = checked(bench, text)
    assert code == 0, "it is an estimate: only the engine counts"
    assert f"need about {tokens} of its 100 tokens" in said[0]
    assert ("more than half of them are refused" in said[0]) == (tokens > 50)
    assert checked(bench, "engine_mode = 'per-request'\n" + text)[2] == []


def test_memories_are_checked_with_their_models_and_files(bench: Bench) -> None:
    (bench.folder / "other.db").write_bytes(b"no database" * 100)
    block = "[memories.{0}]\nstore = {{ file = '{0}.db' }}\n"
    assert checked(bench, ONE + block.format("new")) == (0, checked(bench, ONE)[1], [])
    assert not (bench.folder / "new.db").exists(), "a check makes nothing"
    text = ONE + block.format("long") + "chunk_tokens = 1017\n" + block.format("other")
    assert checked(bench, text) == (2, [], [
        "memories.long.chunk_tokens is 1017; it must be at most 1016: its embedding model, a, takes 1024 "
        "tokens",
        "memory other: cannot use other.db: file is not a database",
    ])  # fmt: skip


def test_the_example_is_right(bench: Bench) -> None:
    done = bench.run("config", "check", str(EXAMPLE))
    assert done.returncode == 0
    assert done.stderr.startswith("llama-srb: storyteller: the preludes of continue_story need about ")
    assert done.stdout.startswith(f"storyteller\tgpt-3.5-turbo\t{ROOT}/models/storyteller.gguf\t{SIZE}\t")
    assert done.stdout.endswith("\tat the start\n")


def test_each_line_of_the_example_is_a_setting_and_each_setting_has_a_line(tmp_path: Path) -> None:
    example, _, task = EXAMPLE.read_text().partition("\n[tasks.continue_story]\n")
    text = re.sub(r"^# ([a-z_]+ = |\[)", r"\1", example, flags=re.MULTILINE)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "storyteller.gguf").touch()
    (tmp_path / "srb.toml").write_text(text)
    settings = config.load({}, config=str(tmp_path / "srb.toml"), environ={})
    assert [model.name for model in settings.models] == ["storyteller", "llama3.1"]
    top, _, tables = text.partition("\n[models.storyteller]\n")
    table, _, memory = tables.partition("\n[memories.bible]\n")
    server = {option.name for option in OPTIONS} - set(FIELDS.values())
    assert set(re.findall(r"^(\w+) = ", top, re.MULTILINE)) == server
    first, _, second = table.split("\n[models.")  # two, since prompt and prompt_file exclude each other
    fields = set(re.findall(r"^(\w+) = ", first + second, re.MULTILINE))
    assert fields | {"adapters"} == FIELDS.keys()
    assert set(re.findall(r"^(\w+) = ", memory, re.MULTILINE)) == MEMORY_FIELDS.keys()
    lines = set(re.findall(r"^(?:# )?(\w+) = ", task.partition("\n# For one model")[0], re.MULTILINE))
    assert lines >= OWN.keys()
    assert lines - OWN.keys() <= CANONICAL.keys()


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
