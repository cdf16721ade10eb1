"""`llama-srb memory`, with the real engine and the bundled model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support import forked
from tests.support.models import write_model
from tests.support.places import STORYTELLER

CAT = "The cat sleeps on the warm roof. It dreams of fish."
SETTINGS = """
ctx = 2048
[models.storyteller]
path = "{model}"
[memories.tales]
store = {{ file = "tales.db" }}
chunk_tokens = {tokens}
"""


class Folder:
    """A folder with settings, in which commands run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(STORYTELLER)

    def set(self, model: Path, tokens: int = 16) -> None:
        (self.path / "srb.toml").write_text(SETTINGS.format(model=model, tokens=tokens))

    def memory(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, stdout, stderr."""
        command, *rest = arguments
        argv = [sys.executable, "-m", "llama_srb.cli", "memory", command, "--config", "srb.toml", *rest]
        done = forked.run(argv, cwd=self.path, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr.replace(f"{self.path}/", "")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def test_words_are_searched_without_an_engine(folder: Folder) -> None:
    (folder.path / "srb.toml").write_text(
        'model = "none.gguf"\n[memories.tales]\nstore = { file = "tales.db" }\nembedding_model = false\n'
    )
    (folder.path / "cat.md").write_text(CAT)
    assert folder.memory("put", "tales", "cat.md") == (0, "cat.md\t1\t0\n", "")
    code, out, err = folder.memory("search", "tales", "warm", "roofs")
    assert (code, out.splitlines()[1:], err) == (0, [CAT, ""], "")
    assert out.startswith("cat.md  words ")
    code, out, _ = folder.memory("search", "tales", "warm", "roofs", "--json", "-k", "1")
    found = json.loads(out)
    assert [CAT[start:end] for start, end in found["highlights"]] == ["warm", "roof"]
    code, out, _ = folder.memory("search", "tales", "waarm", "--json", "-k", "1")
    assert [CAT[start:end] for start, end in json.loads(out)["highlights"]] == ["warm"]
    (folder.path / "log.md").write_text(f"# Log\n{'A boat came. ' * 90}The barque Iris came.")
    assert folder.memory("put", "tales", "log.md")[0] == 0
    assert folder.memory("search", "tales", "Iris")[1].startswith("log.md / Log  words ")
    assert json.loads(folder.memory("search", "tales", "Iris", "--json")[1])["headings"] == ["Log"]
    with (folder.path / "srb.toml").open("a") as settings:
        settings.write('reranker = "none"\n')
    code, out, err = folder.memory("search", "tales", "Iris")
    assert (code, err) == (0, "the reranker none is asked by servers only\n")
    code, out, err = folder.memory("search", "tales", "dog")
    assert (code, out) == (1, "")
    assert 'the memory tales has found nothing for "dog"' in err
    code, _, err = folder.memory("search", "tales", "cat", "--by", "meaning")
    assert code == 2
    assert "has no embedding model" in err


def test_files_are_put_listed_and_removed(folder: Folder) -> None:
    (folder.path / "docs").mkdir()
    (folder.path / "docs/cat.md").write_text(CAT)
    (folder.path / "page.html").write_text("<p>The ship sails.</p>")
    code, out, err = folder.memory("put", "tales", "docs/cat.md", "page.html", "--metadata", '{"year": 1900}')
    assert (code, err) == (0, "")
    ids, chunks, embedded = zip(*(line.split("\t") for line in out.splitlines()), strict=True)
    assert (ids, chunks) == (("docs/cat.md", "page.html"), embedded)
    assert folder.memory("list") == (0, "tales\n", "")
    rows = [line.split("\t") for line in folder.memory("list", "tales")[1].splitlines()]
    assert [(row[0], row[2], row[4], row[5]) for row in rows] == [
        ("docs/cat.md", str(len(CAT)), "", '{"year": 1900}'),
        ("page.html", "15", "", '{"year": 1900}'),
    ]
    assert folder.memory("rm", "tales", "page.html") == (0, "", "")
    assert [line.split("\t")[0] for line in folder.memory("list", "tales")[1].splitlines()] == ["docs/cat.md"]


def test_a_memory_of_another_model_says_how_to_rebuild_it_and_is_rebuilt(folder: Folder) -> None:
    (folder.path / "cat.md").write_text(CAT)
    assert folder.memory("put", "tales", "cat.md")[0] == 0
    other = folder.path / "other.gguf"
    write_model(other, "qwen3")
    folder.set(other, tokens=32)
    code, _, err = folder.memory("put", "tales", "cat.md")
    assert code == 2
    assert "use the first model, or run llama-srb memory rebuild tales" in err
    code, _, err = folder.memory("rebuild", "tales")
    assert (code, err) == (0, "llama-srb: tales: 1 texts were computed by storyteller\n")
    assert folder.memory("put", "tales", "cat.md")[0] == 0
    folder.set(STORYTELLER)
    assert folder.memory("list", "tales")[0] == 2, "now it is the other model's"


def test_a_copy_of_the_model_is_the_same_model(folder: Folder) -> None:
    (folder.path / "cat.md").write_text(CAT)
    assert folder.memory("put", "tales", "cat.md")[0] == 0
    copy = folder.path / "copy.gguf"
    copy.write_bytes(STORYTELLER.read_bytes())
    folder.set(copy)
    assert folder.memory("put", "tales", "cat.md")[1] == "cat.md\t1\t0\n"
    changed = bytearray(STORYTELLER.read_bytes())
    changed[len(changed) // 2 :] = bytes(len(changed) - len(changed) // 2)
    copy.write_bytes(changed)
    assert folder.memory("list", "tales")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("put", "tails", "cat.md"), 'no memory "tails"; the configuration (--config FILE) has tales'),
        (("put", "tales", "none.md"), "cannot read none.md: No such file or directory"),
        (("put", "tales", "tales.db"), "tales.db: the name must end with .txt, .md, "),
        (("put", "tales", "empty.md"), "empty.md: the document cannot be read: it has no text"),
        (("put", "tales", "cat.md", "--metadata", "{"), "--metadata is not JSON: "),
        (("put", "tales", "cat.md", "--metadata", "[]"), "metadata is []; it must be an object"),
        (("put", "tales", "cat.md", "cat.md", "--id", "x"), "--id is for one file."),
    ],
)
def test_a_wrong_call_is_one_line(folder: Folder, arguments: tuple[str, ...], says: str) -> None:
    (folder.path / "cat.md").write_text(CAT)
    (folder.path / "empty.md").write_text(" ")
    code, out, err = folder.memory(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), err
    assert says in err


def test_a_document_that_is_not_there_cannot_be_removed(folder: Folder) -> None:
    said = "llama-srb: the memory tales has no document x of the operator\n"
    assert folder.memory("rm", "tales", "x") == (1, "", said)
