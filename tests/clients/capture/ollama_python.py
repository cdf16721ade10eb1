"""Records what Ollama's Python client sends: python -m tests.clients.capture.ollama_python, by hand."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

from ollama import Client

from tests.clients.capture.proxy import recording
from tests.clients.captured import FOLDER
from tests.support.serving import serving

ONCE = "Once upon a time,"
HELLO = [{"role": "user", "content": "Tell me of a fox."}]
OPTIONS = {"n": 3, "num_predict": 8, "seed": 7}

Call = Callable[[Client], Any]
CALLS: dict[str, Call] = {
    "generate, stream": lambda c: list(
        c.generate("storyteller", ONCE, raw=True, stream=True, options=OPTIONS)
    ),
    "generate": lambda c: c.generate("storyteller", ONCE, raw=True, options=OPTIONS),
    "chat, stream": lambda c: list(c.chat("storyteller", HELLO, stream=True, options=OPTIONS)),
    "chat": lambda c: c.chat("storyteller", HELLO, options=OPTIONS),
    "pull, stream": lambda c: list(c.pull("storyteller", stream=True)),
    "pull": lambda c: c.pull("storyteller"),
}


def main() -> None:
    found: list[dict[str, object]] = []
    with serving("--ctx", "4096") as server:
        at = urlsplit(server.url)
        with (
            recording(0, (str(at.hostname), int(at.port or 0))) as proxy,
            Client(host=f"http://127.0.0.1:{proxy.port}") as client,
        ):
            for what, call in CALLS.items():
                call(client)
                (one,) = proxy.taken()
                headers = [[k, "127.0.0.1:9090" if k.lower() == "host" else v] for k, v in one.headers]
                found.append({
                    "client": f"ollama {version('ollama')}", "what": what, "method": one.method,
                    "target": one.target, "headers": headers, "body": one.body.decode(),
                })  # fmt: skip
    lines = ",\n  ".join(json.dumps(one) for one in found)
    (FOLDER / "ollama_python.json").write_text(f'{{"requests": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
