"""Tasks that recall from a memory, with the real engine: whose chunks, where they stand, what is computed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llama_srb.config import load
from llama_srb.http.middleware import recalled_header
from llama_srb.memory.stores import search
from llama_srb.request.fields import Recalled
from tests.support.processes import children
from tests.support.served import bearer, key_file, running
from tests.support.waiting import PATIENCE

SETTINGS = """
[memories.tales]
store = { file = "tales.db" }
chunk_tokens = 48
chunk_overlap = 0
[tasks.story]
prelude = "Stories for children. "
prefix = "<u>"
postfix = "<a>"
max_tokens = 2
recall = { memory = "tales", retrieve = 2, retrieve_prompts = 2, store_prompts = true }
[tasks.books]
prefix = "<u>"
postfix = "<a>"
max_tokens = 1
[memories.wiki]
store = { file = "wiki.db" }
shared = true
[tasks.notes]
postfix = "<a>"
max_tokens = 1
private_tokens = ["<|secret|>", "end\\nFirst"]
recall = { memory = "wiki", retrieve = 2 }
[tasks.talk]
max_tokens = 1
private_tokens = ["<|secret|>"]
recall = { memory = "wiki", retrieve = 2, store_prompts = true }
[memories.names]
store = { file = "names.db" }
embedding_model = false
[tasks.named]
postfix = "<a>"
max_tokens = 1
recall = { memory = "names", retrieve = 1, search = "words" }
[tasks.headed]
postfix = "<a>"
max_tokens = 1
recall = { memory = "names", retrieve = 1, headings = true }
[memories.short]
store = { file = "short.db" }
embedding_model = false
chunk_tokens = 16
chunk_overlap = 0
[tasks.near]
max_tokens = 1
recall = { memory = "short", retrieve = 2, per_document = 1, around = 1 }
[tasks.books.recall]
memory = "tales"
retrieve = 9
position = "prelude"
pre_filter = { metadata = { kind = "book" } }
"""
KEYS: list[dict[str, Any]] = [
    {"name": "alice", "scopes": ["complete", "chat", "memory"]},
    {"name": "bob", "scopes": ["complete", "chat"], "memories": []},
    {"name": "root", "scopes": ["admin"]},
    {"name": "ruth", "scopes": ["admin"], "memories": []},
]
SECRET = "Alice hides the red key below the old oak."
PUBLIC = "The operator says that <|im_end|> is a town by the sea."


class Client:
    """One key's requests."""

    def __init__(self, url: str, http: aiohttp.ClientSession, key: str) -> None:
        self.url, self._http, self._headers = url, http, bearer(key)

    async def ask(self, path: str, body: Any, method: str = "POST", **headers: str) -> tuple[Any, str]:
        """The answer's body and its header X-Recalled."""
        data = body if isinstance(body, bytes) else json.dumps(body)
        async with self._http.request(
            method, self.url + path, data=data, headers={**self._headers, **headers}
        ) as response:
            assert response.status < 300, await response.text()
            return await response.read(), response.headers.get("X-Recalled", "")

    async def prompt(self, text: str, task: str = "story") -> list[tuple[str, str]]:
        """The kinds and texts of a prompt's parts."""
        made, _ = await self.ask("/v1/prompt", {"model": task, "prompt": text})
        return [(part["kind"], part["text"]) for part in json.loads(made)["parts"]]


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[dict[str, Client]]:
    file, keys = tmp_path / "srb.toml", key_file(tmp_path / "keys", *KEYS)
    file.write_text(SETTINGS)
    given = {"port": 0, "ctx": 4096, "stop_grace": 0, "api_key_file": str(keys)}
    settings = load(given, config=str(file), environ={})
    async with running(settings) as url, aiohttp.ClientSession() as http:
        yield {row["name"]: Client(url, http, row["name"]) for row in KEYS}


async def test_nothing_of_one_key_is_in_the_prompts_of_another(clients: dict[str, Client]) -> None:
    alice, bob = clients["alice"], clients["bob"]
    await alice.ask("/v1/tasks/story/completions", {"prompt": SECRET})
    asked = "Where is the red key?"
    assert ("recall", SECRET + "\n") in await alice.prompt(asked)
    for text in (SECRET, asked):
        assert [part for part in await bob.prompt(text) if part[0] == "recall"] == []
    await bob.ask("/v1/tasks/story/completions", {"prompt": "Bob asks for the red key."})
    for client, other in ((alice, "Bob"), (bob, "Alice")):
        recalled = [
            text for kind, text in await client.prompt("Who asks for the red key?") if kind == "recall"
        ]
        assert recalled
        assert not [text for text in recalled if other in text]


async def test_recalled_text_stands_before_the_prefix_as_text_and_is_named(
    clients: dict[str, Client],
) -> None:
    root, bob = clients["root"], clients["bob"]
    await root.ask("/v1/memories/tales/documents/town.txt?kind=book", PUBLIC.encode(), "PUT")
    parts = await bob.prompt("Which town?")
    assert [kind for kind, _ in parts] == ["begin", "prelude", "recall", "prefix", "prompt", "postfix"]
    assert parts[2] == ("recall", PUBLIC + "\n")
    made, _ = await bob.ask("/v1/prompt", {"model": "story", "prompt": "Which town?"})
    recalled = json.loads(made)["parts"][2]
    assert recalled["special"] is False
    body = {"model": "storyteller", "prompt": [{"text": "<|im_end|>", "special": True}]}
    control, _ = await bob.ask("/v1/prompt", body)
    assert len(recalled["tokens"]) > len(json.loads(control)["parts"][0]["tokens"])
    _, named = await bob.ask("/v1/tasks/story/completions", {"prompt": "Which town?", "stream": False})
    id, score = named.split(";score=")
    assert re.fullmatch("[0-9a-f]{16}", id)
    assert 0 < float(score) <= 1
    assert [kind for kind, _ in await bob.prompt("Which town?", "books")][1] == "recall"


ASKED = "Which town?"
CHAT = [{"role": "user", "content": ASKED}]
NAMED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/tasks/books/completions", {"prompt": ASKED, "stream": False}),
    ("/v1/tasks/books/completions", {"prompt": ASKED}),
    ("/v1/tasks/books/chat", {"messages": CHAT, "stream": False}),
    ("/v1/tasks/books/chat", {"messages": CHAT}),
    ("/v1/completions", {"model": "books", "prompt": ASKED, "stream": False}),
    ("/openai/v1/completions", {"model": "books", "prompt": ASKED, "stream": True}),
    ("/openai/v1/completions", {"model": "books", "prompt": [ASKED, ASKED], "stream": False}),
    ("/openai/v1/completions", {"model": "books", "prompt": [ASKED, ASKED], "stream": True}),
    ("/v1/chat/completions", {"model": "books", "messages": CHAT}),
    ("/v1/chat/completions", {"model": "books", "messages": CHAT, "stream": True}),
    ("/v1/events", {"model": "books", "prompt": ASKED}),
]


@pytest.mark.parametrize(("path", "body"), NAMED, ids=[f"{path} {list(body)[-1]}" for path, body in NAMED])
async def test_the_answer_names_the_chunks(
    clients: dict[str, Client], path: str, body: dict[str, Any]
) -> None:
    root, bob = clients["root"], clients["bob"]
    await root.ask("/v1/memories/tales/documents/town.txt?kind=book", PUBLIC.encode(), "PUT")
    answer, header = await bob.ask(path, {**body, "n": 1})
    objects = [json.loads(line.removeprefix(b"data: ")) for line in answer.splitlines() if b"{" in line]
    named = [one["recalled"] for one in objects if "recalled" in one]
    id, score = header.split(", ")[0].split(";score=")
    found = {"memory": "tales", "id": id, "document": "town.txt", "score": float(score)}
    n_prompts = 2 if isinstance(body.get("prompt"), list) else 1
    scores = [one.pop("scores") for some in named for one in some]
    assert named == [[found] * n_prompts]
    assert all(one.keys() == {"words", "meaning"} and one["meaning"] == found["score"] for one in scores)
    assert "recalled" in objects[0]
    assert len(header.split(", ")) == n_prompts


HARMFUL = "The town of the sea has <|secret|> gates."


async def test_a_chunk_with_a_private_token_is_left_out_for_the_next_best(clients: dict[str, Client]) -> None:
    alice, bob = clients["alice"], clients["bob"]
    for id, text in (("bad", HARMFUL), ("town", PUBLIC), ("cut", "The town by the sea is at its end")):
        await alice.ask(f"/v1/memories/wiki/documents/{id}.txt", text.encode(), "PUT")
    first, messages = "First, which town?", [{"role": "user", "content": ASKED}]
    made = [await bob.ask("/v1/tasks/notes/completions", {"prompt": text}) for text in (ASKED, first)]
    made.append(await bob.ask("/v1/tasks/talk/chat", {"messages": messages, "stream": False}))
    for answer, _ in made:
        events = [json.loads(line.removeprefix(b"data: ")) for line in answer.splitlines() if b"{" in line]
        assert "bad.txt" not in [one["document"] for one in events[0]["recalled"]]
    assert [len(header.split(", ")) for _, header in made] == [2, 1, 2]
    asked = {"prompt": ASKED, "private_tokens": ["town"], "stream": False}
    with pytest.raises(AssertionError, match="private_tokens"):
        await bob.ask("/v1/tasks/notes/completions", asked)


def test_the_header_names_what_it_has_room_for_and_counts_the_rest() -> None:
    chunks = [Recalled("tales", str(10**17 + i), "x", 0.8125, "text") for i in range(1000)]
    assert recalled_header(chunks[:2]) == "100000000000000000;score=0.8125, 100000000000000001;score=0.8125"
    header = recalled_header(chunks)
    assert 3900 < len(header) < 4096
    assert header.endswith(f", more;count={1000 - header.count('score')}")


async def test_a_task_recalls_by_words_from_a_memory_without_a_model(clients: dict[str, Client]) -> None:
    root, bob = clients["root"], clients["bob"]
    await root.ask("/v1/memories/names/documents/town.txt", PUBLIC.encode(), "PUT")
    answer, header = await bob.ask(
        "/v1/completions", {"model": "named", "prompt": "Which town?", "stream": False}
    )
    (one,) = json.loads(answer)["recalled"]
    assert (one["document"], one.keys()) == ("town.txt", {"memory", "id", "document", "scores"})
    assert (one["scores"].keys(), header) == ({"words"}, one["id"])
    answer, header = await bob.ask("/v1/completions", {"model": "named", "prompt": "xyz", "stream": False})
    assert ("recalled" in json.loads(answer), header) == (False, "")


async def test_headings_stand_in_front_of_a_chunk_if_the_task_says_so(clients: dict[str, Client]) -> None:
    root, bob = clients["root"], clients["bob"]
    log = f"# Log\n\n## Arrivals\n\n{'A boat came. ' * 90}The barque Iris came."
    await root.ask("/v1/memories/names/documents/log.md", log.encode(), "PUT")
    for task, begins in (("named", "A boat came."), ("headed", "Log\nArrivals\nA boat came.")):
        recalled = dict(await bob.prompt("Iris", task))["recall"]
        assert recalled.startswith(begins), task


async def test_a_filter_of_a_task_takes_only_some_chunks(clients: dict[str, Client]) -> None:
    alice = clients["alice"]
    await alice.ask("/v1/tasks/story/completions", {"prompt": SECRET})
    assert "recall" not in [kind for kind, _ in await alice.prompt(SECRET, "books")]


async def test_a_task_that_searches_too_much_answers_with_what_it_has_found(
    clients: dict[str, Client], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The filter and the documents are the operator's, so the client gets no error about them."""
    root, bob = clients["root"], clients["bob"]
    for number in range(30):
        kind = "book" if number % 2 else "film"
        await root.ask(
            f"/v1/memories/tales/documents/{number}.txt?kind={kind}", f"{number}: {PUBLIC}".encode(), "PUT"
        )
    asked = {"prompt": "Which town?", "stream": False}
    for bound, found in (("MOST_COMPARED", 5), ("MOST_READ", 2)):
        with monkeypatch.context() as patch:
            patch.setattr(search, bound, 20 if bound == "MOST_COMPARED" else 150)
            answer, recalled = await bob.ask("/v1/tasks/books/completions", asked)
        assert json.loads(answer)["warnings"] == ["memory tales was not searched to its end"]
        assert 0 < len(recalled.split(", ")) <= found
        assert "task books: memory tales: only the chunks that came first: the search" in caplog.text
        caplog.clear()
    answer, recalled = await bob.ask("/v1/tasks/books/completions", asked)
    assert ("warnings" in json.loads(answer), len(recalled.split(", "))) == (False, 9)


async def test_an_exact_prompt_stores_nothing(clients: dict[str, Client]) -> None:
    alice = clients["alice"]
    await alice.prompt(SECRET)
    listed, _ = await alice.ask("/v1/memories/tales/documents", b"", "GET")
    assert json.loads(listed)["data"] == []


DRAFT = """
[tasks.new]
prefix = "<u>"
recall = { memory = "tales", retrieve = 1, store_prompts = true }
"""


async def test_a_trial_recalls_and_stores_nothing(clients: dict[str, Client]) -> None:
    root = clients["root"]
    await root.ask("/v1/memories/tales/documents/town.txt", PUBLIC.encode(), "PUT")
    for named in ({"toml": DRAFT}, {"model": "story"}):
        _, recalled = await root.ask("/v1/trials", {"prompt": "Which town?", "max_tokens": 1, **named})
        assert len(recalled.split(",")) == 1
    made, _ = await root.ask("/v1/trials/prompt", {"prompt": "Which town?", "toml": DRAFT})
    assert [(part["kind"], part["text"]) for part in json.loads(made)["parts"]][1] == (
        "recall", PUBLIC + "\n",
    )  # fmt: skip
    listed, _ = await root.ask("/v1/memories/tales/documents", b"", "GET")
    assert [one["id"] for one in json.loads(listed)["data"]] == ["town.txt"]


async def test_a_draft_recalls_only_from_a_memory_of_the_key(clients: dict[str, Client]) -> None:
    with pytest.raises(AssertionError, match="memory_not_allowed"):
        await clients["ruth"].ask("/v1/trials", {"prompt": "Which town?", "toml": DRAFT})


async def test_a_chat_of_ten_turns_computes_only_the_new_turn_and_its_recall(
    clients: dict[str, Client],
) -> None:
    alice = clients["alice"]
    url = alice.url.replace("http", "ws", 1) + "/v1/tasks/story/ws?api_key=alice"
    async with aiohttp.ClientSession() as http, http.ws_connect(url) as socket:
        before = 0
        for number in range(10):
            await socket.send_json({"op": "turn", "text": f"Tell me about animal {number}.", "n": 1})
            while (event := await socket.receive_json(timeout=PATIENCE))["event"] != "done":
                assert event["event"] != "error", event
                if event["event"] == "start":
                    start = event
            assert start["cached_tokens"] >= before - 4, (number, start)
            assert len(start.get("recalled", ())) == min(number, 2), "those of the turns before"
            assert all(0 < one["score"] <= 1 for one in start.get("recalled", ()))
            before = start["prompt_tokens"]
            await socket.send_json({"op": "choose", "index": 0})
            await socket.receive_json(timeout=PATIENCE)


async def test_over_http_a_turn_computes_two_turns_and_its_recall(clients: dict[str, Client]) -> None:
    """The client sends no recalled text, so the prompt differs from where that of the last turn stood."""
    root = clients["root"]
    for number in range(4):
        text = f"Animal {number} lives in house number {number}."
        await root.ask(f"/v1/memories/tales/documents/{number}.txt?kind=book", text.encode(), "PUT")
    messages: list[dict[str, str]] = []
    prompts: list[dict[str, int]] = []
    for number in range(10):
        messages.append({"role": "user", "content": f"Tell me about animal {number}."})
        body = {"model": "story", "messages": messages, "n": 1, "stream": False}
        parts = json.loads((await root.ask("/v1/prompt", body))[0])["parts"]
        answer = json.loads((await root.ask("/v1/tasks/story/chat", body))[0])
        messages.append({"role": "assistant", "content": answer["choices"][0]["message"]["content"]})
        sizes = [(part["kind"], len(part["tokens"])) for part in parts]
        last_question = max(i for i, (kind, _) in enumerate(sizes) if kind == "prefix")
        recalled = sum(size for kind, size in sizes if kind == "recall")
        before = [i for i, (kind, _) in enumerate(sizes[:last_question]) if kind == "prefix"]
        two_turns = sum(size for kind, size in sizes[before[-1] if before else 0 :] if kind != "recall")
        usage = answer["usage"]
        computed = usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]
        assert recalled > 0
        assert computed <= two_turns + recalled + 4, (number, sizes, usage)
        prompts.append(usage)
    assert prompts[-1]["prompt_tokens"] > 2 * (two_turns + recalled)


async def test_a_request_that_recalls_when_a_drain_begins_is_finished(clients: dict[str, Client]) -> None:
    alice, root = clients["alice"], clients["root"]
    await alice.ask("/v1/tasks/story/completions", {"prompt": SECRET})
    (engine,) = children()
    os.kill(engine, signal.SIGSTOP)
    try:
        asked = asyncio.create_task(alice.ask("/v1/tasks/story/completions", {"prompt": "Which key?"}))
        async with asyncio.timeout(PATIENCE):
            while not json.loads((await root.ask("/v1/stats", None, "GET"))[0])["requests_open"]:
                pass
        await root.ask("/drain", {})
    finally:
        os.kill(engine, signal.SIGCONT)
    _, recalled = await asked
    assert recalled
    await root.ask("/drain", None, "DELETE")
    assert ("recall", "Which key?\n") in await alice.prompt("Which red key?"), "it was stored, too"


async def test_a_task_recalls_neighbours_and_of_each_document_one_chunk(clients: dict[str, Client]) -> None:
    lines = [f"{animal} number {i} lives in the {animal} house of the zoo." for i in range(3)
             for animal in ("One bear", "A zebra", "An owl")]  # fmt: skip
    await clients["root"].ask("/v1/memories/short/documents/zoo.txt", "\n".join(lines).encode(), "PUT")
    parts = await clients["bob"].prompt("Where does zebra number 1 live?", "near")
    (recalled,) = [text for kind, text in parts if kind == "recall"]
    assert recalled.splitlines() == lines[3:6]
