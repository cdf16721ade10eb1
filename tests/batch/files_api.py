"""Files and batches of a server, as one client sees them."""

from __future__ import annotations

import asyncio
import io
import json
from typing import Any

import aiohttp

from tests.support.batches import as_bytes
from tests.support.served import Served, bearer
from tests.support.waiting import PATIENCE

OPEN = {"validating", "in_progress", "finalizing", "cancelling"}


class Files:
    """The paths /v1/files and /v1/batches, with a key."""

    def __init__(self, served: Served, key: str | None = None) -> None:
        self.url, self.http = served.url + "/v1", served.http
        self.headers = bearer(key) if key else {}

    async def ask(self, method: str, path: str, data: Any = None) -> tuple[int, Any]:
        async with self.http.request(method, self.url + path, data=data, headers=self.headers) as response:
            body = await response.read()
            return response.status, json.loads(body) if response.content_type == "application/json" else body

    async def upload(self, content: Any, **fields: str) -> tuple[int, Any]:
        """Sends a file: bytes, or lines."""
        form = aiohttp.FormData()
        for name, value in {"purpose": "batch", **fields}.items():
            form.add_field(name, value)
        data = content if isinstance(content, bytes) else as_bytes(content)
        form.add_field("file", io.BytesIO(data), filename="in.jsonl", content_type="application/jsonl")
        return await self.ask("POST", "/files", form)

    async def begin(self, content: Any, endpoint: str = "/v1/completions", **more: Any) -> dict[str, Any]:
        """A new batch of a file."""
        status, file = await self.upload(content)
        assert status == 200, file
        asked = {"input_file_id": file["id"], "endpoint": endpoint, "completion_window": "24h", **more}
        status, batch = await self.ask("POST", "/batches", json.dumps(asked))
        assert status == 200, batch
        assert batch["status"] == "validating"
        return dict(batch)

    async def batch(self, id: str) -> dict[str, Any]:
        status, batch = await self.ask("GET", f"/batches/{id}")
        assert status == 200, batch
        return dict(batch)

    async def until(self, id: str, *statuses: str) -> dict[str, Any]:
        """Waits until the batch has one of these statuses; any that is over, if none are given."""
        async with asyncio.timeout(PATIENCE):
            while True:
                batch = await self.batch(id)
                if batch["status"] in statuses if statuses else batch["status"] not in OPEN:
                    return batch
                await asyncio.sleep(0.005)

    async def until_done(self, id: str, count: int) -> dict[str, Any]:
        """Waits until so many lines are completed."""
        async with asyncio.timeout(PATIENCE):
            while True:
                batch = await self.batch(id)
                if batch["request_counts"]["completed"] >= count:
                    return batch
                await asyncio.sleep(0.005)

    async def lines(self, file_id: str | None) -> list[dict[str, Any]]:
        """The lines of a file; none without one."""
        if file_id is None:
            return []
        status, data = await self.ask("GET", f"/files/{file_id}/content")
        assert status == 200, data
        assert data.endswith(b"\n")
        return [json.loads(one) for one in data.splitlines()]
