"""What a task recalls and stores: only what its caller finds, by the end of a long prompt."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from llama_srb.config import load
from llama_srb.memory.filters import parse_filter
from llama_srb.memory.records import Found
from llama_srb.memory.tables import read
from llama_srb.models.residency import Residency, limits_of
from llama_srb.models.served import served as of_settings
from llama_srb.request.values import RequestError
from llama_srb.serving.admission import Admission
from llama_srb.serving.keys.api_keys import Grant, Key
from llama_srb.serving.keys.caller import Caller
from llama_srb.serving.limits import Load
from llama_srb.serving.memories import Lasting, MemoryAccess, owner_of, prompt_id
from llama_srb.serving.model_registry import ModelRegistry
from llama_srb.tasks import Tasks

TALES = '[memories.tales]\nstore = { file = "tales.db" }\nchunk_tokens = 32\nsearch = "meaning"\n'
WIKI = '[memories.wiki]\nstore = { file = "wiki.db" }\nshared = true\nsearch = "meaning"\n'
CAT = "The cat sleeps on the warm roof. It dreams of fish."
SHIP = "A ship sails over the cold sea. The captain looks for an island."
HASH = "0" * 64
ALICE, BOB = (Caller(Key(name=name, hash=HASH, scopes=("complete",))) for name in ("alice", "bob"))
CAROL, NO_KEY = Caller(Grant(name="carol")), Caller()
ADMINS, KEYLESS = "The admin looks for a horse.", "Nobody needs a key for this dog."
ROOT = Caller(Grant(name="root", scopes=("admin",)))
BARRED = Caller(Grant(name="eve", memories=("wiki",)))


@pytest.fixture
async def access(tmp_path: Path) -> AsyncIterator[MemoryAccess]:
    """The memory of a server that has loaded nothing yet."""
    file = tmp_path / "srb.toml"
    file.write_text(TALES + WIKI)
    settings = load({"ctx": 2048}, config=str(file), environ={})
    model, residency = of_settings(settings), Residency(limits_of(settings))
    registry = ModelRegistry(settings, Admission(Load()), [model], {}, residency, Tasks([]))
    access = MemoryAccess(read(settings), registry, Lasting())
    await access.open()
    async with residency:
        await residency.add(model)
        yield access
        await access.close()


async def recalled(access: MemoryAccess, text: str, caller: Caller, memory: str = "tales") -> list[Found]:
    return await access.recall(memory, text, 9, caller, prompts=9)


async def test_a_prompt_is_recalled_by_its_own_key_only(access: MemoryAccess) -> None:
    for text, caller in ((CAT, ALICE), (CAT, ALICE), (SHIP, BOB), (ADMINS, ROOT), (KEYLESS, NO_KEY)):
        access.store("tales", text, caller)
    expected = [(ALICE, CAT), (BOB, SHIP), (ROOT, ADMINS), (NO_KEY, KEYLESS), (CAROL, None)]
    for caller, text in expected:
        found = await recalled(access, "What do you know?", caller)
        assert {one.document for one in found} == ({prompt_id(text)} if text else set())
        assert all(one.metadata == {"kind": "prompt"} for one in found)


async def test_only_documents_of_an_operator_are_public(access: MemoryAccess) -> None:
    async with access.computing("tales", ROOT) as (memory, _):
        await memory.put("cat", CAT, owner=owner_of(ROOT))
    access.store("tales", ADMINS, ROOT)
    for caller in (ALICE, NO_KEY):
        assert {one.document for one in await recalled(access, CAT, caller)} == {"cat"}
    assert {one.document for one in await recalled(access, CAT, ROOT)} == {"cat", prompt_id(ADMINS)}


async def test_a_question_finds_what_answers_it_and_not_itself(access: MemoryAccess) -> None:
    async with access.computing("tales", ALICE) as (memory, _):
        await memory.put("answer", "It is a long way to the tower of the king.", owner=owner_of(ALICE))
    said = ["Where is the tower?", "where  is the tower", "Where is the king?", "Is the tower red?"]
    for text in said:
        access.store("tales", text, ALICE)
    found = await access.recall("tales", "Where is the tower?!", 2, ALICE, prompts=9)
    prompts = [one.document for one in found if one.metadata]
    assert [one.document for one in found if not one.metadata] == ["answer"]
    assert set(prompts) == {prompt_id(said[2]), prompt_id(said[3])}
    assert prompt_id(said[0]) == prompt_id(said[1])
    found = await access.recall("tales", "Where is the tower?", 2, ALICE, prompts=1)
    assert len(found) == 2, "one of each"
    assert {one.document for one in await access.recall("tales", said[0], 9, ALICE)} == {"answer"}


@pytest.mark.parametrize(
    ("memory", "expected"), [("wiki", ["key alice"]), ("tales", ["key alice", "key bob"])]
)
async def test_a_shared_memory_has_the_same_prompt_of_two_keys_once(
    access: MemoryAccess, memory: str, expected: list[str]
) -> None:
    for caller in (ALICE, BOB, ALICE):
        access.store(memory, CAT, caller)
    await access.lasting.pending.wait_for_all()
    documents = await (await access.reading(memory, ROOT)).documents(of_all=True)
    assert [one.owner for one in documents] == expected
    found = [(await recalled(access, "What?", caller, memory))[0].document for caller in (ALICE, BOB)]
    assert found == [documents[0].id] * 2


async def test_another_text_under_the_id_of_a_prompt_does_not_stand_for_it(access: MemoryAccess) -> None:
    access.store("wiki", CAT, ALICE)
    await access.lasting.pending.wait_for_all()
    async with access.computing("wiki", ALICE) as (memory, _):
        (prompt,) = await memory.documents(owner_of(ALICE))
        await memory.put(prompt.id, SHIP, owner=owner_of(ALICE))
    access.store("wiki", CAT, BOB)
    assert CAT in [one.text for one in await recalled(access, "What?", BOB, "wiki")]


async def test_a_prompt_that_cannot_be_stored_is_a_line_of_the_log(
    access: MemoryAccess, caplog: pytest.LogCaptureFixture
) -> None:
    access.store("tales", "\x01", ALICE)
    assert await access.recall("tales", CAT, 1, ALICE) == []
    assert "memory tales: a prompt of key alice was not stored: text has no text" in caplog.text


async def test_a_filter_limits_what_is_recalled(access: MemoryAccess) -> None:
    access.store("tales", CAT, ALICE)
    assert await access.recall("tales", CAT, 9, ALICE, parse_filter({"metadata": {"kind": "book"}})) == []
    assert await access.recall("tales", CAT, 9, ALICE, parse_filter(None, {"score": {"gt": 2}})) == []


async def test_a_long_prompt_is_recalled_by_its_end(access: MemoryAccess) -> None:
    access.store("tales", CAT, ALICE)
    access.store("tales", SHIP, ALICE)
    by_end = await access.recall("tales", "Numbers and letters. " * 3000 + SHIP, 1, ALICE, prompts=1)
    assert "ship" in by_end[0].text or "captain" in by_end[0].text
    assert await access.recall("tales", " \n", 1, ALICE) == []


async def test_a_key_without_a_memory_uses_it_only_by_tasks(access: MemoryAccess) -> None:
    access.store("tales", CAT, BARRED)
    assert len(await recalled(access, "What?", BARRED)) >= 1
    for name, status in (("tales", 403), ("other", 404)):
        with pytest.raises(RequestError) as error:
            await access.reading(name, BARRED)
        assert error.value.status == status
