"""Each route with each scope, and with a second key: no key sees or ends the requests of another.

The table has the scopes of each route. The first test fails for a route that is not in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from llama_srb.http.routes import ROUTES, Route
from llama_srb.serving.keys import api_keys
from tests.support.served import SECRET, Served, Serving, bearer, key_file
from tests.support.several import Several, engine_of
from tests.support.waiting import PATIENCE

NO_KEY, EVERY_KEY = "", "complete chat embed memory batch metrics admin"
TABLE: Mapping[str, str] = {  # by method and path: the scopes, one of which is needed
    NO_KEY: """
        GET /
        GET /studio/{file}
        GET /health
        GET /health/live
        GET /health/ready
    """,
    EVERY_KEY: """
        GET /openapi.json
        GET /v1/models
        GET /models
        GET /v1/models/{name}
        GET /openai/v1/models
        GET /openai/v1/models/{name}
        GET /v1/adapters
        GET /lora-adapters
        GET /v1/sampling/override/list
        GET /v1/sampling/overrides
        GET /v1/template/list
        GET /v1/presets
        GET /v1/tasks
        GET /v1/samplers
        GET /props
        GET /slots
        GET /api/v1/model
        GET /api/v1/info/version
        GET /api/v1/config/max_context_length
        GET /api/v1/config/max_length
        GET /api/v1/config/soft_prompts_list
        GET /api/v1/config/soft_prompt
        GET /api/latest/model
        GET /api/latest/info/version
        GET /api/latest/config/max_context_length
        GET /api/latest/config/max_length
        GET /api/latest/config/soft_prompts_list
        GET /api/latest/config/soft_prompt
        GET /api/extra/version
        GET /api/extra/true_max_context_length
        GET /api/extra/preloadstory
        GET /v1/internal/health
        GET /v1/internal/lora/list
        GET /v1/internal/model/info
        GET /v1/internal/model/list
        GET /v1/model
        GET /v1/model/list
        POST /api/show
        GET /api/tags
        GET /api/ps
        GET /api/version
        POST /api/pull
        GET /tokenizer_info
        GET /models/sse
        GET /v1/model/draft/list
        GET /v1/lora/list
        GET /server_info
        GET /model_info
    """,
    "complete admin": """
        POST /v1/completions
        POST /openai/v1/completions
        POST /v1/events
        POST /v1/prefix
        POST /v1/score
        GET /v1/ws
        POST /v1/tasks/{name}/completions
        GET /v1/tasks/{name}/live
        POST /completion
        POST /completions
        POST /infill
        POST /tokenize
        POST /v1/tokenize
        POST /detokenize
        POST /v1/detokenize
        POST /api/v1/generate
        POST /api/latest/generate
        POST /api/extra/generate/stream
        POST /api/extra/generate/check
        GET /api/extra/generate/check
        POST /api/extra/abort
        POST /api/extra/last_logprobs
        GET /api/extra/last_logprobs
        GET /api/extra/perf
        POST /api/extra/tokencount
        POST /api/extra/detokenize
        POST /api/v1/token-count
        POST /v1/internal/encode
        POST /v1/internal/decode
        POST /v1/internal/token-count
        POST /v1/internal/logits
        POST /v1/token/encode
        POST /v1/token/decode
        POST /api/generate
        POST /complete
        POST /v1/fim/completions
    """,
    "chat admin": """
        POST /v1/chat/completions
        POST /v1/tasks/{name}/chat
        GET /v1/tasks/{name}/ws
        POST /chat/completions
        POST /openai/v1/chat/completions
        POST /v1/responses
        POST /responses
        POST /openai/v1/responses
        POST /v1/responses/input_tokens
        POST /responses/input_tokens
        POST /openai/v1/responses/input_tokens
        GET /v1/responses/{response_id}
        DELETE /v1/responses/{response_id}
        GET /v1/responses/{response_id}/input_items
        GET /responses/{response_id}
        DELETE /responses/{response_id}
        GET /responses/{response_id}/input_items
        GET /openai/v1/responses/{response_id}
        DELETE /openai/v1/responses/{response_id}
        GET /openai/v1/responses/{response_id}/input_items
        POST /api/chat
        POST /chat
        POST /v1/chat/completions/input_tokens
        POST /chat/completions/input_tokens
        POST /v1/messages
        POST /v1/messages/count_tokens
    """,
    "complete chat admin": """
        GET /v1/stories
        GET /v1/stories/{story}
        PUT /v1/stories/{story}
        DELETE /v1/stories/{story}
        POST /v1/completions/{id}/extend
        DELETE /v1/completions/{id}
        DELETE /v1/completions/{id}/{index}
        POST /apply-template
        POST /v1/prompt
        POST /v1/internal/chat-prompt
        POST /v1/internal/stop-generation
        POST /v1/abort
    """,
    "embed admin": """
        POST /v1/embeddings
        POST /openai/v1/embeddings
        POST /embedding
        POST /embeddings
        POST /api/embed
        POST /embed
        POST /api/embeddings
        POST /v1/rerank
        POST /rerank
        POST /v2/rerank
        POST /reranking
        POST /v1/reranking
    """,
    "metrics admin": """
        GET /metrics
        GET /v1/stats
        GET /v1/loads
    """,
    "admin": """
        POST /v1/trials
        POST /v1/trials/prompt
        POST /drain
        DELETE /drain
        POST /v1/load_lora_adapter
        POST /v1/unload_lora_adapter
        POST /v1/lora/load
        POST /v1/lora/unload
        POST /v1/sampling/override/switch
        POST /v1/sampling/override/unload
        POST /v1/template/switch
        POST /v1/template/unload
        POST /v1/models/{name}/load
        POST /v1/models/{name}/unload
        POST /models/load
        POST /models/unload
        POST /v1/model/load
        POST /v1/model/unload
        POST /v1/internal/model/load
        POST /v1/internal/model/unload
    """,
    "memory admin": """
        GET /v1/memories
        PUT /v1/memories/{memory}/documents/{document}
        GET /v1/memories/{memory}/documents
        GET /v1/memories/{memory}/documents/{document}
        DELETE /v1/memories/{memory}/documents/{document}
        POST /v1/memories/{memory}/search
    """,
    "batch admin": """
        POST /v1/files
        GET /v1/files
        GET /v1/files/{file_id}
        GET /v1/files/{file_id}/content
        DELETE /v1/files/{file_id}
        POST /v1/batches
        GET /v1/batches
        GET /v1/batches/{batch_id}
        POST /v1/batches/{batch_id}/cancel
        POST /openai/v1/files
        GET /openai/v1/files
        GET /openai/v1/files/{file_id}
        GET /openai/v1/files/{file_id}/content
        DELETE /openai/v1/files/{file_id}
        POST /openai/v1/batches
        GET /openai/v1/batches
        GET /openai/v1/batches/{batch_id}
        POST /openai/v1/batches/{batch_id}/cancel
    """,
}
EXPECTED = {
    tuple(row.split()): frozenset(scopes.split())
    for scopes, rows in TABLE.items()
    for row in rows.strip().splitlines()
}

CHAT = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
ADAPTER = {"lora_name": "x", "lora_path": "x"}
RANKED = {"query": "x", "documents": ["y"]}
EMBEDDING, TOKENS, INPUT = {"input": "x"}, {"tokens": [1]}, {"input": "x", "max_tokens": 1}
BODIES: Mapping[str, Any] = {  # bodies for routes that BODY does not suit
    "/v1/chat/completions": CHAT, "/chat/completions": CHAT, "/openai/v1/chat/completions": CHAT,
    "/api/chat": {"model": "storyteller", "stream": False, **CHAT, "options": {"num_predict": 1}},
    "/apply-template": CHAT, "/v1/internal/chat-prompt": CHAT,
    "/v1/responses": INPUT, "/responses": INPUT, "/openai/v1/responses": INPUT,
    "/v1/responses/input_tokens": INPUT, "/responses/input_tokens": INPUT,
    "/openai/v1/responses/input_tokens": INPUT,
    "/v1/score": {"prompt": "x", "texts": ["y"]},
    "/v1/embeddings": EMBEDDING, "/openai/v1/embeddings": EMBEDDING,
    "/embedding": EMBEDDING, "/embeddings": EMBEDDING, "/api/embed": EMBEDDING, "/embed": EMBEDDING,
    "/v1/rerank": RANKED, "/rerank": RANKED, "/v2/rerank": RANKED, "/reranking": RANKED,
    "/v1/reranking": RANKED,
    "/chat": {"message": "x", "configuration": {"max_tokens": 1}},
    "/complete": {"prompt": "x", "max_tokens": 1},
    "/v1/internal/encode": {"text": "x"}, "/v1/token/encode": {"text": "x"},
    "/v1/internal/token-count": {"text": "x"}, "/api/extra/detokenize": {"ids": [1]},
    "/v1/completions/{id}/extend": {"add": 1}, "/api/show": {"model": "storyteller"},
    "/v1/prefix": {"prompt": "x"},
    "/detokenize": TOKENS, "/v1/detokenize": TOKENS,
    "/v1/internal/decode": TOKENS, "/v1/token/decode": TOKENS,
    "/v1/load_lora_adapter": ADAPTER, "/v1/unload_lora_adapter": ADAPTER,
    "/v1/lora/load": {"loras": [{"name": "x"}]}, "/v1/sampling/override/switch": {"preset": "creative"},
}  # fmt: skip
PARAMETERS = {
    "id": "0" * 32,
    "index": "0",
    "name": "m",
    "file": "x",
    "memory": "m",
    "document": "d",
    "file_id": "f",
    "batch_id": "b",
    "story": "s",
    "response_id": "resp_" + "0" * 32,
}
BODY = {"prompt": "x", "n": 1, "max_tokens": 1, "max_length": 1, "n_predict": 1,
        "options": {"num_predict": 1}}  # fmt: skip


async def ask(
    served: Served, route: Route, headers: Mapping[str, str] = {}, *, method: str = "", **named: str
) -> tuple[int, bytes]:
    """Status and body of one request to a route; `named` are the parameters in its path."""
    path = route.path.format(**PARAMETERS | named)
    body = json.dumps(BODIES.get(route.path, BODY)) if route.method == "POST" else None
    url = served.url + path
    async with served.http.request(method or route.method, url, data=body, headers=headers) as response:
        is_endless = route.path == "/models/sse" and response.status == 200
        return response.status, b"" if is_endless else await response.read()


def test_each_route_is_in_the_table_with_its_scopes() -> None:
    found = {(route.method, route.path): frozenset(route.scopes) for route in ROUTES}
    admins = {row: scopes | {"admin"} if scopes else scopes for row, scopes in found.items()}
    assert admins == EXPECTED


@pytest.mark.parametrize("scope", ["", *api_keys.SCOPES])
async def test_a_key_is_admitted_by_a_scope_of_the_route_and_no_other(
    serving: Serving, tmp_path: Path, scope: str
) -> None:
    served = await serving(api_key_file=str(key_file(tmp_path / "k", {"name": "a", "scopes": scope.split()})))
    wrong = []
    for route in ROUTES:
        needed = EXPECTED.get((route.method, route.path), frozenset({"admin"}))
        for method in route.methods:
            let_in = not needed or scope in needed
            status, body = await ask(served, route, bearer("a"), method=method)
            refused = status == 403 and (method == "HEAD" or b"this needs" in body)
            if refused == let_in or status == 401:
                wrong.append((method, route.path, status, body[:200]))
            nobody, _ = await ask(served, route, method=method)
            if (nobody == 401) != bool(needed):
                wrong.append((method, route.path, nobody, "without a key"))
    assert wrong == []


async def test_another_method_or_path_does_nothing(serving: Serving) -> None:
    """It needs no key either, since the answer reveals nothing."""
    served = await serving(api_key="one")
    for method, path, status in (
        ("POST", "/stop", 404),
        ("PUT", "/v1/models", 405),
        ("POST", "/slots", 405),
    ):
        async with served.http.request(method, served.url + path, data="{}") as response:
            assert response.status == status


# Web pages

PAGES: list[
    tuple[Mapping[str, str], bool]
] = [  # headers of a browser, and whether they are a foreign image's
    ({"Sec-Fetch-Site": "cross-site"}, True),
    ({"Sec-Fetch-Site": "same-site"}, True),
    ({"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:8000"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "https://good.example"}, False),
    ({"Sec-Fetch-Site": "same-origin"}, False),
    ({"Sec-Fetch-Site": "none"}, False),
    ({}, False),
]


async def test_an_image_in_a_foreign_page_makes_no_route_work(serving: Serving, tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    file.write_text(f'engine = "{engine_of(tmp_path, "tale")}"\n[tasks.m]\n')  # as PARAMETERS names it
    served = await serving(config=str(file), cors="localhost https://good.example", stories=str(tmp_path))
    several, wrong = Several(served, tmp_path), []
    routes = [route for route in ROUTES if route.method == "GET"]
    for route in routes:
        for headers, is_image in PAGES:
            before = len(several.noted("tale"))
            status, body = await ask(served, route, headers)
            refused = status == 403 and b"pages of other origins may not call this server" in body
            if refused != (is_image and route.works):
                wrong.append((route.path, headers, status, body[:200]))
            if is_image and (noted := several.noted("tale")[before:]):
                wrong.append((route.path, headers, noted))
    assert wrong == []
    assert {"/v1/tasks/{name}/live", "/slots", "/models/sse"} <= {one.path for one in routes if one.works}


# A second key

ENDLESS = {"prompt": "secret", "max_tokens": -1, "stream": True}
STREAMS: tuple[tuple[str, Mapping[str, Any]], ...] = (
    ("/api/extra/generate/stream", {"max_length": 10**6, "logprobs": True}),
    ("/api/extra/generate/stream", {"max_length": 10**6, "logprobs": True, "genkey": "K"}),
    ("/v1/completions", {}),
    ("/v1/chat/completions", {"prompt": None, "messages": CHAT["messages"]}),
    ("/v1/responses", {"prompt": None, "input": "x"}),
    ("/v1/events", {}),
    ("/completion", {}),
    ("/api/generate", {"model": "storyteller"}),
)
NAMES: tuple[dict[str, str], ...] = ({}, {"genkey": "K"})


@dataclass
class Client:
    """A client with its own key, or with its own address."""

    served: Served
    http: aiohttp.ClientSession
    headers: Mapping[str, str]

    async def ask(self, method: str, path: str, body: Any = None) -> str:
        data = None if body is None else json.dumps(body)
        url = self.served.url + path
        async with self.http.request(method, url, data=data, headers=self.headers) as response:
            if path != "/models/sse":
                return await response.text()
            with contextlib.suppress(TimeoutError):  # it does not end by itself
                async with asyncio.timeout(0.2):
                    return (await response.content.readany()).decode()
            return ""

    async def json(self, path: str, body: Any = None) -> Any:
        return json.loads(await self.ask("GET" if body is None else "POST", path, body))

    async def said(self, body: Mapping[str, str]) -> str:
        """The text so far of its KoboldCpp generation."""
        return str((await self.json("/api/extra/generate/check", body))["results"][0]["text"])

    @contextlib.asynccontextmanager
    async def streaming(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[bytes]:
        """A stream that does not end by itself; yields its beginning."""
        url, data = self.served.url + path, {**ENDLESS, **body}
        async with self.http.post(url, json=data, headers=self.headers) as response:
            assert response.status == 200, await response.read()
            yield await response.content.readany()


@dataclass
class Three:
    """Two clients with the same rights, and an admin."""

    first: Client
    second: Client
    admin: Client

    async def running(self, count: int) -> None:
        """Waits until the engine runs so many requests."""
        async with asyncio.timeout(PATIENCE):
            while (await self.admin.json("/v1/stats"))["engine"].get("requests") != count:  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture(params=["keys", "addresses"])
async def three(serving: Serving, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Three]:
    """Three clients, with keys and without."""
    file = key_file(tmp_path / "keys", {"name": "first"}, {"name": "second"},
                    {"name": "admin", "scopes": ["admin"]})  # fmt: skip
    options = {"api_key_file": str(file)} if request.param == "keys" else {}
    served = await serving("--endless", "--token-delay", "0.01", **options)
    async with contextlib.AsyncExitStack() as stack:

        async def client(name: str, address: str) -> Client:
            connector = aiohttp.TCPConnector(local_addr=(address, 0) if not options else None, limit=0)
            http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            return Client(served, http, bearer(name) if options else {})

        yield Three(
            await client("first", "127.0.0.1"),
            await client("second", "127.0.0.2"),
            await client("admin", "127.0.0.3"),
        )


@contextlib.asynccontextmanager
async def secrets(client: Client) -> AsyncIterator[list[str]]:
    """An endless stream of each form for the length of the block; yields the texts of two."""
    async with contextlib.AsyncExitStack() as stack:
        for path, body in STREAMS:
            await stack.enter_async_context(client.streaming(path, body))
        texts = []
        for name in NAMES:
            while (said := await client.said(name)).count(" ") < 8:
                pass
            texts.append(" ".join(said.split(" ")[:8]))
        yield texts


async def test_on_no_route_one_client_sees_or_ends_what_another_generates(three: Three) -> None:
    second, wrong = three.second, []
    async with secrets(three.first) as texts:
        for route in sorted(
            ROUTES, key=lambda route: route.handler.__name__ == "reply"
        ):  # they rename generations
            for name in NAMES:
                path = route.path.format(**PARAMETERS)
                body = {**BODIES.get(route.path, BODY), **name} if route.method == "POST" else None
                seen = await second.ask(route.method, path, body)
                if any(text in seen for text in texts):
                    wrong.append((route.method, path, name))
        assert wrong == []
        await three.running(len(STREAMS))


async def test_koboldcpps_clients_see_only_their_own_generations(three: Three) -> None:
    first, second = three.first, three.second
    async with secrets(first):
        for name in NAMES:
            assert await second.said(name) == ""
            assert await second.json("/api/extra/last_logprobs", name) == {"logprobs": None}
            assert (await second.json("/api/extra/abort", name))["success"] == "false"
        assert (await second.json("/api/extra/perf"))["queue"] == 0
        assert (await first.json("/api/extra/perf"))["queue"] == 2
        assert (await first.json("/api/extra/last_logprobs", NAMES[1]))["logprobs"] is not None
        async with second.streaming(*STREAMS[1]):
            assert (await second.json("/api/extra/abort", NAMES[1]))["success"] == "true"
            await three.running(len(STREAMS))
        assert await first.said(NAMES[1]), "the other's generation of this name has not taken its place"
        for name in NAMES:
            assert (await first.json("/api/extra/abort", name))["success"] == "true"
        await three.running(len(STREAMS) - 2)


async def test_many_generations_of_one_client_push_out_none_of_another(three: Three) -> None:
    async with secrets(three.first):
        for number in range(70):
            await three.second.ask("POST", "/api/v1/generate", {**BODY, "genkey": str(number)})
        for name in NAMES:
            assert (await three.first.json("/api/extra/abort", name))["success"] == "true"


async def test_stop_generation_ends_its_callers_generations(three: Three) -> None:
    async with secrets(three.first):
        for client in (three.second, three.admin):
            assert await client.json("/v1/internal/stop-generation", {}) == "OK"
        await three.running(len(STREAMS))
        assert await three.first.json("/v1/internal/stop-generation", {}) == "OK"
        await three.running(len(STREAMS) - 3)


async def test_abort_ends_all_of_its_callers_requests_and_no_others(three: Three) -> None:
    async with secrets(three.first):
        for client in (three.second, three.admin):
            assert await client.json("/v1/abort", {}) == {"aborted": 0}
        await three.running(len(STREAMS))
        assert await three.first.json("/v1/abort", {}) == {"aborted": len(STREAMS)}
        await three.running(0)


@pytest.mark.parametrize("three", ["keys"], indirect=True)
async def test_an_admin_ends_any_generation_by_its_name_and_reads_none(three: Three) -> None:
    async with secrets(three.first):
        assert await three.admin.said(NAMES[1]) == ""
        answers = [await three.admin.json("/api/extra/abort", name) for name in NAMES]
        assert [answer["success"] for answer in answers] == ["false", "true"], "one without a name is its own"
        await three.running(len(STREAMS) - 1)


async def test_a_client_that_knows_an_id_may_cancel_and_extend(three: Three) -> None:
    """The id is random, so that only clients that were given it know it."""
    async with three.first.streaming("/v1/events", {"n": 1}) as begun:
        id = json.loads(begun.decode().splitlines()[0].removeprefix("data: "))["id"]
        assert (await three.second.json(f"/v1/completions/{id}/extend", {"add": 1}))["count"] == 2
        answer = await three.second.ask("DELETE", f"/v1/completions/{id}")
        assert json.loads(answer)["cancelled"]


async def test_a_prefix_ends_an_earlier_one_of_the_same_client_only(three: Three) -> None:
    long = asyncio.create_task(three.first.json("/v1/prefix", {"prompt": "word " * 1000}))
    await three.first.served.note("prefix")
    assert "superseded" not in await three.second.json("/v1/prefix", {"prompt": "word " * 3})
    assert not long.done()
    await three.first.json("/v1/prefix", {"prompt": "word"})
    assert (await long)["superseded"]


async def test_a_jwt_is_another_client_than_a_key_of_the_same_name(serving: Serving, tmp_path: Path) -> None:
    served = await serving(
        "--endless", "--token-delay", "0.01", jwt_secret=SECRET,
        api_key_file=str(key_file(tmp_path / "keys", {"name": "ann"})),
    )  # fmt: skip
    token = jwt.encode({"sub": "ann", "exp": time.time() + 60, "scope": "complete"}, SECRET, "HS256")
    key, same = (Client(served, served.http, bearer(text)) for text in ("ann", token))
    async with secrets(key):
        assert await same.said(NAMES[1]) == ""
        assert (await same.json("/api/extra/abort", NAMES[1]))["success"] == "false"
