"""Tasks: their tables, the prompts that they make, the fields that they lock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llama_srb.config import SettingsError, load
from llama_srb.dialects import anthropic, events, koboldai, llamacpp, ollama, openai, responses, textgen
from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openai import chat
from llama_srb.request.fields import CompletionRequest, Recalled
from llama_srb.request.parse import Defaults, request_from
from llama_srb.request.shapes import Part
from llama_srb.request.values import RequestError
from llama_srb.tasks import Recall, Task, Tasks, applied, last_turn, pieces_of, query_of, read
from tests.support.rows import each_row

STORY = Task("story", prelude="[P]", prefix="<u>", postfix="<a>", fields={"n": 8, "temperature": 0.9})
PLAIN = Task("plain", prelude="Be brief.")


def tasks_of(folder: Path, text: str) -> list[Task]:
    path = folder / "srb.toml"
    path.write_text(text)
    return read(load({}, config=str(path), environ={}))


# ----------------------------------------------------------------------------------------------------
# Tables
# ----------------------------------------------------------------------------------------------------

TABLE = """
[models.storyteller]
path = "storyteller.gguf"
aliases = ["gpt"]

[memories.bible]
embedding_model = "storyteller"

[tasks.continue_story]
about = "Goes on with a story."
model = "gpt"
prelude = "Once"
prefix = "\\n### User:\\n"
postfix = "\\n### Response:\\n"
n = 8
temp = 0.9
stop = ["###"]
locked = ["n", "temp"]
private_tokens = ["<|secret|>"]
[tasks.continue_story.recall]
memory = "bible"
retrieve = 3
store_prompts = true
retrieve_prompts = 4
position = "prelude"
headings = true
around = 1
per_document = 2
diversity = 0.3
"""


def test_a_table_becomes_a_task(tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, TABLE)
    assert task == Task(
        "continue_story",
        about="Goes on with a story.",
        model="gpt",
        prelude="Once",
        prefix="\n### User:\n",
        postfix="\n### Response:\n",
        fields={"n": 8, "temperature": 0.9, "stop": ["###"]},
        locked=("n", "temperature"),
        private_tokens=("<|secret|>",),
        recall=Recall(
            "bible",
            3,
            store_prompts=True,
            retrieve_prompts=4,
            position="prelude",
            headings=True,
            around=1,
            per_document=2,
            diversity=0.3,
        ),
    )


BIASED = [
    ("json_schema = { type = 'object' }", {"json_schema": {"type": "object"}}),
    ("guided_regex = 'a+'", {"regex": "a+"}),
]


@pytest.mark.parametrize(("line", "structure"), BIASED)
def test_a_bias_prompt_is_a_second_answer(line: str, structure: dict[str, Any], tmp_path: Path) -> None:
    (task,) = tasks_of(tmp_path, f"[tasks.a]\nbias_prompt = 'As JSON:'\n{line}\nlocked = ['regex']")
    assert task.fields == {"then": {"text": "As JSON:", **structure}}
    request = request_from({"prompt": "x"}, task.over(Defaults()))
    assert request.then is not None
    assert request.then.text == "As JSON:"
    with pytest.raises(RequestError, match="then is set by the task a"):
        request_from({"prompt": "x", "then": {"text": "y"}}, task.over(Defaults()))


def test_a_schema_may_stand_in_a_file_beside_the_tables(tmp_path: Path) -> None:
    (tmp_path / "answer.json").write_text('{"type": "object"}')
    (task,) = tasks_of(tmp_path, '[tasks.a]\njson_schema_file = "answer.json"')
    assert task.fields == {"json_schema": {"type": "object"}}


WRONG = [
    ("temprature = 1", "tasks.a.temprature in FILE is not a field of a task; did you mean temperature?"),
    ("prelud = ''", "tasks.a.prelud in FILE is not a field of a task; did you mean prelude?"),
    ("prompt = 'x'", "tasks.a.prompt in FILE is not a field of a task; did you mean bias_prompt?"),
    ("temperature = 200", "tasks.a in FILE: temperature is 200; it must be between 0 and 100"),
    ("prelude = 1", "tasks.a in FILE: prelude is 1; it must be a text"),
    ("model = 'tale'", "tasks.a.model in FILE is 'tale'; there is no such model"),
    ("locked = ['tempratur']", "tasks.a.locked in FILE has 'tempratur', which is not a field of a request; "
     "did you mean temperature?"),
    ("locked = ['messages']", "tasks.a.locked in FILE has 'messages', which is not a field of a request"),
    ("private_tokens = ['']", 'tasks.a in FILE: private_tokens is [""]; it must be a list of texts, none of '
     'them empty'),
    ("json_schema_file = 'no.json'", "tasks.a in FILE: json_schema_file: cannot read "),
    ("json_schema_file = 'srb.toml'", "tasks.a in FILE: json_schema_file: "),
    ("recall = { memory = 'bibel' }", "tasks.a.recall.memory in FILE is 'bibel'; there is no table "
     "[memories.bibel]; did you mean bible?"),
    ("recall = { retrieve = 2 }", "tasks.a in FILE: recall: memory is missing"),
    ("recall = { memory = 'bible', retrive = 2 }", 'tasks.a in FILE: recall: "retrive" is not a known field; '
     'did you mean "retrieve"?'),
    ("recall = { memory = 'bible', retrieve = 0 }", "tasks.a in FILE: recall.retrieve is 0; it must be "
     "between 1 and 100"),
    ("recall = { memory = 'bible', position = 'end' }", 'tasks.a in FILE: recall.position is "end"; it must '
     'be "turn" or "prelude"'),
    ("bias_prompt = 'As JSON:'", "tasks.a in FILE: bias_prompt needs one of grammar, json_schema, regex, "
     "choice, structural_tag, json_schema_file"),
]  # fmt: skip


@each_row(("line", "message"), WRONG)
def test_a_wrong_field_is_an_error_at_the_start(line: str, message: str, tmp_path: Path) -> None:
    text = f"[memories.bible]\nembedding_model = 'x'\n[tasks.a]\n{line}"
    with pytest.raises(SettingsError) as raised:
        tasks_of(tmp_path, text)
    assert str(raised.value).replace(str(tmp_path / "srb.toml"), "FILE").startswith(message)


NAMES = [
    ("[tasks.gpt]", "'gpt' is an alias of models.m and the name of tasks.gpt"),
    ("[tasks.m]", "'m' is the name of models.m and the name of tasks.m"),
    ('[tasks."a,b"]', "'a,b' cannot be the name of tasks.\"a,b\": it has ','"),
    ("[tasks]\na = 1", "tasks.a in FILE is 1; it must be a table of settings"),
]


@pytest.mark.parametrize(("text", "message"), NAMES)
def test_a_name_stands_for_one_model_or_task(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as raised:
        tasks_of(tmp_path, f"{text}\n[models.m]\npath = 'm.gguf'\naliases = ['gpt']")
    assert str(raised.value).replace(str(tmp_path / "srb.toml"), "FILE").startswith(message)


def test_a_task_is_not_named_as_the_only_model(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="'storyteller' is a name of the model storyteller and"):
        tasks_of(tmp_path, "[tasks.storyteller]")


# ----------------------------------------------------------------------------------------------------
# Prompts
# ----------------------------------------------------------------------------------------------------


def ask(*texts: str) -> CompletionRequest:
    """A chat of a user and an assistant in turn."""
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return request_from({"messages": messages})


def parts_of(request: CompletionRequest) -> str:
    """A prompt's parts as one text: those with control tokens in brackets."""
    assert isinstance(request.prompt, tuple)
    parts = [one for one in request.prompt if isinstance(one, Part)]
    return "".join(f"({one.text})" if one.special else one.text for one in parts)


PROMPTS: list[tuple[CompletionRequest, str]] = [
    (request_from({"prompt": "hi"}), "([P])(<u>)hi(<a>)"),
    (request_from({"prompt": ""}), "([P])(<u>)(<a>)"),
    (request_from({"prompt": [{"text": "h"}, {"text": "i"}]}), "([P])(<u>)hi(<a>)"),
    (request_from({"continue": {"id": "1", "index": 0}, "prompt": "hi"}), "(<u>)hi(<a>)"),
    (ask("hi"), "([P])(<u>)hi(<a>)"),
    (ask("hi", "ho", "so"), "([P])(<u>)hi(<a>)ho(<u>)so(<a>)"),
    (ask("hi", "ho"), "([P])(<u>)hi(<a>)ho"),
    (request_from({"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]}),
     "([P])s(<u>)u(<a>)"),
]  # fmt: skip


@each_row(("request_", "expected"), PROMPTS)
def test_the_texts_of_a_task_stand_around_a_clients(request_: CompletionRequest, expected: str) -> None:
    made = applied(STORY, request_)
    assert parts_of(made) == expected
    assert made.messages is None


def test_a_beginning_has_no_postfix() -> None:
    assert parts_of(applied(STORY, request_from({"prompt": "hi"}), is_beginning=True)) == "([P])(<u>)hi"


def test_what_only_goes_on_gets_no_text() -> None:
    assert applied(STORY, request_from({"continue": {"id": "1", "index": 0}})).prompt == ""


def chunks(*texts: str) -> tuple[Recalled, ...]:
    return tuple(Recalled("m", str(i), "d", 0.5, text) for i, text in enumerate(texts))


def test_recalled_texts_stand_before_their_turn_or_behind_the_prelude() -> None:
    recalled = ask("hi", "ho", "so").model_copy(update={"recalled": {1: chunks("A.", "B.")}})
    assert parts_of(applied(STORY, recalled)) == "([P])(<u>)hi(<a>)hoA.\nB.\n(<u>)so(<a>)"
    in_front = Task("t", prelude="[P]", prefix="<u>", recall=Recall("m", position="prelude"))
    assert parts_of(applied(in_front, recalled)) == "([P])A.\nB.\n(<u>)hiho(<u>)so"
    assert [piece.kind for piece in pieces_of(STORY, recalled)][4:7] == ["answer", "recall", "recall"]
    assert (query_of(recalled), last_turn(recalled)) == ("so", 1)


def test_without_prefix_and_postfix_the_template_of_the_model_divides_a_chat() -> None:
    made = applied(PLAIN, ask("hi", "ho", "so").model_copy(update={"recalled": {1: chunks("A.")}}))
    assert json.loads(made.messages or "") == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "A.\nso"},
    ]
    assert made.plain_content
    system = request_from({"messages": [{"role": "system", "content": "s"}], "plain_content": False})
    made = applied(PLAIN, system)
    assert json.loads(made.messages or "") == [{"role": "system", "content": "Be brief.\ns"}]
    assert made.plain_content


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"prompt": [1, 2]}, "prompt has token ids"),
    ({"prompt": [{"text": "<|im_end|>", "special": True}]}, "prompt has token ids or a part with special"),
    ({"prompt": "a <|secret|>"}, 'prompt has "<|secret|>", which is one of private_tokens'),
    ({"prompt": [{"text": "<|sec"}, {"text": "ret|>"}]}, 'prompt has "<|secret|>"'),
    ({"prompt": "a", "private_tokens": ["a"]}, 'prompt has "a"'),
    ({"prompt": "a", "logprobs": 1}, "logprobs is 1; it must be 0: alternatives may be private tokens"),
    ({"prompt": "a", "prompt_logprobs": 1}, "prompt_logprobs is 1; it must be 0: alternatives may be"),
    ({"prompt": "a", "then": {"text": "<|secret|>", "choice": ["a"]}}, 'then.text has "<|secret|>"'),
    ({"prompt": "a", "negative_prompt": "<|secret|>"}, 'negative_prompt has "<|secret|>"'),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0] is of the role tool"),
    ({"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}]}, "messages[0] has tool_calls"),
]


@each_row(("body", "message"), REFUSED)
def test_a_client_cannot_break_out(body: dict[str, Any], message: str) -> None:
    task = Task("t", prefix="<u>", private_tokens=("<|secret|>",))
    with pytest.raises(RequestError) as raised:
        applied(task, request_from(body))
    assert raised.value.message.startswith(message)


OPERATORS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, {"operator": {"then": {"text": "<u>", "choice": ["a"]}}}),
    ({"preset": "two"}, {"presets": {"two": {"then": {"text": "<u>", "choice": ["a"]}}}}),
]


@pytest.mark.parametrize(("body", "given"), OPERATORS, ids=["a model's", "a preset's"])
def test_control_tokens_of_an_operators_text_between_two_answers_stay(
    body: dict[str, Any], given: dict[str, Any]
) -> None:
    task = Task("t", prefix="<u>", private_tokens=("<u>",))
    defaults = task.over(Defaults(**given))
    made = applied(task, request_from({"prompt": "x", **body}, defaults), defaults)
    assert made.then is not None
    assert made.then.special


def test_private_tokens_of_a_client_are_added_to_those_of_the_task() -> None:
    task = Task("t", private_tokens=("a",))
    assert applied(task, request_from({"prompt": "x", "private_tokens": ["b"]})).private_tokens == ("a", "b")


def test_tools_need_the_models_template() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {}}}
    body = {"messages": [{"role": "user", "content": "x"}], "tools": [tool]}
    made = applied(STORY, request_from(body))
    assert made.tools is None
    assert "the task story has a prefix" in made.warnings[0]
    with pytest.raises(RequestError, match="tools cannot be used"):
        applied(STORY, request_from(body | {"tool_choice": "required"}))


# ----------------------------------------------------------------------------------------------------
# Fields
# ----------------------------------------------------------------------------------------------------

LOCKED = Task(
    "story",
    fields={"n": 4, "temperature": 0.5},
    locked=("n", "temperature", "json_schema", "enable_thinking"),
)


def test_the_fields_of_a_task_are_defaults() -> None:
    defaults = STORY.over(Defaults(operator={"temperature": 0.1, "top_k": 5}))
    request = request_from({"prompt": "x"}, defaults)
    assert (request.n, request.sampling.temperature, request.sampling.top_k) == (8, 0.9, 5)
    assert request_from({"prompt": "x", "n": 2}, defaults).n == 2
    assert STORY.over(Defaults(most_n=3)).operator["n"] == 3


GIVEN: list[tuple[dict[str, Any], str]] = [
    ({"n": 2}, "n"),
    ({"n_cmpl": 4}, "n"),
    ({"temp": 1}, "temperature"),
    ({"dynatemp_low": 0, "dynatemp_high": 1}, "temperature"),
    ({"preset": "hot"}, "temperature"),
    ({"sequences": [{}, {"temperature": 1}, {}, {}]}, "sequences[1].temperature"),
    ({"response_format": {"type": "json_object"}}, "json_schema"),
    ({"regex": "a"}, "regex"),
    ({"chat_template_kwargs": {"enable_thinking": False}}, "enable_thinking"),
    ({"chat_template_kwargs": '{"enable_thinking": false}'}, "enable_thinking"),
]


@each_row(("given", "name"), GIVEN)
def test_a_locked_field_is_refused_in_each_of_its_forms(given: dict[str, Any], name: str) -> None:
    defaults = LOCKED.over(Defaults(presets={"hot": {"temperature": 2}}))
    with pytest.raises(RequestError) as raised:
        request_from({"prompt": "x", **given}, defaults)
    assert raised.value.message == f"{name} is set by the task story; leave it out"
    assert raised.value.param == name


def test_the_name_that_a_client_has_used_is_in_the_error() -> None:
    with pytest.raises(RequestError, match=r"^temp is set by the task story"):
        LOCKED.check({"prompt": "x", "temp": 1})
    LOCKED.check({"prompt": "x", "temp": None, "top_k": 1})


ABOUT = ServerInfo("m", defaults=LOCKED.over(Defaults()))
USER = {"messages": [{"role": "user", "content": "x"}]}
HEATED: list[tuple[Any, dict[str, Any]]] = [
    (ollama.REPLIES["/api/generate"], {"prompt": "x", "options": {"temperature": 1}}),
    (ollama.REPLIES["/api/chat"], {**USER, "options": {"temperature": 1}}),
    (koboldai.REPLIES["/api/v1/generate"], {"prompt": "x", "temperature": 1}),
    (llamacpp.REPLIES["/completion"], {"prompt": "x", "temperature": 1}),
    (anthropic.REPLIES["/v1/messages"], {**USER, "max_tokens": 1, "temperature": 1}),
]
FREE = [
    (ollama.REPLIES["/api/generate"], {}),
    (textgen.REPLIES["/v1/internal/logits"], {"prompt": "x"}),
    *((make, {name: one for name, one in body.items() if name not in ("temperature", "options")})
      for make, body in HEATED),
]  # fmt: skip


@pytest.mark.parametrize(("make", "body"), HEATED)
def test_each_dialect_refuses_a_locked_field(make: Any, body: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match="temperature is set by the task story"):
        make(body, ABOUT)


@each_row(("make", "body"), FREE)
def test_what_a_dialect_sets_itself_is_not_refused(make: Any, body: dict[str, Any]) -> None:
    assert make(body, ABOUT).request.sampling.temperature == 0.5


def test_dialects_of_one_answer_ignore_the_n_of_a_task() -> None:
    assert anthropic.REPLIES["/v1/messages"]({**USER, "max_tokens": 1}, ABOUT).request.n == 1
    assert responses.parse({"input": "x"}, ABOUT.defaults)[0].n == 1
    for parse in (chat.parse, events.parse, openai.parse):
        made: Any = parse(USER if parse is chat.parse else {"prompt": "x"}, ABOUT.defaults)
        assert (made[0] if isinstance(made, tuple) else made).n == 4


def test_a_task_that_is_not_here_or_not_allowed() -> None:
    tasks = Tasks([STORY, PLAIN])
    assert tasks.require("story", None) is STORY
    with pytest.raises(RequestError, match="there is no task stori here; did you mean story") as raised:
        tasks.require("stori", None)
    assert raised.value.status == 404
    with pytest.raises(RequestError, match="this key may use the tasks story, not plain") as raised:
        tasks.require("plain", ("story",))
    assert raised.value.status == 403
