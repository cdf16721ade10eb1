"""/v1/files and /v1/batches: the life of a batch, keys, restarts; the whole server with the fake engine."""

# ruff: noqa: E501 (tables)
from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest

from llama_srb.http.batches.handlers import FORM
from llama_srb.serving.batches import asked as bodies
from llama_srb.serving.batches import runner as worker
from llama_srb.serving.batches import service
from llama_srb.serving.faults import StartError
from llama_srb.serving.keys.internal_callers import HEADER
from llama_srb.serving.keys.jwt import LEEWAY
from tests.batch.files_api import Files
from tests.support.batches import COMPLETIONS, as_bytes, ids, line
from tests.support.served import SECRET, Serving, bearer, key_file, servers
from tests.support.waiting import soon, until

SLOW = ("--token-delay", "0.02")


def lines(count: int, **body: Any) -> list[dict[str, Any]]:
    return [line(f"{i}", prompt=f"Once {i % 5}", max_tokens=2, **body) for i in range(count)]


def numbers(found: list[dict[str, Any]]) -> list[int]:
    return sorted(int(one) for one in ids(found))


async def test_a_batch_is_answered(serving: Serving, tmp_path: Path) -> None:
    served = await serving(files_dir=str(tmp_path / "files"))
    files = Files(served)
    begun = await files.begin([*lines(1200), line("-1", prompt="x", n=0)], metadata={"for": "tests"})
    assert begun["request_counts"] == {"total": 0, "completed": 0, "failed": 0}
    batch = await files.until(begun["id"])
    assert (batch["status"], batch["errors"]) == ("completed", None)
    assert batch["request_counts"] == {"total": 1201, "completed": 1200, "failed": 1}
    times = [batch[f"{name}_at"] for name in ("created", "in_progress", "finalizing", "completed")]
    assert times == sorted(times)
    assert batch["expires_at"] - batch["created_at"] == 86400
    assert {name: batch[name] for name in ("endpoint", "completion_window", "metadata", "input_file_id")} == {
        "endpoint": COMPLETIONS,
        "completion_window": "24h",
        "metadata": {"for": "tests"},
        "input_file_id": begun["input_file_id"],
    }
    answers = await files.lines(batch["output_file_id"])
    assert numbers(answers) == list(range(1200))
    assert {one["response"]["body"]["object"] for one in answers} == {"text_completion"}
    (failed,) = await files.lines(batch["error_file_id"])
    assert failed["response"]["body"]["error"]["message"].startswith("n is 0; it must be between 1 and")
    _, output = await files.ask("GET", f"/files/{batch['output_file_id']}")
    assert (output["purpose"], output["filename"]) == ("batch_output", f"{batch['id']}_output.jsonl")


async def test_lists_have_pages(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    made = [(await files.begin(lines(1)))["id"] for _ in range(5)]
    for one in made:
        await files.until(one)
    seen: list[str] = []
    after = ""
    while True:
        _, page = await files.ask("GET", f"/batches?limit=2{after}")
        seen += [one["id"] for one in page["data"]]
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        if not page["has_more"]:
            break
        after = f"&after={page['last_id']}"
    assert seen == made[::-1]
    _, page = await files.ask("GET", "/files?purpose=batch&order=asc&limit=4")
    assert (len(page["data"]), page["has_more"]) == (4, True)
    assert {one["purpose"] for one in page["data"]} == {"batch"}
    created = [one["created_at"] for one in page["data"]]
    assert created == sorted(created)
    _, rest = await files.ask("GET", f"/files?purpose=batch&order=asc&after={page['last_id']}")
    assert (len(rest["data"]), rest["has_more"]) == (1, False)
    for wrong in ("limit=0", "limit=x", "limit=10001", "order=up", "after=file-none"):
        status, answer = await files.ask("GET", f"/files?{wrong}")
        assert (status, wrong.partition("=")[0]) == (400, answer["error"]["param"])


async def test_a_file_is_read_and_deleted(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    data = as_bytes(lines(3)) * 20_000
    _, file = await files.upload(
        data, **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "3600"}
    )
    assert (file["bytes"], file["filename"], file["status"]) == (len(data), "in.jsonl", "processed")
    assert file["expires_at"] - file["created_at"] == 3600
    assert (await files.ask("GET", f"/files/{file['id']}/content")) == (200, data)
    assert (await files.ask("GET", f"/files/{file['id']}")) == (200, file)
    assert (await files.ask("DELETE", f"/files/{file['id']}"))[1]["deleted"] is True
    for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
        assert (await files.ask(method, f"/files/{file['id']}{path}"))[0] == 404
    assert list((tmp_path / "files" / "uploads").iterdir()) == []


async def test_an_input_in_use_is_not_deleted(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(*SLOW, files_dir=str(tmp_path / "files"), parallel=1))
    batch = await files.begin(lines(500))
    status, answer = await files.ask("DELETE", f"/files/{batch['input_file_id']}")
    assert (status, answer["error"]["code"], batch["id"] in answer["error"]["message"]) == (
        409,
        "file_in_use",
        True,
    )


async def test_a_drain_pauses_a_batch_and_its_end_continues_it(serving: Serving, tmp_path: Path) -> None:
    served = await serving(*SLOW, files_dir=str(tmp_path / "files"), parallel=2)
    files = Files(served)
    batch = await files.begin(lines(60))
    await files.until_done(batch["id"], 1)
    async with served.http.post(served.url + "/drain?wait=15") as response:
        assert (await response.json())["requests_open"] == 0
    paused = await files.batch(batch["id"])
    assert (paused["status"], paused["request_counts"]["failed"]) == ("in_progress", 0)
    assert paused["request_counts"]["completed"] < 60
    async with served.http.delete(served.url + "/drain") as response:
        assert response.status == 200
    ended = await files.until(batch["id"])
    assert (ended["status"], ended["request_counts"]["failed"]) == ("completed", 0)
    assert numbers(await files.lines(ended["output_file_id"])) == list(range(60))


async def test_a_cancelled_batch_keeps_its_answers(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(*SLOW, files_dir=str(tmp_path / "files"), parallel=2))
    id = (await files.begin(lines(400)))["id"]
    await files.until_done(id, 8)
    status, batch = await files.ask("POST", f"/batches/{id}/cancel")
    assert (status, batch["status"]) == (200, "cancelling")
    batch = await files.until(id)
    assert batch["status"] == "cancelled"
    assert batch["cancelling_at"] <= batch["cancelled_at"]
    done, left = await files.lines(batch["output_file_id"]), await files.lines(batch["error_file_id"])
    assert numbers(done + left) == list(range(400))
    assert 8 <= len(done) < 400
    assert {one["error"]["code"] for one in left} == {"batch_cancelled"}
    assert batch["request_counts"] == {"total": 400, "completed": len(done), "failed": len(left)}
    status, answer = await files.ask("POST", f"/batches/{id}/cancel")
    assert (status, answer["error"]["code"]) == (409, "batch_over")


async def test_a_batch_expires(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving("--endless", files_dir=str(tmp_path / "files")))
    endless = [*lines(3), line("3", prompt="x", max_tokens=-1)]
    id = (await files.begin(endless, completion_window="1s"))["id"]
    batch = await files.until(id)
    assert batch["status"] == "expired"
    assert batch["expired_at"] >= batch["expires_at"]
    done, left = await files.lines(batch["output_file_id"]), await files.lines(batch["error_file_id"])
    assert numbers(done + left) == [0, 1, 2, 3]
    assert "3" in ids(left)
    assert {one["error"]["code"] for one in left} == {"batch_expired"}


async def test_batches_of_one_owner_wait_for_each_other_and_are_cancelled_at_once(
    serving: Serving, tmp_path: Path
) -> None:
    files = Files(await serving(*SLOW, files_dir=str(tmp_path / "files"), parallel=1))
    first, second = [(await files.begin(lines(500)))["id"] for _ in range(2)]
    await files.until_done(first, 2)
    assert (await files.batch(second))["status"] == "validating"
    await files.ask("POST", f"/batches/{second}/cancel")
    batch = await files.until(second)
    assert (batch["status"], batch["output_file_id"]) == ("cancelled", None)
    assert len(await files.lines(batch["error_file_id"])) == 500
    assert (await files.batch(first))["status"] == "in_progress"


INVALID: list[tuple[str, bytes, str, int | None, str]] = [
    ("empty", b"", "empty_file", None, "the file has no lines"),
    ("binary", os.urandom(5000), "invalid_json_line", 1, "it is not JSON"),
    ("deep", b"[" * 10**6, "invalid_json_line", 1, "nested over 300 levels deep; it must be at most 65"),
    ("no line feed", b"x" * (20 << 20), "line_too_long", 1, "it has more than 16777216 bytes"),
    (
        "another path",
        as_bytes([line("a", "/v1/embeddings", input="x")]),
        "mismatched_endpoint",
        1,
        COMPLETIONS,
    ),
    ("twice", as_bytes([line("a"), line("a")]), "duplicate_custom_id", 2, "as on line 1"),
    (
        "many",
        as_bytes(line(str(i), prompt="") for i in range(50_001)),
        "too_many_lines",
        None,
        "more than 50000",
    ),
]


async def test_what_another_program_puts_in_place_of_an_upload_stops_nobody(
    serving: Serving, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    files = Files(await serving(files_dir=str(folder)))
    (tmp_path / "secret").write_text("another program's")
    for make in (os.mkfifo, Path.mkdir, lambda path: path.symlink_to(tmp_path / "secret")):
        _, file = await files.upload([line("a")])
        (upload,) = folder.glob(f"uploads/*{file['id']}*")
        upload.unlink()
        make(upload)
        status, answer = await files.ask("GET", f"/files/{file['id']}/content")
        assert (status, answer["error"]["code"]) == (503, "disk_unusable"), make
        asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
        _, batch = await files.ask("POST", "/batches", json.dumps(asked))
        assert (await files.until(batch["id"]))["status"] == "failed"


async def test_a_key_has_a_bound_of_batches(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "MOST_BATCHES", 2)
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    for _ in range(2):
        assert (await files.begin([line("a")]))["object"] == "batch"
    _, file = await files.upload([line("a")])
    asked = {"input_file_id": file["id"], "endpoint": "/v1/completions", "completion_window": "24h"}
    status, body = await files.ask("POST", "/batches", json.dumps(asked))
    assert (status, body["error"]["code"]) == (403, "too_many_batches"), body
    assert "30 days" in body["error"]["message"]


@pytest.mark.parametrize(
    ("data", "code", "number", "message"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID]
)
async def test_a_file_that_is_no_batch_fails_with_the_lines(
    serving: Serving, tmp_path: Path, data: bytes, code: str, number: int | None, message: str
) -> None:
    served = await serving(files_dir=str(tmp_path / "files"))
    files = Files(served)
    batch = await files.until((await files.begin(data))["id"])
    assert (batch["status"], batch["output_file_id"], batch["error_file_id"]) == ("failed", None, None)
    first = batch["errors"]["data"][0]
    assert (first["code"], first["line"], message in first["message"]) == (code, number, True)
    assert batch["failed_at"]
    assert not list((tmp_path / "files" / "batches").iterdir())
    assert (await served.post({"prompt": "x", "max_tokens": 1}))[0] == 200


async def test_one_line_of_10_mb_is_a_line(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    big = [line(str(i), prompt="x" * (10 << 20), max_tokens=1) for i in range(6)]
    batch = await files.until((await files.begin(big))["id"])
    assert batch["request_counts"] == {"total": 6, "completed": 6, "failed": 0}


BAD_UPLOADS: list[tuple[dict[str, str], bytes, int, str]] = [
    ({}, b"x", 400, 'Content-Type is "application/octet-stream"; it must be multipart/form-data'),
    ({"Content-Type": "multipart/form-data"}, b"x", 400, "the form cannot be read: "),
    ({"Content-Type": "multipart/form-data; boundary=b"}, b"no form", 400, "the form cannot be read: "),
    ({"Content-Type": "multipart/form-data; boundary=b"}, b"--b--\r\n", 400, "the form has no part file"),
    (
        {"Content-Type": "multipart/form-data; boundary=b"},
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\ncut',
        400,
        "",
    ),
    (
        {"Content-Type": "multipart/form-data; boundary=b"},
        b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\n' + b"x" * 2000 + b"\r\n--b--\r\n",
        400,
        "purpose has more than 1024 bytes",
    ),
    (
        {"Content-Type": "multipart/form-data; boundary=b"},
        (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n\r\n') * 2 + b"--b--\r\n",
        400,
        "the form has several parts a",
    ),
    (
        {"Content-Type": "multipart/form-data; boundary=b"},
        b"".join(b'--b\r\nContent-Disposition: form-data; name="%d"\r\n\r\n\r\n' % i for i in range(17)) + b"--b--",
        400,
        "the form has more than 16 parts",
    ),
    (
        {"Content-Type": "multipart/form-data; boundary=b"},
        b"--b\r\n" + b"X-Long: " + b"y" * 100_000 + b"\r\n\r\n\r\n--b--\r\n",
        400,
        "",
    ),
]  # fmt: skip


async def test_hostile_uploads_are_refused_and_leave_nothing(serving: Serving, tmp_path: Path) -> None:
    served = await serving(files_dir=str(tmp_path / "files"), max_file=100_000)
    files = Files(served)
    for headers, data, expected, says in BAD_UPLOADS:
        async with served.http.post(files.url + "/files", data=data, headers=headers) as response:
            answer = await response.text()
        assert (response.status, says in json.loads(answer)["error"]["message"]) == (expected, True), answer
    status, answer = await files.upload(b"x" * 100_001)
    assert (status, answer["error"]["code"], "--max-file" in answer["error"]["message"]) == (
        413,
        "file_too_large",
        True,
    )
    status, answer = await files.upload(b"x", purpose="fine-tune")
    assert (status, answer["error"]["message"]) == (400, 'purpose is "fine-tune"; it must be "batch"')
    for fields in ({"expires_after[anchor]": "created_at"}, {"expires_after[seconds]": "1"},
                   {"expires_after[anchor]": "created_at", "expires_after[seconds]": "9" * 50}):  # fmt: skip
        assert (await files.upload(b"x", **fields))[0] == 400
    assert (await files.ask("GET", "/files"))[1]["data"] == []
    assert list((tmp_path / "files" / "uploads").iterdir()) == []


async def test_an_upload_that_is_cut_leaves_nothing(serving: Serving, tmp_path: Path) -> None:
    served = await serving(files_dir=str(tmp_path / "files"))
    uploads = tmp_path / "files" / "uploads"
    host, port = served.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n"
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n' + b"x" * 70_000
    )
    await until(lambda: list(uploads.iterdir()))
    writer.close()
    await until(lambda: not list(uploads.iterdir()))
    assert (await Files(served).upload(lines(1)))[0] == 200


async def test_a_slow_upload_is_ended(serving: Serving, tmp_path: Path) -> None:
    """In the middle of the file, of another part, or before one."""
    served = await serving(files_dir=str(tmp_path / "files"), body_timeout=0.3)
    host, port = served.url.removeprefix("http://").split(":")
    part = b"--b\r\nContent-Disposition: form-data; name="
    for begun in (part + b'"file"; filename="x"\r\n\r\nx', part + b'"purpose"\r\n\r\nba', b"--b\r\n"):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
            b"Content-Type: multipart/form-data; boundary=b\r\n\r\n" + begun
        )
        assert b" 408 " in await reader.readline()
        writer.close()


async def test_the_folder_has_a_size(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files"), files_size=1000))
    assert (await files.upload(b"x" * 900))[0] == 200
    status, answer = await files.upload(b"x" * 101)
    message = answer["error"]["message"]
    assert (status, "have 900 bytes, and may have 1000 (--files-size); no room for 101" in message) == (
        503,
        True,
    )
    assert len(list((tmp_path / "files" / "uploads").iterdir())) == 1
    assert (await files.upload(b"x" * 100))[0] == 200


async def test_bounds_hold_for_all_that_is_sent_at_the_same_time(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of bytes, also while they arrive; of files, of batches, and of those that are not over."""
    served = await serving(*SLOW, files_dir=str(tmp_path / "files"), files_size=1_000_000)
    files = Files(served)
    host, port = served.url.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port))
    part = b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
    writer.write(
        b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
        b"Content-Type: multipart/form-data; boundary=b\r\n\r\n%x\r\n" % (1 << 20) + part + b"x" * 600_000
    )
    uploads = tmp_path / "files" / "uploads"
    await until(lambda: sum(one.stat().st_size for one in uploads.iterdir()) > 500_000)
    assert (await files.upload(b"x" * 600_000))[0] == 503
    writer.close()
    await until(lambda: not list(uploads.iterdir()))
    answers = await asyncio.gather(*(files.upload(b"x" * 300_000) for _ in range(4)))
    assert sorted(status for status, _ in answers) == [200, 200, 200, 503]
    for _, file in answers:
        if "id" in file:
            await files.ask("DELETE", f"/files/{file['id']}")
    for name, most in (("MOST_FILES", 3), ("MOST_OPEN", 1), ("MOST_BATCHES", 2)):
        monkeypatch.setattr(service, name, most)
    answers = await asyncio.gather(*(files.upload(lines(9)) for _ in range(4)))
    assert sorted(status for status, _ in answers) == [200, 200, 200, 403]
    id = next(file["id"] for _, file in answers if "id" in file)
    asked = json.dumps({"input_file_id": id, "endpoint": "/v1/completions", "completion_window": "24h"})
    for most, refused in ((1, 429), (9, 403)):
        monkeypatch.setattr(service, "MOST_OPEN", most)
        answers = await asyncio.gather(*(files.ask("POST", "/batches", asked) for _ in range(3)))
        assert sorted(status for status, _ in answers) == [200, refused, refused]


async def test_an_upload_without_room_is_refused_before_it_is_written(
    serving: Serving, tmp_path: Path
) -> None:
    """By its length, of which the form's other parts have a little; without one, by the bytes so far."""
    served = await serving(files_dir=str(tmp_path / "files"), files_size=FORM)
    host, port = served.url.removeprefix("http://").split(":")
    boundary = b"--b\r\nContent-Disposition: form-data; name=file; filename=x\r\n\r\n"
    for length, sent in (
        (f"Content-Length: {2 * FORM + 1}", boundary),
        ("Transfer-Encoding: chunked", b"%x\r\n%b\r\n" % (5 * FORM, boundary.ljust(5 * FORM))),
    ):
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(
            f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\n{length}\r\n"
            "Content-Type: multipart/form-data; boundary=b\r\n\r\n".encode()
            + sent
        )
        assert b" 503 " in await soon(reader.readline())  # the rest of the body never comes
        writer.close()
        assert list((tmp_path / "files" / "uploads").iterdir()) == []


async def test_a_batch_whose_answers_have_no_room_fails_and_keeps_those_it_has(
    serving: Serving, tmp_path: Path
) -> None:
    data, most = as_bytes(lines(400)), 100_000
    files = Files(await serving(files_dir=str(tmp_path / "files"), files_size=most))
    batch = await files.until((await files.begin(data))["id"])
    (error,) = batch["errors"]["data"]
    assert (batch["status"], error["code"], batch["error_file_id"]) == ("failed", "no_room", None)
    assert f"bytes, and may have {most} (--files-size); no room for an answer of " in error["message"]
    done = await files.lines(batch["output_file_id"])
    assert batch["request_counts"] == {"total": 400, "completed": len(done), "failed": 0}
    assert 50 < len(done) < 400
    _, listed = await files.ask("GET", "/files")
    assert most - 2000 < sum(one["bytes"] for one in listed["data"]) <= most
    assert (await files.upload(b"x" * 2000))[0] == 503
    for one in listed["data"]:
        await files.ask("DELETE", f"/files/{one['id']}")
    assert (await files.until((await files.begin(lines(20)))["id"]))["status"] == "completed"


async def test_a_cancelled_batch_writes_no_more_errors_than_there_is_room_for(
    serving: Serving, tmp_path: Path
) -> None:
    data = as_bytes([line(f"{i}", prompt=f"Once {i % 5}", max_tokens=-1) for i in range(1000)])
    most = len(data) + 20_000
    files = Files(await serving("--endless", files_dir=str(tmp_path / "files"), files_size=most))
    id = (await files.begin(data))["id"]
    await files.until(id, "in_progress")
    await files.ask("POST", f"/batches/{id}/cancel")
    batch = await files.until(id)
    left = await files.lines(batch["error_file_id"])
    assert (batch["status"], 50 < len(left) < 1000) == ("cancelled", True)
    assert batch["request_counts"] == {"total": 1000, "completed": 0, "failed": len(left)}
    _, listed = await files.ask("GET", "/files")
    assert sum(one["bytes"] for one in listed["data"]) <= most


# A disk that is full for a time: no file of the server may grow beyond the present size of the database's log


@contextlib.contextmanager
def full_disk(folder: Path) -> Iterator[None]:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((folder / "batches.db-wal").stat().st_size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


async def test_a_batch_that_cannot_be_saved_is_saved_when_that_is_possible(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "RETRY", 0.02)
    served = await serving(*SLOW, files_dir=str(tmp_path / "files"), parallel=1)
    files = Files(served)
    ended, cancelled = [(await files.begin(lines(count)))["id"] for count in (6, 3)]
    await files.until_done(ended, 1)
    with full_disk(tmp_path / "files"):
        await until(lambda: caplog.text.count(f"the batch {ended} cannot be saved: ") > 2)
        assert (await files.batch(ended))["status"] == "finalizing"
        assert (await served.post({"prompt": "x", "max_tokens": 1}))[0] == 200
        status, answer = await files.ask("POST", f"/batches/{cancelled}/cancel")
        assert (status, answer["error"]["code"] in ("no_room", "disk_unusable")) == (503, True)
        await until(lambda: caplog.text.count(f"the batch {cancelled} cannot be saved: ") > 2)
    batch = await files.until(ended)
    assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 6)
    assert numbers(await files.lines(batch["output_file_id"])) == list(range(6))
    assert (await files.until(cancelled))["status"] == "cancelled"


async def test_a_batch_that_was_not_saved_before_the_end_goes_on_at_the_next_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"files_dir": str(tmp_path / "files"), "parallel": 1}
    async with servers(tmp_path) as start:
        served = await start(*SLOW, **options)
        files = Files(served)
        id = (await files.begin(lines(6)))["id"]
        await files.until_done(id, 1)
        with full_disk(tmp_path / "files"):
            await until(lambda: f"the batch {id} cannot be saved: " in caplog.text)
            await served.stack.aclose()
    async with servers(tmp_path) as start:
        files = Files(await start(**options))
        batch = await files.until(id)
        assert (batch["status"], batch["request_counts"]["completed"]) == ("completed", 6)
        assert numbers(await files.lines(batch["output_file_id"])) == list(range(6))


async def test_expired_files_are_removed_when_the_disk_has_room_again(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(worker, "SWEEP", 0.02)
    monkeypatch.setattr(bodies, "HOUR", 1)
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    await files.upload(lines(1), **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "1"})
    uploads = tmp_path / "files" / "uploads"
    with full_disk(tmp_path / "files"):
        await until(lambda: caplog.text.count("expired files: tried again in 0 s") > 1)
        assert len(list(uploads.iterdir())) == 1
    await until(lambda: not list(uploads.iterdir()))


WRONG: list[tuple[dict[str, Any], int, str | None, str]] = [
    ({"endpoint": None}, 400, "endpoint", "endpoint is missing; input_file_id, endpoint and"),
    ({"endpoint": "/v1/moderations"}, 400, "endpoint", "it must be one of /v1/chat/completions"),
    ({"input_file_id": "file-none"}, 404, "file_id", "you have no file file-none"),
    ({"input_file_id": 5}, 400, "input_file_id", "input_file_id is 5; it must be a text"),
    ({"completion_window": "1 day"}, 400, "completion_window", 'it must be "24h", or another time up to "30d"'),
    ({"completion_window": "31d"}, 400, "completion_window", 'is "31d"; it must be'),
    ({"metadata": {"a": 5}}, 400, "metadata", 'metadata has "a": 5; it must be at most 16 texts'),
    ({"metadata": {str(i): "" for i in range(17)}}, 400, "metadata", "metadata is an object of 17; it must be at most"),
    ({"output_expires_after": {"anchor": "now"}}, 400, "output_expires_after", "anchor is"),
    ({"output_expires_after": {"anchor": "created_at", "seconds": 5}}, 400, None, "between 3600 and 2592000"),
]  # fmt: skip


async def test_a_wrong_batch_is_refused(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    _, file = await files.upload(lines(1))
    good = {"input_file_id": file["id"], "endpoint": COMPLETIONS, "completion_window": "24h"}
    for change, expected, param, says in WRONG:
        status, answer = await files.ask("POST", "/batches", json.dumps({**good, **change}))
        error = answer["error"]
        assert (status, says in error["message"]) == (expected, True), error
        assert param in (None, error["param"])
    assert (await files.ask("GET", "/batches"))[1]["data"] == []
    for path in ("/batches/batch_none", "/files/file-none"):
        assert (await files.ask("GET", path))[0] == 404


async def test_an_output_is_no_input(serving: Serving, tmp_path: Path) -> None:
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    batch = await files.until((await files.begin(lines(1)))["id"])
    asked = {"input_file_id": batch["output_file_id"], "endpoint": COMPLETIONS, "completion_window": "1h"}
    status, answer = await files.ask("POST", "/batches", json.dumps(asked))
    assert (status, answer["error"]["message"]) == (
        400, "the file has the purpose batch_output; the input of a batch has batch",
    )  # fmt: skip


async def test_without_a_folder_it_says_what_to_set(serving: Serving) -> None:
    files = Files(await serving())
    body = json.dumps({"input_file_id": "x", "endpoint": COMPLETIONS, "completion_window": "24h"})
    for method, path, data in (
        ("GET", "/files", None), ("GET", "/files/x", None), ("GET", "/files/x/content", None),
        ("DELETE", "/files/x", None), ("GET", "/batches", None), ("GET", "/batches/x", None),
        ("POST", "/batches", body), ("POST", "/batches/x/cancel", None),
    ):  # fmt: skip
        status, answer = await files.ask(method, path, data)
        assert (status, answer["error"]["message"]) == (
            501, "this server keeps no files; start it with --files-dir DIR",
        )  # fmt: skip
    assert (await files.upload(b"x"))[0] == 501


# Keys


def keyed(folder: Path, *rows: dict[str, Any]) -> dict[str, object]:
    usual = {"scopes": ["batch", "complete"]}
    keys = key_file(folder / "keys", *({**usual, **row} for row in rows))
    return {"api_key_file": str(keys), "files_dir": str(folder / "files")}


async def test_files_and_batches_are_seen_only_by_their_key(serving: Serving, tmp_path: Path) -> None:
    served = await serving(
        jwt_secret=SECRET,
        **keyed(tmp_path, {"name": "ann"}, {"name": "bob"}, {"name": "root", "scopes": ["admin"]}),
    )
    ann = Files(served, "ann")
    batch = await ann.until((await ann.begin(lines(3)))["id"])
    claims = {"sub": "ann", "scope": "batch complete", "exp": 4e9}
    for other in ("bob", "root", jwt.encode(claims, SECRET, "HS256")):
        files = Files(served, other)
        assert (await files.ask("GET", "/files"))[1]["data"] == []
        assert (await files.ask("GET", "/batches"))[1]["data"] == []
        for file in (batch["input_file_id"], batch["output_file_id"]):
            for method, path in (("GET", ""), ("GET", "/content"), ("DELETE", "")):
                assert (await files.ask(method, f"/files/{file}{path}"))[0] == 404
            assert (await files.ask("GET", f"/files?after={file}"))[0] == 400
            body = {"input_file_id": file, "endpoint": COMPLETIONS, "completion_window": "24h"}
            assert (await files.ask("POST", "/batches", json.dumps(body)))[0] == 404
        for method, path in (("GET", ""), ("POST", "/cancel")):
            assert (await files.ask(method, f"/batches/{batch['id']}{path}"))[0] == 404
    assert len((await ann.ask("GET", "/files"))[1]["data"]) == 2


async def test_a_key_needs_the_scopes_batch_and_of_the_lines(serving: Serving, tmp_path: Path) -> None:
    served = await serving(**keyed(tmp_path, {"name": "ann"}, {"name": "eve", "scopes": ["complete"]}))
    status, answer = await Files(served, "eve").upload(lines(1))
    assert (status, answer["error"]["code"]) == (403, "scope_missing")
    ann = Files(served, "ann")
    _, file = await ann.upload([line("a", "/v1/embeddings", input="x")])
    asked = {"input_file_id": file["id"], "endpoint": "/v1/embeddings", "completion_window": "24h"}
    status, answer = await ann.ask("POST", "/batches", json.dumps(asked))
    assert (status, answer["error"]["code"]) == (403, "scope_missing")
    assert "lines of /v1/embeddings need embed" in answer["error"]["message"]


async def test_the_limits_of_a_key_hold_for_its_lines(serving: Serving, tmp_path: Path) -> None:
    served = await serving(**keyed(tmp_path, {"name": "ann", "max_n": 2}))
    ann = Files(served, "ann")
    batch = await ann.until((await ann.begin([line("a", prompt="x", n=3), line("b", prompt="x", n=2)]))["id"])
    (failed,) = await ann.lines(batch["error_file_id"])
    assert failed["response"]["body"]["error"]["message"].endswith("at most 2 for ann, whose max_n is 2")


async def test_lines_spend_the_tokens_of_their_key(serving: Serving, tmp_path: Path) -> None:
    """Each answer overdraws the budget, so that the next line waits until a token is there again."""
    served = await serving(**keyed(tmp_path, {"name": "poor", "tokens_per_minute": 6}))
    poor = Files(served, "poor")
    id = (await poor.begin([line(f"{i}", prompt="x", max_tokens=150) for i in range(80)]))["id"]
    await poor.until_done(id, 1)
    status, data = await served.post({"prompt": "x"}, **bearer("poor"))
    assert (status, json.loads(data)["error"]["code"]) == (429, "rate_limit_exceeded")
    batch = await poor.batch(id)
    assert (batch["status"], batch["request_counts"]["failed"]) == ("in_progress", 0)
    assert batch["request_counts"]["completed"] < 80


async def test_lines_do_not_count_for_the_slots_of_their_key_nor_for_the_queue(
    serving: Serving, tmp_path: Path
) -> None:
    served = await serving(
        "--endless", **keyed(tmp_path, {"name": "ann", "concurrent": 1}), parallel=2, max_queue=1
    )
    ann = Files(served, "ann")
    endless = [line(str(i), prompt=f"{i}", max_tokens=-1) for i in range(9)]
    id = (await ann.begin(endless))["id"]
    await served.note("generate")
    assert len([one for one in served.noted() if one["what"] == "generate"]) == 1, "concurrent is its window"
    assert (await served.post({"prompt": "x", "max_tokens": 1}, **bearer("ann")))[0] == 200
    await ann.ask("POST", f"/batches/{id}/cancel")
    await ann.until(id)


async def test_lines_yield_to_all_other_requests(serving: Serving, tmp_path: Path) -> None:
    served = await serving(files_dir=str(tmp_path / "files"))
    files = Files(served)
    await files.until((await files.begin(lines(2)))["id"])
    await served.post({"prompt": "x", "max_tokens": 1})
    noted = [one.get("priority", 0) for one in served.noted() if one["what"] == "generate"]
    assert noted == [1, 1, 0]


async def test_a_full_queue_of_lines_refuses_nobody(serving: Serving, tmp_path: Path) -> None:
    served = await serving("--endless", files_dir=str(tmp_path / "files"), parallel=4, max_queue=1)
    files = Files(served)
    id = (await files.begin([line(str(i), prompt=f"{i}", max_tokens=-1) for i in range(50)]))["id"]
    await served.note("generate", 8)
    async with served.http.post(served.url + "/v1/events", data=b'{"prompt": "x", "n": 1}') as response:
        assert response.status == 200, "six lines wait in the engine, and one request may wait"
    await files.ask("POST", f"/batches/{id}/cancel")
    await files.until(id)


async def revoked(folder: Path, *left: dict[str, Any]) -> None:
    key_file(folder / "keys", *({"scopes": ["batch", "complete"], **row} for row in left))
    os.kill(os.getpid(), signal.SIGHUP)


async def test_a_revoked_key_stops_its_batch(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    served = await serving(*SLOW, **keyed(tmp_path, {"name": "ann"}, {"name": "bob"}), parallel=2)
    ann, bob = Files(served, "ann"), Files(served, "bob")
    theirs, id = (await bob.begin(lines(30)))["id"], (await ann.begin(lines(500)))["id"]
    await ann.until_done(id, 4)
    await revoked(tmp_path, {"name": "bob"})
    await until(lambda: f"batch {id} is failed" in caplog.text)
    assert (await ann.ask("GET", f"/batches/{id}"))[0] == 401
    assert (await bob.until(theirs))["request_counts"] == {"total": 30, "completed": 30, "failed": 0}
    await revoked(tmp_path, {"name": "ann"})
    await until(lambda: caplog.text.count("SIGHUP: keys") == 2)
    batch = await ann.batch(id)
    assert batch["status"] == "failed"
    (error,) = batch["errors"]["data"]
    assert error["code"] == "invalid_api_key"
    assert "the key ann has no access any more" in error["message"]
    done, left = await ann.lines(batch["output_file_id"]), await ann.lines(batch["error_file_id"])
    assert numbers(done + left) == list(range(500))
    assert 4 <= len(done) < 500
    assert {one["error"]["code"] for one in left} == {"invalid_api_key"}


async def test_the_batch_of_a_token_ends_with_it(serving: Serving, tmp_path: Path) -> None:
    served = await serving(*SLOW, jwt_secret=SECRET, files_dir=str(tmp_path / "files"), parallel=1)

    def carol(seconds: float) -> Files:
        claims = {"sub": "carol", "scope": "batch complete", "exp": int(time.time() + seconds - LEEWAY)}
        return Files(served, jwt.encode(claims, SECRET, "HS256"))

    soon, later = carol(3), carol(3600)
    done, cut = (await soon.begin(lines(2)))["id"], (await soon.begin(lines(2000)))["id"]
    assert (await later.until(done))["status"] == "completed"
    batch = await later.until(cut)
    assert (batch["status"], batch["errors"]["data"][0]["code"]) == ("failed", "invalid_api_key")
    assert "the token of carol has expired" in batch["errors"]["data"][0]["message"]
    assert numbers(
        await later.lines(batch["output_file_id"]) + await later.lines(batch["error_file_id"])
    ) == list(range(2000))


async def test_the_batch_of_a_token_ends_when_the_key_that_has_signed_it_is_replaced(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    file = tmp_path / "jwks"

    def carol(secret: str) -> str:
        """Writes the one key of the file, which always has the same id; a token that it has signed."""
        row = jwt.algorithms.HMACAlgorithm.to_jwk(secret, as_dict=True) | {"kid": "1"}
        file.write_text(json.dumps({"keys": [row]}))
        claims = {"sub": "carol", "scope": "batch complete", "exp": int(time.time() + 3600)}
        return jwt.encode(claims, secret, "HS256", {"kid": "1"})

    old = carol(SECRET)
    served = await serving(*SLOW, jwt_keys=str(file), files_dir=str(tmp_path / "files"), parallel=1)
    files = Files(served, old)
    id = (await files.begin(lines(2000)))["id"]
    await files.until_done(id, 1)
    new = Files(served, carol(SECRET[::-1]))
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: f"batch {id} is failed" in caplog.text)
    assert (await files.ask("GET", f"/batches/{id}"))[0] == 401
    (error,) = (await new.batch(id))["errors"]["data"]
    assert error["code"] == "invalid_api_key"
    assert "the key that has signed the token of carol is gone" in error["message"]


async def test_the_header_of_lines_means_nothing_on_other_connections(
    serving: Serving, tmp_path: Path
) -> None:
    served = await serving(*SLOW, **keyed(tmp_path, {"name": "ann"}), parallel=1)
    ann = Files(served, "ann")
    id = (await ann.begin(lines(300)))["id"]
    await ann.until_done(id, 1)
    status, _ = await served.post({"prompt": "x"}, **{HEADER: id})
    assert status == 401


# Restarts


async def test_a_batch_goes_on_after_a_restart_and_each_line_is_answered_once(tmp_path: Path) -> None:
    options = {"files_dir": str(tmp_path / "files"), "parallel": 2}
    counts = []
    id = ""
    for at in range(4):
        async with servers(tmp_path) as start:
            files = Files(await start(*SLOW, **options))
            if not id:
                id = (await files.begin(lines(120)))["id"]
            if at < 3:
                await files.until_done(id, 15 * (at + 1))
                counts.append((await files.batch(id))["request_counts"]["completed"])
                continue
            batch = await files.until(id)
            assert batch["status"] == "completed"
            assert batch["request_counts"] == {"total": 120, "completed": 120, "failed": 0}
            assert numbers(await files.lines(batch["output_file_id"])) == list(range(120))
    assert counts == sorted(counts)
    generated = Counter(
        note["what"] for note in map(json.loads, (tmp_path / "journal").read_text().splitlines())
    )["generate"]
    assert generated < 120 + 3 * 4 + 8, "only lines that ran at a stop are sent again"


async def test_expired_files_are_removed(
    serving: Serving, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "SWEEP", 0.02)
    monkeypatch.setattr(bodies, "HOUR", 1)
    files = Files(await serving(files_dir=str(tmp_path / "files")))
    await files.upload(lines(1), **{"expires_after[anchor]": "created_at", "expires_after[seconds]": "1"})
    keep = {"output_expires_after": {"anchor": "created_at", "seconds": 1}}
    await files.until((await files.begin(lines(1), **keep))["id"])
    await until(lambda: len(list((tmp_path / "files" / "uploads").iterdir())) == 1)
    await until(lambda: not list((tmp_path / "files" / "batches").iterdir()))
    assert [one["purpose"] for one in (await files.ask("GET", "/files"))[1]["data"]] == ["batch"]


async def test_a_folder_has_one_server(serving: Serving, tmp_path: Path) -> None:
    await serving(files_dir=str(tmp_path / "files"))
    with pytest.raises(StartError, match=r"another server uses .* give each its own --files-dir"):
        await serving(files_dir=str(tmp_path / "files"))


async def test_a_folder_that_cannot_be_used_is_named(serving: Serving, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StartError, match=r"--files-dir .*file/x cannot be used: Not a directory"):
        await serving(files_dir=str(tmp_path / "file" / "x"))
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "batches.db").write_text("notes" * 100)
    with pytest.raises(StartError, match=r"batches\.db cannot be used: file is not a database"):
        await serving(files_dir=str(tmp_path / "files"))


async def test_the_folder_is_the_users_alone(serving: Serving, tmp_path: Path) -> None:
    await serving(files_dir=str(tmp_path / "files"))
    assert (tmp_path / "files").stat().st_mode & 0o777 == 0o700


async def test_several_uploads_at_once_have_a_bound(serving: Serving, tmp_path: Path) -> None:
    served = await serving(files_dir=str(tmp_path / "files"))
    gate = asyncio.Event()

    async def slow() -> Any:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="x"\r\n\r\n'
        await gate.wait()
        yield b'x\r\n--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n--b--\r\n'

    headers = {"Content-Type": "multipart/form-data; boundary=b"}

    async def send(http: aiohttp.ClientSession) -> int:
        async with http.post(served.url + "/v1/files", data=slow(), headers=headers) as response:
            return response.status

    sent = [asyncio.create_task(send(served.http)) for _ in range(4)]
    await until(lambda: len(list((tmp_path / "files" / "uploads").iterdir())) == 4)
    status, answer = await Files(served).upload(b"x")
    assert (status, answer["error"]["code"]) == (503, "busy")
    gate.set()
    assert await asyncio.gather(*sent) == [200] * 4
