"""Memories over HTTP, with the real engine and the bundled model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from llama_srb.config import Settings, load
from llama_srb.serving.faults import StartError
from tests.support.documents import DOCX, EPUB, PDF, archive, docx, epub, pdf
from tests.support.models import write_model
from tests.support.places import STORYTELLER
from tests.support.served import SECRET, bearer, frames, key_file, running
from tests.support.waiting import PATIENCE

TEXT = {"Content-Type": "text/plain"}
CAT = "The cat sleeps on the warm roof. It dreams of fish."
SHIP = "A ship sails over the cold sea. The captain looks for an island."
MEMORIES = """
[memories.tales]
store = { file = "data/tales.db" }
chunk_tokens = 32
[memories.wiki]
store = { file = "wiki.db" }
shared = true
[memories.names]
store = { file = "names.db" }
embedding_model = false
"""
KEYS: list[dict[str, Any]] = [
    {"name": "alice", "scopes": ["memory"]},
    {"name": "bob", "scopes": ["memory"], "memories": ["tales", "wiki"]},
    {"name": "wiki", "scopes": ["memory"], "memories": ["wiki"]},
    {"name": "root", "scopes": ["admin"]},
    {"name": "poor", "scopes": ["memory"], "tokens_per_minute": 30},
]


class Api:
    """The paths of memories, as one client sees them."""

    def __init__(self, url: str, http: aiohttp.ClientSession, key: str | None = None) -> None:
        self.url, self.http = url + "/v1/memories", http
        self.headers = bearer(key) if key else {}

    async def ask(self, method: str, path: str, data: Any = None, **headers: str) -> tuple[int, Any]:
        async with self.http.request(
            method, self.url + path, data=data, headers={**self.headers, **headers}
        ) as response:
            body = await response.read()
            is_json = response.content_type == "application/json"
            return response.status, json.loads(body) if is_json else body

    async def put(self, id: str, text: Any, memory: str = "tales", **headers: str) -> tuple[int, Any]:
        return await self.ask("PUT", f"/{memory}/documents/{id}", text, **{**TEXT, **headers})

    async def found(self, query: str, memory: str = "tales", **more: Any) -> list[str]:
        body = json.dumps({"query": query, **more})
        status, answer = await self.ask("POST", f"/{memory}/search", body)
        assert status == 200, answer
        return [one["document"] for one in answer["data"]]

    async def ids(self, memory: str = "tales") -> list[str]:
        status, answer = await self.ask("GET", f"/{memory}/documents")
        assert status == 200, answer
        return [one["id"] for one in answer["data"]]


@contextlib.asynccontextmanager
async def served(folder: Path, **options: object) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    file = folder / "srb.toml"
    file.write_text(MEMORIES)
    settings = load({"port": 0, "ctx": 4096, "stop_grace": 0, **options}, config=str(file), environ={})
    async with running(settings) as url, aiohttp.ClientSession() as http:
        yield url, http


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with served(tmp_path, max_document=512 << 10) as (url, http):
        yield Api(url, http)


@pytest.fixture
async def clients(tmp_path: Path) -> AsyncIterator[dict[str, Api]]:
    keys = key_file(tmp_path / "keys", *KEYS)
    async with served(tmp_path, api_key_file=str(keys), jwt_secret=SECRET) as (url, http):
        yield {row["name"]: Api(url, http, row["name"]) for row in KEYS} | {"": Api(url, http)}


async def test_a_long_document_comes_in_pieces_and_head_has_none(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llama_srb.http.memories.handlers.PIECE", 7)
    text = 'The "cat" sleeps on\nthe wärm roof 🦊. ' + CAT
    await api.put("cat", text)
    status, one = await api.ask("GET", "/tales/documents/cat")
    assert (status, one["text"], one["id"]) == (200, text, "cat")
    host, port = api.url.split("/")[2].split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    for method, path, more in (
        ("HEAD", "/v1/memories/tales/documents/cat", ""),
        ("GET", "/health", "Connection: close\r\n"),
    ):
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n".encode())
    _, _, behind = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    assert behind.startswith(b"HTTP/1.1 200"), "the next answer is behind the head"


async def test_a_document_is_stored_found_read_and_deleted(api: Api) -> None:
    status, stored = await api.put("stories/cat.txt?year=1900&tag=a&tag=b&of=me", CAT)
    assert (status, stored["id"], stored["replaced"]) == (201, "stories/cat.txt", False)
    assert stored["chunks"] == stored["embedded"] > 0
    status, stored = await api.put("stories/cat.txt", CAT + " Again.", **{"X-Metadata": '{"year": 1901}'})
    assert (status, stored["replaced"]) == (200, True)
    await api.put("ship", SHIP)
    assert (await api.found("the cat dreams of fish", k=1)) == ["stories/cat.txt"]
    assert (await api.found("cat", filter={"metadata": {"year": {"gte": 1902}}})) == []
    status, one = await api.ask("GET", "/tales/documents/stories/cat.txt")
    assert (status, one["text"], one["metadata"]) == (200, CAT + " Again.", {"year": 1901})
    assert await api.ids() == ["ship", "stories/cat.txt"]
    assert (await api.ask("DELETE", "/tales/documents/ship"))[0] == 200
    assert (await api.ask("DELETE", "/tales/documents/ship"))[0] == 404
    assert await api.ids() == ["stories/cat.txt"]


async def test_a_search_says_how_it_was_made_and_where_the_words_are(api: Api) -> None:
    await api.put("cat", CAT)
    await api.put("ship", SHIP)
    status, memories = await api.ask("GET", "")
    assert (status, [one["search"] for one in memories["data"]]) == (200, ["words", "words", "words"])
    assert [one["embedding_model"] is None for one in memories["data"]] == [False, False, True]
    body = {"query": "warm roofs", "highlights": True, "per_document": 1, "around": 1, "diversity": 0.3}
    for way, more in (("words", {}), ("hybrid", {"search": "hybrid"}), ("meaning", {"search": "meaning"})):
        _, answer = await api.ask("POST", "/tales/search", json.dumps({**body, **more}))
        best = answer["data"][0]
        assert answer["search"] == way
        assert best["score"] == best["scores"]["meaning"]
        assert set(best["scores"]) == {
            "meaning",
            *({"words"} & {way}),
            *({"words", "fused"} if way == "hybrid" else ()),
        }
        if way != "meaning":
            assert best["document"] == "cat"
            assert [best["text"][start:end] for start, end in best["highlights"]] == ["warm", "roof"]
    status, stored = await api.put("cat", CAT, "names")
    assert (status, stored["embedded"]) == (201, 0)
    await api.put("log", f"# Log\n\n## Arrivals\n\n{'A boat came. ' * 90}The barque Iris came.", "names")
    for headings in (False, True):
        body = {"query": "Iris arivals", "k": 1, "headings": headings, "highlights": True}
        _, answer = await api.ask("POST", "/names/search", json.dumps(body))
        (found,) = answer["data"]
        assert found["headings"] == ["Log", "Arrivals"]
        assert found["text"].startswith("Log\nArrivals\nA boat") is headings
        marked = [found["text"][start:end] for start, end in found["highlights"]]
        assert marked == ["Arrivals", "Iris"][not headings :]
    _, answer = await api.ask("POST", "/names/search", json.dumps({"query": "warm"}))
    assert [(one["document"], one["score"], set(one["scores"])) for one in answer["data"]] == [
        ("cat", None, {"words"})
    ]


async def test_metadata_of_the_address_are_numbers_texts_and_lists(api: Api) -> None:
    await api.put("a?year=1900&tag=a&tag=7&flag=true&name=007&q=%C3%A9", CAT, **{"X-Metadata": '{"z": [1]}'})
    _, one = await api.ask("GET", "/tales/documents/a")
    expected = {"year": 1900, "tag": ["a", 7], "flag": True, "name": "007", "q": "é", "z": [1]}
    assert one["metadata"] == expected


async def test_files_of_all_kinds_are_read(api: Api) -> None:
    page = "<html><head><title>T</title></head><body><p>The moon is blue.</p></body></html>"
    files = {
        "a.html": ("text/html", b"<p>The sun is <b>red</b>.</p>"),
        "b.pdf": (PDF, pdf(["The sea is green."])),
        "c.docx": (DOCX, docx(["The field is yellow."], [])),
        "d.epub": (EPUB, epub({"1.xhtml": page}, ["1.xhtml"])),
    }
    for id, (kind, body) in files.items():
        assert (await api.put(id, body, **{"Content-Type": kind}))[0] == 201
    assert await api.ids() == list(files)
    assert "The moon is blue." in (await api.ask("GET", "/tales/documents/d.epub"))[1]["text"]


async def test_progress_comes_as_events(api: Api) -> None:
    text = " ".join(f"Traveller {i} came through gate {i} and told story {i}." for i in range(60))
    _, data = await api.put("long", text, Accept="text/event-stream")
    events = frames(data)
    assert [one["event"] for one in events[-1:]] == ["done"]
    stages = [one["stage"] for one in events[:-1]]
    assert stages[:2] == ["read", "chunked"]
    assert stages[-1] == "stored"
    embedded = [(one["done"], one["total"]) for one in events if one.get("stage") == "embedded"]
    assert embedded[-1][0] == embedded[-1][1] == events[-1]["chunks"] > embedded[0][0]


def bomb() -> bytes:
    return archive({"a": b"0" * (300 << 20)})


BAD = [
    ("PUT", "/tales/documents/x", {}, b"x", 415, "Content-Type is "),
    ("PUT", "/tales/documents/x", {"Content-Type": "text/plane"}, b"x", 415, "did you mean text/plain?"),
    ("PUT", "/tales/documents/x", TEXT, b"", 400, "the body is empty"),
    ("PUT", "/tales/documents/x", TEXT, b"x" * (512 << 10) + b"x", 413, "at most 524,288"),
    ("PUT", "/tales/documents/x", {"Content-Type": PDF}, b"no PDF", 400, "the document cannot be read: "),
    ("PUT", "/tales/documents/x", {"Content-Type": EPUB}, bomb, 400, "268,435,456"),
    ("PUT", "/tales/documents/x", TEXT | {"X-Metadata": "{"}, b"x", 400, "X-Metadata is not JSON"),
    ("PUT", "/tales/documents/x?a=1", TEXT | {"X-Metadata": '{"a": 2}'}, b"x", 400, "give it once"),
    ("PUT", "/tales/documents/x?api_key=k", TEXT, b"x", 400, "api_key in the address would be stored"),
    ("PUT", "/tales/documents/" + "x" * 513, TEXT, b"x", 400, "a text of 1 to 512 bytes"),
    ("PUT", "/tales/documents/a%07b", TEXT, b"x", 400, "without control characters"),
    ("PUT", "/tails/documents/x", TEXT, b"x", 404, 'there is no memory "tails"; did you mean "tales"?'),
    ("PUT", "/tales/documents/x", TEXT | {"Content-Encoding": "gzip"}, b"x", 415, "without compression"),
    ("GET", "/tales/documents/x", {}, None, 404, 'there is no document "x"'),
    ("GET", "/tales/documents?limit=501", {}, None, 400, "limit is 501; it must be between 1 and 500"),
    ("GET", "/tales/documents?after=x", {}, None, 400, "after is "),
    ("GET", "/tales/documents?page=2", {}, None, 400, "there are limit and after"),
    ("POST", "/tales/search", {}, b"{}", 400, "query is missing"),
    ("POST", "/tales/search", {}, b'{"query": "x", "k": 0}', 400, "k is 0; it must be between 1 and 1000"),
    ("POST", "/tales/search", {}, b'{"query": "x", "filter": {"metadat": 1}}', 400, "did you mean metadata?"),
    ("POST", "/tales/search", {}, b'{"query": " "}', 400, "query has no text"),
    ("POST", "/tales/search", {}, b'{"query": "x", "search": "word"}', 400, 'search is "word"; it must be'),
    ("POST", "/tales/search", {}, b'{"query": "x", "around": 6}', 400, "around is 6; it must be between 0"),
    ("POST", "/tales/search", {}, b'{"query": "x", "highlights": 1}', 400, "highlights is 1; it must be"),
    ("POST", "/names/search", {}, b'{"query": "x", "search": "hybrid"}', 400, "names has no embedding model"),
    ("POST", "/names/search", {}, b'{"query": "x", "filter": {"score": {"gt": 0}}}', 400, "has a score"),
    ("DELETE", "/tales", {}, None, 404, "there is no /v1/memories/tales here"),
    ("PUT", "/tales/documents", TEXT, b"x", 405, "takes GET"),
]  # fmt: skip


async def test_wrong_requests_are_refused_with_value_and_bound(api: Api) -> None:
    for method, path, headers, body, expected, says in BAD:
        status, answer = await api.ask(method, path, body() if callable(body) else body, **headers)
        assert (status, says in answer["error"]["message"]) == (expected, True), (path, status, answer)
    assert await api.ids() == []


async def test_an_error_of_a_streamed_document_is_an_answer_or_an_event(api: Api) -> None:
    status, answer = await api.put("x", b" ", Accept="text/event-stream")
    assert (status, "it has no text" in answer["error"]["message"]) == (400, True)


async def test_a_cut_upload_leaves_nothing(api: Api, tmp_path: Path) -> None:
    host, port = api.url.removeprefix("http://").partition("/")[0].split(":")
    for head in (b"Content-Length: 100000", b"Transfer-Encoding: chunked"):
        _, writer = await asyncio.open_connection(host, int(port))
        body = b"5\r\nhello\r\n" if b"chunked" in head else b"hello"
        writer.write(
            b"PUT /v1/memories/tales/documents/cut HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: text/plain\r\n"
            + head + b"\r\n\r\n" + body
        )  # fmt: skip
        await writer.drain()
        await asyncio.sleep(0.2)
        writer.close()
    assert (await api.put("whole", CAT))[0] == 201
    assert await api.ids() == ["whole"]


async def test_a_slow_upload_is_ended(tmp_path: Path) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"begun "
        await asyncio.sleep(1.5)
        yield b"too late"

    async with served(tmp_path, body_timeout=0.5) as (url, http):
        status, answer = await Api(url, http).put("slow", slow())
        assert (status, "--body-timeout" in answer["error"]["message"]) == (408, True)


async def test_pages_have_all_documents_once(clients: dict[str, Api]) -> None:
    for client in ("alice", "bob", "root"):
        for id in ("a", "b", "c"):
            assert (await clients[client].put(id, f"{client} says {id}.", "wiki"))[0] == 201
    for limit in (1, 2, 4, 9):
        seen: list[str] = []
        after = ""
        while True:
            _, page = await clients["wiki"].ask("GET", f"/wiki/documents?limit={limit}&after={after}")
            seen += [one["id"] for one in page["data"]]
            if (after := page.get("next", "")) == "":
                break
            assert len(page["data"]) == limit
        assert seen == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
        assert "alice" not in json.dumps(page)


async def test_what_a_key_stores_only_that_key_finds(clients: dict[str, Api]) -> None:
    alice, bob, root = clients["alice"], clients["bob"], clients["root"]
    for client, text in ((alice, CAT), (bob, SHIP), (root, "The operator has a dog.")):
        assert (await client.put("mine", text))[0] == 201
    await root.put("all", "The operator's second document is about a horse.")
    assert await alice.ids() == ["all", "mine", "mine"]
    for query in (CAT, SHIP, "dog", "horse"):
        _, answer = await alice.ask("POST", "/tales/search", json.dumps({"query": query, "k": 50}))
        assert not [one for one in answer["data"] if "ship" in one["text"].lower()]
    assert (await alice.ask("GET", "/tales/documents/mine"))[1]["text"] == CAT
    assert (await alice.ask("GET", "/tales/documents/all"))[1]["own"] is False
    status, answer = await alice.ask("DELETE", "/tales/documents/all")
    assert (status, answer["error"]["code"]) == (403, "not_own")
    assert (await alice.ask("DELETE", "/tales/documents/mine"))[0] == 200
    assert (await bob.ask("GET", "/tales/documents/mine"))[1]["text"] == SHIP
    assert (await alice.ask("GET", "/tales/documents/mine"))[1]["text"] == "The operator has a dog."


async def test_an_admin_sees_and_deletes_the_documents_of_all_keys(clients: dict[str, Api]) -> None:
    alice, bob, root = clients["alice"], clients["bob"], clients["root"]
    for memory in ("tales", "wiki"):
        for client, text in ((alice, CAT), (bob, SHIP)):
            assert (await client.put("mine", text, memory))[0] == 201
        await alice.put("cat", CAT, memory)
        path = f"/{memory}/documents"
        _, listed = await root.ask("GET", path)
        seen = [(one["id"], one["owner"], one["own"]) for one in listed["data"]]
        assert seen == [("cat", "key alice", False), ("mine", "key alice", False), ("mine", "key bob", False)]
        assert (await root.ask("GET", path + "/cat"))[1]["text"] == CAT
        for method in ("GET", "DELETE"):
            status, answer = await root.ask(method, path + "/mine")
            assert (status, answer["error"]["code"]) == (409, "several_owners")
            assert "key alice, key bob" in answer["error"]["message"]
            assert (await root.ask(method, path + "/mine?owner=key%20carol"))[0] == 404
        assert (await root.ask("GET", path + "/mine?owner=key%20bob"))[1]["text"] == SHIP
        assert (await root.ask("DELETE", path + "/mine?owner=key%20bob"))[0] == 200
        assert (await root.ask("DELETE", path + "/cat"))[0] == 200
        assert await root.ids(memory) == await alice.ids(memory) == ["mine"]
        assert (await root.ask("DELETE", path + "/cat"))[0] == 404
    assert await root.found("cat", k=50) == [], "a search of an admin finds no other key's texts"


async def test_in_a_shared_memory_all_find_all_and_change_their_own(clients: dict[str, Api]) -> None:
    alice, bob = clients["alice"], clients["bob"]
    await alice.put("cat", CAT, "wiki")
    assert await bob.found("cat", "wiki", k=1) == ["cat"]
    assert (await bob.ask("DELETE", "/wiki/documents/cat"))[0] == 403
    await bob.put("cat", SHIP, "wiki")
    assert (await bob.ask("GET", "/wiki/documents/cat"))[1]["text"] == SHIP
    assert (await alice.ask("GET", "/wiki/documents/cat"))[1]["text"] == CAT


async def test_keys_and_tokens_are_for_memories(clients: dict[str, Api]) -> None:
    wiki = clients["wiki"]
    assert [one["id"] for one in (await wiki.ask("GET", ""))[1]["data"]] == ["wiki"]
    status, answer = await wiki.put("x", CAT)
    assert (status, answer["error"]["code"]) == (403, "memory_not_allowed")
    assert (await clients[""].ask("GET", ""))[0] == 401
    claims = {"sub": "carol", "scope": "memory", "memories": ["tales"], "exp": 4e9}
    api = clients[""]
    api.headers = bearer(jwt.encode(claims, SECRET, "HS256"))
    assert (await api.put("x", CAT))[0] == 201
    assert (await api.put("x", CAT, "wiki"))[0] == 403
    api.headers = bearer(jwt.encode({**claims, "scope": "chat"}, SECRET, "HS256"))
    status, answer = await api.ask("GET", "/tales/documents")
    assert (status, "this needs memory" in answer["error"]["message"]) == (403, True)


async def test_documents_and_searches_cost_tokens(clients: dict[str, Api]) -> None:
    poor = clients["poor"]
    assert (await poor.put("a", " ".join([CAT] * 8)))[0] == 201, "one document may overdraw the budget"
    status, answer = await poor.put("b", SHIP)
    assert (status, answer["error"]["code"]) == (429, "rate_limit_exceeded")
    assert (await poor.ask("POST", "/tales/search", json.dumps({"query": "x"})))[0] == 429
    assert await poor.ids() == ["a"], "a list costs nothing"


async def test_a_reload_needs_the_models_of_memories(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "srb.toml"
    both = "".join(f'[models.{name}]\npath = "{STORYTELLER}"\n' for name in ("one", "two"))
    memory = '[memories.tales]\nstore = { file = "t.db" }\nembedding_model = "two"\n'
    file.write_text(both + memory)

    def read() -> Settings:
        return load({"port": 0, "ctx": 1024, "stop_grace": 0}, config=str(file), environ={})

    async def reloaded(text: str, says: str) -> None:
        file.write_text(text)
        os.kill(os.getpid(), signal.SIGHUP)
        async with asyncio.timeout(PATIENCE):
            while says not in caplog.text:  # noqa: ASYNC110, it is a log
                await asyncio.sleep(0.01)

    with caplog.at_level("INFO"):
        async with running(read(), read) as url, aiohttp.ClientSession() as http:
            api = Api(url, http)
            assert (await api.put("cat", CAT))[0] == 201, "its model is loaded for it"
            await reloaded(both.partition("[models.two]")[0] + memory, "there is no such model")
            assert await api.found("cat") == ["cat"]
            await reloaded(both + memory + "shared = true\n", "SIGHUP: memories: changed tales")
            assert (await api.ask("GET", ""))[1]["data"][0]["shared"] is True


async def test_a_model_file_that_was_replaced_makes_its_memory_outdated(tmp_path: Path) -> None:
    model, other = tmp_path / "m.gguf", tmp_path / "other.gguf"
    model.write_bytes(STORYTELLER.read_bytes())
    async with served(tmp_path, model=str(model)) as (url, http):
        assert (await Api(url, http).put("cat", CAT))[0] == 201
    write_model(other, "qwen3")
    other.rename(model)
    with pytest.raises(StartError, match="run llama-srb memory rebuild tales"):
        async with served(tmp_path, model=str(model)):
            pass
