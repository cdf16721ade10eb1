"""`llama-srb cluster up`: servers behind the real smg, and nginx in front of them as in docs/cluster.md."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import httpx
import openai
import pytest
import yaml
from click.testing import CliRunner

from llama_srb import Client
from llama_srb.cli import MAIN
from llama_srb.cli.cluster import OURS
from llama_srb.client.events import Stop
from tests.real.test_protocol import suit_storyteller
from tests.support.cluster import Cluster, cluster, eventually
from tests.support.models import write_adapter
from tests.support.places import ROOT, STORYTELLER
from tests.support.prometheus import prometheus, query
from tests.support.proxy import documented, nginx
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.waiting import PATIENCE, soon

DRAINED = float(os.environ.get("CLUSTER_DRAIN_SECONDS", "0"))  # of a stream, if smg notices the drain earlier
LONG_CONTEXT = ("--override-kv", "llama.context_length=int:65536")
ENDLESS: dict[str, Any] = {"prompt": "Once upon a time", "n": 1, "max_tokens": 60_000, "ignore_eos": True}
FEW: dict[str, Any] = {"prompt": "Once upon a time", "n": 2, "max_tokens": 4, "stream": False}
HELLO = [{"role": "user", "content": "Tell me a story!"}]
TASK = '[tasks.tale]\nprelude = "Tales.\\n"\n'

MODELS = """
[models.first]
path = "{model}"
preload = true
[models.first.adapters]
pirate = "pirate.gguf"
[models.second]
path = "{model}"
[tasks.tale]
model = "first"
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three workers with one task."""
    file = tmp_path_factory.mktemp("cluster") / "tasks.toml"
    file.write_text(TASK)
    settings = ("--config", str(file), "--ctx", "65536", "--log-level", "warning", "--stop-grace", "0")
    with cluster("--workers", "3", *settings, "--", *LONG_CONTEXT) as running:
        yield running


UNGUARDED = ("/health", "/v1/models")  # descriptions, which smg shows to everybody


def test_without_keys_a_cluster_makes_one_that_pages_do_not_have(three: Cluster) -> None:
    """smg looks at no Host and no Origin, so a page could add a worker of its own, which reads prompts."""
    page = {"Host": "evil.example", "Origin": "http://evil.example"}
    worker = three.workers["w1"]
    for method, url in (
        ("POST", f"{three.url}/workers"), ("GET", f"{three.url}/workers"),
        ("DELETE", f"{three.url}/workers/1"), ("POST", f"{three.url}/flush_cache"),
        ("POST", f"{three.url}/v1/completions"), ("POST", f"{three.url}/v1/tokenizers"),
        ("POST", f"{three.url}/wasm"), ("GET", f"{three.url}/get_loads"),
        ("POST", f"{worker}/v1/completions"),
    ):  # fmt: skip
        own = {"url": "http://evil.example", "model": "storyteller", **FEW}
        assert httpx.request(method, url, json=own).status_code == 401, url
        assert httpx.request(method, url, json=own, headers=page).status_code in (401, 403), url
    assert {httpx.get(three.url + path).status_code for path in UNGUARDED} == {200}
    assert three.key.startswith("srb-")
    assert three.ask(**FEW).status_code == 200


@pytest.fixture
def front(three: Cluster, tmp_path: Path) -> Iterator[str]:
    """nginx in front of smg and the workers."""
    servers = (three.url, *three.workers.values())
    with nginx(tmp_path, documented(*servers, page="cluster", holds="location /w/")) as url:
        yield url


def test_a_storys_prompts_go_to_the_worker_that_has_their_beginning(three: Cluster) -> None:
    stories = {name: f"A story of a {name} that lived by the sea, and of its friends. " * 9 for name in "abc"}
    told: dict[str, list[tuple[str, int, int]]] = {name: [] for name in stories}
    for _ in range(4):
        for name, text in stories.items():
            answer = three.ask(prompt=text, n=2, max_tokens=12, stream=False)
            usage = answer.json()["usage"]
            cached = usage["prompt_tokens_details"]["cached_tokens"]
            told[name].append((answer.headers["X-Worker"], usage["prompt_tokens"], cached))
            stories[name] += answer.json()["choices"][1]["text"]
    for turns in told.values():
        assert len({worker for worker, *_ in turns}) == 1, told
        grown = pairwise(turns)
        assert all(cached >= before[1] - 1 for before, (_, _, cached) in grown), told


def test_prometheus_watches_it_by_composes_configuration(three: Cluster, tmp_path: Path) -> None:
    """The topology of packaging/compose as processes; Grafana is left out."""
    (tmp_path / "key").write_text(three.key)
    assert httpx.get(f"{three.workers['w1']}/metrics").status_code == 401
    with prometheus(tmp_path, composed(three, tmp_path / "key")) as url:
        eventually(lambda: values(url, "up") == ["1"] * 4)
        assert values(url, "sum(vllm:num_requests_waiting)") == ["0"]
        assert len(values(url, "smg_worker_health")) == 3


def composed(running: Cluster, key: Path) -> dict[str, Any]:
    """Compose's configuration with the addresses of a cluster. key: the file that has its key."""
    config: dict[str, Any] = yaml.safe_load((ROOT / "packaging/compose/prometheus.yml").read_text())
    ours, smg = config["scrape_configs"]
    ours["authorization"]["credentials_file"] = str(key)
    ours["static_configs"][0]["targets"] = [urlsplit(url).netloc for url in running.workers.values()]
    smg["static_configs"][0]["targets"] = [urlsplit(running.metrics).netloc]
    config["rule_files"] = [str(ROOT / "packaging/monitoring/alerts.yml")]
    return config


def values(prometheus: str, expr: str) -> list[str]:
    """What Prometheus answers to an expression."""
    found = query(prometheus, "/api/v1/query", query=expr)["result"]
    return [one["value"][1] for one in found]


def test_many_continuations_are_whole_on_one_worker(three: Cluster) -> None:
    before = three.generated()
    answer = three.ask(prompt="Sixty-four cats", n=64, max_tokens=5, ignore_eos=True, stream=False)
    body, after = answer.json(), three.generated()
    assert (len(body["choices"]), body["usage"]["completion_tokens"]) == (64, 320)
    grown = {name: after[name] - before[name] for name in after if after[name] != before[name]}
    assert grown == {answer.headers["X-Worker"]: 320}


def test_a_full_worker_gets_nothing_while_another_is_empty(three: Cluster) -> None:
    """Although the prompt's beginning is there."""
    prompt = "The long story of a lighthouse and its keeper, who counted ships. " * 9
    full = three.ask(**FEW | {"prompt": prompt}).headers["X-Worker"]
    assert three.ask(**FEW | {"prompt": prompt}).headers["X-Worker"] == full
    filling = ENDLESS | {"model": "storyteller", "n": 64, "stream": True}
    with three.http.stream("POST", f"{three.workers[full]}/v1/completions", json=filling) as stream:
        lines = stream.iter_lines()
        next(lines)
        eventually(lambda: three.loads("waiting_requests")[full] == 32)
        expected = {name: 32.0 * (name == full) for name in three.workers}
        assert three.loads("running_requests") == expected
        assert three.loads("token_usage")[full] > max(
            usage for name, usage in three.loads("token_usage").items() if name != full
        )
        assert three.ask(**FEW | {"prompt": prompt}).headers["X-Worker"] != full
    eventually(lambda: three.loads("running_requests")[full] == 0)


def test_a_client_that_leaves_ends_its_sequences(three: Cluster) -> None:
    with three.stream(**ENDLESS) as (worker, frames):
        next(frames)
    loads = f"{three.workers[worker]}/v1/loads"
    eventually(lambda: three.http.get(loads).json()["aggregate"]["total_reqs"] == 0)


def test_a_stream_of_a_drained_worker_goes_on_and_new_requests_go_elsewhere(three: Cluster) -> None:
    with three.stream(**ENDLESS) as (worker, frames), ThreadPoolExecutor() as pool:
        id = json.loads(next(frames))["id"].removeprefix("cmpl-")
        rest = pool.submit(list, frames)
        at, began, served = three.workers[worker], time.monotonic(), list[httpx.Response]()
        assert three.http.post(f"{at}/drain").json()["status"] == "draining"
        try:
            while worker in three.healthy() or len(served) < 9 or time.monotonic() < began + DRAINED:
                served.append(three.ask(**FEW))  # its beginning is on the drained worker
            is_open = three.http.get(f"{at}/v1/stats").json()["requests_open"]
            three.http.delete(f"{at}/v1/completions/{id}")
            *_, last, done = rest.result()
        finally:
            three.http.delete(f"{at}/drain")
    assert ({one.status_code for one in served}, is_open) == ({200}, 1)
    assert worker not in {one.headers["X-Worker"] for one in served}
    assert (json.loads(last)["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    eventually(lambda: three.healthy() == three.workers.keys())


@pytest.mark.parametrize(
    ("path", "prompt"),
    [("/v1/completions", {}), ("/v1/chat/completions", {"messages": HELLO, "prompt": None})],
)
def test_no_stream_of_a_killed_worker_ends_as_if_it_were_complete(
    three: Cluster, path: str, prompt: dict[str, Any]
) -> None:
    with three.stream(path, **ENDLESS | prompt) as (worker, frames):
        next(frames)
        killed = three.kill(worker)
        *texts, last, end = frames
    assert json.loads(last)["error"]["type"] == "stream_error"
    assert end == "[DONE]", "smg's own, behind the error"
    assert not [one for text in texts for one in json.loads(text)["choices"] if one["finish_reason"]]
    answers = [three.ask(**FEW | {"prompt": f"Once upon a time {i}"}) for i in range(12)]
    assert {one.status_code for one in answers} == {200}
    assert {len(one.json()["choices"]) for one in answers} == {2}
    three.recover(worker, killed)


def test_a_stream_of_a_killed_worker_raises_in_the_openai_package(three: Cluster) -> None:
    with openai.OpenAI(base_url=f"{three.url}/v1", api_key=three.key, max_retries=0) as client:
        given: dict[str, Any] = {"model": "storyteller", "extra_body": {"ignore_eos": True}}
        stream = client.completions.create(prompt="Once", max_tokens=60_000, stream=True, **given)
        next(stream)
        worker = stream.response.headers["X-Worker"]
        killed = three.kill(worker)
        with pytest.raises(openai.APIError, match="Stream error"):
            list(stream)
    three.recover(worker, killed)


PASS = [
    ("/v1/completions", FEW | {"n": 3, "sequences": [{"temperature": 0.1}, {"temperature": 1}, {}]}),
    ("/v1/completions", FEW | {"best_of": 4, "rank_by": "typical", "diversity": "arithmetic", "strange": 1}),
    ("/v1/completions", FEW | {"prompt": ["Once", "The end"]}),
    ("/v1/chat/completions", {"messages": HELLO, "max_tokens": 4, "n": 3}),
    ("/v1/messages", {"messages": HELLO, "max_tokens": 4}),
    ("/v1/responses", {"input": "A story!", "max_output_tokens": 4}),
    ("/v1/embeddings", {"input": "a cat"}),
]
FAIL = [
    ("/v1/completions", {"model": None}, 400),
    ("/v1/completions", {"model": "tale"}, 404),
    ("/v1/completions", {"n": 129}, 400),
    ("/v1/completions", {"temperature": 3}, 400),
    ("/v1/completions", {"temperature": [0.1, 1.0]}, 400),
    ("/v1/completions", {"max_tokens": -1}, 400),
    ("/v1/completions", {"prompt": [417, 435]}, 400),
    ("/v1/completions", {"prompt": [{"text": "Once", "special": False}]}, 400),
    ("/v1/completions", {"prompt": None, "continue": {"id": "1", "index": 0}}, 400),
    ("/v1/completions", {"logit_bias": [[417, 1.0]]}, 400),
    ("/v1/events", {}, 404),
    ("/v1/completions/1/extend", {}, 404),
    ("/v1/prefix", {}, 404),
    ("/v1/score", {"texts": ["a"]}, 404),
    ("/v1/tasks/tale/completions", {}, 404),
    ("/v1/batches", {}, 404),
    ("/completion", {}, 404),
    ("/api/generate", {}, 404),
]


@each_row(("path", "body"), PASS)
def test_requests_that_pass_through_smg(three: Cluster, path: str, body: dict[str, Any]) -> None:
    answer = three.ask(path, **body)
    assert (answer.status_code, answer.headers["X-Worker"] in three.workers) == (200, True), answer.text


@each_row(("path", "body", "status"), FAIL)
def test_requests_that_do_not_pass_through_smg(
    three: Cluster, path: str, body: dict[str, Any], status: int
) -> None:
    given = {
        name: value for name, value in (FEW | {"model": "storyteller"} | body).items() if value is not None
    }
    answer = three.http.post(three.url + path, json=given)
    assert (answer.status_code, "X-Worker" in answer.headers) == (status, False), answer.text
    assert three.http.delete(f"{three.url}/v1/completions/1").status_code == 404


def test_behind_nginx_a_candidate_is_continued_where_it_is(three: Cluster, front: str) -> None:
    answer = three.ask(at=front, **FEW | {"prompt": "A fox and an owl met at the well", "max_tokens": 8})
    worker, body = answer.headers["X-Worker"], answer.json()
    assert "X-Smg-Routed-Worker-Id" not in answer.headers
    chosen = {"continue": {"id": body["id"].removeprefix("cmpl-"), "index": 1}, "n": 2, "max_tokens": 4}
    more = three.http.post(f"{front}/w/{worker}/v1/completions", json=chosen | {"stream": False}).json()
    usage = more["usage"]
    assert usage["prompt_tokens"] == body["usage"]["prompt_tokens"] + 8
    assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 1
    outside = three.http.get(f"{front}/workers")
    assert (outside.status_code, outside.headers["Server"][:5]) == (404, "nginx")


def test_behind_nginx_a_running_request_is_extended_and_cancelled(three: Cluster, front: str) -> None:
    with three.stream(**ENDLESS) as (worker, frames):
        id = json.loads(next(frames))["id"].removeprefix("cmpl-")
        place = f"{front}/w/{worker}/v1/completions/{id}"
        assert three.http.post(f"{place}/extend", json={"add": 2}).json()["count"] == 3
        assert three.http.delete(f"{place}/0").status_code == 200
        assert three.http.delete(place).status_code == 200
        *_, last, done = frames
    assert (json.loads(last)["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
    others = [one for one in three.workers if one != worker]
    assert three.http.delete(f"{front}/w/{others[0]}/v1/completions/{id}").status_code == 404


def test_behind_nginx_a_worker_speaks_events_and_has_a_studio(three: Cluster, front: str) -> None:
    with (
        Client(f"{front}/w/w2", api_key=three.key) as client,
        client.stream("Once upon a time", n=2, max_tokens=4) as stream,
    ):
        assert [type(event) for event in stream].count(Stop) == 2
    page = httpx.get(f"{front}/w/w3/")
    assert (page.status_code, page.headers["X-Worker"]) == (200, "w3")


async def test_behind_nginx_websockets_reach_their_worker(three: Cluster, front: str) -> None:
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {three.key}"}) as http:
        async with http.ws_connect(f"{front}/w/w1/v1/ws") as connection:
            await connection.send_json(
                {"op": "generate", "id": "a", "prompt": "Once", "n": 2, "max_tokens": 4}
            )
            assert (await told(connection)).count("stop") == 2
        async with http.ws_connect(f"{front}/w/w3/v1/tasks/tale/ws") as chat:
            await chat.send_json({"op": "turn", "text": "A cat", "n": 3, "max_tokens": 4})
            assert (await told(chat)).count("stop") == 3
            await chat.send_json({"op": "choose", "index": 2})
            assert (await soon(chat.receive_json()))["event"] == "chosen"


async def told(connection: aiohttp.ClientWebSocketResponse) -> list[str]:
    """The names of the events up to done."""
    events: list[str] = []
    while events[-1:] != ["done"]:
        events.append((await soon(connection.receive_json()))["event"])
    return events


# The command


def test_a_killed_gateway_is_started_again(three: Cluster) -> None:
    three.recover("smg", three.kill("smg"))
    assert three.ask(**FEW).status_code == 200


def test_smg_knows_the_default_model_of_a_worker_and_one_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_adapter(tmp_path / "pirate.gguf", "llama", 0, change=suit_storyteller)
    (tmp_path / "models.toml").write_text(MODELS.format(model=STORYTELLER))
    monkeypatch.setenv("LLAMA_SRB_API_KEY", "sesame")
    with cluster("--workers", "1", "--config", str(tmp_path / "models.toml"), "--stop-grace", "0") as one:
        one.http.headers["Authorization"] = "Bearer other"
        assert one.ask(**FEW, model="first").status_code == 401
        assert one.ask(at=one.workers["w1"], **FEW).status_code == 401
        one.http.headers["Authorization"] = "Bearer sesame"
        listed = [one["id"] for one in one.http.get(f"{one.workers['w1']}/v1/models").json()["data"]]
        assert listed == ["first", "pirate", "second", "tale"]
        status = {name: one.ask(**FEW, model=name).status_code for name in listed}
        assert status == {"first": 200, "pirate": 404, "second": 404, "tale": 404}
        scored = {"model": "first", "max_tokens": 1, "temperature": 0, "logprobs": 1, "stream": False}
        adapted = {"lora": [{"name": "pirate", "scale": 1}]}
        plain, other = (one.ask(prompt="Once", **scored, **more).json() for more in ({}, adapted))
        assert plain["choices"][0]["logprobs"] != other["choices"][0]["logprobs"]


def test_the_first_signal_lets_requests_go_on_and_the_second_ends_them() -> None:
    settings = ("--workers", "1", "--drain=60", "--ctx", "65536", "--", *LONG_CONTEXT)
    with cluster(*settings) as one, one.stream(**ENDLESS) as (_, frames):
        next(frames)
        os.kill(one.pid, signal.SIGTERM)
        for _ in range(200):
            next(frames)
        os.kill(one.pid, signal.SIGTERM)
        with pytest.raises(httpx.RemoteProtocolError):
            list(frames)


def refused(*arguments: str) -> str:
    """The message of a cluster that cannot start."""
    ended = CliRunner().invoke(MAIN, ["cluster", "up", *arguments])
    assert ended.exit_code == 2
    return ended.output


def test_a_worker_that_does_not_start_ends_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "no.gguf").write_bytes(b"no model")
    command = [sys.executable, "-m", "llama_srb.cli", "cluster", "up", "--workers=2", "--port=0"]
    command += ["--worker-port=0", "--metrics-port=0", "--model", str(tmp_path / "no.gguf")]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert "no.gguf" in ended.stderr
    assert "did not start (exit code 2)" in ended.stderr


def test_workers_with_keys_of_a_file_need_one_for_smg(tmp_path: Path) -> None:
    file = key_file(tmp_path / "keys", {"name": "ann", "scopes": ["complete"]})
    command = [sys.executable, "-m", "llama_srb.cli", "cluster", "up", "--workers=1", "--port=0"]
    command += ["--worker-port=0", "--metrics-port=0", "--api-key", "ann", "--api-key-file", str(file)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 1
    assert "answers 403 to smg: --api-key must be a key of the workers with the scope metrics" in ended.stderr


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        message = refused("--port=0", "--worker-port=0", "--metrics-port", str(port))
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in message


OWNED = {
    "host": "0.0.0.0", "api_prefix": "/x", "worker_name": "x", "grpc": "5", "tls_cert": "/x",
    "reuse_port": "true", "files_dir": "/x", "port": "5",
}  # fmt: skip


@pytest.mark.parametrize(("name", "value"), OWNED.items())
def test_a_setting_that_the_cluster_owns_is_refused_wherever_it_is(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = f"{name} is {value.title() if value == 'true' else value} (--{name.replace('_', '-')}, "
    option = [f"--{name.replace('_', '-')}", *([] if name == "reuse_port" else [value])]
    if name != "port":  # of the command line it is the gateway's
        assert said in refused(*option)
    file = tmp_path / "srb.toml"
    file.write_text(f"{name} = {json.dumps(value) if value not in ('true', '5') else value}\n")
    assert said in refused("--config", str(file))
    monkeypatch.setenv(f"LLAMA_SRB_{name.upper()}", value)
    assert f"it is not for a cluster: {OURS[name]}" in refused()


def test_a_wrong_setting_is_said_before_anything_is_started() -> None:
    assert "--ctx is 'x'; it must be a whole number" in refused("--ctx", "x")
    assert "No such option '--contxt'" in refused("--contxt", "5")


@pytest.mark.parametrize("place", ["option", "variable", "file"])
def test_no_command_line_has_the_key(place: str, tmp_path: Path) -> None:
    """Of the processes of a cluster, from their first moment; an option is seen in the user's own command."""
    (tmp_path / "srb.toml").write_text('api_key = "sesame"\n')
    given = {
        "option": ["--api-key", "sesame"],
        "variable": [],
        "file": ["--config", str(tmp_path / "srb.toml")],
    }
    command = [sys.executable, "-m", "llama_srb.cli", "cluster", "up", "--workers=1", "--port=0", "--drain=0"]
    command += ["--worker-port=0", "--metrics-port=0", "--ctx=4096", "--stop-grace=0", *given[place]]
    environ = os.environ | ({"LLAMA_SRB_API_KEY": "sesame"} if place == "variable" else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, text=True) as process:
        assert process.stdout
        try:
            lines: set[str] = set()
            with ThreadPoolExecutor(1) as reader:
                address = reader.submit(process.stdout.readline)
                while not address.done():
                    lines |= command_lines(process.pid)
            url = address.result().strip()
            assert httpx.post(f"{url}/v1/completions", json={"model": "storyteller"} | FEW).status_code == 401
            key = {"Authorization": "Bearer sesame"}
            found = httpx.post(f"{url}/v1/completions", json={"model": "storyteller"} | FEW, headers=key)
            assert found.status_code == 200, found.text
        finally:
            process.terminate()
    assert any("smg" in line for line in lines)
    assert any("--worker-name" in line for line in lines)
    forked = {line for line in lines if "cluster up" in line}  # not yet another program
    assert [line for line in lines - forked if "sesame" in line] == []


def command_lines(pid: int) -> set[str]:
    """Of the children of a process."""
    found = set()
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(Path(f"/proc/{child}/cmdline").read_text(errors="replace").replace("\0", " "))
    return found


def test_without_smg_the_message_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llama_srb.cli.cluster.find_spec", lambda name: None)
    assert "cluster needs the package smg: pip install 'llama-srb[cluster]'" in refused()
