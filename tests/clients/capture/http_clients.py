"""Records what curl, requests and JavaScript's fetch send for a script that says nothing of forms.

By hand, since it installs from npm: python -m tests.clients.capture.http_clients writes http_clients.json.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import requests

from tests.clients.capture.proxy import Proxy, recording
from tests.clients.captured import FOLDER
from tests.support.serving import serving

BODIES = {
    "prompt": {"prompt": "Once upon a time,"},
    "samplers": {"prompt": "Once upon a time,", "n": 2, "temperature": 0.7},
}
NODE_FETCH = {"node-fetch 2": "node-fetch@2", "node-fetch 3": "node-fetch@3"}
SCRIPT = """
import {{ createRequire }} from "node:module";
{imported}
const answer = await fetch(process.argv[2], {{
    method: "POST",
    headers: {{ "Content-Type": "application/json" }},
    body: process.argv[3],
}});
await answer.text();
"""


def ask_by_curl(url: str, body: str) -> None:
    subprocess.run(["curl", "-sN", url, "-d", body], stdout=subprocess.DEVNULL, check=True)


def ask_by_requests(url: str, body: str) -> None:
    requests.post(url, json=json.loads(body), timeout=60)


def ask_by_node(folder: Path, url: str, body: str) -> None:
    """With node's own fetch, or with node-fetch if the folder has it."""
    imported = 'import fetch from "node-fetch";' if (folder / "node_modules").exists() else ""
    (folder / "ask.mjs").write_text(SCRIPT.format(imported=imported))
    subprocess.run(["node", "ask.mjs", url, body], cwd=folder, check=True)


def _recorded(proxy: Proxy, client: str, what: str) -> dict[str, object]:
    (one,) = proxy.taken()
    headers = [[name, "127.0.0.1:9090" if name.lower() == "host" else value] for name, value in one.headers]
    return {
        "client": client, "what": what, "method": one.method, "target": one.target, "headers": headers,
        "body": one.body.decode(),
    }  # fmt: skip


def _node_version() -> str:
    return subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    found: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as scratch, serving() as server:
        at = urlsplit(server.url)
        with recording(0, (str(at.hostname), int(at.port or 0))) as proxy:
            url = f"http://127.0.0.1:{proxy.port}/v1/completions"
            curl = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
            for what, body in BODIES.items():
                text = json.dumps(body)
                ask_by_curl(url, text)
                found.append(_recorded(proxy, " ".join(curl.split()[:2]), what))
                ask_by_requests(url, text)
                found.append(_recorded(proxy, f"requests {version('requests')}", what))
                for client, package in {f"node {_node_version()}": "", **NODE_FETCH}.items():
                    folder = Path(scratch) / client
                    folder.mkdir(exist_ok=True)
                    if package:
                        subprocess.run(["npm", "install", "--silent", package], cwd=folder, check=True)
                    ask_by_node(folder, url, text)
                    found.append(_recorded(proxy, client, what))
    lines = ",\n  ".join(json.dumps(one) for one in found)
    (FOLDER / "http_clients.json").write_text(f'{{"requests": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
