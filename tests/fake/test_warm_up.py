"""--prompt and --prompt-file: what each new engine computes before its first request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_srb import config
from llama_srb.config import SettingsError
from llama_srb.engine.exchange import EngineError
from tests.support.served import Serving
from tests.support.several import serve

TEXT = "Once upon a time there was a fox."


def computed(noted: list[dict[str, Any]]) -> list[str]:
    return [note["what"] for note in noted if note["what"] in ("prefix", "generate")]


async def test_the_prompt_is_computed_before_the_server_is_ready(serving: Serving, tmp_path: Path) -> None:
    served = await serving(prompt=TEXT)
    assert computed(served.noted()) == ["prefix"]
    await served.events({"prompt": "x", "n": 1, "max_tokens": 2})
    assert computed(served.noted()) == ["prefix", "generate"]


async def test_each_later_engine_computes_it_before_its_first_request(serving: Serving) -> None:
    served = await serving("--die-after", "3", prompt=TEXT)
    await served.post({"prompt": "x", "n": 1, "max_tokens": 50})
    await served.note("prefix", count=2)
    await served.post({"prompt": "x", "n": 1, "max_tokens": 50})
    assert computed(served.noted()) == ["prefix", "generate"] * 2


async def test_a_prompt_that_the_engine_refuses_is_an_error_at_the_start(serving: Serving) -> None:
    with pytest.raises(EngineError, match=r"the prompt of the warm-up \(--prompt\) is refused: "):
        await serving(prompt=TEXT * 10_000)


async def test_each_model_has_its_own(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "poem.txt").write_text("Roses are red,")
    table = {"tale": {}, "poem": {"prompt_file": "poem.txt"}, "none": {"prompt": ""}}
    several = await serve(serving, tmp_path, table, prompt=TEXT)
    for name in table:
        assert computed(several.noted(name)) == []
        await several.served.events({"model": name, "prompt": "x", "n": 1, "max_tokens": 2}, "/v1/events")
    assert {name: computed(several.noted(name)) for name in table} == {
        "tale": ["prefix", "generate"],
        "poem": ["prefix", "generate"],
        "none": ["generate"],
    }


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('prompt = "a"\nprompt_file = "b"', "prompt in .* and prompt_file in .* are both set"),
        ('prompt_file = "absent.txt"', "prompt_file: cannot read .*absent.txt: No such file"),
        ('prompt_file = "latin.txt"', r"prompt_file: .*latin.txt is not UTF-8 \(byte 1\)"),
        ('prompt = "a"\nengine_mode = "per-request"', "prompt needs --prefix-cache in the mode per-request"),
    ],
)
def test_wrong_settings_say_what_is_wrong(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "latin.txt").write_bytes(b"a\xe9b")
    file = tmp_path / "srb.toml"
    file.write_text(lines)
    with pytest.raises(SettingsError, match=message):
        config.load({}, config=str(file), environ={}).warm_up()
