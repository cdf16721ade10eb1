"""A model with a table in the settings' file: its name, its defaults of request fields, its adapters."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.real.test_adapters import PROMPT, TEXTS, folder  # noqa: F401 (a fixture)
from tests.real.test_scores import BOUND
from tests.support.places import STORYTELLER
from tests.support.serving import Server, serving

BODY = {"prompt": "Once upon a time", "n": 2, "stream": False, "form": "openai"}


def lengths(server: Server, **fields: object) -> tuple[str, list[str], int]:
    """An answer's model, its texts and all its tokens."""
    status, answer = server.json("POST", "/openai/v1/completions", BODY | fields)
    assert status == 200, answer
    texts = [choice["text"] for choice in answer["choices"]]
    return answer["model"], texts, answer["usage"]["completion_tokens"]


def test_a_table_names_a_model_and_sets_its_defaults(tmp_path: Path) -> None:
    (tmp_path / "srb.toml").write_text(f"""
        [models.teller]
        path = "{STORYTELLER}"
        aliases = ["gpt-3.5-turbo"]
        ctx = 1024
        sampling = {{ temperature = 0, max_tokens = 5 }}
    """)
    with serving("--config", str(tmp_path / "srb.toml")) as server:
        listed = server.json("GET", "/v1/models")[1]["data"]
        assert [(one["id"], one["aliases"]) for one in listed] == [("teller", ["gpt-3.5-turbo"])]
        model, (first, second), tokens = lengths(server)
        assert (model, first, tokens) == ("teller", second, 10)
        assert lengths(server, max_tokens=3)[2] == 6
        assert lengths(server, model="gpt-3.5-turbo")[0] == "gpt-3.5-turbo"


def test_defaults_and_a_file_need_no_table() -> None:
    with serving(str(STORYTELLER), "--ctx", "1024", "--sampling", '{"max_tokens": 4}') as server:
        model, _, tokens = lengths(server)
        assert (model, tokens) == ("storyteller", 8)


def test_adapters_by_name_are_off_unless_they_are_named(folder: Path) -> None:  # noqa: F811
    body = {"prompt": PROMPT, "texts": TEXTS}
    files = [str(folder / f"{seed}.gguf") for seed in (0, 1)]
    scores = []
    for options in ([], ["--lora", files[1], "--adapters", f"pirate={files[0]}"]):
        with serving("--model", str(folder / "model.gguf"), "--ctx", "2048", *options) as server:
            for fields in ({}, {"lora": [{"id": 1, "scale": 1}]}) if options else ({},):
                status, scored = server.json("POST", "/v1/score", body | fields)
                assert status == 200, scored
                scores.append([token["logprob"] for one in scored["data"] for token in one["tokens"]])
            listed = server.json("GET", "/v1/adapters")[1]["data"]
    assert [(one["id"], one["path"], one["scale"]) for one in listed] == [(0, files[1], 1), (1, files[0], 0)]
    plain, always, pirate = map(np.array, scores)
    assert np.abs(always - plain).max() > BOUND  # of --lora, which is on
    assert np.abs(pirate - always).max() > BOUND
