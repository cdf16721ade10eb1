"""What a task recalls and stores: only what its caller finds, by the end of a long prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llama_srb.config import load
from llama_srb.http.auth.api_keys import Grant
from llama_srb.http.auth.caller import Caller
from llama_srb.http.handlers.chosen import Registry
from llama_srb.http.limits import Load
from llama_srb.http.memories.access import MemoryAccess
from llama_srb.http.reservations import Admission
from llama_srb.memory.filters import parse_filter
from llama_srb.memory.named import OpenStores
from llama_srb.memory.tables import read
from llama_srb.models.residency import Residency, limits_of
from llama_srb.models.served import served as of_settings
from llama_srb.request.values import RequestError
from llama_srb.tasks import Tasks

TALES = '[memories.tales]\nstore = { file = "tales.db" }\nchunk_tokens = 32\n'
CAT = "The cat sleeps on the warm roof. It dreams of fish."
SHIP = "A ship sails over the cold sea. The captain looks for an island."
ALICE, BOB = (Caller(Grant(name=name, scopes=("complete",))) for name in ("alice", "bob"))
BARRED = Caller(Grant(name="eve", memories=("wiki",)))


@pytest.fixture
async def access(tmp_path: Path) -> AsyncIterator[MemoryAccess]:
    """The memory of a server that has loaded nothing yet."""
    file = tmp_path / "srb.toml"
    file.write_text(TALES)
    settings = load({"ctx": 2048}, config=str(file), environ={})
    model, residency = of_settings(settings), Residency(limits_of(settings))
    registry = Registry(settings, Admission(Load()), [model], {}, residency, Tasks([]))
    access = MemoryAccess(read(settings), registry, OpenStores())
    await access.open()
    async with residency:
        await residency.add(model)
        yield access
        await access.close()


async def test_a_prompt_is_recalled_by_its_own_key_only(access: MemoryAccess) -> None:
    assert (await access.store("tales", CAT, ALICE)).embedded > 0
    assert (await access.store("tales", CAT, ALICE)).embedded == 0, "it is stored once"
    await access.store("tales", SHIP, BOB)
    found = await access.recall("tales", CAT, 9, ALICE)
    assert [one.text for one in found if "ship" in one.text] == []
    assert found[0].metadata == {"kind": "prompt"}
    assert found[0].text in CAT
    assert {one.document for one in await access.recall("tales", CAT, 9, BOB)}.isdisjoint(
        {one.document for one in found}
    )
    assert await access.recall("tales", CAT, 9, Caller(Grant(name="carol"))) == []


async def test_a_filter_limits_what_is_recalled(access: MemoryAccess) -> None:
    await access.store("tales", CAT, ALICE)
    assert await access.recall("tales", CAT, 9, ALICE, parse_filter({"metadata": {"kind": "book"}})) == []
    assert await access.recall("tales", CAT, 9, ALICE, parse_filter(None, {"score": {"gt": 2}})) == []


async def test_a_long_prompt_is_recalled_by_its_end(access: MemoryAccess) -> None:
    await access.store("tales", CAT, ALICE)
    await access.store("tales", SHIP, ALICE)
    by_end = await access.recall("tales", "Numbers and letters. " * 3000 + SHIP, 1, ALICE)
    assert "ship" in by_end[0].text or "captain" in by_end[0].text
    assert await access.recall("tales", " \n", 1, ALICE) == []


async def test_a_key_without_a_memory_uses_it_only_by_tasks(access: MemoryAccess) -> None:
    await access.store("tales", CAT, BARRED)
    assert len(await access.recall("tales", CAT, 1, BARRED)) == 1
    for name, status in (("tales", 403), ("other", 404)):
        with pytest.raises(RequestError) as error:
            await access.reading(name, BARRED)
        assert error.value.status == status
