"""Records what Claude Code sends when it reads a file for its user; by hand, since it installs from npm.

python -m tests.clients.capture.claude_code --folder DIR installs it in DIR and writes claude_code.json. It
gets none of its user's settings and keys. The model has random weights, so a second proxy, behind the first
one, adds fields of this server, which choose the call and the answer.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.clients.capture.proxy import Recorded, recording
from tests.clients.capture.texts import Texts, as_json
from tests.clients.captured import FOLDER
from tests.support.chats import scripted
from tests.support.models import CHAT_TEMPLATE, CHAT_TOKENS, write_model
from tests.support.serving import Server, serving

VERSION = "2.1.197"
PACKAGE = f"@anthropic-ai/claude-code-linux-x64@{VERSION}"
CONTEXT = 200_000  # tokens; its prompt has 115,000 characters
ANSWER_S = 400  # for the prompt of that length
MESSAGE = "What is in notes.txt?"
NOTES = "Plans for the garden."
QUIET = {
    "DISABLE_TELEMETRY": "1", "DISABLE_ERROR_REPORTING": "1", "DISABLE_AUTOUPDATER": "1",
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
}  # fmt: skip
ROUNDS = {"default model": [], "small model": ["--model", "haiku"]}


def steered(body: dict[str, Any], file: Path) -> dict[str, Any]:
    """The same request, whose answer reads the file, or says what is in it once the result is there."""
    script = scripted("<tool_call>", "</tool_call>")
    if "tool_result" in json.dumps(body["messages"]):
        return body | {"tools": [], "regex": NOTES.replace(".", r"\."), **scripted()}
    script["logit_bias"].append([0, 300])  # token 0 ends the text as soon as the grammar allows it
    path = {"type": "object", "properties": {"file_path": {"enum": [str(file)]}}, "required": ["file_path"]}
    tools = [t | {"input_schema": path} if t["name"] == "Read" else t for t in body["tools"]]
    return body | {"tools": tools, "tool_choice": {"type": "tool", "name": "Read"}, **script}


@contextlib.contextmanager
def steering(server: Server, file: Path) -> Iterator[int]:
    """A proxy that changes requests as `steered` says; its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers.get("content-length", 0)))
            if urlsplit(self.path).path == "/v1/messages":
                data = json.dumps(steered(json.loads(data), file)).encode()
            at = urlsplit(server.url)
            with contextlib.closing(http.client.HTTPConnection(str(at.hostname), at.port)) as connection:
                connection.request(self.command, self.path, data, {"Content-Type": "application/json"})
                response = connection.getresponse()
                self.send_response(response.status)
                self.send_header("Content-Type", response.headers.get("Content-Type", ""))
                self.end_headers()
                while piece := response.read1(1 << 16):
                    self.wfile.write(piece)

        do_GET = do_HEAD = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield proxy.server_address[1]
        proxy.shutdown()


@dataclass(frozen=True, slots=True)
class Agent:
    """Claude Code, with a home of its own, in a folder with a file."""

    program: Path
    home: Path
    work: Path

    @staticmethod
    def installed(folder: Path, work: Path) -> Agent:
        command = ["npm", "install", "--no-audit", "--no-fund", PACKAGE]
        subprocess.run(command, cwd=folder, check=True)
        home = folder / "home"
        home.mkdir(exist_ok=True)
        (work / "notes.txt").write_text(NOTES + "\n")
        return Agent(folder / "node_modules/@anthropic-ai/claude-code-linux-x64/claude", home, work)

    def ask(self, url: str, *arguments: str) -> str:
        """What it answers to the message."""
        own = {"HOME": str(self.home), "PATH": "/usr/bin:/bin", "TERM": "dumb", **QUIET}
        own |= {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": "dummy",
            "API_TIMEOUT_MS": f"{ANSWER_S * 1000}",
        }
        done = subprocess.run(
            [self.program, "-p", MESSAGE, *arguments], cwd=self.work, env=own, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=ANSWER_S, check=False,
        )  # fmt: skip
        return done.stdout.strip()


def recorded(folder: Path) -> Iterator[tuple[str, Recorded]]:
    """The requests of all rounds, each with its round."""
    model = folder / "agent.gguf"
    template = CHAT_TEMPLATE.read_text()
    write_model(model, "llama", chat_template=template, control=list(CHAT_TOKENS), context=CONTEXT)
    with (
        tempfile.TemporaryDirectory(prefix="garden-") as work,
        serving("--model", str(model), "--ctx", str(CONTEXT)) as server,
        steering(server, Path(work, "notes.txt")) as port,
        recording(0, ("127.0.0.1", port)) as proxy,
    ):
        agent = Agent.installed(folder, Path(work))
        for what, arguments in ROUNDS.items():
            answer = agent.ask(f"http://127.0.0.1:{proxy.port}", *arguments)
            print(f"{what}: {answer}", flush=True)
            assert answer == NOTES
            yield from ((what, one) for one in proxy.taken())


def main() -> None:
    parser = argparse.ArgumentParser(description="Claude Code against this server.")
    parser.add_argument("--folder", type=Path, required=True, help="where it is installed and works")
    folder: Path = parser.parse_args().folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    found = list(recorded(folder))
    with serving("--ctx", "8192") as server:
        texts = Texts(server, MESSAGE)
        requests = [
            json.dumps(as_json(f"claude-code {VERSION}", what, one, texts), ensure_ascii=False)
            for what, one in found
        ]
    named = json.dumps(texts.named, ensure_ascii=False, indent=1)
    lines = ",\n  ".join(requests)
    (FOLDER / "claude_code.json").write_text(f'{{"texts": {named},\n "requests": [\n  {lines}\n]}}\n')


if __name__ == "__main__":
    main()
