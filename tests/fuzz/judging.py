"""Asks judge.py, in an environment of its own: the tests' own jsonschema lacks some formats."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.conformance.suites import environment, folder

JUDGE = Path(__file__).with_name("judge.py")
PACKAGES = ["jsonschema[format-nongpl]==4.26.0"]


def judge(lines: list[str]) -> list[dict[str, Any]]:
    return answers([str(environment(folder("jsonschema"), PACKAGES)), str(JUDGE)], lines)


def judged(asked: Iterable[tuple[Any, list[Any]]]) -> list[dict[str, Any]]:
    """The verdicts on the values of each schema."""
    return judge(
        [
            json.dumps({"schema": json.dumps(schema), "values": [*map(json.dumps, values)]})
            for schema, values in asked
        ]
    )


def answers(command: list[str], lines: list[str]) -> list[dict[str, Any]]:
    """What a program says to each line."""
    given = "".join(line + "\n" for line in lines).encode()
    said = subprocess.run(command, input=given, capture_output=True, check=True)
    return [json.loads(line) for line in said.stdout.split(b"\n") if line]
