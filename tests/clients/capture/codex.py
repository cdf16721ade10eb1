"""Records what Codex sends: the real program from npm, without a person, with a model that calls a tool once.

By hand, since it installs from npm: python -m tests.clients.capture.codex --folder DIR [--write]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from tests.clients.capture.agents import Kept, write
from tests.clients.capture.proxy import recording
from tests.clients.capture.texts import Texts
from tests.support.agent import write_agent_model
from tests.support.serving import serving

VERSION = "0.169.0"
QUESTION = "What is in this folder?"
CONFIG = """
model = "{model}"
model_provider = "local"
check_for_update_on_startup = false
[analytics]
enabled = false
[feedback]
enabled = false
[features]
plugins = false
[model_providers.local]
name = "local"
base_url = "{url}/v1"
env_key = "LOCAL_KEY"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""


@dataclass(frozen=True, slots=True)
class Session:
    """One question. model: a name, by which Codex chooses tools. names: as in write_agent_model."""

    what: str
    model: str
    names: str
    context: int = 65536


SESSIONS = (
    Session("a function", "storyteller", "e"),  # exec_command
    Session("a custom tool", "gpt-5.5", "a"),  # apply_patch
    Session("too little context", "storyteller", "e", context=4096),
)


def install(folder: Path) -> Path:
    """Codex in this folder, from npm if it is not there; its program."""
    program = folder / "node_modules" / ".bin" / "codex"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--no-audit", "--no-fund", f"@openai/codex@{VERSION}"]
        subprocess.run(command, cwd=folder, check=True)
    return program


def ask(program: Path, folder: Path, session: Session, url: str) -> str:
    """What Codex shows for a question: a line of JSON for each thing that happens."""
    home, work = folder / "home", folder / "work"
    home.mkdir(exist_ok=True)
    work.mkdir(exist_ok=True)
    (work / "README.md").write_text("A small project.\n")
    (home / "config.toml").write_text(CONFIG.format(model=session.model, url=url))
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "LOCAL_KEY": "-"}
    command = [str(program), "exec", "--skip-git-repo-check", "-s", "read-only", "--json", QUESTION]
    ended = subprocess.run(
        command,
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.stdout


def play(program: Path, folder: Path, session: Session) -> Iterator[Kept]:
    model = folder / f"agent-{session.names}.gguf"
    write_agent_model(model, session.names)
    flags = ("--model", str(model), "--ctx", str(session.context))
    with serving(*flags, "--", "-t", "1") as server:
        at = urlsplit(server.url)
        with recording(0, (str(at.hostname), int(at.port or 0))) as proxy:
            print(session.what)
            for line in ask(program, folder, session, f"http://127.0.0.1:{proxy.port}").splitlines():
                print("  ", json.dumps(json.loads(line))[:400])
            for i, request in enumerate(proxy.requests, 1):
                yield Kept(f"codex {VERSION}", f"{session.what}, {i}", request)


def main() -> None:
    parser = argparse.ArgumentParser(description="Codex's requests to this server.")
    parser.add_argument("--folder", type=Path, required=True, help="where all is installed")
    parser.add_argument("--write", action="store_true", help="write tests/clients/codex.json")
    given = parser.parse_args()
    folder: Path = given.folder.resolve()
    program = install(folder)
    kept = [one for session in SESSIONS for one in play(program, folder, session)]
    if given.write:
        source = f"@openai/codex {VERSION} (npm), by tests/clients/capture/codex.py; long texts are ours"
        with serving() as server:
            write("codex.json", source, kept, Texts(server, QUESTION))


if __name__ == "__main__":
    main()
