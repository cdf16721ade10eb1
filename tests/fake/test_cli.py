"""llama-srb and ./api.py as processes: their output, exit codes, and no process left behind."""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from llama_srb.models.cache import Cache, name_from
from llama_srb.request.fields import ROWS
from tests.fake_engine import story
from tests.support import forked
from tests.support.bench import Bench, plain
from tests.support.models import write_adapter
from tests.support.places import FAKE_COMMAND, ROOT, STORYTELLER
from tests.support.waiting import PATIENCE


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def make_files(folder: Path) -> None:
    (folder / "empty.gguf").touch()
    (folder / "cut.gguf").write_bytes(STORYTELLER.read_bytes()[:-1])
    (folder / "text.gguf").write_text("This is no model.")
    (folder / "plain").write_text("no program")
    (folder / "bad.toml").write_text("prot = 1")
    write_adapter(folder / "adapter.gguf", "qwen3", 0)
    for name, file in {"lost": "none.gguf", "other": "model.gguf"}.items():
        table = f'[models.a]\npath = "model.gguf"\nadapters = {{ x = "{file}" }}\n'
        (folder / f"{name}.toml").write_text(table)
    (folder / "model.gguf").symlink_to(STORYTELLER)


CANNOT_START: list[tuple[list[str], str]] = [
    (["--model", "empty.gguf"], "empty.gguf: the file is empty"),
    (["--model", "cut.gguf"], "cut.gguf: the file is truncated"),
    (["--model", "text.gguf"], "text.gguf: not a GGUF file"),
    (["--model", "adapter.gguf"], "adapter.gguf is an adapter, not a model"),
    (["model.gguf", "adapter.gguf"], "adapter.gguf is an adapter, not a model"),
    (["--config", "lost.toml"], "none.gguf: there is no such file"),
    (["--config", "other.toml"], "model.gguf is not an adapter"),
    (["--engine", "none"], "./build.sh"),
    (["--engine", "plain"], "./build.sh"),
    (["--port", "99999"], "--port is '99999'; it must be less than or equal to 65535"),
    (["--config", "bad.toml"], "did you mean port?"),
    (["--", "-c", "5"], "-c after -- is a setting of the server; use --ctx"),
    (["--model-url", "a"], "--model-url is not possible here: download the file yourself, and name it"),
    (["--hf-file", "a"], "--hf-file is not possible here: name the file with its repository: --model hf:"),
    (["--hf-token", "a"], "--hf-token is not possible here: set the variable HF_TOKEN"),
    (["--hf-repo", "a"], "'hf:a' is no name of a hub; write hf:USER/REPO"),
    (["--hf-repo", "a/b", "--offline"], "hf:a/b:Q4_K_M is not in"),
    (["--", "--hf-repo", "a/b"], "--hf-repo after -- is a setting of the server; use --model"),
    (["--temp", "900"], "temperature is 900.0; it must be between 0 and 100"),
    (["--", "--top-k"], "--top-k needs a value"),
    (["--cache-ram", "8192"], "llama-server counts MiB: write 8192M"),
    (["--api-key-file", "plain"], "--api-key takes plain keys"),
    (["--", "--protocol", "2"], "speaks protocol 2"),
    (["--engine-mode", "per-request", "--", "--protocol", "2"], "speaks protocol 2"),
    (["--", "--exit-while-loading", "3"], "exit code 3"),
    (["--engine-mode", "per-request", "--", "--exit-while-loading", "3"], "exit code 3"),
]


@pytest.mark.parametrize(("arguments", "reason"), CANNOT_START, ids=lambda value: str(value)[:50])
def test_a_failed_start_says_why_in_one_line(bench: Bench, arguments: list[str], reason: str) -> None:
    make_files(bench.folder)
    ended = bench.run("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("llama-srb: ")
    assert ended.stderr.count("\n") == 1
    assert reason in ended.stderr
    bench.assert_no_orphan()


WRONG_USAGE = [
    (["serve", "--prot", "1"], "--port"),
    (["serve", "surplus"], "surplus"),
    (["serv"], "serve"),
]


@pytest.mark.parametrize(("arguments", "named"), WRONG_USAGE)
def test_wrong_usage_exits_with_2(bench: Bench, arguments: list[str], named: str) -> None:
    ended = bench.run(*arguments)
    assert ended.returncode == 2
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


def test_unknown_variables_are_refused(bench: Bench) -> None:
    ended = bench.run("serve", LLAMA_SRB_PROT="1")
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1)
    assert "did you mean LLAMA_SRB_PORT?" in ended.stderr


def test_help_shows_every_option(bench: Bench) -> None:
    ended = bench.run("serve", "--help")
    assert ended.returncode == 0
    for flag in ("--model", "--port", "--host", "--n", "--ctx", "--parallel", "--engine-mode", "--config"):
        assert flag in ended.stdout


@pytest.mark.parametrize("mode", ["resident", "per-request"])
def test_it_prints_its_address_and_a_curl_that_works(bench: Bench, mode: str) -> None:
    with bench.serving("--engine-mode", mode) as (process, greeting):
        address, _, curl = greeting.strip().partition("   try: ")
        assert urllib.request.urlopen(address + "/health", timeout=PATIENCE).status == 200
        if shutil.which("curl"):
            ended = subprocess.run(curl, shell=True, capture_output=True, timeout=PATIENCE, check=True)
            assert ended.stdout.startswith(b'data: {"event": "start", "count": 8')
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    bench.assert_no_orphan()


def start_stream(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=PATIENCE)
    body = b'{"prompt": "x", "max_tokens": -1}'
    client.sendall(
        b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert b"200 OK" in client.recv(100)
    return client


def read_all(client: socket.socket) -> bytes:
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_streams_with_an_event_and_leaves_nothing(bench: Bench, number: signal.Signals) -> None:
    with (
        bench.serving("--stop-grace", "0.1", "--", "--endless") as (process, greeting),
        start_stream(greeting.split()[0]) as client,
    ):
        process.send_signal(number)
        rest = read_all(client)
        assert process.wait(PATIENCE) == 0
    assert b'data: {"event": "error", "code": "shutting_down"' in rest
    bench.assert_no_orphan()


def test_a_signal_lets_requests_finish(bench: Bench) -> None:
    with (
        bench.serving("--stop-grace", "15") as (process, greeting),
        start_stream(greeting.split()[0]) as client,
    ):
        process.send_signal(signal.SIGTERM)
        rest = read_all(client)
        assert process.wait(PATIENCE) == 0
    assert b'data: {"event": "done"' in rest
    bench.assert_no_orphan()


def test_a_second_signal_does_not_wait(bench: Bench) -> None:
    began = time.monotonic()
    with (
        bench.serving("--stop-grace", "3000", "--", "--endless") as (process, greeting),
        start_stream(greeting.split()[0]) as client,
    ):
        process.send_signal(signal.SIGTERM)
        address = greeting.split()[0].removeprefix("http://").split(":")
        while connectable(address[0], int(address[1])):  # until the first signal was handled
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in read_all(client)
        assert process.wait(PATIENCE) == 0
    assert time.monotonic() - began < PATIENCE
    bench.assert_no_orphan()


def connectable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=PATIENCE).close()
    except OSError:
        return False
    return True


def test_a_signal_while_loading_stops_it(bench: Bench) -> None:
    command = bench.command("serve", "--", "--no-ready")
    with forked.Popen(command, env=bench.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not any(json.loads(line)["what"] == "hanging" for line in journal(bench)):
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    bench.assert_no_orphan()


def journal(bench: Bench) -> list[str]:
    return bench.journal.read_text().splitlines() if bench.journal.exists() else []


def test_a_killed_server_leaves_no_engine(bench: Bench) -> None:
    with (
        bench.serving("--", "--endless") as (process, greeting),
        start_stream(greeting.split()[0]),
    ):
        process.kill()
        process.wait(PATIENCE)
        bench.assert_no_orphan()


# api.py


def call_api(script: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["python3", str(script), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)


def test_api_py_without_a_venv_names_build_sh(tmp_path: Path) -> None:
    script = tmp_path / "api.py"
    shutil.copy(ROOT / "api.py", script)
    ended = call_api(script, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "build.sh" in ended.stderr


@pytest.mark.parametrize("link", [False, True], ids=["itself", "by a link"])
def test_api_py_finds_its_venv_from_anywhere_and_passes_arguments_on(tmp_path: Path, link: bool) -> None:
    home, elsewhere = tmp_path / "a house", tmp_path / "elsewhere"
    (home / ".venv" / "bin").mkdir(parents=True)
    elsewhere.mkdir()
    shutil.copy(ROOT / "api.py", home)
    python = home / ".venv" / "bin" / "python"
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    python.chmod(0o755)
    script = home / "api.py"
    if link:
        script = elsewhere / "start"
        script.symlink_to(home / "api.py")
    ended = call_api(script, elsewhere, "--n", "3", "--", "-t", "a b")
    assert ended.stdout.splitlines()[-7:] == ["llama_srb.cli", "serve", "--n", "3", "--", "-t", "a b"]


def test_api_py_is_a_program() -> None:
    assert os.access(ROOT / "api.py", os.X_OK)


# complete

PROMPT = "Once upon a time,"


def texts(n: int, tokens: int, seed: int = 7) -> list[str]:
    """The texts of the fake engine."""
    return ["".join(story(PROMPT, seed, index, tokens)) for index in range(n)]


def complete(bench: Bench, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    return bench.run("complete", "--seed", "7", "--max-tokens", "5", *arguments, stdin=stdin)


def test_a_pipe_gets_numbered_texts_in_order(bench: Bench) -> None:
    ended = complete(bench, PROMPT, "-n", "12")
    expected = "\n".join(f"[{index}] {text}\n" for index, text in enumerate(texts(12, 5)))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, expected, "")
    bench.assert_no_orphan()


def test_n_is_8_by_default(bench: Bench) -> None:
    assert complete(bench, PROMPT).stdout.count("[") == 8
    assert bench.run("complete", PROMPT, LLAMA_SRB_N="3").stdout.count("[") == 3


def test_the_prompt_comes_from_an_argument_stdin_or_a_file(bench: Bench) -> None:
    (bench.folder / "prompt.txt").write_text(PROMPT + "\n")
    ways = (
        complete(bench, PROMPT),
        complete(bench, "-", stdin=PROMPT + "\n"),
        complete(bench, "--file", "prompt.txt"),
    )
    assert len({ended.stdout for ended in ways}) == 1
    assert all(ended.returncode == 0 for ended in ways)


def test_only_one_line_feed_is_removed_from_the_end_of_stdin(bench: Bench) -> None:
    ended = complete(bench, "-", "-n", "1", "--echo", stdin="x\n\n")
    assert ended.stdout.startswith("[0] x\n ")


def test_json_is_one_object_with_seeds_reasons_usage_and_timings(bench: Bench) -> None:
    answer = json.loads(complete(bench, PROMPT, "-n", "2", "--json").stdout)
    assert [choice["text"] for choice in answer["choices"]] == texts(2, 5)
    assert [(c["index"], c["seed"], c["length"], c["finish_reason"]) for c in answer["choices"]] == [
        (0, 7, 5, "length"),
        (1, 8, 5, "length"),
    ]
    assert answer["usage"]["completion_tokens"] == 10
    assert answer["timings"] == {"total_ms": 1.0}


def test_both_answers_are_shown_if_both_are_returned(bench: Bench) -> None:
    then = json.dumps({"text": " So:", "max_tokens": 2, "return_free": True})
    answer = json.loads(complete(bench, PROMPT, "-n", "1", "--then", then, "--json").stdout)
    [choice] = answer["choices"]
    assert (choice["length"], choice["free_length"], choice["free"]["text"]) == (7, 5, texts(1, 5)[0])
    shown = complete(bench, PROMPT, "-n", "1", "--then", then).stdout
    assert shown == f"[0] {choice['free']['text']}\n{choice['text']}\n"
    few = ("--seed", "7", "--max-tokens", "5", "-n", "1")
    code, screen = bench.on_terminal("complete", PROMPT, *few, "--then", then)
    assert code == 0
    assert f"[0] {choice['free']['text']}\n{choice['text']}  (7 tokens, length)" in plain(screen)


def test_jsonl_is_the_events(bench: Bench) -> None:
    events = [json.loads(line) for line in complete(bench, PROMPT, "-n", "2", "--jsonl").stdout.splitlines()]
    assert events[0] | {"id": ""} == {
        "event": "start", "count": 2, "id": "", "prompt_tokens": 4, "cached_tokens": 0, "seed": 7,
    }  # fmt: skip
    assert [e["event"] for e in events[1:-1]].count("stream") == 10
    assert events[-1]["event"] == "done"


@pytest.mark.parametrize("form", ["text", "--json", "--jsonl"])
def test_a_server_gives_what_an_engine_gives(bench: Bench, form: str) -> None:
    arguments = [PROMPT, "-n", "3", "--stop", "fox", "--echo", *([form] if form != "text" else [])]
    with bench.serving() as (_, greeting):
        from_server = complete(bench, *arguments, "--url", greeting.split()[0])
    from_engine = complete(bench, *arguments)
    assert from_server.returncode == from_engine.returncode == 0
    if form == "--jsonl":  # ids differ
        assert events_of(from_server.stdout) == events_of(from_engine.stdout)
    else:
        assert from_server.stdout == from_engine.stdout


def events_of(stdout: str) -> list[dict[str, object]]:
    """The events by sequence, since the order between sequences may differ; without the id."""
    events = [json.loads(line) | {"id": ""} for line in stdout.splitlines()]
    return sorted(events, key=lambda event: event.get("index", -1))


def received(bench: Bench, *arguments: str) -> dict[str, object]:
    """The command that the engine received."""
    log = bench.folder / "stdin"
    bench.engine.write_text(f'#!/bin/sh\ntee {log} | {FAKE_COMMAND} "$@"\n')
    ended = bench.run("complete", PROMPT, *arguments)
    assert (ended.returncode, ended.stderr) == (0, "")
    command: dict[str, object] = json.loads(log.read_text().splitlines()[0])
    return command


def test_every_field_is_an_option(bench: Bench) -> None:
    shown = bench.run("complete", "--help").stdout
    names = [name for name, row in ROWS.items() if name != "prompt" and row.group != "chat"]
    assert [name for name in names if f"--{name.replace('_', '-')}" not in shown] == []


def test_options_reach_the_engine(bench: Bench) -> None:
    command = received(
        bench, "-n", "3", "--temperature", "0.6,0.8,1.0", "--top-k", "5", "--stop", "\n\n", "--stop", "END",
        "--ignore-eos", "--max-tokens", "9", "--no-cache", "--logit-bias", '{"15": -1}', "--samplers", "kt",
        "--sequences", '[{}, {"min_p": 0.5}, {}]', "--draft", "true",
    )  # fmt: skip
    assert (command["n"], command["max_tokens"], command["stop"]) == (3, 9, ["\n\n", "END"])
    assert (command["cache"], command["draft"]) == (False, 16)
    assert command["sampling"] == {
        "top_k": 5, "ignore_eos": True, "logit_bias": [[15, -1.0]], "samplers": ["top_k", "temperature"],
    }  # fmt: skip
    own = [{"temperature": 0.6}, {"temperature": 0.8, "min_p": 0.5}, {"temperature": 1.0}]
    assert command["sequences"] == own


REFUSED: list[tuple[list[str], str]] = [
    ([], "Give one prompt"),
    (["x", "--file", "plain"], "Give one prompt"),
    (["--file", "none.txt"], "cannot read none.txt"),
    (["--file", "latin"], "latin is not UTF-8 (byte 1)"),
    (["x", "--json", "--jsonl"], "exclude each other"),
    (
        ["x", "--tempratur", "1"],
        "Did you mean one of: '--no-temperature-last', '--temperature', '--temperature-last'?",
    ),
    (["x", "--n-predict", "4"], "Did you mean '--max-tokens'?"),
    (["x", "--temperature", "warm"], 'temperature is "warm"; it must be a number between 0 and 100'),
    (["x", "--draft", "x"], 'draft is "x"; it must be true, false or a whole number between 0 and 16'),
    (["x", "--temperature", "nan"], 'temperature is "nan"'),
    (["x", "--temperature", "1,2", "-n", "3"], "temperature is a list of 2; it must have n, 3"),
    (["x", "-n", "0"], "n is 0; it must be between 1 and 1024"),
    (["x", "-n", "1,2"], 'n is "1,2"'),
    (["x", "--top-k", "9" * 5000], "top_k is "),
    (["x", "--logit-bias", "{"], 'logit_bias is "{"'),
    (["x", "--model", "none.gguf"], "none.gguf: there is no such file"),
    (["x", "--engine", "none"], "./build.sh"),
    (["x", "--ctx", "many"], "--ctx is 'many'; it must be a whole number"),
    (["x", "--", "-c", "5"], "use --ctx"),
    (["x", "--url", "localhost:1", "--ctx", "5"], "--ctx is for an engine that this command starts"),
    (["x", "--url", "localhost:1", "--", "-ngl", "5"], "Arguments after --"),
]


@pytest.mark.parametrize(("arguments", "reason"), REFUSED, ids=lambda value: str(value)[:50])
def test_a_refused_option_exits_with_2_and_one_line(bench: Bench, arguments: list[str], reason: str) -> None:
    make_files(bench.folder)
    (bench.folder / "latin").write_bytes(b"x\xff")
    ended = bench.run("complete", *arguments)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert ended.stderr.startswith("llama-srb: ")
    assert reason in ended.stderr
    assert not bench.engines()


def test_a_refusal_of_the_engine_exits_with_2(bench: Bench) -> None:
    ended = complete(bench, "-", stdin="x " * 20000)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "llama-srb: the prompt has 20000 tokens, the context 16384\n"


def test_a_refusal_of_a_server_exits_with_2(bench: Bench) -> None:
    with bench.serving() as (_, greeting):
        ended = complete(bench, PROMPT, "--url", greeting.split()[0], "--min-p", "7")
    assert (ended.returncode, ended.stderr) == (2, "llama-srb: min_p is 7; it must be between 0 and 1\n")


@pytest.mark.parametrize("flags", [["--die-after", "30"], ["--exit-while-loading", "3"]])
def test_an_engine_that_dies_exits_with_1_and_says_why(bench: Bench, flags: list[str]) -> None:
    ended = complete(bench, PROMPT, "--jsonl", "--", *flags)
    assert (ended.returncode, ended.stderr.count("\n")) == (1, 1)
    assert ended.stderr.startswith("llama-srb: the engine ended while ")
    assert json.loads(ended.stdout.splitlines()[-1])["event"] == "error"
    bench.assert_no_orphan()


def test_no_server_exits_with_1(bench: Bench) -> None:
    with socket.socket() as silent:  # it is bound to the port and does not listen
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        ended = complete(bench, PROMPT, "--url", f"127.0.0.1:{port}")
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
    assert ended.stderr.startswith(f"llama-srb: http://127.0.0.1:{port}: ")


def test_a_lost_server_exits_with_1(bench: Bench) -> None:
    with (
        bench.serving("--", "--endless") as (server, greeting),
        running(bench, "--url", greeting.split()[0]) as process,
    ):
        server.kill()
        assert process.wait(PATIENCE) == 1
        assert process.stderr is not None
        assert process.stderr.read().count("\n") == 1
    bench.assert_no_orphan()


@contextlib.contextmanager
def running(bench: Bench, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """An endless completion that has printed its first text."""
    command = bench.command("complete", PROMPT, "--max-tokens", "-1", "--jsonl", *arguments)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with forked.Popen(command, env=bench.environ, cwd=bench.folder, text=True, **pipes) as process:
        try:
            assert process.stdout is not None
            lines = iter(process.stdout.readline, "")
            assert any('"stream"' in line for line in lines), "it ended before its first text"
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_no_engine(bench: Bench, number: signal.Signals, code: int) -> None:
    with running(bench, "--", "--endless") as process:
        process.send_signal(number)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read()
        assert (process.wait(PATIENCE), process.stderr.read()) == (code, "")
    bench.assert_no_orphan()


def test_a_signal_while_it_loads_leaves_no_engine(bench: Bench) -> None:
    command = bench.command("complete", PROMPT, "--", "--no-ready")
    with forked.Popen(command, env=bench.environ, stdout=subprocess.PIPE) as process:
        while not any(json.loads(line)["what"] == "hanging" for line in journal(bench)):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 130
    bench.assert_no_orphan()


def test_a_reader_that_leaves_ends_it_quietly(bench: Bench) -> None:
    with running(bench, "--", "--endless") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.wait(PATIENCE), process.stderr.read()) == (141, "")
    bench.assert_no_orphan()


# complete on a terminal

LEAVES_SCREEN = "\x1b[?1049l"


def views(output: str) -> tuple[str, str]:
    """The contents of the alternate screen, and the output that stays."""
    live, _, rest = output.partition(LEAVES_SCREEN)
    return plain(live), plain(rest)


def test_a_terminal_counts_running_and_ended_sequences(bench: Bench) -> None:
    code, output = bench.on_terminal(
        "complete", PROMPT, "-n", "3", "--max-tokens", "40", "--", "--token-delay", "0.02"
    )
    counts = {tuple(map(int, pair)) for pair in re.findall(r"(\d) run, (\d) ended", views(output)[0])}
    assert code == 0
    assert (3, 0) in counts
    assert all(run + ended <= 3 for run, ended in counts)


@pytest.mark.parametrize("size", [(80, 24), (200, 50)])
def test_a_terminal_shows_8_panels_and_then_all_texts(bench: Bench, size: tuple[int, int]) -> None:
    code, output = bench.on_terminal(
        "complete", PROMPT, "--seed", "7", "--max-tokens", "12", "--", "--token-delay", "0.02", size=size
    )
    live, rest = views(output)
    assert code == 0
    for index, text in enumerate(texts(8, 12)):
        assert f"─ {index} ─" in live
        assert f"[{index}] {text}  (12 tokens, length)\n" in rest
    assert live.count("12 tokens, length") >= 8
    assert "seed 7 · 96 tokens" in rest
    bench.assert_no_orphan()


def test_panels_that_do_not_fit_are_counted_and_all_texts_stay(bench: Bench) -> None:
    code, output = bench.on_terminal("complete", PROMPT, "--seed", "7", "--max-tokens", "12", "-n", "64")
    live, rest = views(output)
    assert code == 0
    assert "64 (49 not shown)" in live
    assert [f"[{index}] {text}  (" in rest for index, text in enumerate(texts(64, 12))] == [True] * 64


def test_control_c_on_a_terminal_keeps_the_text_so_far(bench: Bench) -> None:
    code, output = bench.on_terminal(
        "complete", PROMPT, "-n", "2", "--max-tokens", "-1", "--", "--endless", interrupt_at="─ 1 ─"
    )
    assert code == 130
    assert "tokens, unfinished)" in views(output)[1]
    bench.assert_no_orphan()


def test_a_terminal_shows_an_error_in_one_line_after_the_texts(bench: Bench) -> None:
    code, output = bench.on_terminal("complete", PROMPT, "-n", "2", "--", "--die-after", "9")
    rest = views(output)[1]
    assert code == 1
    assert rest.splitlines()[-1].startswith("llama-srb: the engine ended while running")
    assert "[1]" in rest
    bench.assert_no_orphan()


# models, completion, other commands


def test_models_are_lines_of_fields_in_a_pipe(bench: Bench) -> None:
    ended = bench.run("models", str(STORYTELLER))
    fields = ended.stdout.rstrip("\n").split("\t")
    assert (ended.returncode, fields[0], len(fields)) == (0, str(STORYTELLER), 7)
    assert fields[-1] == str(STORYTELLER.stat().st_size)


def test_models_are_a_table_on_a_terminal(bench: Bench) -> None:
    code, output = bench.on_terminal("models", str(STORYTELLER), size=(200, 24))
    shown = plain(output)
    assert (code, shown.split()[:2]) == (0, ["file", "name"])
    assert str(STORYTELLER) in shown


def test_models_as_json(bench: Bench) -> None:
    (model,) = json.loads(bench.run("models", "--json", str(STORYTELLER)).stdout)
    assert model["size_bytes"] == STORYTELLER.stat().st_size


def test_unreadable_models_are_a_line_each_and_the_others_are_shown(bench: Bench) -> None:
    make_files(bench.folder)
    ended = bench.run("models", "none.gguf", str(STORYTELLER), "text.gguf")
    assert (ended.returncode, ended.stdout.count("\n")) == (1, 1)
    assert [line.split(":")[1] for line in ended.stderr.splitlines()] == [" none.gguf", " text.gguf"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_completion_script(bench: Bench, shell: str) -> None:
    if shell == "bash" and not shutil.which("bash"):
        pytest.fail("click asks bash for its version")
    ended = bench.run("completion", shell)
    assert ended.returncode == 0
    assert "_LLAMA_SRB_COMPLETE" in ended.stdout


def test_the_shell_completes_commands_and_options(bench: Bench) -> None:
    def completed(words: str) -> str:
        asked = {"_LLAMA_SRB_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "1"}
        cword = str(len(words.split()) - 1)
        return bench.run(**asked | {"COMP_CWORD": cword}).stdout

    assert completed("llama-srb mod") == "plain,models\n"
    assert "plain,--top-k" in completed("llama-srb complete --top")
    assert "plain,per-request" in completed("llama-srb serve --engine-mode per")


def completed(bench: Bench, words: str, **environ: str) -> list[str]:
    """What bash offers behind these words."""
    asked = {"_LLAMA_SRB_COMPLETE": "bash_complete", "COMP_WORDS": words}
    ended = bench.run(**environ, **asked, COMP_CWORD=str(len(words.split(" ")) - 1))
    return ended.stdout.splitlines()


def test_the_shell_completes_the_models_of_a_server(bench: Bench) -> None:
    with bench.serving("--alias", "writer,poet") as (_, greeting):
        url = greeting.split()[0]
        assert completed(bench, f"llama-srb complete --url {url} --model ") == ["plain,poet", "plain,writer"]
        assert completed(bench, f"llama-srb complete --url {url} --model w") == ["plain,writer"]
    assert completed(bench, f"llama-srb complete --url {url} --model ") in ([], [""])


def test_the_shell_completes_the_models_of_a_hub_that_are_here(bench: Bench) -> None:
    cache, name, file = Cache(bench.folder / "hub"), name_from("hf:writers/tales:Q4_K_M"), "tales.gguf"
    cache.place(name).mkdir(parents=True)
    shutil.copy(STORYTELLER, cache.place(name) / file)
    cache.add_file(name, file, "0" * 64)
    cache.add(name, [file])
    here = {"LLAMA_SRB_CACHE": str(bench.folder)}
    assert completed(bench, "llama-srb models rm hf:wr", **here) == [f"plain,{name}"]
    assert completed(bench, "llama-srb serve --model hf:", **here) == [f"plain,{name}", "file,hf:"]


def test_without_arguments_the_commands_are_shown(bench: Bench) -> None:
    ended = bench.run()
    assert ended.returncode == 0
    for command in ("serve", "complete", "models", "completion"):
        assert f"  {command}" in ended.stdout


def test_help_imports_nothing_heavy(bench: Bench) -> None:
    listing = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "llama_srb.cli", "--help"],
        env=bench.environ, capture_output=True, text=True, timeout=PATIENCE, check=True,
    ).stderr  # fmt: skip
    loaded = {line.rsplit("|", 1)[-1].strip() for line in listing.splitlines()}
    assert "click" in loaded
    assert loaded.isdisjoint({"pydantic", "aiohttp", "rich", "httpx", "asyncio"})
