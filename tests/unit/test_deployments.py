"""packaging/compose and packaging/kubernetes: their schemas, and what they say twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from typing import Any

import kubernetes_validate
import pytest
import yaml

from llama_srb.cli.cluster.gateway import SETTINGS
from llama_srb.config import load
from llama_srb.config.rows import Rows
from tests.support.places import ROOT
from tests.support.processes import installed

COMPOSE, KUBERNETES = ROOT / "packaging" / "compose", ROOT / "packaging" / "kubernetes"
VERSION = "1.34"  # of Kubernetes
DRAINED = 60  # seconds, of preStop
ENGINE = 4  # seconds: end of file, then SIGTERM, 2 s each


@cache
def services() -> dict[str, Any]:
    return dict(yaml.safe_load((COMPOSE / "compose.yaml").read_text())["services"])


@cache
def rendered() -> tuple[dict[str, Any], ...]:
    kubectl = installed("kubernetes-client", "kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here; as root on Debian the tests install it")
    told = subprocess.run([kubectl, "kustomize", KUBERNETES], capture_output=True, text=True, check=True)
    return tuple(yaml.safe_load_all(told.stdout))


def one(kind: str, name: str) -> Any:
    (found,) = [one for one in rendered() if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def pod(kind: str, name: str) -> Any:
    return one(kind, name)["spec"]["template"]["spec"]


def flags(words: list[str]) -> dict[str, str]:
    """The flags --name=value of a command line."""
    return dict(word.split("=", 1) for word in words if word.startswith("--") and "=" in word)


# Schemas


def test_compose_is_valid() -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    done = subprocess.run([*command, COMPOSE / "compose.yaml"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_each_object_of_kubernetes_is_valid() -> None:
    own = {"ScaledObject", "PodMonitor"}  # KEDA's, and the Prometheus Operator's
    checked = [one for one in rendered() if one["kind"] not in own]
    assert len(checked) > 10
    for manifest in checked:
        kubernetes_validate.validate(manifest, VERSION, strict=True)


def test_kedas_object_names_what_is_there() -> None:
    scaled = one("ScaledObject", "llama-srb-worker")["spec"]
    target = scaled["scaleTargetRef"]
    assert one(target["kind"], target["name"])["apiVersion"] == target["apiVersion"]
    assert scaled["minReplicaCount"] == one("StatefulSet", "llama-srb-worker")["spec"]["replicas"]
    assert "vllm:num_requests_waiting" in scaled["triggers"][0]["metadata"]["query"]


def test_the_volumes_files_are_there() -> None:
    for service in services().values():
        for volume in service.get("volumes", ()):
            source = volume.removesuffix(":ro").rsplit(":", 1)[0]
            source = re.sub(r"\$\{\w+:-(.*)\}", r"\1", source)
            assert not source.startswith(".") or (COMPOSE / source).exists(), volume


# What is said twice


@pytest.mark.parametrize("place", ["compose", "kubernetes"])
def test_smgs_flags_are_those_of_a_cluster(place: str) -> None:
    if place == "compose":
        words = services()["gateway"]["command"]
    else:
        words = pod("Deployment", "llama-srb-gateway")["containers"][0]["args"]
    found = flags(words)
    known = {name: str(value) for name, value in SETTINGS.items()}
    assert {name: found.get(name) for name in known} == known
    assert "--disable-tokenizer-autoload" in words


def test_the_gateway_knows_every_worker() -> None:
    workers = [name for name in services() if name.startswith("worker")]
    command = services()["gateway"]["command"]
    assert command[command.index("--worker-urls") + 1 :] == [f"http://{name}:9090" for name in workers]
    scraped = yaml.safe_load((COMPOSE / "prometheus.yml").read_text())["scrape_configs"][0]
    assert scraped["static_configs"][0]["targets"] == [f"{name}:9090" for name in workers]
    selector = "app.kubernetes.io/name=llama-srb-worker"
    assert selector in pod("Deployment", "llama-srb-gateway")["containers"][0]["args"]
    labels = one("StatefulSet", "llama-srb-worker")["spec"]["template"]["metadata"]["labels"]
    assert selector.split("=")[1] == labels["app.kubernetes.io/name"]


def test_variables_are_settings() -> None:
    given = [name for service in services().values() for name in service.get("environment", {})]
    given += [one["name"] for one in pod("StatefulSet", "llama-srb-worker")["containers"][0].get("env", ())]
    ours = {name.removeprefix("LLAMA_SRB_").lower() for name in given if name.startswith("LLAMA_SRB_")}
    assert ours
    assert ours <= set(Rows.model_fields)


def test_the_workers_settings_are_valid(tmp_path: Any) -> None:
    text = (KUBERNETES / "config.toml").read_text()
    model, folder = ROOT / "models/storyteller.gguf", tmp_path / "prefixes"
    file = tmp_path / "config.toml"
    file.write_text(text.replace("/models/model.gguf", str(model)).replace('"/prefixes"', f'"{folder}"'))
    settings = load({}, config=str(file), environ={"LLAMA_SRB_API_KEY": "k" * 20})
    assert settings.host == "0.0.0.0"


def test_a_worker_has_time_to_drain() -> None:
    grace = tomllib.loads((KUBERNETES / "config.toml").read_text())["stop_grace"]
    spec = pod("StatefulSet", "llama-srb-worker")
    drain = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
    assert drain[-3:] == ["drain", "--wait", str(DRAINED)]
    assert spec["terminationGracePeriodSeconds"] > DRAINED + grace + ENGINE
    worker = services()["worker-1"]
    stopped = int(worker["environment"]["LLAMA_SRB_STOP_GRACE"])
    assert int(worker["stop_grace_period"].removesuffix("s")) > stopped + ENGINE


def test_containers_can_write_only_what_they_must() -> None:
    for kind, name in (("StatefulSet", "llama-srb-worker"), ("Deployment", "llama-srb-gateway")):
        spec = pod(kind, name)
        context = spec["containers"][0]["securityContext"]
        assert spec["securityContext"]["runAsNonRoot"]
        assert context["readOnlyRootFilesystem"]
        assert context["capabilities"] == {"drop": ["ALL"]}
        mounts = spec["containers"][0]["volumeMounts"]
        assert {one["name"] for one in mounts if not one.get("readOnly")} <= {"tmp", "prefixes"}
    for name, service in services().items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["user"] not in ("0", "root"), name


def test_the_dashboards_file_is_grafanas() -> None:
    provider = yaml.safe_load((COMPOSE / "grafana-dashboards.yml").read_text())["providers"][0]
    (mount,) = [one for one in services()["grafana"]["volumes"] if "grafana.json" in one]
    assert mount.split(":")[1].startswith(provider["options"]["path"])
    assert json.loads((COMPOSE / mount.split(":")[0]).read_text())["panels"]
