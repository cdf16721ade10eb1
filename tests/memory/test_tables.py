"""Tables of memories: what they become, and each fault as an error at the start that says what to do."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from llama_srb.config import SettingsError, load
from llama_srb.memory import tables
from llama_srb.memory.records import Bounds, Chunking, FileStore, MemorySettings, QdrantSettings
from tests.support.rows import each_row

MODELS = """
[models.storyteller]
path = "storyteller.gguf"
aliases = ["gpt"]
[models.minilm]
path = "minilm.gguf"
adapters = { pirate = "pirate.gguf" }
"""
TABLE = """
[memories.bible]
embedding_model = "gpt"
store = { file = "data/bible.db" }
chunk_tokens = 100
chunk_separators = ["\\n\\n", "---"]
shared = true
max_documents = 7
max_prompts_size = "1MiB"
[memories.web]
embedding_model = "minilm"
store = { qdrant = { url = "http://127.0.0.1:6333", collection = "web", api_key = "k" } }
chunk_overlap = 0
[memories.local]
store = { qdrant = { url = "folder", collection = "local" } }
"""


def read(folder: Path, text: str, models: str = MODELS) -> list[MemorySettings]:
    path = folder / "srb.toml"
    path.write_text(models + text)
    return tables.read(load({}, config=str(path), environ={}))


def test_tables_become_memories(tmp_path: Path) -> None:
    assert read(tmp_path, TABLE) == [
        MemorySettings(
            "bible", "storyteller", FileStore(tmp_path / "data/bible.db"),
            Chunking(100, 20, ("\n\n", "---")), True, Bounds(documents=7, prompts_size=1 << 20),
        ),
        MemorySettings(
            "web", "minilm", QdrantSettings("http://127.0.0.1:6333", "web", "k"), Chunking(200, 0)
        ),
        MemorySettings("local", "storyteller", QdrantSettings(str(tmp_path / "folder"), "local")),
    ]  # fmt: skip


def test_a_server_of_one_model_has_memories_too(tmp_path: Path) -> None:
    one = '[memories.a]\nstore = { file = "a.db" }\n'
    assert read(tmp_path, one, "")[0].embedding_model == "storyteller"
    named = 'model = "m.gguf"\nalias = "x,y"\n'
    assert read(tmp_path, one + 'embedding_model = "y"', named)[0].embedding_model == "x"


def test_a_memory_may_have_no_model_and_a_way_to_search(tmp_path: Path) -> None:
    one = read(tmp_path, IN_A + "embedding_model = false\nsearch = 'words'")[0]
    assert (one.embedding_model, one.search, one.searched_by(is_made_to_embed=True)) == (
        None,
        "words",
        "words",
    )
    other = read(tmp_path, IN_A + "search = 'hybrid'")[0]
    assert (other.embedding_model, other.search) == ("storyteller", "hybrid")


IN_A = "[memories.a]\nstore = { file = 'a' }\n"
FAULTS = [
    ("[memories.a]", "memories.a has no store; write store = { file = \"a.db\" }"),
    ("[memories.'a/b']\nstore = { file = 'a' }",
     "'a/b' cannot be the name of memories.\"a/b\": it has a slash"),
    ("[memories.a]\nstor = 1",
     "memories.a.stor in srb.toml is not a field of a memory; did you mean store?"),
    ("[memories.a]\nstore = 'a.db'", 'memories.a in srb.toml: store is "a.db"; it must be a table: { file ='),
    ("[memories.a]\nstore = { sqlite = 'a' }",
     "memories.a in srb.toml: store has 'sqlite'; it must be a table"),
    ("[memories.a]\nstore = { file = 7 }", "store.file is 7; it must be a text that is not empty"),
    ("[memories.a]\nstore = { qdrant = { url = 'x' } }", "store.qdrant has no collection"),
    ("[memories.a]\nstore = { qdrant = { url = 'x', collectio = 'y' } }", "did you mean collection?"),
    (IN_A + "chunk_tokens = 7", "chunk_tokens is 7; it must be between 8 and 8192"),
    (IN_A + "chunk_tokens = 'x'", 'chunk_tokens is "x"; it must be a whole number'),
    (IN_A + "chunk_tokens = 40\nchunk_overlap = 21",
     "chunk_overlap is 21; it must be between 0 and 20"),
    (IN_A + "chunk_separators = 'x'", "chunk_separators is \"x\"; it must be a list"),
    (IN_A + "chunk_separators = ['']", "texts that are not empty"),
    (IN_A + "shared = 1", "shared is 1; it must be true or false"),
    (IN_A + "embedding_model = 'minilmm'",
     "memories.a.embedding_model in srb.toml is 'minilmm'; there is no such model; did you mean minilm?"),
    (IN_A + "embedding_model = 'pirate'", "an adapter, and vectors are made without"),
    (IN_A + "embedding_model = true", "embedding_model is true; it must be a text that is not empty"),
    (IN_A + "search = 'word'", 'search is "word"; it must be "words" or "meaning" or "hybrid"'),
    (IN_A + "embedding_model = false\nsearch = 'hybrid'",
     'memories.a.search in srb.toml: search is "hybrid", but the memory a has no embedding model'),
    (IN_A + "[memories.b]\nstore = { file = './a' }",
     "the memories a and b have one store, "),
    ("[memories]\na = 1", "memories.a in srb.toml is 1; it must be a table of settings"),
]  # fmt: skip


@each_row(("text", "says"), FAULTS, ids=range(len(FAULTS)))
def test_a_fault_names_its_place_and_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(SettingsError) as error:
        read(tmp_path, text)
    assert says in str(error.value).replace(f"{tmp_path}/", "")


def test_a_missing_package_is_an_error_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "usearch" else found(name))
    assert read(tmp_path, "") == [], "without memories nothing is needed"
    with pytest.raises(SettingsError, match=r"not installed \(usearch\): pip install 'llama-srb\[memory\]'"):
        read(tmp_path, TABLE)
