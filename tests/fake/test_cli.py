"""`llama-srb serve` and ./api.py as processes: what they print, how they exit, what they leave behind."""

import contextlib
import json
import os
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

CHECKOUT = Path(__file__).parents[2]
FAKE = CHECKOUT / "tests" / "fake_engine.py"
MODEL = CHECKOUT / "models" / "storyteller.gguf"
TIMEOUT = 20.0  # far above what any test needs; only a hang reaches it


class Bench:
    """A folder with an engine, and the ways to start a server in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal = folder / "journal"
        self.engine = folder / "engine"
        self.engine.write_text(f'#!/bin/sh\nexec python3 {FAKE} --journal {self.journal} "$@"\n')
        self.engine.chmod(0o755)

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "llama_srb.cli", *arguments]

    @property
    def environ(self) -> dict[str, str]:
        ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
        return ours | {
            "PYTHONPATH": str(CHECKOUT),
            "LLAMA_SRB_ENGINE": str(self.engine),
            "LLAMA_SRB_PORT": "0",
        }

    def run(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.environ | environ,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    @contextlib.contextmanager
    def serving(self, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
        """A server and the line that it greets with."""
        command = self.command("serve", *arguments)
        with subprocess.Popen(
            command,
            env=self.environ,
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stdout is not None
                yield process, process.stdout.readline()
            finally:
                process.kill()

    def engines(self) -> set[int]:
        """The engines that have been started."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return {json.loads(line)["pid"] for line in lines}

    def assert_no_orphan(self) -> None:
        deadline = time.monotonic() + TIMEOUT
        while any(map(alive, self.engines())):
            assert time.monotonic() < deadline, "an engine was left"
            time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped (by a container's init, say) does not."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def make_files(folder: Path) -> None:
    (folder / "empty.gguf").touch()
    (folder / "cut.gguf").write_bytes(MODEL.read_bytes()[:-1])
    (folder / "text.gguf").write_text("This is no model.")
    (folder / "plain").write_text("no program")
    (folder / "bad.toml").write_text("prot = 1")


CANNOT_START: list[tuple[list[str], str]] = [
    (["--model", "none.gguf"], "none.gguf: there is no such file"),
    (["--model", "empty.gguf"], "empty.gguf: the file is empty"),
    (["--model", "cut.gguf"], "cut.gguf: the file is truncated"),
    (["--model", "text.gguf"], "text.gguf: not a GGUF file"),
    (["--engine", "none"], "./build.sh"),
    (["--engine", "plain"], "./build.sh"),
    (["--port", "99999"], "--port is '99999'; it must be less than or equal to 65535"),
    (["--config", "bad.toml"], "did you mean port?"),
    (["--", "-c", "5"], "-c behind -- is not for the engine here; use --ctx"),
    (["--", "--protocol", "2"], "speaks protocol 2"),
    (["--engine-mode", "per-request", "--", "--protocol", "2"], "speaks protocol 2"),
    (["--", "--exit-while-loading", "3"], "exit code 3"),
    (["--engine-mode", "per-request", "--", "--exit-while-loading", "3"], "exit code 3"),
]


@pytest.mark.parametrize(("arguments", "reason"), CANNOT_START, ids=lambda value: str(value)[:50])
def test_what_cannot_start_says_why_in_one_line(bench: Bench, arguments: list[str], reason: str) -> None:
    make_files(bench.folder)
    ended = bench.run("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr.startswith("llama-srb: ")
    assert ended.stderr.count("\n") == 1
    assert reason in ended.stderr
    bench.assert_no_orphan()


def test_a_taken_port_is_named(bench: Bench) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = bench.run("serve", "--port", str(port))
    assert (ended.returncode, ended.stderr) == (
        2,
        f"llama-srb: cannot listen on 127.0.0.1 port {port}: address already in use; try --port\n",
    )
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
def test_it_greets_with_its_address_and_a_curl_that_works(bench: Bench, mode: str) -> None:
    with bench.serving("--engine-mode", mode) as (process, greeting):
        address, _, curl = greeting.strip().partition("   try: ")
        assert urllib.request.urlopen(address + "/health", timeout=TIMEOUT).status == 200
        if shutil.which("curl"):
            ended = subprocess.run(curl, shell=True, capture_output=True, timeout=TIMEOUT, check=True)
            assert ended.stdout.startswith(b'data: {"event": "start", "count": 8')
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    bench.assert_no_orphan()


def start_stream(address: str) -> socket.socket:
    host, port = address.removeprefix("http://").split(":")
    client = socket.create_connection((host, int(port)), timeout=TIMEOUT)
    body = b'{"prompt": "x", "max_tokens": -1}'
    client.sendall(b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
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
        assert process.wait(TIMEOUT) == 0
    assert b'data: {"event": "error", "code": "shutting_down"' in rest
    bench.assert_no_orphan()


def test_a_signal_lets_requests_finish(bench: Bench) -> None:
    with (
        bench.serving("--stop-grace", "15") as (process, greeting),
        start_stream(greeting.split()[0]) as client,
    ):
        process.send_signal(signal.SIGTERM)
        rest = read_all(client)
        assert process.wait(TIMEOUT) == 0
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
        while connectable(address[0], int(address[1])):  # the first signal has been taken
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert b"shutting_down" in read_all(client)
        assert process.wait(TIMEOUT) == 0
    assert time.monotonic() - began < TIMEOUT
    bench.assert_no_orphan()


def connectable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=TIMEOUT).close()
    except OSError:
        return False
    return True


def test_a_signal_while_loading_stops_it(bench: Bench) -> None:
    command = bench.command("serve", "--", "--no-ready")
    with subprocess.Popen(
        command, env=bench.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        while not any(json.loads(line)["what"] == "hanging" for line in journal(bench)):
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT) == 0
    bench.assert_no_orphan()


def journal(bench: Bench) -> list[str]:
    return bench.journal.read_text().splitlines() if bench.journal.exists() else []


def test_a_killed_server_leaves_no_engine(bench: Bench) -> None:
    with (
        bench.serving("--", "--endless") as (process, greeting),
        start_stream(greeting.split()[0]),
    ):
        process.kill()
        process.wait(TIMEOUT)
        bench.assert_no_orphan()


# api.py


def call_api(script: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["python3", str(script), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=TIMEOUT, check=False)


def test_api_py_without_a_venv_names_build_sh(tmp_path: Path) -> None:
    script = tmp_path / "api.py"
    shutil.copy(CHECKOUT / "api.py", script)
    ended = call_api(script, tmp_path)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "build.sh" in ended.stderr


@pytest.mark.parametrize("link", [False, True], ids=["itself", "by a link"])
def test_api_py_finds_its_venv_from_anywhere_and_passes_arguments_on(tmp_path: Path, link: bool) -> None:
    home, elsewhere = tmp_path / "a house", tmp_path / "elsewhere"
    (home / ".venv" / "bin").mkdir(parents=True)
    elsewhere.mkdir()
    shutil.copy(CHECKOUT / "api.py", home)
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
    assert os.access(CHECKOUT / "api.py", os.X_OK)
