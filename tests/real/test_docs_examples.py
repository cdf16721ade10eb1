"""The examples of docs/dialects.md are tried: each answer has every key that is shown of it."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from tests.conftest import ROOT
from tests.serving import Server

EXAMPLE = re.compile(r"^    \$ curl ((?:.*\\\n)*.*)\n((?:    .*\n)+)", re.M)
EXAMPLES = EXAMPLE.findall((ROOT / "docs/dialects.md").read_text())


@pytest.mark.parametrize(("command", "shown"), EXAMPLES, ids=lambda text: str(text)[-40:])
def test_an_example_answers_as_shown(server: Server, command: str, shown: str) -> None:
    *_, body, url = shlex.split(command.replace("\\\n", " "))
    status, _, answer = server.call("POST", url.removeprefix("http://localhost:9090"), json.loads(body))
    assert status == 200
    assert not set(re.findall(r'"(\w+)":', shown)) - set(re.findall(r'"(\w+)":', answer.decode()))


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 7
