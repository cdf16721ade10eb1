"""CompatCanary against this server: .venv/bin/python -m tests.conformance.compatcanary

compatcanary (npm) sends seven requests: models, chats, a forced tool, a strict schema, responses. The model
is made (tests/support/agent.py). Takes some seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.suites import folder, run
from tests.support.agent import write_agent_model
from tests.support.serving import serving

PACKAGE = "compatcanary@0.2.2"


def main() -> int:
    home = folder("compatcanary")
    run("npm", "install", "--silent", "--no-save", "--prefix", home, PACKAGE, cwd=home)
    with tempfile.TemporaryDirectory() as name:
        model = Path(name) / "agent.gguf"
        write_agent_model(model)
        with serving("--model", str(model), "--ctx", "8192") as server:
            program = str(home / "node_modules/.bin/compatcanary")
            return subprocess.run(
                [program, "scan", "--base-url", server.url + "/v1", "--model", "agent"]
            ).returncode


if __name__ == "__main__":
    sys.exit(main())
