"""packaging/monitoring on a real Prometheus that scrapes servers under load."""

from __future__ import annotations

import contextlib
import json
import math
import re
import subprocess
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.places import ROOT, STORYTELLER
from tests.support.prometheus import PATIENCE, program, prometheus
from tests.support.prometheus import query as ask
from tests.support.rows import each_row
from tests.support.served import key_file
from tests.support.serving import Server, serving

FOLDER = ROOT / "packaging" / "monitoring"
PANELS = [one for one in json.loads((FOLDER / "grafana.json").read_text())["panels"] if one["type"] != "row"]
TARGETS = [
    pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
WINDOW = "10s"
SCRAPER = "prometheus"  # a key
SEVERAL = f"""
[models.tale]
path = "{STORYTELLER}"
preload = true
[models.poem]
path = "{STORYTELLER}"
preload = true
"""


@dataclass
class Loaded:
    """Servers under load by name, and a Prometheus that scrapes them."""

    servers: dict[str, Server]
    url: str

    def get(self, path: str, **query: str) -> Any:
        return ask(self.url, path, **query)

    def values(self, expr: str) -> list[float]:
        """The last value of each series of a query."""
        return [float(one["value"][1]) for one in self.get("/api/v1/query", query=expr)["result"]]


def load(server: Server, models: list[str], key: str, over: threading.Event) -> None:
    """Requests of several kinds until `over` is set."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    at = 0
    while not over.is_set():
        body = {
            "prompt": f"Once upon a time {at % 8}",
            "n": 4,
            "max_tokens": 16,
            "model": models[at % len(models)],
        }
        for path, more in (
            ("/v1/events", {}),
            ("/v1/completions", {"stream": False}),
            ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "prompt": None}),
        ):
            server.call(
                "POST", path, {name: v for name, v in (body | more).items() if v is not None}, **headers
            )
        at += 1


def scraping(servers: dict[str, Server]) -> dict[str, Any]:
    """Prometheus' configuration, with the alerts."""
    targets = [urllib.parse.urlsplit(server.url).netloc for server in servers.values()]
    job = {"job_name": "llama-srb", "static_configs": [{"targets": targets}]}
    scrape = {**job, "authorization": {"credentials": SCRAPER}}
    return {"rule_files": [str(FOLDER / "alerts.yml")], "scrape_configs": [scrape]}


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    folder, over = tmp_path_factory.mktemp("prometheus"), threading.Event()
    program("prometheus")
    keys = key_file(folder / "keys", {"name": "ann"}, {"name": SCRAPER, "scopes": ["metrics"]})
    (folder / "srb.toml").write_text(SEVERAL)
    with contextlib.ExitStack() as stack:
        start = [("one model", ("--api-key-file", str(keys)), ["storyteller"], "ann")]
        start += [("by name", ("--config", str(folder / "srb.toml")), ["tale", "poem"], "")]
        servers, threads = {}, []
        for name, options, models, key in start:
            servers[name] = stack.enter_context(serving("--ctx", "2048", *options))
            threads.append(threading.Thread(target=load, args=(servers[name], models, key, over)))
        url = stack.enter_context(prometheus(folder, scraping(servers)))
        for thread in threads:
            thread.start()
        try:
            yield Loaded(servers, url)
        finally:
            over.set()
            for thread in threads:
                thread.join()


@each_row("expr", TARGETS)
def test_each_query_of_a_panel_has_series_and_all_are_finite(loaded: Loaded, expr: str) -> None:
    for name, server in loaded.servers.items():
        instance = re.escape(urllib.parse.urlsplit(server.url).netloc).replace("\\", "\\\\")
        query = expr.replace("$__rate_interval", WINDOW).replace("$instance", instance)
        query = query.replace("$job", "llama-srb").replace("$model", ".*")
        assert "$" not in query
        deadline, found = time.monotonic() + PATIENCE, list[float]()
        while not found or not all(map(math.isfinite, found)):
            assert time.monotonic() < deadline, f"{name}: {query} is {found}"
            found = loaded.values(query)


def test_prometheus_evaluates_every_alert_and_knows_its_metrics(loaded: Loaded) -> None:
    deadline, states = time.monotonic() + PATIENCE, {"unknown"}
    while "unknown" in states:  # not evaluated yet
        assert time.monotonic() < deadline
        rules = [rule for group in loaded.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        states = {rule["health"] for rule in rules}
    assert (states, {rule["state"] for rule in rules}) == ({"ok"}, {"inactive"})
    known = set(loaded.get("/api/v1/label/__name__/values"))
    named = {name for rule in rules for name in re.findall(r"llama_srb_\w+", rule["query"])}
    assert len(named) > 8
    assert named - known == set()


def test_the_gauges_of_vllm_have_the_models_names(loaded: Loaded) -> None:
    for gauge in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"):
        found = loaded.get("/api/v1/query", query=f'{{__name__="vllm:{gauge}"}}')["result"]
        assert {one["metric"]["model_name"] for one in found} == {"storyteller", "tale", "poem"}


# Without a server


def promtool(*arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        [program("promtool"), *arguments], cwd=FOLDER, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "arguments", ["check config prometheus.yml", "check rules alerts.yml", "test rules alerts_test.yml"]
)
def test_promtool_has_no_complaint(arguments: str) -> None:
    code, output = promtool(*arguments.split())
    assert code == 0, output


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    rules = set(re.findall(r"^ +- alert: (\w+)$", (FOLDER / "alerts.yml").read_text(), re.MULTILINE))
    text = (FOLDER / "alerts_test.yml").read_text()
    fires = re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts:\n +- exp_labels", text)
    assert (set(fires), len(rules)) == (rules, len(fires))
    assert text.count("exp_samples: []") >= 3


def test_the_panels_do_not_overlap() -> None:
    cells = [
        (panel["gridPos"]["x"] + i, panel["gridPos"]["y"] + j)
        for panel in PANELS
        for i in range(panel["gridPos"]["w"])
        for j in range(panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert len({panel["id"] for panel in PANELS}) == len(PANELS) > 15
