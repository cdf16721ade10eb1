"""`llama-srb batch` is killed by -9 at random points: each line is there once, and no process is left."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp

from tests.batch.files_api import Files
from tests.support import forked
from tests.support.batches import ids, line, read, write
from tests.support.bench import Bench
from tests.support.long import amount
from tests.support.places import BINARY
from tests.support.served import Served
from tests.support.waiting import PATIENCE

KILLS = amount(6, 20)
LINES = 400


def complete_lines(*files: Path) -> list[str]:
    found = []
    for file in files:
        data = file.read_bytes() if file.exists() else b""
        found += data[: data.rfind(b"\n") + 1].splitlines()
    return [one.decode() for one in found]


def run_until(bench: Bench, count: int, delay: float, *arguments: str) -> int:
    """Runs the batch, and kills it `delay` seconds after so many lines are there; its exit code."""
    out = bench.folder / "out.jsonl"
    command = bench.command("batch", "in.jsonl", str(out), *arguments)
    with forked.Popen(command, env=bench.environ, cwd=bench.folder, stderr=subprocess.DEVNULL) as batch:
        deadline = time.monotonic() + PATIENCE
        while batch.poll() is None and len(complete_lines(out)) < count:
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(delay)
        batch.kill()
        return batch.wait()


def test_each_line_is_there_once_after_many_kills(tmp_path: Path) -> None:
    bench, drawn = Bench(tmp_path), random.Random(41)
    out, errors = tmp_path / "out.jsonl", tmp_path / "out.jsonl.errors.jsonl"
    lines = [line(f"{i}", prompt=f"{i % 9}", max_tokens=2, n=0 if i % 10 == 0 else 1) for i in range(LINES)]
    write(tmp_path / "in.jsonl", lines)
    with bench.serving("--", "--token-delay", "0.01") as (_, greeting):
        url = ("--url", greeting.split()[0], "--concurrency", "4")
        points = sorted(drawn.randrange(LINES) for _ in range(KILLS))
        for at, point in enumerate(points):
            run_until(bench, point, drawn.uniform(0, 0.02), *url)
            if at % 3 == 0:  # as if a write had been torn by the end of the machine
                with (out if at % 2 else errors).open("ab") as file:
                    file.write(b'{"id":"batch_req_x","custom_id":"' + b"9" * drawn.randrange(9))
            found = complete_lines(out, errors)
            assert len(found) == len(set(found))
        ended = bench.run("batch", "in.jsonl", "out.jsonl", *url)
    assert ended.returncode == 1, "lines with n = 0 fail"
    done, failed = ids(read(out)), ids(read(errors))
    assert sorted(map(int, done + failed)) == list(range(LINES))
    assert {int(one) % 10 for one in failed} == {0}


def test_a_server_of_its_own_with_the_real_engine_ends_with_it(tmp_path: Path) -> None:
    bench, drawn = Bench(tmp_path), random.Random(3)
    bench.engine.write_text(f'#!/bin/sh\necho "{{\\"pid\\": $$}}" >> {bench.journal}\nexec {BINARY} "$@"\n')
    write(tmp_path / "in.jsonl", [line(f"{i}", prompt=f"Once {i}", max_tokens=40, n=2) for i in range(150)])
    for _ in range(4):
        run_until(bench, drawn.randrange(100), 0, "--ctx", "4096", "--parallel", "8")
        bench.assert_no_orphan()
    ended = bench.run("batch", "in.jsonl", "out.jsonl", "--ctx", "4096")
    assert ended.returncode == 0, ended.stderr
    found = read(tmp_path / "out.jsonl")
    assert sorted(map(int, ids(found))) == list(range(150))
    assert all(len(one["response"]["body"]["choices"]) == 2 for one in found)


async def test_a_server_that_is_killed_goes_on_with_its_batch(tmp_path: Path) -> None:
    bench, drawn, id = Bench(tmp_path), random.Random(5), ""
    lines = [line(f"{i}", prompt=f"{i % 9}", max_tokens=2, n=0 if i % 10 == 0 else 1) for i in range(LINES)]
    arguments = ("--files-dir", str(tmp_path / "files"), "--parallel", "2", "--", "--token-delay", "0.005")
    for at in range(7):
        with bench.serving(*arguments) as (process, greeting):
            async with aiohttp.ClientSession() as http, AsyncExitStack() as stack:
                files = Files(Served(greeting.split()[0], http, bench.journal, stack))
                id = id or (await files.begin(lines))["id"]
                if at < 6:
                    await files.until_done(id, (at + 1) * 50 + drawn.randrange(20))
                    process.kill()
                    continue
                batch = await files.until(id)
                done = await files.lines(batch["output_file_id"])
                failed = await files.lines(batch["error_file_id"])
    assert batch["status"] == "completed"
    assert batch["request_counts"] == {"total": LINES, "completed": LINES * 9 // 10, "failed": LINES // 10}
    assert sorted(map(int, ids(done + failed))) == list(range(LINES))
    assert {int(one) % 10 for one in ids(failed)} == {0}
