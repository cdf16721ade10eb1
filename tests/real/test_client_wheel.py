"""The client's wheel, made of the tree, in an environment that has httpx, orjson and what they need."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.support.places import ROOT
from tests.support.serving import Server

ASKS = """
import asyncio, importlib.util, json, sys
from llama_srb import AsyncClient, Client
from llama_srb.client import ClientError

url = sys.argv[1]
with Client(url) as client:
    asked = {"n": 2, "max_tokens": 4, "seed": 3}
    texts = [one.text for one in client.complete("Once upon a time,", **asked)]
    answer = [one.text for one in client.chat("Hello, how are you?", temperature=0.5, **asked)]
    vectors, models = client.embed(["a", "b"]), client.models()
    try:
        client.complete("Once", temprature=1)
    except ClientError as error:
        refused = str(error)

async def again():
    async with AsyncClient(url) as client:
        async with client.stream("Once upon a time,", **asked) as stream:
            async for event in stream:
                pass
        return [one.text for one in stream.choices]

print(json.dumps({
    "texts": texts, "again": asyncio.run(again()), "answers": len(answer), "vectors": len(vectors),
    "models": len(models), "refused": refused,
    "others": [name for name in ("aiohttp", "click", "pydantic", "rich") if importlib.util.find_spec(name)],
}))
"""


def needed(name: str, known: dict[str, importlib.metadata.Distribution]) -> None:
    """Adds a package, and those that it needs without extras."""
    if name in known:
        return
    known[name] = importlib.metadata.distribution(name)
    for one in map(Requirement, known[name].requires or ()):
        if one.marker is None or one.marker.evaluate({"extra": ""}):
            needed(one.name, known)


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The python of an environment with the wheel and what it needs, as they are installed here."""
    tmp_path = tmp_path_factory.mktemp("client")
    made = [sys.executable, str(ROOT / "scripts/wheel"), "--client", "--to", str(tmp_path)]
    subprocess.run(made, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    venv.create(tmp_path / "venv", with_pip=False)
    scheme = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    site = Path(sysconfig.get_path("purelib", "venv", scheme))
    with ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("llama_srb_client-*.dist-info/METADATA")
    needs = re.findall(r"^Requires-Dist: (\w+)", metadata.read_text(), re.MULTILINE)
    assert needs == ["httpx", "orjson"]
    known: dict[str, importlib.metadata.Distribution] = {}
    for name in needs:
        needed(name, known)
    for distribution in known.values():
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] != ".."}:
            link = site / top
            if top != "__pycache__" and not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))))
    return tmp_path / "venv/bin/python"


def test_the_client_alone_asks_a_server(python: Path, server: Server) -> None:
    done = subprocess.run(
        [python, "-I", "-W", "error", "-c", ASKS, server.url], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert said["texts"] == said["again"]
    assert (said["answers"], said["vectors"], said["models"], said["others"]) == (2, 2, 1, [])
    assert "did you mean temperature?" in said["refused"]


def test_its_files_are_those_of_the_package(python: Path) -> None:
    site = next(python.parent.parent.glob("lib/*/site-packages"))
    ours = {path.relative_to(site) for path in (site / "llama_srb").rglob("*.py")}
    assert ours == {
        path.relative_to(ROOT)
        for path in (ROOT / "llama_srb/__init__.py", *(ROOT / "llama_srb/client").glob("*.py"))
        if path.name != "server_process.py"
    }
    assert all((site / name).read_bytes() == (ROOT / name).read_bytes() for name in ours)
