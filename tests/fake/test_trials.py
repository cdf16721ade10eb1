"""Trials: a task that no file has behaves as it would from a file; only admins try tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llama_srb.config import Settings
from llama_srb.request.values import RequestError
from llama_srb.serving.task_drafts import draft_of
from tests.fake.test_tasks import MODEL, STORY, TASKS, USER, Asked, parts_of
from tests.support.rows import each_row
from tests.support.served import Serving, key_file
from tests.support.several import engine_of

TABLE = TASKS[TASKS.index("[tasks.story]") : TASKS.index("[tasks.brief]")]
"""A task that is configured, as a draft."""
KEYS: tuple[dict[str, Any], ...] = (
    {"name": "all", "scopes": ["admin"]},
    {"name": "tale", "scopes": ["admin"], "models": ["tale"]},
    {"name": "user", "scopes": ["complete", "chat", "embed", "memory", "metrics"]},
)
TRIALS = ("/v1/trials", "/v1/trials/prompt")


@pytest.fixture
async def asked(serving: Serving, tmp_path: Path) -> Asked:
    engines = {name: engine_of(tmp_path, name) for name in ("tale", "poem")}
    file = tmp_path / "srb.toml"
    file.write_text(TASKS.replace("{model}", str(MODEL)).format(**engines))
    keys = key_file(tmp_path / "keys", *KEYS)
    return Asked(await serving(config=str(file), api_key_file=str(keys)), tmp_path)


@pytest.mark.parametrize("body", [{"prompt": "hi"}, {"messages": USER}])
async def test_the_engine_gets_of_a_draft_what_it_gets_of_the_configured_task(
    asked: Asked, body: dict[str, Any]
) -> None:
    path = STORY + ("/chat" if "messages" in body else "/completions")
    for where, named in ((path, {}), (TRIALS[0], {"model": "story"}), (TRIALS[0], {"toml": TABLE})):
        status, _ = await asked.json("POST", where, {"seed": 7, **body, **named})
        assert status == 200
    configured, *tried = ({**note, "time": None} for note in asked.got("poem"))
    assert tried == [configured, configured]
    assert parts_of(configured) == "(<p>)(<u>)hi(<a>)"


async def test_an_edited_draft_has_other_texts_and_settings(asked: Asked) -> None:
    draft = TABLE.replace('"<u>"', '"<new>"').replace("0.5", "0.1").replace('"poem"', '"tale"')
    assert (await asked.json("POST", TRIALS[0], {"toml": draft, "prompt": "hi"}))[0] == 200
    (note,) = asked.got("tale")
    assert parts_of(note) == "(<p>)(<new>)hi(<a>)"
    assert (note["sampling"]["temperature"], note["private_tokens"]) == (0.1, ["<|secret|>"])
    made = (await asked.json("POST", TRIALS[1], {"toml": draft, "prompt": "hi"}))[1]
    assert (made["model"], made["prompt"]) == ("story", "<p><new>hi<a>")
    assert [part["kind"] for part in made["parts"]] == ["prelude", "prefix", "prompt", "postfix"]


REFUSED: list[tuple[dict[str, Any], str, int, str, str]] = [  # body, key, status, code or param, message
    ({"toml": TABLE}, "user", 403, "scope_missing", "admin"),
    ({"model": "story"}, "user", 403, "scope_missing", "admin"),
    ({"toml": TABLE}, "tale", 403, "model_not_allowed", "poem"),
    ({"toml": TABLE, "model": "story"}, "all", 400, "model", "the draft's own table names its model"),
    ({}, "all", 400, "model", "model is null; it must be the name of a task, unless toml is given"),
    ({"model": "stori"}, "all", 404, "task_not_found", "did you mean story?"),
    ({"toml": TABLE, "n": 2}, "all", 400, "locked", "n is set by the task story"),
    ({"toml": TABLE, "prompt": "a<|secret|>"}, "all", 400, "prompt", "private_tokens"),
    ({"toml": "[tasks.a]\nmodel = 'tael'"}, "all", 400, "toml", "tasks.a.model in toml is 'tael'"),
    ({"toml": "[tasks.tale]"}, "all", 400, "toml", "'tale' is the name of models.tale"),
]  # fmt: skip


@each_row(("body", "key", "status", "why", "message"), REFUSED)
@each_row("path", TRIALS)
async def test_what_is_refused(
    asked: Asked, path: str, body: dict[str, Any], key: str, status: int, why: str, message: str
) -> None:
    found, answer = await asked.json("POST", path, {"prompt": "x", **body}, key)
    assert (found, why in (answer["error"]["code"], answer["error"]["param"])) == (status, True), answer
    assert message in answer["error"]["message"]
    assert asked.got("poem") == asked.got("tale") == []


WRONG: list[tuple[object, str]] = [
    (5, "toml is 5; it must be a text"),
    ("\ud800", "it must be a text"),
    ("[tasks.a", "toml is not TOML: "),
    ("x = " + "[" * 5000, "toml is not TOML: "),
    ('x = {"a"' + ".a" * 20_000 + " = 1}", "toml has a name of more than 64 parts: "),
    ("x = 1 #" + "x" * (1 << 20), "toml has 1,048,583 characters; it may have 1,048,576"),
    ("", "must be one table [tasks.NAME]; it has 0 of them"),
    ("[tasks.a]\n[tasks.b]", "it has 2 of them"),
    ("port = 1\n[tasks.a]", "and other keys: port"),
    ("[tasks.a]\n[memories.b]", "and other keys: memories"),
    ("tasks = 1", "tasks in toml is 1; it must be tables"),
    ("[tasks.a]\nprelud = 'x'", "tasks.a.prelud in toml is not a field of a task; did you mean prelude?"),
    ("[tasks.a]\ntemperature = 200", "tasks.a in toml: temperature is 200"),
    ("[tasks.a]\njson_schema_file = '/etc/hostname'", "json_schema_file in toml names a file"),
    ("[tasks.a]\nrecall = { memory = 'b' }", "tasks.a.recall.memory in toml is 'b'"),
    ("[tasks.'a?']", "'a?' cannot be the name of tasks"),
]


@each_row(("text", "message"), WRONG)
def test_a_wrong_draft_is_named_with_its_place(text: object, message: str) -> None:
    with pytest.raises(RequestError) as error:
        draft_of(text, Settings())
    assert message in error.value.message
    assert error.value.param == "toml"
