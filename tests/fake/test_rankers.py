"""Vectors for a ranking: which model computes them, for which keys, and what they cost; with fake engines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.served import Serving, bearer, key_file
from tests.support.several import Several, serve
from tests.support.sockets import connected, event, until

ASKED: dict[str, Any] = {"prompt": "Once", "n": 3, "max_tokens": 4, "stream": False, "model": "tale"}


def by(model: str) -> dict[str, Any]:
    return {"rank_by": {"medoid": {"by": "embeddings", "model": model}}}


@pytest.fixture
async def several(serving: Serving, tmp_path: Path) -> Several:
    keys = key_file(
        tmp_path / "keys",
        {"name": "all", "scopes": ["admin"]},
        {"name": "teller", "models": ["tale"]},
        {"name": "one", "concurrent": 1},
        {"name": "poor", "tokens_per_minute": 20},
        {"name": "spare", "tokens_per_minute": 20},
    )
    models: dict[str, dict[str, Any]] = {"tale": {"preload": True}, "vectors": {}}
    return await serve(serving, tmp_path, models, api_key_file=str(keys))


async def asked(several: Several, key: str, **fields: Any) -> tuple[int, Any]:
    return await several.status("POST", "/v1/completions", {**ASKED, **fields}, **bearer(key))


async def test_only_a_loaded_model_that_the_key_may_use_computes_vectors(several: Several) -> None:
    assert (await asked(several, "all", **by("vectors")))[0] == 400
    assert several.ops("vectors", "embed") == 0
    load = {"model": "vectors", "input": "a"}
    assert (await several.status("POST", "/v1/embeddings", load, **bearer("all")))[0] == 200
    status, answer = await asked(several, "all", **by("vectors"))
    assert (status, len(answer["choices"])) == (200, 3)
    status, answer = await asked(several, "teller", **by("vectors"))
    assert status == 400
    assert answer["error"]["message"] == (
        'rank_by.medoid.model is "vectors"; it must be a loaded model that computes embeddings, '
        "of which you may use: tale"
    )
    assert (await asked(several, "teller", **by("tale")))[0] == 200


async def test_a_request_that_runs_needs_no_second_slot_for_its_vectors(several: Several) -> None:
    assert (await asked(several, "one", **by("tale")))[0] == 200


async def test_tokens_of_vectors_count_in_the_budget(several: Several) -> None:
    """One request takes fewer than 20 tokens; with the vectors of its texts it takes more."""
    for key, fields, second in (("spare", {}, 200), ("poor", by("tale"), 429)):
        assert (await asked(several, key, **fields))[0] == 200
        assert (await asked(several, key))[0] == second


async def test_a_websocket_ranks_by_vectors_too(serving: Serving) -> None:
    served = await serving()
    async with connected(served) as socket:
        asked = {name: value for name, value in ASKED.items() if name not in ("stream", "model")}
        await socket.send_json({"op": "generate", "id": "a", **asked, **by("storyteller")})
        (*_, done) = await until(socket, event("done"))
        assert sorted(done["ranking"]) == [0, 1, 2]
        await socket.send_json({"op": "generate", "id": "b", **asked, **by("no")})
        (*_, error) = await until(socket, event("error"))
        assert error["param"] == "rank_by.medoid.model"
