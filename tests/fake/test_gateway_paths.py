"""What gateways ask a server: SGLang's paths; and the header that names it behind one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from llama_srb.config import SettingsError
from llama_srb.dialects.sglang import engine_load, loads
from tests.fake.test_metrics import measured, stream
from tests.support.served import Served, Serving
from tests.support.several import serve

HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
}


async def asked(served: Served, path: str) -> Any:
    async with served.http.get(served.url + path) as response:
        assert response.status == 200
        return await response.json()


async def test_loads_count_the_sequences_that_run_and_wait(serving: Serving) -> None:
    served = await serving("--endless", parallel=4)
    streaming = await stream(served, {"prompt": "x", "n": 6, "max_tokens": -1})
    answer = await asked(served, "/v1/loads?include=core")
    (load,) = answer["loads"]
    assert (load["num_running_reqs"], load["num_waiting_reqs"], load["num_total_reqs"]) == (4, 2, 6)
    assert (load["utilization"], load["max_running_requests"]) == (1.0, 4)
    assert 0 < load["num_used_tokens"] < load["max_total_num_tokens"]
    assert load["token_usage"] == round(load["num_used_tokens"] / load["max_total_num_tokens"], 4)
    totals = {"total_running_reqs": 4, "total_waiting_reqs": 2, "total_reqs": 6}
    assert totals.items() <= answer["aggregate"].items()
    streaming.close()


async def test_requests_that_yield_do_not_count_as_waiting(serving: Serving) -> None:
    """Whether they have slots, wait for some, or have not begun."""
    served = await serving("--endless", parallel=4)
    later = [await stream(served, {"prompt": "x", "n": 6, "max_tokens": -1}, Priority="u=7")]
    queued = asyncio.create_task(served.post({"prompt": "y", "n": 3}, "/v1/events", Priority="u=7"))
    await served.note("generate", 2)
    for waiting, n in ((0, 0), (2, 6)):
        if n:
            later.append(await stream(served, {"prompt": "z", "n": n, "max_tokens": -1}))
        (load,) = (await asked(served, "/v1/loads"))["loads"]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (4, waiting)
        found = await measured(served)
        for name in ("vllm:num_requests_waiting", "llama_srb_engine_sequences_waiting"):
            assert found.sum(name) == waiting, name
        for name in ("llama_srb_engine_queued", "llamacpp:requests_deferred"):
            assert found.sum(name) == 0, name
    queued.cancel()
    for one in later:
        one.close()


async def test_each_model_has_a_load_of_its_own(serving: Serving, tmp_path: Path) -> None:
    several = await serve(serving, tmp_path, {"tale": {"preload": True}, "poem": {"parallel": 3}})
    answer = await asked(several.served, "/v1/loads")
    assert answer["dp_rank_count"] == 2
    assert [one["max_running_requests"] for one in answer["loads"]] == [32, 3]
    assert [one["max_total_num_tokens"] > 0 for one in answer["loads"]] == [True, False]
    assert (await asked(several.served, "/server_info"))["served_model_name"] == "tale"
    assert (await asked(several.served, "/server_info?model=poem"))["max_running_requests"] == 3


def test_totals_are_sums_and_shares_are_means() -> None:
    one = engine_load(0, running=3, waiting=1, used=60, cells=100, parallel=4)
    other = engine_load(1, running=1, waiting=0, used=20, cells=100, parallel=4)
    assert loads([one, other], "1")["aggregate"] == {
        "total_running_reqs": 4,
        "total_waiting_reqs": 1,
        "total_reqs": 5,
        "total_used_tokens": 80,
        "avg_token_usage": 0.4,
        "avg_utilization": 0.5,
    }


async def test_the_server_and_its_model_are_described(serving: Serving) -> None:
    served = await serving(parallel=5)
    server, model = [await asked(served, path) for path in ("/server_info", "/model_info")]
    assert (server["served_model_name"], server["max_running_requests"]) == ("storyteller", 5)
    assert server["context_length"] > 0
    assert (model["is_generation"], model["model_path"]) == (True, server["model_path"])


async def test_there_is_no_version_by_which_gateways_take_it_for_vllm(serving: Serving) -> None:
    served = await serving()
    async with served.http.get(f"{served.url}/version") as response:
        assert response.status == 404


@pytest.mark.parametrize("name", [None, "w-1"])
async def test_every_answer_has_the_name_of_its_worker_if_there_is_one(
    serving: Serving, name: str | None
) -> None:
    served = await serving(worker_name=name)
    asks = [
        ("GET", "/health", None),
        ("GET", "/", None),
        ("GET", "/none", None),
        ("POST", "/v1/completions", {"n": 0}),
        ("POST", "/v1/events", {"prompt": "x", "n": 2}),
        ("POST", "/openai/v1/completions", {"prompt": "x", "stream": True}),
        ("POST", "/v1/messages", {}),
        ("OPTIONS", "/v1/completions", None),
    ]
    for method, path, body in asks:
        async with served.http.request(method, served.url + path, json=body) as response:
            assert response.headers.get("X-Worker") == name, path
            await response.read()
    async with served.http.get(f"{served.url}/v1/ws", headers=HANDSHAKE) as response:
        assert (response.status, response.headers.get("X-Worker")) == (101, name)


@pytest.mark.parametrize("name", ["", "a b", "ä", "a" * 65, "http://127.0.0.1:9101"])
async def test_a_name_that_no_header_and_no_path_can_have_is_refused(serving: Serving, name: str) -> None:
    with pytest.raises(SettingsError, match="--worker-name is"):
        await serving(worker_name=name)
