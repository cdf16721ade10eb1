"""/v1/stories: versions, conflicts, the trash, keys and bounds; the whole server with the fake engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from llama_srb.request.values import RequestError
from llama_srb.serving import story_store as stored
from llama_srb.serving.faults import StartError
from llama_srb.serving.story_store import MAX_NAME, About, Expected, StoryStore
from tests.support.rows import each_row
from tests.support.served import Served, Serving, bearer, key_file

NEW = {"If-None-Match": "*"}


def files(folder: Path, pattern: str) -> list[Path]:
    return list(folder.glob(pattern))


def new(key: dict[str, str]) -> dict[str, str]:
    return {"If_None_Match": "*", **key}


def story(text: str, **more: Any) -> dict[str, Any]:
    node = {"id": "r", "parent": None, "children": [], "text": text, "source": "user"}
    return {"name": "Fox", "kind": "story", "root": "r", "current": "r", "nodes": {"r": node}, **more}


async def call(
    served: Served, method: str, path: str = "", body: Any = None, **headers: str
) -> tuple[int, Any, str]:
    """Status, answer and version."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    url = f"{served.url}/v1/stories{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, url, json=body, headers=headers) as answer,
    ):
        data = await answer.read()
        return answer.status, json.loads(data) if data else None, answer.headers.get("ETag", "")


async def put(served: Served, id: str, text: str, **headers: str) -> tuple[int, Any, str]:
    return await call(served, "PUT", f"/{id}", story(text), **headers or {"If_None_Match": "*"})


async def names(served: Served, **headers: str) -> list[tuple[str, str]]:
    _, answer, _ = await call(served, "GET", **headers)
    return [(one["id"], one["state"]) for one in answer["data"]]


async def test_a_story_is_stored_as_it_was_sent_and_outlives_the_server(
    serving: Serving, tmp_path: Path
) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    status, entry, version = await put(served, "a1", "Once", If_None_Match="*")
    assert (status, entry["name"], entry["kind"], entry["state"]) == (200, "Fox", "story", "kept")
    assert version == f'"{entry["version"]}"'
    again = await serving(stories=str(tmp_path / "stories"))  # another server, with the same folder
    assert await call(again, "GET", "/a1") == (200, story("Once"), version)
    assert (await call(again, "GET", "/a1", If_None_Match=version))[0] == 304
    status, listed, _ = await call(again, "GET")
    assert (status, listed["data"]) == (200, [entry])
    assert files(tmp_path, "stories/*/*.part") == []


async def test_a_change_of_an_old_version_is_refused_with_the_version_that_is_there(
    serving: Serving, tmp_path: Path
) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    *_, first = await put(served, "a1", "Once")
    status, _, second = await put(served, "a1", "Once upon", If_Match=first)
    assert status == 200
    assert (await put(served, "a1", "Once upon", If_Match=first))[0] == 200  # its answer was lost, say
    for headers in ({"If_Match": first}, {"If_None_Match": "*"}, {"If_Match": '"x"'}):
        status, answer, _ = await put(served, "a1", "Twice", **headers)
        assert (status, answer["error"]["code"]) == (412, "version_conflict")
        assert second in answer["error"]["message"]
    assert (await call(served, "DELETE", "/a1", If_Match=first))[0] == 412
    assert (await put(served, "b2", "Once", If_Match=first))[0] == 412  # there is none
    assert (await put(served, "a1", "All", If_Match="*"))[0] == 200


async def test_a_change_that_names_no_version_is_refused(serving: Serving, tmp_path: Path) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    status, answer, _ = await call(served, "PUT", "/a1", story("Once"))
    assert (status, answer["error"]["code"]) == (428, "version_missing")
    assert await names(served) == []


async def test_of_two_writers_at_the_same_time_one_is_refused(serving: Serving, tmp_path: Path) -> None:
    folder = str(tmp_path / "stories")
    servers = [await serving(stories=folder), await serving(stories=folder)]
    *_, version = await put(servers[0], "a1", "Once")
    tries = [put(servers[i % 2], "a1", f"Text {i}", If_Match=version) for i in range(10)]
    answers = await asyncio.gather(*tries)
    assert sorted(status for status, *_ in answers) == [200, *[412] * 9]


async def test_a_deleted_story_is_in_the_trash_until_it_is_removed(serving: Serving, tmp_path: Path) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    *_, version = await put(served, "a1", "Once")
    assert (await call(served, "DELETE", "/a1"))[:2][0] == 200
    assert await names(served) == [("a1", "trash")]
    assert (await call(served, "GET", "/a1"))[1] == story("Once")
    assert (await put(served, "a1", "Once", If_Match=version))[0] == 200  # it comes back
    assert await names(served) == [("a1", "kept")]
    assert (await call(served, "DELETE", "/a1?forever=true", If_Match=version))[0] == 200
    assert await names(served) == [("a1", "removed")]
    (file,) = files(tmp_path, "stories/*/a1.story")
    assert b"Once" not in file.read_bytes()
    assert (await call(served, "GET", "/a1"))[0] == 404
    assert (await call(served, "DELETE", "/a1"))[0] == 404
    assert (await put(served, "a1", "Again"))[0] == 200
    assert (await call(served, "DELETE", "/a1?forever=perhaps"))[0] == 400


async def test_a_key_sees_only_its_own_stories(serving: Serving, tmp_path: Path) -> None:
    rows = [{"name": name} for name in ("anna", "bert")]
    keys = key_file(tmp_path / "keys.json", *rows, {"name": "vectors", "scopes": ["embed"]})
    served = await serving(stories=str(tmp_path / "stories"), api_key_file=str(keys))
    anna, bert, vectors = (bearer(name) for name in ("anna", "bert", "vectors"))
    await put(served, "a1", "Anna's", **new(anna))
    assert await names(served, **anna) == [("a1", "kept")]
    assert await names(served, **bert) == []
    assert (await call(served, "GET", "/a1", **bert))[0] == 404
    assert (await call(served, "DELETE", "/a1", **bert))[0] == 404
    assert (await put(served, "a1", "Bert's", **new(bert)))[0] == 200
    assert (await call(served, "GET", "/a1", **anna))[1] == story("Anna's")
    assert (await call(served, "GET", "", **vectors))[0] == 403


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"name": 7}, f"name is 7; it must be a text of at most {MAX_NAME} characters"),
    ({"name": "x" * 1001}, "it must be a text of at most 1000 characters"),
    ({"kind": "x" * 21}, "it must be a text of at most 20 characters"),
    ({"nodes": []}, "nodes is []; it must be an object of nodes by id"),
    ({"root": "none"}, 'root is "none"; it must be the id of one of the nodes'),
]


@pytest.mark.parametrize(("fields", "message"), WRONG, ids=lambda value: str(value)[:40])
async def test_what_is_no_story_is_refused(
    serving: Serving, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    status, answer, _ = await call(served, "PUT", "/a1", story("Once", **fields), **new({}))
    assert status == 400
    assert message in answer["error"]["message"]


@pytest.mark.parametrize("id", ["A", "a.b", "..%2Fx", "x" * 101, "ä"])
async def test_an_id_that_is_no_file_name_is_refused(serving: Serving, tmp_path: Path, id: str) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    status, answer, _ = await put(served, id, "Once")
    assert status == 400
    assert "it must be 1 to 100 of a-z, 0-9, _ and -" in answer["error"]["message"]


@pytest.mark.parametrize(("part", "whose"), [(1, "all stories"), (2, "your stories")])
async def test_bounds_of_size_and_number_say_value_and_bound(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: int, whose: str
) -> None:
    monkeypatch.setattr(stored, "OWNERS_PART", part)
    served = await serving(stories=str(tmp_path / "stories"), stories_size=2000 * part, max_body=4000)
    *_, version = await put(served, "a1", "x" * 1000)
    status, answer, _ = await put(served, "b2", "x" * 1000)
    assert (status, answer["error"]["code"]) == (503, "no_room")
    wanted = "may have 2000 (--stories-size); no room for 1"
    assert whose in answer["error"]["message"]
    assert wanted in answer["error"]["message"]
    assert (await put(served, "a1", "x" * 10, If_Match=version))[0] == 200  # a smaller one has room
    status, answer, _ = await put(served, "b2", "x" * 5000)
    assert (status, "4000 bytes" in answer["error"]["message"]) == (413, True)
    monkeypatch.setattr(stored, "MOST_STORIES", 1)
    status, answer, _ = await put(served, "b2", "y")
    assert (status, answer["error"]["code"]) == (403, "too_many_stories")
    assert "you have 1 stories here, and may have 1" in answer["error"]["message"]


def test_the_bound_of_all_stories_holds_for_owners_that_store_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def number(folder: str, threads: int) -> int:
        """How many of eight owners can store a story."""
        store = StoryStore(tmp_path / folder, most=2000)

        def put(owner: str) -> bool:
            with contextlib.suppress(RequestError):
                return store.put(owner, "a", about, b"x" * 200, Expected(is_new=True)) is not None
            return False

        with ThreadPoolExecutor(threads) as pool:
            return sum(pool.map(put, "abcdefgh"))

    about, both, sync = About("a", "story"), threading.Barrier(2), os.fsync

    def met(file: int) -> None:
        """Waits for another one that writes."""
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        sync(file)

    one_by_one = number("one", 1)
    monkeypatch.setattr(os, "fsync", met)
    assert 1 < number("two", 8) == one_by_one < 8


def test_entries_of_removed_stories_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MOST_REMOVED", 2)
    store = StoryStore(tmp_path, 1 << 20)
    for i in range(4):
        store.put("", f"a{i}", About("Fox", "story"), b"{}", Expected(is_new=True))
        store.remove("", f"a{i}", Expected())
    assert {head.id for head in store.heads("")} == {"a2", "a3"}


async def test_a_server_without_the_setting_says_so(serving: Serving) -> None:
    status, answer, _ = await call(await serving(), "GET")
    assert (status, answer["error"]["code"]) == (501, "stories_not_configured")
    assert "--stories DIR" in answer["error"]["message"]


async def test_a_folder_that_cannot_be_used_ends_the_start(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"--stories .*file/x cannot be used: Not a directory"):
        await serving(stories=str(tmp_path / "file" / "x"))


async def test_a_file_that_is_no_story_is_left_out(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serving(stories=str(tmp_path / "stories"))
    await put(served, "a1", "Once")
    (file,) = files(tmp_path, "stories/*/a1.story")
    file.write_bytes(b"\x00" * 100)
    (file.parent / "b2.story").mkdir()
    assert await names(served) == []
    assert "a1.story is no story of ours" in caplog.text
    assert "b2.story is left out of a list: the story cannot be read: Is a directory" in caplog.text
    assert (await put(served, "a1", "Once more", If_Match='"x"'))[0] == 412
    assert file.read_bytes() == b"\x00" * 100, "a refused change changes nothing"
    assert (await put(served, "a1", "Once more"))[0] == 200
    file.write_bytes(b"\x01")
    assert (await put(served, "a1", "Once more"))[0] == 200
    assert [one.read_bytes() for one in sorted(files(file.parent, "*.damaged*"))] == [b"\x00" * 100, b"\x01"]


STRANGE: dict[str, Callable[[Path], object]] = {  # what another program makes of a story's file
    "a copy": lambda file: (file.parent / "copy.story").write_bytes(file.read_bytes()),
    "another type": lambda file: file.write_bytes(
        re.sub(rb'"changed": \d+', b'"changed": null', file.read_bytes())
    ),
    "another version": lambda file: file.write_bytes(
        file.read_bytes().replace(b'"version": "', b'"version": "\\r\\n')
    ),
    "an end that is cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "levels": lambda file: file.write_bytes(b"[" * 16_000),
    "a FIFO": lambda file: (file.unlink(), os.mkfifo(file)),
}


@each_row("kind", [*STRANGE])
async def test_a_strange_file_harms_no_other_story(kind: str, serving: Serving, tmp_path: Path) -> None:
    folder = tmp_path / kind
    served = await serving(stories=str(folder))
    await put(served, "a1", "Once")
    await put(served, "b2", "Twice")
    (file,) = files(folder, "*/a1.story")
    STRANGE[kind](file)
    there = {"a1", "b2"} if kind == "a copy" else {"b2"}
    for id in {"copy", "a1"} - there:
        assert (await call(served, "DELETE", f"/{id}?forever=true"))[0] == 404
        assert (await call(served, "GET", f"/{id}"))[0] == 404
    assert {id for id, _ in await names(served)} == there
    assert (await put(served, "c3", "Thrice"))[0] == 200


@contextlib.contextmanager
def files_left(count: int) -> Iterator[None]:
    """This process may open so many files more."""
    old, free = resource.getrlimit(resource.RLIMIT_NOFILE), [os.dup(0) for _ in range(count + 1)]
    for one in free:
        os.close(one)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[count], old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, old)


NEXT = About("Fox", "story")
OPENING: dict[str, tuple[int, Callable[[StoryStore, str], object]]] = {  # only the owner's lock can be opened
    "list": (0, lambda store, version: store.heads("")),
    "get": (0, lambda store, version: store.get("", "a1")),
    "put": (1, lambda store, version: store.put("", "a1", NEXT, b"{ }", Expected(version))),
    "put a new one": (1, lambda store, version: store.put("", "a1", NEXT, b"{ }", Expected(is_new=True))),
    "trash": (1, lambda store, version: store.to_trash("", "a1", Expected())),
    "remove": (1, lambda store, version: store.remove("", "a1", Expected())),
}


@each_row(("left", "asked"), list(OPENING.values()), ids=list(OPENING))
def test_a_story_that_cannot_be_opened_now_stays_what_it_is(
    tmp_path: Path, left: int, asked: Callable[[StoryStore, str], object]
) -> None:
    store = StoryStore(tmp_path, 1 << 20)
    head = store.put("", "a1", NEXT, b"{}", Expected(is_new=True))
    with files_left(left), pytest.raises(RequestError, match="Too many open files") as refused:
        asked(store, head.version)
    assert refused.value.status == 503
    assert store.get("", "a1") == (head, b"{}")
    assert sorted(path.name for path in tmp_path.glob("*/*")) == ["a1.story", "lock"]


WRITER = """
import sys
from pathlib import Path
from llama_srb.serving.story_store import About, Expected, StoryStore
store, i = StoryStore(Path(sys.argv[1]), 1 << 30), 0
while True:
    i += 1
    store.put("", "a1", About("Fox", "story"), str(i).encode() * 200_000, Expected())
    print(i, flush=True)
"""


async def test_a_server_killed_while_it_writes_keeps_a_whole_story(tmp_path: Path) -> None:
    store = StoryStore(tmp_path, 1 << 30)
    store.put("", "a1", About("Fox", "story"), b"0", Expected(is_new=True))
    for wait in (0.0, 0.003, 0.006, 0.01, 0.02):
        writer = await asyncio.create_subprocess_exec(
            sys.executable, "-c", WRITER, str(tmp_path), stdout=asyncio.subprocess.PIPE
        )
        assert writer.stdout is not None
        written = int(await writer.stdout.readline())
        await asyncio.sleep(wait)
        os.kill(writer.pid, signal.SIGKILL)
        await writer.wait()
        found = store.get("", "a1")
        assert found is not None
        head, text = found
        assert head.bytes == len(text)
        assert text == text[: len(text) // 200_000] * 200_000
        assert int(text[: len(text) // 200_000]) >= written  # what was answered is there
