"""Two tasks, two memories, 16 clients: no document is lost, and the memory of the server is flat.

MEMORY_REQUESTS=2000 is the long test.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.served import bearer, key_file
from tests.support.serving import serving

REQUESTS = int(os.environ.get("MEMORY_REQUESTS", "320"))
CLIENTS, GROWTH = 16, 96 << 20  # bytes
SETTINGS = "".join(
    f"""
[memories.m{i}]
store = {{ file = "m{i}.db" }}
chunk_tokens = 32
[tasks.t{i}]
prelude = "Stories. "
prefix = "<u>"
postfix = "<a>"
max_tokens = 2
n = 2
recall = {{ memory = "m{i}", retrieve = 2, store_prompts = {"false" if i else "true"} }}
"""
    for i in range(2)
)


class Client:
    """One key, with documents of its own in both memories."""

    def __init__(self, url: str, http: aiohttp.ClientSession, number: int) -> None:
        self._url, self._http, self._name = url, http, f"k{number}"
        self._drawn = random.Random(number)
        self.stored: dict[str, dict[str, str]] = {"m0": {}, "m1": {}}
        self.prompts: set[str] = set()
        self.requests = 0

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = json.dumps(body) if isinstance(body, Mapping) else body
        given = {**bearer(self._name), **headers}
        async with self._http.request(method, self._url + path, data=data, headers=given) as response:
            answer = await response.read()
            self.requests += 1
            assert response.status < 300, answer
            return json.loads(answer) if response.content_type == "application/json" else answer

    async def work(self, count: int) -> None:
        for number in range(count):
            memory = self._drawn.choice(["m0", "m1"])
            own, path = self.stored[memory], f"/v1/memories/{memory}"
            match self._drawn.randrange(4):
                case 0:
                    text = f"{self._name} saw animal {self._drawn.randrange(9**6)} by the river at noon."
                    await self.ask(
                        "PUT", f"{path}/documents/d{number}", text, **{"Content-Type": "text/plain"}
                    )
                    own[f"d{number}"] = text
                case 1 if own:
                    id = self._drawn.choice(list(own))
                    del own[id]
                    await self.ask("DELETE", f"{path}/documents/{id}")
                case 2:
                    found = await self.ask("POST", path + "/search", {"query": "animal by the river", "k": 9})
                    assert all(one["text"].startswith(self._name) for one in found["data"])
                case _:
                    text = f"{self._name} asks {number}."
                    body = {"prompt": text, "stream": False}
                    self.prompts |= {text} if memory == "m0" else set()
                    answer = await self.ask("POST", f"/v1/tasks/t{memory[1]}/completions", body)
                    assert len(answer["choices"]) == 2

    async def check(self) -> None:
        for memory, own in self.stored.items():
            listed = await self.ask("GET", f"/v1/memories/{memory}/documents?limit=500")
            prompts = [one for one in listed["data"] if one["metadata"] == {"kind": "prompt"}]
            assert len(prompts) == (len(self.prompts) if memory == "m0" else 0)
            assert {one["id"] for one in listed["data"] if one not in prompts} == own.keys()
            for id, text in list(own.items())[:3]:
                assert (await self.ask("GET", f"/v1/memories/{memory}/documents/{id}"))["text"] == text


async def test_clients_lose_nothing_and_the_memory_of_the_server_is_flat(tmp_path: Path) -> None:
    file = tmp_path / "srb.toml"
    file.write_text(SETTINGS)
    scopes = ["complete", "memory"]
    keys = key_file(tmp_path / "keys", *({"name": f"k{i}", "scopes": scopes} for i in range(CLIENTS)))
    with serving("--ctx", "8192", "--config", str(file), "--api-key-file", str(keys)) as server:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(120)) as http:
            clients = [Client(server.url, http, i) for i in range(CLIENTS)]
            await asyncio.gather(*(one.work(REQUESTS // CLIENTS // 4) for one in clients))
            before = resident_of(server.pid)
            await asyncio.gather(*(one.work(REQUESTS // CLIENTS) for one in clients))
            for one in clients:
                await one.check()
            after = resident_of(server.pid)
            n_requests = sum(one.requests for one in clients)
            print(f"{n_requests} requests, {before >> 20} MiB before, {after >> 20} MiB after")
            assert after - before < GROWTH


def resident_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmRSS:"))
