"""Tasks by both Python clients against a real server over sockets, with the fake engine."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from llama_srb import client
from llama_srb.client import (
    AsyncClient,
    Client,
    Memory,
    Recalled,
    RequestRefused,
    ServerError,
    Start,
    Task,
    Then,
    UnknownField,
)
from llama_srb.client.answer import Answer
from tests.fake_engine import story
from tests.support.bench import Bench
from tests.support.served import key_file

SETTINGS = """
[tasks.story]
about = "Tells."
prelude = "<p>"
prefix = "<u> "
postfix = " <a>"
n = 3
max_tokens = 4
locked = ["temperature"]
private_tokens = ["<|secret|>"]

[tasks.verdict]
n = 2
max_tokens = 4
bias_prompt = "In short:"
choice = ["good", "bad"]

[tasks.both]
n = 1
max_tokens = 4
then = { text = " So:", max_tokens = 2, return_free = true }
"""
KEYS: tuple[dict[str, Any], ...] = (
    {"name": "root", "scopes": ["admin"]},
    {"name": "chatter", "scopes": ["chat"], "models": [], "tasks": ["story"]},
)
USER = [{"role": "user", "content": "hi"}]
WHOLE = "<p><u> hi <a>"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server that asks for keys."""
    folder = tmp_path_factory.mktemp("client")
    (folder / "srb.toml").write_text(SETTINGS)
    keys = key_file(folder / "keys", *KEYS)
    given = ("--config", "srb.toml", "--api-key-file", str(keys), "--", "--endless")
    with Bench(folder).serving(*given) as (_, greeting):
        yield greeting.split()[0]


@pytest.fixture
def caller(server: str) -> Iterator[Client]:
    with Client(server, api_key="root") as made:
        yield made


def of(server: str, key: str) -> Client:
    return Client(server, api_key=key)


# Tasks


async def test_a_text_is_a_chat_of_one_message(server: str) -> None:
    settings: dict[str, Any] = {"max_tokens": 4, "seed": 3, "n": 1}
    with of(server, "root") as caller:
        pairs = [
            (caller.chat("hi", temperature=0.5, **settings), caller.chat(USER, temperature=0.5, **settings)),
            (caller.task("story").chat("hi", seed=3), caller.task("story").chat(USER, seed=3)),
        ]
    async with AsyncClient(server, api_key="root") as other:
        pairs.append((await other.chat("hi", **settings), await other.chat(USER, **settings)))
        task = other.task("story")
        pairs.append((await task.chat("hi", seed=3), await task.chat(USER, seed=3)))
    for of_text, of_messages in pairs:
        assert [one.text for one in of_text] == [one.text for one in of_messages] != [""]


def test_a_task_completes_in_its_texts_with_its_defaults(caller: Client) -> None:
    choices = caller.task("story").complete("hi", seed=7)
    assert [choice.text for choice in choices] == ["".join(story(WHOLE, 7, i, 4)) for i in range(3)]
    assert [len(caller.task("story").complete("hi", n=2, max_tokens=1)), choices[0].length] == [2, 4]


def test_a_task_answers_chats(caller: Client) -> None:
    choices = caller.task("story").chat([*USER, {"role": "assistant", "content": "ho"}, *USER], seed=7)
    whole = "<p><u> hi <a>ho<u> hi <a>"
    assert [choice.text for choice in choices] == ["".join(story(whole, 7, i, 4)) for i in range(3)]


def test_a_task_streams_and_is_cancelled(caller: Client) -> None:
    with caller.task("story").stream("hi", max_tokens=100_000, n=2) as stream:
        assert isinstance(next(stream), Start)
        assert stream.cancel()
        assert list(stream)
    assert [choice.finish_reason for choice in stream.choices] == ["cancelled"] * 2
    with caller.task("story").stream(messages=USER, n=1) as stream:
        assert len(list(stream)) == 7


def test_a_chat_by_a_task_needs_only_the_scope_chat(server: str) -> None:
    with of(server, "chatter") as chatter:
        assert [task.id for task in chatter.tasks()] == ["story"]
        assert len(chatter.task("story").chat(USER)) == 3
        with pytest.raises(RequestRefused) as refused:
            chatter.task("verdict").chat(USER)
        assert refused.value.code == "task_not_allowed"
        with pytest.raises(RequestRefused):
            chatter.task("story").complete("hi")


def test_the_model_of_a_client_is_not_that_of_its_tasks(server: str) -> None:
    with Client(server, api_key="root", model="another") as caller:
        assert len(caller.task("story").complete("hi")) == 3
        with pytest.raises(UnknownField, match="model is no field of a request by a task"):
            caller.task("story").complete("hi", model="storyteller")


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("story", {"temperature": 1}, "locked"),
    ("story", {"stop": "\ud800"}, "invalid_request"),
    ("stry", {}, "task_not_found"),
    ("a/b?c", {}, "task_not_found"),
]


@pytest.mark.parametrize(("name", "fields", "code"), REFUSED)
def test_a_refusal_has_the_servers_code(caller: Client, name: str, fields: dict[str, Any], code: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        caller.task(name).complete("hi", **fields)
    assert refused.value.code == code


def test_tasks_are_listed(caller: Client, server: str) -> None:
    found = {task.id: task for task in caller.tasks()}
    assert found.keys() == {"story", "verdict", "both"}
    task = found["story"]
    assert (task.about, task.model, task.prelude) == ("Tells.", "storyteller", "<p>")
    assert (task.prefix, task.postfix, task.fields["n"]) == ("<u> ", " <a>", 3)
    assert (task.locked, task.private_tokens, task.recall) == (("temperature",), ("<|secret|>",), None)
    with of(server, "chatter") as chatter:
        assert chatter.tasks()[0].private_tokens == ()


def test_a_tasks_own_second_answers_are_its_choices(caller: Client) -> None:
    for choice in caller.task("verdict").complete("hi"):
        assert (choice.free, choice.free_length) == (None, 4)
    with caller.task("both").stream("hi", seed=7) as stream:
        assert len([event for event in stream if isinstance(event, Then)]) == 1
    [choice] = stream.choices
    assert choice.free
    assert choice.free.text == "".join(story("hi", 7, 0, 4))
    assert choice.text == "".join(story("hi So:", 7, 0, 2))


def test_a_prompt_is_shown_in_parts(caller: Client) -> None:
    made = caller.prompt("hi", model="story")
    assert (made.model, made.prompt, made.prompt_tokens, made.warnings) == ("story", WHOLE, 3, ())
    assert [(part.kind, part.text, part.special) for part in made.parts] == [
        ("prelude", "<p>", True), ("prefix", "<u> ", True), ("prompt", "hi", False), ("postfix", " <a>", True)
    ]  # fmt: skip
    assert sum(len(part.tokens) for part in made.parts) == 3
    assert caller.prompt(messages=USER, model="story").prompt == WHOLE
    with pytest.raises(UnknownField):
        caller.prompt("hi", topk=1)


# What a task recalls


def test_a_start_event_names_memory_and_document_too() -> None:
    chunk = {"memory": "tales", "id": "17", "document": "ship.txt", "score": 0.5, "more": 1}
    event = {"event": "start", "count": 1, "id": "x", "prompt_tokens": 1, "cached_tokens": 0, "seed": 7}
    answer = Answer({})
    start = client.event_from({**event, "recalled": [chunk, {"id": "18", "score": 0, "memory": None}]})
    assert start
    answer.take(start)
    assert answer.recalled == (Recalled("17", 0.5, "tales", "ship.txt"), Recalled("18", 0))
    start = client.event_from(
        {**event, "recalled": [{"id": "19", "scores": {"words": 2.5}}]}
    )  # without a model
    answer.take(start)
    assert answer.recalled == (Recalled("19", scores={"words": 2.5}),)
    faults = (
        {"id": 17, "score": 0.5},
        {"id": "17", "score": "x"},
        {**chunk, "memory": 7},
        {**chunk, "scores": 1},
    )
    for wrong in (*faults, {**chunk, "scores": {"words": "x"}}, "17"):
        with pytest.raises(ServerError):
            client.event_from({**event, "recalled": [wrong]})


# Both clients


PAIRS = [(Client, AsyncClient), (Task, client.AsyncTask), (Memory, client.AsyncMemory),
         (client.Stream, client.AsyncStream)]  # fmt: skip


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: str(pair[0].__name__))
def test_both_clients_have_the_same_methods(pair: tuple[type[Any], type[Any]]) -> None:
    ours, theirs = (
        {
            name: list(inspect.signature(method).parameters.items())
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }
        for kind in pair
    )
    assert ours == theirs


async def test_both_clients_give_the_same(server: str) -> None:
    async with AsyncClient(server, api_key="root") as theirs:
        task = theirs.task("story")
        with of(server, "root") as ours:
            assert await theirs.tasks() == ours.tasks()
            assert await theirs.memories() == ours.memories() == []
            assert await theirs.prompt("hi", model="story") == ours.prompt("hi", model="story")
            assert await task.complete("hi", seed=7) == ours.task("story").complete("hi", seed=7)
            assert await task.chat(USER, seed=7) == ours.task("story").chat(USER, seed=7)
        async with task.stream("hi", max_tokens=100_000) as stream:
            assert await stream.cancel()
            assert [event async for event in stream]
        with pytest.raises(UnknownField):
            await theirs.prompt("hi", topk=1)
        with pytest.raises(UnknownField):
            task.stream("hi", model="x")
