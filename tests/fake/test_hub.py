"""`--model hf:…` and `llama-srb models pull, list, rm`, with huggingface_hub and a hub on loopback."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.models.cache import HubError, HubName, name_from
from llama_srb.models.hub import _File, choose
from tests.support.bench import Bench, plain
from tests.support.hub import Hub, running
from tests.support.places import STORYTELLER
from tests.support.rows import each_row

MODEL = STORYTELLER.read_bytes()
LARGE = MODEL * 5  # 24 MB: huggingface_hub writes 10 MiB at a time
NAME = "hf:ann/tales:Q4_K_M"
TOKEN = "hf_secretsecretsecret"


class HubBench(Bench):
    """A bench whose commands have the hub of a test, and a cache of their own."""

    hub: Hub

    @property
    def environ(self) -> dict[str, str]:
        theirs = {key: value for key, value in super().environ.items() if not key.startswith("HF_")}
        return theirs | {
            "HF_ENDPOINT": self.hub.url,
            "HF_HOME": str(self.folder / "hf"),
            "LLAMA_SRB_CACHE": str(self.folder / "cache"),
        }

    @property
    def place(self) -> Path:
        return self.folder / "cache/hub/ann/tales"

    def pull(self, name: str = "ann/tales", **environ: str) -> subprocess.CompletedProcess[str]:
        return self.run("models", "pull", name, **environ)

    def kept(self) -> dict[str, Path]:
        rows = json.loads(self.run("models", "list", "--json").stdout)
        return {row["name"]: Path(row["path"]) for row in rows}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[HubBench]:
    bench = HubBench(tmp_path)
    repository = {
        "README.md": b"a card",
        "mmproj-tales-Q4_K_M.gguf": b"a projector",
        "tales-Q4_K_M.gguf": MODEL,
        "tales-Q8_0.gguf": LARGE,
    }
    with running(Hub({"ann/tales": repository})) as bench.hub:
        yield bench


# A download


def test_a_model_is_downloaded_and_served_by_its_name(bench: HubBench) -> None:
    with bench.serving("--model", "hf:ann/tales") as (_, line):
        assert line.startswith("http://127.0.0.1:")
    assert bench.kept() == {NAME: bench.place / "tales-Q4_K_M.gguf"}
    assert (bench.place / "tales-Q4_K_M.gguf").read_bytes() == MODEL
    assert [request.path.split("/")[-1] for request in bench.hub.stored] == ["tales-Q4_K_M.gguf"]


def test_llama_servers_flag_names_a_model_of_a_hub(bench: HubBench) -> None:
    with bench.serving("-hf", "ann/tales:q4_k_m") as (_, line):
        assert line.startswith("http://127.0.0.1:")
    assert bench.kept().keys() == {NAME}


def test_a_config_file_names_a_model_of_a_hub(bench: HubBench) -> None:
    (bench.folder / "srb.toml").write_text(f'model = "{NAME}"\n')
    ended = bench.run("complete", "Once", "--config", "srb.toml")
    assert ended.returncode == 0, ended.stderr
    assert bench.kept().keys() == {NAME}


def test_models_of_tables_are_downloaded_when_the_server_starts(bench: HubBench) -> None:
    (bench.folder / "srb.toml").write_text(f'[models.tales]\npath = "{NAME}"\n')
    ended = bench.run("serve", "--config", "srb.toml", "--offline")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "ann/tales" in ended.stderr
    checked = bench.run("config", "check", "srb.toml")
    assert (checked.returncode, checked.stdout) == (0, f"tales\t\t{NAME}\t\t\tat the start\n")
    assert bench.hub.asked == []
    with bench.serving("--config", "srb.toml") as (_, line):
        assert line.startswith("http://127.0.0.1:")
    assert bench.kept().keys() == {NAME}
    bench.hub.asked.clear()
    with bench.serving("--config", "srb.toml", "--offline") as (_, line):
        assert line.startswith("http://127.0.0.1:")
    assert bench.hub.asked == []
    checked = bench.run("config", "check", "srb.toml")
    assert checked.stdout.startswith(f"tales\t\t{NAME}\t{len(MODEL)}\t")


CHECKED = "SIGHUP: keys, presets and model were checked"


def test_sighup_downloads_a_new_model_or_changes_nothing(bench: HubBench) -> None:
    file, tale = bench.folder / "srb.toml", f'[models.tale]\npath = "{STORYTELLER}"\n'
    file.write_text(tale)
    with bench.serving("--config", "srb.toml") as (process, line):
        assert process.stderr is not None

        def reload(name: str) -> tuple[str, list[str]]:
            """The lines of the log; the models."""
            file.write_text(f'{tale}[models.new]\npath = "{name}"\n')
            process.send_signal(signal.SIGHUP)
            said = "".join(itertools.takewhile(lambda one: CHECKED not in one, process.stderr or ()))
            with urllib.request.urlopen(f"{line.split()[0]}/v1/models") as answer:
                return said, [one["id"] for one in json.load(answer)["data"]]

        said, models = reload("hf:ann/none")
        assert "models, tasks and memories stay as they were: " in said
        assert "ann/none" in said
        assert models == ["tale"]
        said, models = reload(NAME)
        assert f"downloading tales-Q4_K_M.gguf ({len(MODEL)} bytes)" in said
        assert "SIGHUP: models: added new" in said
        assert models == ["tale", "new"]
    assert bench.kept().keys() == {NAME}


def test_a_terminal_shows_the_progress(bench: HubBench) -> None:
    code, output = bench.on_terminal("models", "pull", "ann/tales:Q8_0", size=(200, 24))
    assert code == 0
    assert "downloading tales-Q8_0.gguf" in plain(output)
    assert "23.3/23.3 MiB" in plain(output)


def test_a_pipe_gets_a_line_for_each_step_and_the_path(bench: HubBench) -> None:
    ended = bench.pull()
    assert ended.stdout == f"{bench.place / 'tales-Q4_K_M.gguf'}\n"
    first, second = ended.stderr.splitlines()
    assert first == f"llama-srb: downloading tales-Q4_K_M.gguf ({len(MODEL):,} bytes)"
    assert second.startswith("llama-srb: checking tales-Q4_K_M.gguf.")


def test_all_parts_of_a_split_file_are_downloaded(bench: HubBench) -> None:
    parts = [f"Q4_K_M/tales-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    bench.hub.repositories["ann/split"] = {part: MODEL + part.encode() for part in parts}
    ended = bench.pull("ann/split")
    first = Path(ended.stdout.strip())
    assert first == bench.folder / "cache/hub/ann/split" / parts[0]
    assert [path.name for path in sorted(first.parent.iterdir())] == [Path(part).name for part in parts]


def test_a_newer_version_is_downloaded_by_pull_alone(bench: HubBench) -> None:
    assert bench.pull().returncode == 0
    bench.hub.repositories["ann/tales"]["tales-Q4_K_M.gguf"] = newer = MODEL + b"newer"
    assert bench.run("complete", "Once", "--model", NAME).returncode == 0
    assert bench.kept()[NAME].read_bytes() == MODEL
    assert bench.pull().returncode == 0
    assert bench.kept()[NAME].read_bytes() == newer
    assert bench.pull().returncode == 0
    assert len(bench.hub.stored) == 2


def test_a_model_never_has_files_of_two_versions(bench: HubBench) -> None:
    parts = [f"tales-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
    bench.hub.repositories["ann/tales"] = dict.fromkeys(parts, MODEL)
    assert bench.pull().returncode == 0
    bench.hub.repositories["ann/tales"] = dict.fromkeys(parts, MODEL + b"newer")
    bench.hub.checksums = {parts[1]: "00" * 32}
    assert bench.pull().returncode == 2
    assert [(bench.place / part).read_bytes() == MODEL for part in parts] == [True, True]
    assert bench.run("complete", "Once", "--model", NAME, "--offline").returncode == 0
    bench.hub.checksums = {}
    assert bench.pull().returncode == 0
    assert {(bench.place / part).read_bytes() for part in parts} == {MODEL + b"newer"}
    assert len(bench.hub.stored) == 5  # the first part of the newer version is downloaded once


# What goes wrong


def test_a_cut_connection_is_opened_again_where_it_ended(bench: HubBench) -> None:
    bench.hub.cuts = [11 << 20]
    ended = bench.pull("ann/tales:Q8_0")
    assert ended.returncode == 0, ended.stderr
    assert Path(ended.stdout.strip()).read_bytes() == LARGE
    assert bench.hub.ranges == [None, f"bytes={10 << 20}-"]


def test_a_full_disk_keeps_what_is_there_and_the_next_run_goes_on(bench: HubBench) -> None:
    limited = [
        "sh",
        "-c",
        'ulimit -f 30000; exec "$@"',
        "sh",
        *bench.command("models", "pull", "ann/tales:Q8_0"),
    ]
    ended = subprocess.run(
        limited, env=bench.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 2
    assert "no room in" in ended.stderr
    assert bench.kept() == {}
    (part,) = bench.place.glob("*.part")
    there = part.stat().st_size
    assert 10 << 20 <= there < len(LARGE)
    ended = bench.pull("ann/tales:Q8_0")
    assert ended.returncode == 0, ended.stderr
    assert bench.hub.ranges == [None, f"bytes={there}-"]
    assert bench.kept()["hf:ann/tales:Q8_0"].read_bytes() == LARGE
    assert list(bench.place.glob("*.part")) == []


def test_a_file_with_another_checksum_is_removed(bench: HubBench) -> None:
    bench.hub.checksums = {"tales-Q4_K_M.gguf": "00" * 32}
    ended = bench.run("complete", "Once", "--model", NAME)
    assert ended.returncode == 2
    assert "was removed: its SHA-256 is" in ended.stderr
    assert bench.kept() == {}
    assert list(bench.place.glob("*.gguf*")) == []
    assert bench.engines() == set()


def test_a_file_that_was_changed_is_checked_again(bench: HubBench) -> None:
    path = Path(bench.pull().stdout.strip())
    os.utime(path)
    assert bench.run("complete", "Once", "--model", NAME).returncode == 0
    path.write_bytes(MODEL[:-1] + b"x")
    ended = bench.run("complete", "Once", "--model", NAME)
    assert ended.returncode == 2
    assert "was removed: its SHA-256 is" in ended.stderr
    assert not path.exists()


REFUSALS = [
    (Hub({}), "ann/tales", "has no ann/tales, or it is private"),
    (Hub({"ann/tales": {}}, token="another"), "ann/tales", "set HF_TOKEN to a token that may read it"),
    (
        Hub({"ann/tales": {}}, token="another", gated=True),
        "ann/tales",
        "ann/tales is gated: accept its terms",
    ),
    (Hub({"ann/tales": {}}), "ann/tales", "no model is Q4_K_M in ann/tales, which has no model"),
    (Hub({"a/b": {"b-Q8_0.gguf": b""}}), "a/b", "no model is Q4_K_M in a/b, which has b-Q8_0.gguf; name one"),
    (Hub({"a/b": {"../b-Q4_K_M.gguf": b""}}), "a/b", "no model is Q4_K_M"),
]


@each_row(("hub", "name", "message"), REFUSALS, ids=[row[2] for row in REFUSALS])
def test_a_refusal_is_one_line(tmp_path: Path, hub: Hub, name: str, message: str) -> None:
    bench = HubBench(tmp_path)
    with running(hub) as bench.hub:
        ended = bench.pull(name, HF_TOKEN=TOKEN)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith("llama-srb: ")
    assert message in line
    assert TOKEN not in line


GGUF = "tales-Q4_K_M.gguf"
NESTED = b'{"siblings": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
MISBEHAVES: list[tuple[dict[str, Any], str]] = [
    ({"listing": b"<html>Sign in to this network</html>"}, "does not answer as a hub does"),
    ({"listing": b'{"id": "ann/tales", "siblings": 5}'}, "does not answer as a hub does"),
    ({"listing": b'{"id": "ann/tales", "siblings": [{"rfilename": 5}]}'}, "does not answer as a hub does"),
    ({"listing": NESTED}, "does not answer as a hub does"),
    ({"sizes": {GGUF: "many"}}, f"the size of {GGUF} is 'many'"),
    ({"sizes": {GGUF: -1}}, f"the size of {GGUF} is '-1'"),
    ({"checksums": {GGUF: "a/b"}}, f"the SHA-256 of {GGUF} is 'a/b'"),
    ({"repositories": {"ann/tales": {"a\0-Q4_K_M.gguf": b""}}}, "no model is Q4_K_M"),
    ({"repositories": {"ann/tales": {"\x1b[2J-Q8_0.gguf": b""}}}, "which has no model"),
    ({"sizes": {GGUF: 100}}, f"sends more of {GGUF} than the 100 bytes that it has said; nothing is kept"),
    ({"sizes": {GGUF: len(MODEL) + 9}}, f"has sent {len(MODEL):,} of the {len(MODEL) + 9:,} bytes of {GGUF}"),
]


@each_row(("fault", "message"), MISBEHAVES, ids=[row[1] for row in MISBEHAVES])
def test_a_hub_that_misbehaves_is_one_line_and_nothing_is_kept(
    tmp_path: Path, fault: dict[str, Any], message: str
) -> None:
    bench = HubBench(tmp_path)
    with running(Hub(**{"repositories": {"ann/tales": {GGUF: MODEL}}, **fault})) as bench.hub:
        ended = bench.pull()
    assert ended.returncode == 2
    *steps, line = ended.stderr.splitlines()
    assert (line.startswith("llama-srb: "), message in line, line.isprintable()) == (True, True, True), line
    assert len(steps) <= 1
    assert list(tmp_path.rglob("*.gguf*")) == []


def test_a_missing_package_is_named_with_the_command_that_installs_it(bench: HubBench) -> None:
    (bench.folder / "huggingface_hub.py").write_text("raise ImportError")
    ended = bench.pull(PYTHONPATH=f"{bench.folder}:{bench.environ['PYTHONPATH']}")
    assert ended.returncode == 2
    assert ended.stderr == ("llama-srb: models of a hub need huggingface_hub: pip install 'llama-srb[hub]'\n")


# Offline


def test_a_model_that_is_there_needs_no_network_and_no_package(bench: HubBench) -> None:
    assert bench.pull().returncode == 0
    bench.hub.asked.clear()
    (bench.folder / "huggingface_hub.py").write_text("raise ImportError")
    there = {"PYTHONPATH": f"{bench.folder}:{bench.environ['PYTHONPATH']}"}
    for more in ([], ["--offline"]):
        ended = bench.run("complete", "Once", "--model", "hf:ann/tales", *more, **there)
        assert ended.returncode == 0, ended.stderr
    assert bench.hub.asked == []


def test_a_hub_that_does_not_answer_is_one_line(bench: HubBench) -> None:
    ended = bench.pull(HF_ENDPOINT="http://127.0.0.1:9")
    assert ended.returncode == 2
    assert "the connection to http://127.0.0.1:9 failed" in ended.stderr
    assert "HF_HUB_OFFLINE is set" in bench.pull(HF_HUB_OFFLINE="1").stderr


# The token


def test_the_token_reaches_the_hub_but_no_store_no_engine_and_no_log(bench: HubBench) -> None:
    bench.hub.token = TOKEN
    script = bench.engine.read_text().replace("exec", f"env >> {bench.folder}/environment\nexec")
    bench.engine.write_text(script)
    ended = bench.run("complete", "Once", "--model", NAME, HF_TOKEN=TOKEN, LLAMA_SRB_LOG_LEVEL="debug")
    assert ended.returncode == 0, ended.stderr
    assert "llama_srb" in ended.stderr
    assert bench.hub.stored
    assert all("Authorization" not in request.headers for request in bench.hub.stored)
    environment = (bench.folder / "environment").read_text()
    assert "PATH=" in environment
    files = "".join(path.read_text(errors="replace") for path in bench.place.rglob("*") if path.is_file())
    assert all(TOKEN not in text for text in (ended.stderr, ended.stdout, environment, files))


# The cache


def test_the_list_says_size_and_last_use(bench: HubBench) -> None:
    bench.pull()
    name, size, used, path = bench.run("models", "list").stdout.strip().split("\t")
    assert (name, size, path) == (NAME, str(len(MODEL)), str(bench.place / "tales-Q4_K_M.gguf"))
    assert used.endswith("Z")
    code, output = bench.on_terminal("models", "list", size=(300, 24))
    assert code == 0
    assert "4.65 MiB" in plain(output)


def test_a_model_that_is_removed_leaves_nothing(bench: HubBench) -> None:
    bench.pull()
    bench.pull("ann/tales:tales-Q4_K_M.gguf")
    assert bench.run("models", "rm", "hf:ann/tales:tales-Q4_K_M.gguf").returncode == 0
    assert bench.kept()[NAME].exists()
    assert bench.run("models", "rm", "ann/tales").returncode == 0
    assert list((bench.folder / "cache/hub").iterdir()) == []
    ended = bench.run("models", "rm", "ann/tales")
    assert ended.returncode == 2
    assert f"{NAME} is not in" in ended.stderr


def test_doctor_says_that_a_model_is_not_downloaded_and_downloads_nothing(bench: HubBench) -> None:
    asked = bench.run("doctor", "--model", "hf:ann/tales").stdout
    assert f"{NAME} is not downloaded" in asked
    assert f"llama-srb models pull {NAME}" in asked
    assert bench.hub.asked == []
    bench.pull()
    assert "is not downloaded" not in bench.run("doctor", "--model", "hf:ann/tales").stdout


# Names


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("hf:a/b", HubName("a/b", "Q4_K_M")),
        ("hf:a/b:iq4_xs", HubName("a/b", "IQ4_XS")),
        ("hf:a/b.c-GGUF:sub/d.gguf", HubName("a/b.c-GGUF", "sub/d.gguf")),
    ],
)
def test_a_name_is_read(text: str, name: HubName) -> None:
    assert name_from(text) == name


@each_row("text", ["hf:a", "hf:a/b:", "hf:../b", "hf:a/..", "hf:a/b/c", "a/b", "hf:/a/b"])
def test_no_name_is_refused(text: str) -> None:
    with pytest.raises(HubError, match="is no name of a hub"):
        name_from(text)


FILES = ["x-Q4_K_S.gguf", "x-Q4_K_M.gguf", "y.q8_0.gguf", "x-IQ4_XS.gguf", "F16/x-00001-of-00002.gguf",
         "F16/x-00002-of-00002.gguf", "z-Q5_0.gguf", "w-Q5_0.gguf", "v-Q6_K-00001-of-00002.gguf",
         "x-mmproj-BF16.gguf"]  # fmt: skip
CHOICES: list[tuple[str, list[str] | str]] = [
    ("Q4_K_M", ["x-Q4_K_M.gguf"]),
    ("Q8_0", ["y.q8_0.gguf"]),
    ("IQ4_XS", ["x-IQ4_XS.gguf"]),
    ("F16", ["F16/x-00001-of-00002.gguf", "F16/x-00002-of-00002.gguf"]),
    ("F16/x-00002-of-00002.gguf", ["F16/x-00001-of-00002.gguf", "F16/x-00002-of-00002.gguf"]),
    ("Q4_K", "no model is Q4_K"),
    ("Q5_0", "2 models are Q5_0"),
    ("Q6_K", "lacks 1 of 2 parts: v-Q6_K-00002-of-00002.gguf"),
    ("BF16", "no model is BF16"),
    ("x-mmproj-BF16.gguf", "no model is x-mmproj-BF16.gguf"),
]


@each_row(("selector", "wanted"), CHOICES, ids=[row[0] for row in CHOICES])
def test_a_selector_means_one_model(selector: str, wanted: list[str] | str) -> None:
    files = [_File(name, 1, "00") for name in FILES]
    if isinstance(wanted, list):
        assert [file.name for file in choose(HubName("a/b", selector), files)] == wanted
        return
    with pytest.raises(HubError, match=wanted):
        choose(HubName("a/b", selector), files)
