"""`llama-srb batch` as a process: what it writes, what it says, how it ends."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.batches import ids, line, read, write
from tests.support.bench import Bench, plain
from tests.support.served import key_file
from tests.support.waiting import PATIENCE


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def lines(count: int, **body: Any) -> list[dict[str, Any]]:
    return [line(f"{i}", prompt=f"Once {i % 7}", max_tokens=2, **body) for i in range(count)]


def answered(bench: Bench, name: str = "out.jsonl") -> list[str]:
    return sorted(ids(read(bench.folder / name)), key=int)


def test_a_server_of_its_own_answers_all_lines_and_is_gone(bench: Bench) -> None:
    write(bench.folder / "in.jsonl", [*lines(1100, stream=True), line("1100", "/v1/embeddings", input="x")])
    ended = bench.run("batch", "in.jsonl", "out.jsonl", LLAMA_SRB_FILES_DIR="files")
    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr
    assert not (bench.folder / "files").exists(), "another server may use that folder"
    assert answered(bench) == [str(i) for i in range(1101)]
    last = ended.stderr.splitlines()[-1]  # the others say how far it is, on a slow machine
    assert re.fullmatch(r"llama-srb: 1101 of 1101 lines in \S+ s; 2200 tokens, \d+/s", last)
    bodies = {one["custom_id"]: one["response"]["body"] for one in read(bench.folder / "out.jsonl")}
    assert {body["object"] for id, body in bodies.items() if id != "1100"} == {"text_completion"}
    assert not (bench.folder / "out.jsonl.errors.jsonl").exists()
    bench.assert_no_orphan()
    again = bench.run("batch", "in.jsonl", "out.jsonl")
    assert (again.returncode, again.stderr) == (0, "llama-srb: all 1101 lines are done: out.jsonl\n")
    assert len(bench.engines()) == 1, "nothing was started again"


def test_lines_that_fail_are_in_a_file_of_their_own_and_may_be_sent_again(bench: Bench) -> None:
    write(bench.folder / "in.jsonl", [*lines(3), line("3", prompt="x", n=0)])
    for more in ((), ("--retry-failed",)):
        ended = bench.run("batch", "in.jsonl", "out.jsonl", *more)
        assert ended.returncode == 1
        assert ended.stderr.endswith("llama-srb: 1 of 4 lines failed: out.jsonl.errors.jsonl\n")
        assert answered(bench) == ["0", "1", "2"]
        (failed,) = read(bench.folder / "out.jsonl.errors.jsonl")
        assert failed["response"]["status_code"] == 400
        assert "n is 0; it must be between 1 and" in failed["response"]["body"]["error"]["message"]
    assert "3 of 4 lines were answered before" in ended.stderr


REFUSED: list[tuple[bytes, list[str], str]] = [
    (b"{}\nx\n", [], "llama-srb: in.jsonl: line 1: it has no custom_id"),
    (b"{}\nx\n", [], "llama-srb: in.jsonl: line 2: it is not JSON"),
    (b"{}\nx\n", [], "llama-srb: in.jsonl has errors; nothing was sent\n"),
    (b"", [], "in.jsonl: the file has no lines"),
    (b"x", ["--url", "ftp://x"], "--url is 'ftp://x'; it must be an address as http://localhost:9090"),
    (b"x", ["--url", "localhost", "--ctx", "5"], "--ctx is for an engine that this command starts"),
    (b"x", ["--url", "localhost", "--", "-fa"], "Arguments after -- are for an engine"),
    (b"x", ["--concurrency", "0"], "0 is not in the range x>=1"),
    (b"x", ["--engine", "none"], "in.jsonl: line 1: it is not JSON"),
]


@pytest.mark.parametrize(("data", "options", "reason"), REFUSED, ids=lambda value: str(value)[:40])
def test_what_cannot_begin_says_why_and_leaves_nothing(
    bench: Bench, data: bytes, options: list[str], reason: str
) -> None:
    (bench.folder / "in.jsonl").write_bytes(data)
    ended = bench.run("batch", "in.jsonl", "out.jsonl", *options)
    assert ended.returncode == 2
    assert reason in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(bench.folder.glob("out*")) == []
    assert not bench.engines()


def test_an_input_that_is_not_there_is_named(bench: Bench) -> None:
    ended = bench.run("batch", "none", "out.jsonl")
    assert (ended.returncode, ended.stderr) == (2, "llama-srb: cannot read none: No such file or directory\n")


def test_an_engine_that_does_not_start_is_the_reason(bench: Bench) -> None:
    write(bench.folder / "in.jsonl", lines(3))
    ended = bench.run("batch", "in.jsonl", "out.jsonl", "--", "--exit-while-loading", "3")
    assert ended.returncode == 2
    assert "exit code 3" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert answered(bench) == []
    bench.assert_no_orphan()


def test_another_input_is_refused_until_the_output_is_another(bench: Bench) -> None:
    write(bench.folder / "in.jsonl", lines(3))
    assert bench.run("batch", "in.jsonl", "out.jsonl").returncode == 0
    write(bench.folder / "in.jsonl", lines(4))
    ended = bench.run("batch", "in.jsonl", "out.jsonl")
    assert (ended.returncode, "the input has changed since out.jsonl was begun" in ended.stderr) == (2, True)
    assert bench.run("batch", "in.jsonl", "other.jsonl").returncode == 0
    assert (answered(bench), answered(bench, "other.jsonl")) == ([*"012"], [*"0123"])


@pytest.fixture
def urls(bench: Bench) -> Iterator[list[tuple[subprocess.Popen[str], str]]]:
    """Two servers that need a key, and a slow engine."""
    keys = key_file(bench.folder / "keys", {"name": "ann", "concurrent": 2}, {"name": "bob"})
    with ExitStack() as stack:
        options = ("--api-key-file", str(keys), "--", "--token-delay", "0.02")
        servers = [stack.enter_context(bench.serving(*options)) for _ in range(2)]
        yield [(process, greeting.split()[0]) for process, greeting in servers]


def test_servers_are_asked_with_a_key_and_the_limits_of_the_key_hold(
    bench: Bench, urls: list[tuple[subprocess.Popen[str], str]]
) -> None:
    write(bench.folder / "in.jsonl", lines(12))
    (_, url), *_ = urls
    ended = bench.run("batch", "in.jsonl", "out.jsonl", "--url", url + "/v1/", "--api-key", "nobody")
    assert (ended.returncode, "refuses the key: there is no such key" in ended.stderr) == (1, True)
    ended = bench.run("batch", "in.jsonl", "out.jsonl", "--url", url, LLAMA_SRB_API_KEY="ann")
    assert (ended.returncode, len(answered(bench))) == (0, 12), ended.stderr
    assert "ann may run 2 requests at once" in ended.stderr


def test_the_lines_of_a_server_that_is_killed_go_to_the_other(
    bench: Bench, urls: list[tuple[subprocess.Popen[str], str]]
) -> None:
    write(bench.folder / "in.jsonl", lines(300))
    asked = [part for _, url in urls for part in ("--url", url)]
    command = bench.command("batch", "in.jsonl", "out.jsonl", "--api-key", "bob", *asked)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with forked.Popen(command, env=bench.environ, cwd=bench.folder, **pipes) as batch:  # type: ignore[call-overload]
        wait_for(bench, 40)
        urls[0][0].kill()
        _, told = batch.communicate(timeout=PATIENCE)
    assert (batch.returncode, len(answered(bench))) == (0, 300), told
    assert urls[0][1] in told, "it says which server was lost"


def wait_for(bench: Bench, count: int) -> None:
    """Waits until so many lines are answered."""
    out, deadline = bench.folder / "out.jsonl", time.monotonic() + PATIENCE
    while not out.exists() or out.read_bytes().count(b"\n") < count:
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_it_and_the_same_command_goes_on(bench: Bench, number: signal.Signals) -> None:
    write(bench.folder / "in.jsonl", lines(400))
    slow = ("batch", "in.jsonl", "out.jsonl", "--parallel", "4", "--", "--token-delay", "0.02")
    command = bench.command(*slow)
    with forked.Popen(command, env=bench.environ, cwd=bench.folder, stderr=subprocess.PIPE) as batch:
        wait_for(bench, 20)
        batch.send_signal(number)
        assert batch.wait(PATIENCE) == 128 + number
        assert batch.stderr
        assert b"Traceback" not in batch.stderr.read()
    before = len(answered(bench))
    assert 20 <= before < 400
    bench.assert_no_orphan()
    ended = bench.run("batch", "in.jsonl", "out.jsonl")
    assert (ended.returncode, answered(bench)) == (0, [str(i) for i in range(400)])
    assert f"{before} of 400 lines were answered before" in ended.stderr


def test_a_terminal_shows_a_bar_with_rate_and_time(bench: Bench) -> None:
    write(bench.folder / "in.jsonl", lines(60))
    slow = ("--parallel", "2", "--", "--token-delay", "0.03")
    code, output = bench.on_terminal("batch", "in.jsonl", "out.jsonl", *slow, size=(120, 24))
    shown = plain(output)
    assert code == 0
    assert re.search(r"\d+/60 [\d.]+ lines/s, \d+ tokens/s, 0:00:0\d left", shown)
    assert re.search(r"60 of 60 lines in .* tokens", shown)


def test_a_model_of_several_is_asked_by_its_name(bench: Bench) -> None:
    """With --url a name for lines that name none."""
    with bench.serving("--alias", "poet", "--strict") as (_, greeting):
        url = greeting.split()[0]
        write(bench.folder / "in.jsonl", [line("0"), line("1", prompt="x", model="other", max_tokens=1)])
        ended = bench.run("batch", "in.jsonl", "out.jsonl", "--url", url, "--model", "poet")
    assert ended.returncode == 1
    (one,) = read(bench.folder / "out.jsonl")
    assert one["response"]["body"]["model"] == "poet"
    (failed,) = read(bench.folder / "out.jsonl.errors.jsonl")
    assert json.dumps(failed["response"]).count("other") == 1
