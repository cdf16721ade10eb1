"""Benchmarks: how answers of the compared servers are read, and how figures are computed from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import peers, report, run
from benchmarks.answers import Answer, answer_of, bench_table, messages
from benchmarks.report import Figure, Sample
from benchmarks.sides.table import SIDES

FRAMES = b"""data: {"event": "start", "count": 2, "prompt_tokens": 5, "cached_tokens": 4}

data: {"event": "stream", "index": 0, "text": "a"}

data: {"event": "stream", "index": 1, "text": "b"}

data: {"event": "stream", "index": 0, "text": "c"}

data: {"event": "stop", "index": 0, "length": 2, "stop": 0}

data: {"event": "stream", "index": 1, "text": "d"}

data: {"event": "stop", "index": 1, "length": 3, "stop": 0}

: a comment

data: {"event": "done", "count": 2}

"""
THEIRS = b"""data: {"index":0,"content":"a","stop":false}

data: {"index":1,"content":"b","stop":false}

data: {"index":0,"content":"c","stop":false}

data: {"index":0,"content":"","stop":true,"tokens_predicted":2,"timings":{"cache_n":4}}

data: {"index":1,"content":"d","stop":false}

data: {"index":1,"content":"","stop":true,"tokens_predicted":3,"timings":{"cache_n":4}}

"""
LINES = FRAMES.replace(b"data: ", b"").replace(b"\n\n", b"\n")


def read_at(data: bytes, size: int) -> list[tuple[float, bytes]]:
    """Pairs of a time and a piece of data, one a second."""
    return [(float(i), data[i * size : (i + 1) * size]) for i in range(-(-len(data) // size))]


@pytest.mark.parametrize("data", [FRAMES, THEIRS, LINES], ids=["frames", "llama-server", "lines"])
def test_an_answer_is_read_the_same_from_every_server(data: bytes) -> None:
    ends = [data.index(text) + len(text) for text in (b'"a"', b'"b"', b'"c"', b'"d"')]
    steps = [data[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]
    answer = answer_of(10.0, [(10.5 + i, step) for i, step in enumerate(steps)], n=2)
    assert answer == Answer({0: [1.5, 3.5], 1: [2.5, 4.5]}, {0: 2, 1: 3}, cached_tokens=4)
    assert (answer.first, answer.last, answer.rate) == (1.5, 4.5, 1.0)
    assert answer.gaps == [2.0, 2.0]


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_messages_have_the_time_of_the_read_that_completed_them(size: int) -> None:
    found = list(messages(read_at(FRAMES, size)))
    assert [message["event"] for _, message in found][-3:] == ["stream", "stop", "done"]
    ends = [i for i in range(len(FRAMES)) if FRAMES[i : i + 1] == b"\n" and FRAMES[i - 1 : i] == b"}"]
    assert [at for at, _ in found] == [end // size for end in ends]


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b'data: {"event": "error", "message": "no cells"}\n\n', "no cells"),
        (b'data: {"error": {"message": "too long"}}\n\n', "too long"),
        (LINES.rpartition(b'{"event": "stop"')[0], "1 of 2 sequences"),
    ],
)
def test_a_failed_request_makes_no_figure(data: bytes, says: str) -> None:
    with pytest.raises(RuntimeError, match=says):
        answer_of(0.0, [(1.0, data)], n=2)


def test_the_bare_loops_table_is_read_by_its_column_heads() -> None:
    text = """
main: n_kv_max = 2048

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   512 |     16 |    8 |    640 |    1.606 |   318.83 |    1.125 |   113.76 |    2.731 |   234.34 |
"""
    (row,) = bench_table(text)
    assert (row["PP"], row["B"], row["S_PP t/s"], row["S_TG t/s"]) == (512, 8, 318.83, 113.76)


@pytest.mark.parametrize(("percent", "value"), [(50, 50), (99, 99), (100, 100), (0, 1)])
def test_percentile(percent: float, value: float) -> None:
    assert report.percentile([float(i) for i in range(100, 0, -1)], percent) == value


def samples(side: str, *values: float, run: int = 1) -> list[Sample]:
    return [Sample("decode", "m:1:8", side, run, i, {"decode": value}) for i, value in enumerate(values)]


def test_ratios_are_of_runs_in_the_same_round() -> None:
    figure = Figure([*samples("ours", 10, 1, 4), *samples("server", 5, 2)], "decode", "decode")
    assert figure.median("m:1:8", "ours") == 4
    assert figure.ratio("m:1:8", "ours", "server") == (10 / 5 + 1 / 2) / 2


def test_servers_without_a_common_round_are_compared_by_their_medians() -> None:
    figure = Figure([*samples("ours", 6, run=1), *samples("server", 2, 3, 4, run=2)], "decode", "decode")
    assert figure.ratio("m:1:8", "ours", "server") == 2
    assert figure.ratio("m:1:8", "ours", "bare") is None


def test_the_table_has_the_measured_figures() -> None:
    labels = {name: side.label for name, side in SIDES.items()}
    text = report.tables([*samples("ours", 1234.5), *samples("server", 617.25)], labels)
    assert text.splitlines()[2:] == [
        "| model:prompt:n | llama-srb | llama-server | llama-srb / llama-server |",
        "| --- | --- | --- | --- |",
        "| m:1:8 | 1,234 | 617 | 2.00 |",
    ]


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.0, "0"), (0.01234, "0.0123"), (9.876, "9.88"), (12345.6, "12,346")]
)
def test_numbers_are_shown_with_three_digits(value: float | None, text: str) -> None:
    assert report.shown(value) == text


def test_the_tree_of_objects_is_named_by_the_binarys_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setenv("LLAMA_SRB_CACHE", str(tmp_path / "cache"))
    tree = tmp_path / "cache/objects/0123456789abcdef-AMX"
    tree.mkdir(parents=True)
    (tmp_path / "build/bin").mkdir(parents=True)
    (tmp_path / "build/bin/stamp").write_text(f"0123456789abcdef0123 abcd {tree.name}\n")
    (tree / "CMakeCache.txt").write_text("CMAKE_C_FLAGS:STRING=\nCMAKE_CXX_FLAGS:STRING=-O1 -mno-amx-tile\n")
    assert peers.objects() == tree
    assert dict(peers.TAKEN.findall((tree / "CMakeCache.txt").read_text())) == {
        "CMAKE_CXX_FLAGS": "-O1 -mno-amx-tile"
    }


def test_only_files_that_differ_are_copied(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    wanted = {"same": "1", "changed": "2", "new": "3"}
    for folder, texts in ((source, wanted), (target, {"same": "1", "changed": "0", "gone": "4"})):
        (folder / "in").mkdir(parents=True)
        for name, text in texts.items():
            (folder / "in" / name).write_text(text)
    before = (target / "in/same").stat().st_mtime_ns
    peers.copy_changed(source, target)
    assert {path.name: path.read_text() for path in (target / "in").iterdir()} == wanted
    assert (target / "in/same").stat().st_mtime_ns == before


def test_the_files_that_a_patch_changes_and_adds_are_read_from_it(tmp_path: Path) -> None:
    patch = tmp_path / "0001-x.patch"
    patch.write_text("""Why: so

--- a/src/old.cpp
+++ b/src/old.cpp
@@ -1,1 +1,2 @@
 int one;
+int two;
--- a/src/new.h
+++ b/src/new.h
@@ -0,0 +1 @@
+int three;
""")
    assert (peers.changes(patch), peers.adds(patch)) == ({"src/old.cpp", "src/new.h"}, {"src/new.h"})


def test_rows_are_named_by_their_model_prompt_n_and_settings() -> None:
    names = [row.name for row in run.rows_of("decode", None)]
    assert {"0.5b:512:8", "gemma-270m:512:8:top_p"} <= set(names)
    assert len(set(names)) == len(names)
    own = [row.name for row in run.rows_of("decode", "models/a.b.gguf")]
    assert {"a.b:512:8", "a.b:512:8:top_p"} <= set(own)
    assert len(set(own)) == len(own)
