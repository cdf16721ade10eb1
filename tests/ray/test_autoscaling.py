"""Servers come with the load."""

from __future__ import annotations

import threading
from typing import Any

import httpx

from tests.ray.conftest import application, cluster_of, open_at, until, workers_of

LONG: dict[str, Any] = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "n": 1}
QUICK = {"max_replicas": 2, "target_ongoing_requests": 2, "upscale_delay_s": 0, "look_back_period_s": 2}


def test_a_second_server_starts_when_requests_queue_and_gets_some_of_them() -> None:
    over = threading.Event()

    def read(url: str) -> None:
        with httpx.stream("POST", url + "/v1/events", json=LONG, timeout=60) as response:
            for _ in response.iter_bytes():
                if over.is_set():
                    return

    with cluster_of(cpus=2) as cluster, application(cluster, workers=1, **QUICK) as served:
        (first,) = workers_of(served)
        readers = [threading.Thread(target=read, args=(served.url,)) for _ in range(8)]
        for reader in readers:
            reader.start()
        try:
            until(lambda: len(workers_of(served)) == 2)
            second = next(worker for worker in workers_of(served) if worker != first)
            body = {"prompt": "Another story, of which no server has a word.", "max_tokens": 4}
            status, headers, _ = served.call("POST", "/openai/v1/completions", body)
            assert (status, headers["X-Worker"]) == (200, second), "the new server has the least text"
        finally:
            over.set()
            for reader in readers:
                reader.join()
        until(lambda: open_at(served, first) == 0)
