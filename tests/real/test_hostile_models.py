"""Models with hostile metadata: their chats get an answer or an error in time, other requests are unaffected."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.support.lines import Lines
from tests.support.models import write_model
from tests.support.places import BINARY, STORYTELLER
from tests.support.processes import status

HELLO = [{"role": "user", "content": "Hello there"}]
TEMPLATES = {
    "loops for ever": "{% for i in range(1000000000) %}{% for j in range(1000000000) %}x{% endfor %}{% endfor %}",
    "grows without end": "{% set ns = namespace(t='xxxxxxxxxx') %}{% for i in range(60) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}{{ ns.t }}",
    "calls itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "repeats a text": "{{ 'x' * 1000000000000 }}",
    "divides by nothing": "{{ 1 // 0 }}{{ 1 % 0 }}",
    "looks below": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "reads files": "{% include '/etc/passwd' %}{% import '/etc/passwd' as f %}",
    "raises": "{{ raise_exception('no') }}",
    "ends early": "{% for m in messages %}{{ m",
    "is deep": "{{" + "(" * 20_000 + "1" + ")" * 20_000 + "}}",
    "is deep in blocks": "{% if 1 %}" * 5_000 + "x" + "{% endif %}" * 5_000,
    "is no text": "\x00\x01\x1b[2J\x7f{{ messages }}",
    "is empty": "",
    "is long": "{{ messages[0].content }}" + "x" * 2_000_000,
}  # fmt: skip
LOADS = 60.0  # seconds
ANSWERS = 120.0  # seconds beside other work; a template may take two


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
def test_a_template_harms_its_own_chats_only(tmp_path: Path, template: str) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, "llama", chat_template=template)
    with Lines("-c", "512", model=path) as engine:
        began = time.monotonic()
        chat, plain = engine.answers(
            engine.send(
                {"op": "chat", "messages": HELLO, "max_tokens": 2},
                {"op": "generate", "prompt": "1 2 3", "max_tokens": 2},
            )
        )
        assert time.monotonic() - began < ANSWERS
        assert chat.events[-1]["event"] in ("done", "error")
        assert plain.done["completion_tokens"] == 2
        assert status(engine.pid, "VmHWM") < 1 << 20  # KiB; hostile templates run in a subprocess with limits


def test_a_template_s_own_words_are_whole(tmp_path: Path) -> None:
    """Up to 2,000 characters, without llama.cpp's report around them."""
    for words in ("only user and assistant, please", "w" * 1900 + " END", "ä" * 2000, "ä" * 2500):
        path = tmp_path / "model.gguf"
        write_model(path, "llama", chat_template="{{ raise_exception('" + words + "') }}")
        with Lines("-c", "512", model=path) as engine:
            (chat,) = engine.answers(engine.send({"op": "chat", "messages": HELLO, "max_tokens": 2}))
        assert chat.events[-1]["message"] == "the chat template refuses the messages: " + words[:2000]


def test_a_file_that_cannot_be_loaded_is_said_why(tmp_path: Path) -> None:
    """Each time: llama.cpp's lines are written by a thread of their own."""
    path = tmp_path / "truncated.gguf"
    path.write_bytes(STORYTELLER.read_bytes()[:2_000_000])
    for _ in range(10):
        run = subprocess.run(
            (BINARY, "-m", path), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 1
        assert "corrupted or incomplete" in run.stderr
