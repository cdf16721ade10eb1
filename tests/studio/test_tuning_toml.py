"""The TOML of a draft: `config check` accepts it, and a server that has it does what the draft did."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect

from llama_srb.config import load
from llama_srb.serving.task_drafts import draft_of
from llama_srb.tasks import Task, read
from tests.studio.tuning import EXACT, PROMPT, run, texts, toml_of, tuning, view
from tests.support import forked
from tests.support.places import ROOT
from tests.support.serving import Server, serving

Visit = Callable[[str], Page]


def test_the_exported_task_is_accepted_and_gives_the_same_texts(
    exact: Server, visit: Visit, tmp_path: Path
) -> None:
    page = visit(exact.url)
    tuning(page)
    page.get_by_label("Prefix").fill('\n"Hello", said \\ the cat.\n')
    page.get_by_label("Prelude").fill("Three friends\nlived in a wood.\nEach had a house.")
    page.get_by_label("Creativity (temperature)").fill("1.1")
    page.get_by_label("Tokens each").fill("12")
    run(page, seed=11)
    wanted = texts(page, "Edited")
    assert wanted != texts(page, "As configured")
    view(page, "TOML")
    expect(page.get_by_text("The server accepts this table.")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    assert download.value.suggested_filename == "story.toml"
    file = tmp_path / "story.toml"
    download.value.save_as(file)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy").click()
    expect(page.get_by_role("status").filter(has_text="copied")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == file.read_text()
    command = [sys.executable, "-m", "llama_srb.cli", "config", "check", str(file)]
    checked = forked.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr
    with serving("--config", str(file), *EXACT) as server:
        events = server.events({"prompt": PROMPT, "seed": 11}, "/v1/tasks/story/completions")
        served = [
            "".join(e["text"] for e in events if e["event"] == "stream" and e["index"] == i) for i in range(3)
        ]
        assert served == wanted
        other = visit(server.url)
        tuning(other)
        assert toml_of(other) == file.read_text()


ODD = r"""
[tasks.texts]
about = 'It says "no" \ to all'
prelude = "a\r\nb\tc\u007f\u0000\u0007 \u00e4 \U0001F600 '''\n\"\"\"\\"
prefix = "\n\n"
postfix = '''
{"a": 'b\n'}'''
stop = "\n"
private_tokens = ["a\\nb", "c\nd"]
[tasks."a b"]
stop = ["\r\n", "x"]
temperature = [0.5, 1.0]
n = 2
samplers = ["top_k", "temperature"]
logit_bias = [[5, -1.5], ["cat", false]]
min_tokens = 2
seed = 4294967294
min_p = 1e-7
[tasks.schema]
json_schema = { type = "object", properties = { "a b" = { enum = [1, 2.5, true, "'"] } } }
locked = ["json_schema", "temp"]
[tasks.schema_as_text]
json_schema = '{"type": "object", "properties": {"z": {}, "a": {"enum": [null]}}}'
[tasks.schema_in_a_file]
json_schema_file = "schema.json"
[tasks.bias]
bias_prompt = "As JSON:"
json_schema = { type = "object" }
[tasks.bias_by_choice]
bias_prompt = "It was"
choice = "good"
[tasks.second]
then = { text = "It was", choice = ["good\r", "bad"], return_free = true, max_tokens = 3 }
regex = "[a-z]+\\n"
[tasks.grammar]
grammar = '''
root ::= "a" | b
b ::= "\n"
'''
[tasks.recalls]
[tasks.recalls.recall]
memory = "tales"
retrieve = 7
retrieve_prompts = 0
store_prompts = true
position = "prelude"
search = "words"
headings = true
pre_filter = { metadata = { "the year" = { gte = 1900, lt = 2000.5 }, tag = { in = ["a", true] } } }
post_filter = { score = { gt = 0.25 } }
[memories.tales]
store = { file = "tales.db" }
"""


def as_read(task: Task) -> dict[str, Any]:
    """What a task is, with its structures as values: a schema may be written as a text."""
    fields = json.loads(json.dumps(task.fields))
    for holder in (fields, fields.get("then", {})):
        if isinstance(schema := holder.get("json_schema"), str):
            holder["json_schema"] = json.loads(schema)
        for name in {"stop", "choice"} & holder.keys():
            holder[name] = [holder[name]] if isinstance(holder[name], str) else holder[name]
    return {"task": replace(task, fields={}), "fields": fields}


def test_a_draft_becomes_the_task_that_it_was_made_of(visit: Visit, tmp_path: Path) -> None:
    """By the real reader: texts of any characters, structures, lists, filters."""
    file = tmp_path / "srb.toml"
    file.write_text(ODD)
    (tmp_path / "schema.json").write_text('{"enum": [null, "a", 1.5]}')
    loaded = load({}, config=str(file), environ={})
    configured = {task.name: task for task in read(loaded)}
    with serving("--config", str(file)) as server:
        page = visit(server.url)
        for name, task in configured.items():
            tuning(page, name)
            exported = toml_of(page)
            assert list(tomllib.loads(exported)["tasks"]) == [name]
            assert as_read(draft_of(exported, loaded)) == as_read(task), exported
            expect(page.locator(".draft .edited")).to_have_count(0)
