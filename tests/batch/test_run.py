"""A run sends each line until it has an answer, whatever its servers do. They are real HTTP servers."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from llama_srb.batch import run as running
from llama_srb.batch.output import Output
from llama_srb.batch.run import FIRST_PAUSE, MOST_TRIES, BatchStopped, Counts, KeyRefused, Run
from llama_srb.batch.servers import Server
from llama_srb.batch.source import Source
from tests.batch.scripted import Scripted, answered, refused, scripted
from tests.support.batches import as_bytes, ids, line, read
from tests.support.waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(running, "LONGEST_PAUSE", 0.05)


@pytest.fixture
async def server() -> AsyncIterator[Scripted]:
    async with scripted() as one:
        yield one


@pytest.fixture
async def other() -> AsyncIterator[Scripted]:
    async with scripted() as one:
        yield one


def prompts(count: int) -> list[dict[str, Any]]:
    return [line(f"{i:03}", prompt=f"{i:03}") for i in range(count)]


class Batch:
    """A batch in a folder, which may be run several times."""

    def __init__(self, folder: Path, lines: list[dict[str, Any]]) -> None:
        self.path, self.lines, self.told = folder / "out.jsonl", lines, list[str]()

    async def run(self, *servers: Scripted | str, window: int | None = 4, **options: Any) -> Counts:
        source = Source(io.BytesIO(as_bytes(self.lines)))
        async with asyncio.timeout(PATIENCE), AsyncExitStack() as stack:
            urls = [one if isinstance(one, str) else one.url for one in servers]
            asked = [await stack.enter_async_context(Server(url, window=window)) for url in urls]
            with Output(self.path) as output:
                output.read()
                scan = source.scan(output.done)
                output.begin(scan.fingerprint)
                counts = Counts(scan.count, len(output.done), output.failed)
                one = Run(source, scan.order, output, asked, counts, on_change=self.told.append, **options)
                await one.run()
                return counts

    @property
    def answered(self) -> dict[str, Any]:
        lines = read(self.path)
        assert len(lines) == len(set(ids(lines)))
        return {one["custom_id"]: one for one in lines}

    @property
    def failed(self) -> dict[str, Any]:
        lines = read(self.path.with_name("out.jsonl.errors.jsonl"))
        assert len(lines) == len(set(ids(lines)))
        return {one["custom_id"]: one for one in lines}

    def is_complete(self) -> bool:
        return self.answered.keys() == {one["custom_id"] for one in self.lines} and not self.failed


@pytest.mark.parametrize("in_threads", [False, True])
async def test_each_line_is_answered_once(tmp_path: Path, server: Scripted, in_threads: bool) -> None:
    async def slow(body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.005)
        return answered(body)

    server.answer = slow
    batch = Batch(tmp_path, prompts(1200))
    counts = await batch.run(server, in_threads=in_threads)
    assert batch.is_complete()
    assert (counts.done, counts.failed, counts.tokens) == (1200, 0, 2400)
    assert all(one["response"]["body"]["text"] == id for id, one in batch.answered.items())
    assert (len(server.asked), server.most) == (1200, 4), "the window is full, and not more"


async def test_lines_are_the_least_urgent(tmp_path: Path, server: Scripted) -> None:
    await Batch(tmp_path, prompts(1)).run(server)
    assert server.headers[0]["Priority"] == "u=7"


async def test_the_window_is_twice_what_the_server_generates_at_once(
    tmp_path: Path, server: Scripted
) -> None:
    full = asyncio.Event()

    async def when_full(body: dict[str, Any]) -> web.StreamResponse:
        if server.running == 6:
            full.set()
        await full.wait()
        return answered(body)

    server.slots, server.answer = 6, when_full
    lines = [line(str(i), prompt=str(i), n=2) for i in range(30)]
    await Batch(tmp_path, lines).run(server, window=None)
    assert server.most == 6, "6 lines of 2 sequences"


async def test_a_line_with_more_sequences_than_the_window_runs_alone(
    tmp_path: Path, server: Scripted
) -> None:
    beside = []

    async def answer(body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        if body.get("n") == 9:
            beside.append(server.running)
        return answered(body)

    server.answer = answer
    await Batch(tmp_path, [*prompts(20), line("wide", prompt="0", n=9)]).run(server)
    assert beside == [1]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_server_gets_its_lines_later(tmp_path: Path, server: Scripted, status: int) -> None:
    seen = Counter[str]()

    async def busy(body: dict[str, Any]) -> web.StreamResponse:
        seen[body["prompt"]] += 1
        is_busy = seen[body["prompt"]] <= 2 * MOST_TRIES
        return refused(status, "too busy", **{"Retry-After": "0"}) if is_busy else answered(body)

    server.answer = busy
    batch = Batch(tmp_path, prompts(5))
    await batch.run(server, patience=0.0)
    assert batch.is_complete()
    assert f"{server.url}: too busy" in batch.told


async def test_a_server_that_takes_few_at_once_is_asked_for_few(tmp_path: Path, server: Scripted) -> None:
    async def few(body: dict[str, Any]) -> web.StreamResponse:
        if server.running > 2:
            return refused(429, "at most 2", **{"Retry-After": "0"})
        await asyncio.sleep(0.001)
        return answered(body)

    server.answer = few
    batch = Batch(tmp_path, prompts(60))
    await batch.run(server, window=32)
    assert batch.is_complete()
    assert len(server.asked) < 60 * 4, "not 32 at once again and again"


async def test_refusals_halve_the_window_once_for_all_that_was_sent_before(
    tmp_path: Path, server: Scripted
) -> None:
    full, half = asyncio.Event(), asyncio.Event()
    at_once: list[int] = []

    async def busy_once(body: dict[str, Any]) -> web.StreamResponse:
        if not full.is_set():
            if server.running == 32:
                full.set()
            await full.wait()
            if int(body["prompt"]) % 2:
                await asyncio.sleep(1.2 * FIRST_PAUSE)  # the others' pause is over by then
            return refused(429, "too busy", **{"Retry-After": "0"})
        if not half.is_set():
            at_once.append(len(at_once) + 1)  # none of them is answered before there are so many
            if len(at_once) == 16:
                await asyncio.sleep(0.1)  # more of them would come now
                half.set()
            await half.wait()
        return answered(body)

    server.answer = busy_once
    batch = Batch(tmp_path, prompts(48))
    await batch.run(server, window=32)
    assert batch.is_complete()
    assert at_once == [*range(1, 17)]


async def test_an_answer_about_the_line_is_its_error(tmp_path: Path, server: Scripted) -> None:
    async def answer(body: dict[str, Any]) -> web.StreamResponse:
        kinds = {
            "000": refused(400, "n is 0"),
            "001": refused(404, "no such model"),
            "002": web.Response(text="Hi"),
        }
        return kinds.get(body["prompt"]) or answered(body)

    server.answer = answer
    batch = Batch(tmp_path, prompts(6))
    counts = await batch.run(server)
    assert (counts.done, counts.failed, batch.answered.keys()) == (6, 3, {"003", "004", "005"})
    response = batch.failed["000"]["response"]
    assert (response["status_code"], response["body"]) == (400, {"error": {"message": "n is 0"}})
    assert batch.failed["000"]["error"] is None
    assert batch.failed["002"]["response"] is None
    assert batch.failed["002"]["error"] == {
        "code": "invalid_answer",
        "message": "the answer has the status 200 and is text/plain, not JSON",
    }


@pytest.mark.parametrize("status", [500, 502, 503, 504, 0])
async def test_a_line_that_was_interrupted_is_sent_again(
    tmp_path: Path, server: Scripted, status: int
) -> None:
    """0: the connection is cut in the middle of the answer."""
    seen = set[str]()

    async def broken(body: dict[str, Any]) -> web.StreamResponse:
        if body["prompt"] in seen:
            return answered(body)
        seen.add(body["prompt"])
        if status:
            return refused(status, "broken")
        raise ConnectionResetError

    server.answer = broken
    batch = Batch(tmp_path, prompts(12))
    await batch.run(server)
    assert batch.is_complete()


async def test_a_line_that_ends_its_server_fails_alone(tmp_path: Path, server: Scripted) -> None:
    """As an engine dies: all requests beside the bad one end with it."""
    died, beside = asyncio.Event(), []

    async def answer(body: dict[str, Any]) -> web.StreamResponse:
        if body["prompt"] == "005":
            await asyncio.sleep(0.005)
            beside.append(server.running)
            died.set()
            died.clear()
            return refused(500, "the engine died")
        waits = [asyncio.ensure_future(one) for one in (died.wait(), asyncio.sleep(0.02))]
        done, left = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        left.pop().cancel() if left else None
        return refused(500, "the engine died") if waits[0] in done else answered(body)

    server.answer = answer
    batch = Batch(tmp_path, prompts(12))
    await batch.run(server)
    assert batch.failed.keys() == {"005"}
    assert batch.failed["005"]["response"]["status_code"] == 500
    assert (len(beside), beside[2:]) == (MOST_TRIES, [1] * (MOST_TRIES - 2))


async def test_a_line_whose_server_is_always_lost_says_so(tmp_path: Path, server: Scripted) -> None:
    async def lost(body: dict[str, Any]) -> web.StreamResponse:
        if body["prompt"] == "001":
            raise ConnectionResetError
        return answered(body)

    server.answer = lost
    batch = Batch(tmp_path, prompts(3))
    await batch.run(server)
    assert batch.answered.keys() == {"000", "002"}
    error = batch.failed["001"]["error"]
    assert error["code"] == "server_lost"
    assert "the server was lost 4 times while it had this line" in error["message"]


async def test_a_refused_key_stops_the_batch_and_fails_no_line(tmp_path: Path, server: Scripted) -> None:
    async def refuse(body: dict[str, Any]) -> web.StreamResponse:
        return refused(401, "there is no such key")

    server.answer = refuse
    batch = Batch(tmp_path, prompts(9))
    with pytest.raises(KeyRefused, match="refuses the key: there is no such key"):
        await batch.run(server)
    assert (batch.answered, batch.failed) == ({}, {})
    server.answer = server.usual
    await batch.run(server)
    assert batch.is_complete()


async def test_the_lines_of_a_dead_server_go_to_the_others(
    tmp_path: Path, server: Scripted, other: Scripted
) -> None:
    async def die(body: dict[str, Any]) -> web.StreamResponse:
        if len(server.asked) == 30:
            dying.append(asyncio.ensure_future(server.stop()))
        await asyncio.sleep(0.001)
        return answered(body)

    dying: list[asyncio.Future[None]] = []
    server.answer = die
    batch = Batch(tmp_path, prompts(200))
    await batch.run(server, other)
    await asyncio.gather(*dying)
    assert batch.is_complete()
    assert len(server.asked) < 40 < len(other.asked)
    await server.start()


async def test_servers_share_the_lines_by_their_beginnings(
    tmp_path: Path, server: Scripted, other: Scripted
) -> None:
    kinds = [line(f"{i}-{j}", prompt=f"{i}" * 500 + str(j)) for j in range(20) for i in range(8)]
    batch = Batch(tmp_path, kinds)
    await batch.run(server, other)
    assert batch.is_complete()
    first, second = ({prompt[0] for prompt in one.asked} for one in (server, other))
    assert len(first & second) <= 3, "one at the cut, others at the end"
    assert min(len(server.asked), len(other.asked)) > 30


async def test_a_server_that_is_not_there_yet_is_waited_for(tmp_path: Path, server: Scripted) -> None:
    await server.stop()
    batch = Batch(tmp_path, prompts(3))
    task = asyncio.create_task(batch.run(server))
    await until(lambda: batch.told)
    assert "cannot connect: Connection refused; is llama-srb serve running there?" in batch.told[0]
    await server.start()
    await task
    assert batch.is_complete()


async def test_a_fault_of_tls_is_named(tmp_path: Path, server: Scripted) -> None:
    batch = Batch(tmp_path, prompts(1))
    with pytest.raises(BatchStopped, match=r"cannot connect: \[SSL"):
        await batch.run(server.url.replace("http:", "https:"), patience=0.02)


async def test_a_batch_stops_when_no_server_is_well_for_long(tmp_path: Path, server: Scripted) -> None:
    server.health = 503
    batch = Batch(tmp_path, prompts(3))
    with pytest.raises(BatchStopped, match=r"no server has .*: /health answers 503; http://127.0.0.1:1: can"):
        await batch.run(server, "http://127.0.0.1:1", patience=0.02)
    assert (batch.answered, batch.failed, server.asked) == ({}, {}, [])


async def test_a_cancelled_run_goes_on_later(tmp_path: Path, server: Scripted) -> None:
    async def slow(body: dict[str, Any]) -> web.StreamResponse:
        await asyncio.sleep(0.001 if len(server.asked) < 40 else 60)
        return answered(body)

    server.answer = slow
    batch = Batch(tmp_path, prompts(100))
    task = asyncio.create_task(batch.run(server))
    await until(lambda: len(server.asked) >= 42)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    done = len(batch.answered)
    assert 36 <= done < 42
    server.answer, server.asked = server.usual, []
    await batch.run(server)
    assert batch.is_complete()
    assert len(server.asked) == 100 - done
