"""Two nodes, a server on each: one is removed under load."""

from __future__ import annotations

import json
import threading
from typing import Any

import httpx

from tests.ray.conftest import application, cluster_of, node, open_at, open_at_all, until, workers_of
from tests.support.serving import Server

LONG: dict[str, Any] = {"max_tokens": 1000, "ignore_eos": True, "n": 2}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/events", {}),
    ("/openai/v1/completions", {"stream": True}),
    ("/v1/chat/completions", {"stream": True}),
]
LOST = b'"code":"replica_lost"'


class Reader(threading.Thread):
    """Reads one answer to its end, whatever that is."""

    def __init__(self, served: Server, path: str, i: int, **fields: Any) -> None:
        super().__init__(daemon=True)
        text = f"Story {i} begins in its own way. " * 4
        asked = {"messages": [{"role": "user", "content": text}]} if "chat" in path else {"prompt": text}
        self._url, self._body = served.url + path, {**LONG, **asked, **fields}
        self.worker, self.data, self.status = "", b"", 0

    def run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=240) as response:
            self.status = response.status_code
            self.worker = response.headers.get("X-Worker", "")
            for chunk in response.iter_bytes():
                self.data += chunk

    @property
    def is_complete(self) -> bool:
        """Whether it is an answer as a server ends it."""
        return (
            any(end in self.data for end in (b"[DONE]", b'"event": "done"', b'"usage"')) and not self.is_lost
        )

    @property
    def is_lost(self) -> bool:
        return LOST in self.data


def test_a_node_that_is_removed_under_load_loses_only_its_own_streams() -> None:
    with cluster_of(cpus=1) as cluster:
        second = cluster.add_node(**node(num_cpus=1))
        with application(cluster, workers=2) as served:
            before = workers_of(served)
            asked = [(i, *one) for i in range(3) for one in ASKED]
            readers = [Reader(served, path, i, **more) for i, path, more in asked]
            whole = {name: Reader(served, f"/w/{name}/openai/v1/completions", 9) for name in before}
            readers += whole.values()
            for reader in readers:
                reader.start()
            until(lambda: open_at_all(served) == len(readers))
            here = {worker: open_at(served, worker) for worker in before}
            assert min(here.values()) > 0, "both servers have requests"
            cluster.remove_node(second, allow_graceful=False)
            for reader in readers:
                reader.join(240)
            assert not any(reader.is_alive() for reader in readers)
            until(lambda: len(workers_of(served)) == 1)
            (left,) = workers_of(served)
            assert [reader.data[-300:] for reader in readers if reader.is_complete == reader.is_lost] == []
            assert all(reader.is_lost for reader in readers if reader.worker not in ("", left))
            assert len([reader for reader in readers if reader.is_complete]) == here[left]
            assert {name: reader.status for name, reader in whole.items()} == {
                name: 200 if name == left else 503 for name in before
            }
            for i in range(8):  # all later requests are answered
                body = {"prompt": f"Later story {i}", "max_tokens": 4}
                status, headers, data = served.call("POST", "/openai/v1/completions", body)
                assert status == 200, data
                assert headers["X-Worker"] == left
                assert json.loads(data)["choices"]
