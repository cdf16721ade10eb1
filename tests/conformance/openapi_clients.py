"""Clients that generators make of /openapi.json: .venv/bin/python -m tests.conformance.openapi_clients

openapi-python-client (PyPI) must make a function of every operation; all its modules are imported, and seven
functions call a server of the bundled model. openapi-typescript (npm) must make types that tsc accepts, with
bodies that have only what a request needs. Both are installed in a folder of the cache, in a minute.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from benchmarks import peers
from tests.support.serving import Server, serving

GENERATOR = "openapi-python-client==0.29.1"
TYPES = ("openapi-typescript@7.13.0", "typescript@5.9.3")

CALLS = """
import importlib, json, pathlib, sys

folder, url, operations = pathlib.Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.path.insert(0, str(folder))
for file in sorted((folder / "made").rglob("*.py")):
    importlib.import_module(".".join(file.relative_to(folder).with_suffix("").parts))
functions = [*(folder / "made/api/default").glob("[a-z]*.py")]
assert len(functions) == operations, (len(functions), operations)

from io import BytesIO

from made import Client, models
from made.api.default import (
    chat_completions, create_file, openai_completions, post_complete, post_embed, post_tokenize, score
)
from made.types import File

client = Client(base_url=url)


def called(function, body):
    answer = function.sync_detailed(client=client, body=body)
    assert answer.status_code == 200, answer.content
    return answer.parsed


said = called(openai_completions, models.Request(prompt="Once", n=2, temp=0, max_tokens=3))
assert len(said.choices) == 2 and said.choices[0].text == said.choices[1].text, said
turn = models.MessagesFieldItem(role="user", content="Hi")
assert called(chat_completions, models.ChatRequest(messages=[turn], max_tokens=3)).choices
assert called(post_tokenize, models.TokenizeBody(content="Once")).tokens
assert len(called(score, models.Score(texts=["a", "b"], prompt="Once")).data) == 2
assert len(called(post_embed, ["a", "b"])) == 2
told = called(post_complete, models.CompleteBody.from_dict({"prompt": "Once", "max_tokens": 3}))
assert isinstance(told.choices[0], str)
asked = {"prompt": "x", "max_tokens": 1}
line = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": asked}
data = BytesIO(json.dumps(line).encode())
form = models.Upload(file=File(payload=data, file_name="in.jsonl"), purpose="batch")
assert called(create_file, form).filename == "in.jsonl"
print(f"openapi-python-client: {len(functions)} functions, 7 of them called")
"""

USES = """
import type { components } from "./api";
type Of = components["schemas"];
export const text: Of["Request"] = { prompt: "x", n: 3, temperature: [0.5, null] };
export const chat: Of["ChatRequest"] = { messages: [{ role: "user", content: "x" }], temp: 0.5 };
export const fim: Of["FimRequest"] = { prompt: "x", suffix: "y" };
// @ts-expect-error n is a number
export const wrong: Of["Request"] = { prompt: "x", n: "3" };
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python_of(home: Path) -> Path:
    """The python of an environment with the generator, which is made where it is missing."""
    python = home / "venv/bin/python"
    if not (home / GENERATOR).exists():
        venv.create(home / "venv", clear=True, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", GENERATOR, cwd=home)
        (home / GENERATOR).touch()
    return python


def check_python(document: Path, server: Server, home: Path) -> None:
    python = python_of(home)
    with tempfile.TemporaryDirectory() as name:
        made = ("generate", "--path", document, "--output-path", Path(name) / "made", "--meta", "none")
        (Path(name) / "config.yml").write_text("post_hooks: []\n")
        said = run(python.parent / "openapi-python-client", *made, "--config", "config.yml", cwd=Path(name))
        assert "will not be generated" not in said, said
        assert "Unable to process schema" not in said, said
        paths = json.loads(document.read_text())["paths"]
        operations = sum(len(methods) for methods in paths.values())
        print(run(python, "-c", CALLS, name, server.url, str(operations), cwd=home), end="")


def check_types(document: Path, home: Path) -> None:
    folder = home / "types"
    folder.mkdir(exist_ok=True)
    run("npm", "install", "--silent", "--no-save", "--prefix", folder, *TYPES, cwd=folder)
    run(folder / "node_modules/.bin/openapi-typescript", document, "-o", "api.ts", cwd=folder)
    (folder / "uses.ts").write_text(USES)
    run(folder / "node_modules/.bin/tsc", "--noEmit", "--strict", "uses.ts", cwd=folder)
    print("openapi-typescript: types that tsc accepts, and uses of them")


def main() -> None:
    home = peers.cache() / "openapi-clients"
    home.mkdir(parents=True, exist_ok=True)
    with serving("--ctx", "512", "--files-dir", str(home / "files")) as server:
        status, document = server.json("GET", "/openapi.json")
        assert status == 200, document
        (home / "openapi.json").write_text(json.dumps(document))
        check_python(home / "openapi.json", server, home)
    check_types(home / "openapi.json", home)


if __name__ == "__main__":
    sys.exit(main())
