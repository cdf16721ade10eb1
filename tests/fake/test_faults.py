"""Faults of a server that runs for weeks: each has a test that causes it."""

# ruff: noqa: E501 (a table)
from __future__ import annotations

import ast
import asyncio
import json
import os
import signal
from pathlib import Path

import pytest

from llama_srb.background import begin
from llama_srb.server.reload.faults import kept
from llama_srb.serving.faults import StartError
from tests.support.places import ROOT, STORYTELLER
from tests.support.rows import each_row
from tests.support.served import Served, Serving
from tests.support.waiting import PATIENCE

# fmt: off
FAULTS = {
    "engine killed": "journeys/test_interruptions.py::test_a_killed_engine_is_an_error_for_its_requests_and_the_next_one_works",
    "engine hangs": "fake/test_engine.py::test_an_engine_that_makes_no_step_is_ended_with_its_reason",
    "engine stopped": "real/test_faults.py::test_an_engine_that_is_stopped_is_ended_and_another_one_started",
    "a long prompt, which is no hang": "real/test_faults.py::test_a_long_prompt_is_no_hang",
    "rubbish from the engine": "fake/test_engine.py::test_rubbish_on_stdout_ends_engine_and_requests",
    "half a line from the engine": "fake/test_engine.py::test_events_before_a_crash_are_delivered",
    "exit while loading, at the start": "fake/test_pool.py::test_a_first_load_that_fails_stops_the_pool_and_says_why",
    "exit while loading, later": "fake/test_pool.py::test_a_restart_that_fails_is_tried_again",
    "out of memory, GPU lost": "fake/test_faults.py::test_the_engines_last_log_line_is_logged_and_the_next_request_works",
    "engine built for another CPU": "fake/test_faults.py::test_health_says_why_no_engine_is_started_and_sighup_tries_again",
    "a request that kills every engine": "fake/test_pool.py::test_a_request_that_kills_each_engine_does_not_stop_the_pool",
    "disk of the prefix cache full": "real/test_store.py::test_a_full_disk_is_a_line_in_the_log",
    "file of the prefix cache damaged": "real/test_store.py::test_any_damage_is_a_line_in_the_log_and_a_miss",
    "folder of the prefix cache deleted": "real/test_folder.py::test_a_folder_that_was_deleted_is_made_again",
    "FIFO in the folder of the prefix cache": "real/test_folder.py::test_an_entry_that_is_no_file_is_ignored",
    "disk of the prefix cache hangs": "real/test_folder.py::test_a_request_does_not_wait_for_a_disk_that_hangs",
    "model file replaced, no SIGHUP": "real/test_faults.py::test_a_model_file_that_is_replaced_or_gone_disturbs_nobody",
    "model file replaced, SIGHUP":
        "real/test_life.py::test_a_replaced_model_is_served_after_sighup_without_a_request_lost",
    "model file replaced by a broken one":
        "real/test_life.py::test_after_sighup_with_a_broken_model_the_old_engine_serves_on",
    "model file with a hostile chat template": "real/test_hostile_models.py::test_a_template_harms_its_own_chats_only",
    "attacks on the server's HTTP": "fake/test_attacks.py::test_an_attack_gets_its_answer",
    "model file with false sizes": "real/test_faults.py::test_a_model_file_with_false_lengths_is_an_error_and_no_crash",
    "port taken": "journeys/test_first_command.py::test_the_error_of_a_taken_port_names_it",
    "port stolen by another server": "fake/test_faults.py::test_nobody_can_take_the_port_while_it_is_served",
    "client gone while it sends": "fake/test_faults.py::test_a_client_gone_while_it_sends_leaves_nothing",
    "client gone while it waits": "fake/test_faults.py::test_a_client_gone_while_its_request_waits_leaves_nothing",
    "client gone in mid-stream": "fake/test_server.py::test_a_client_that_leaves_cancels_at_once",
    "client gone before its body": "fake/test_server.py::test_a_client_that_waits_for_a_body_and_leaves_cancels_at_once",
    "client gone while its engine loads":
        "fake/test_pool.py::test_cancelled_while_the_engine_loads_a_request_ends_and_is_never_sent",
    "client that reads slowly": "fake/test_load.py::test_a_reader_that_falls_behind_is_cut_off_alone",
    "client that never ends its body": "fake/test_load.py::test_a_body_that_never_ends_is_408",
    "client that sends nothing": "fake/test_load.py::test_a_connection_without_a_request_is_closed",
    "1,000 cancels in a row": "fake/test_pool.py::test_a_thousand_cancels_leave_nothing",
    "1,000 clients that leave": "fake/test_faults.py::test_a_thousand_clients_that_leave_leave_nothing",
    "SIGTERM in mid-stream": "real/test_life.py::test_a_stopped_server_ends_streams_with_an_error_event_and_exits_with_0",
    "SIGTERM, requests that end in time": "fake/test_pool.py::test_stop_lets_requests_finish_within_its_grace",
    "SIGHUP with a broken file of keys":
        "fake/test_access.py::test_sighup_reads_the_keys_again_and_keeps_them_if_it_cannot",
    "SIGHUP that meets an unexpected fault": "fake/test_faults.py::test_sighup_works_again_after_any_fault_of_a_reload",
    "SIGHUP with a broken preset": "fake/test_faults.py::test_sighup_reads_presets_again_and_keeps_them_if_it_cannot",
    "server killed": "real/test_life.py::test_a_killed_server_leaves_no_engine",
    "server killed in mid-prompt": "real/test_life.py::test_a_killed_server_leaves_no_engine_in_mid_prefill",
    "all faults at random": "soak/test_soak.py::test_mixed_traffic_with_faults_leaks_nothing",
}
# fmt: on


@each_row("test", FAULTS.values(), ids=FAULTS)
def test_each_fault_has_its_test(test: str) -> None:
    file, name = test.split("::")
    tree = ast.parse((ROOT / "tests" / file).read_text())
    assert name in {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


BODY = {"prompt": "x", "n": 1, "max_tokens": 3}
LAST_WORDS = {
    "out of memory": "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 8192.00 MiB failed: out of memory",
    "GPU lost": "CUDA error: unspecified launch failure",
}


@pytest.mark.parametrize("said", LAST_WORDS.values(), ids=LAST_WORDS)
async def test_the_engines_last_log_line_is_logged_and_the_next_request_works(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture, said: str
) -> None:
    served = await serving(
        "--exit-after", "20", "--last-words", said, "--only-first", str(tmp_path / "was here")
    )
    last = (await served.events({"prompt": "x", "n": 8}))[-1]
    assert (last["code"], said in last["message"]) == ("engine_died", False)
    assert said in caplog.text
    assert (await served.events(BODY))[-1]["event"] == "done"


async def test_health_says_why_no_engine_is_started_and_sighup_tries_again(
    serving: Serving, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    served = await serving("--first-steps", "SIGILL")

    async def health() -> tuple[int, dict[str, object]]:
        async with served.http.get(served.url + "/health") as response:
            return response.status, await response.json()

    for _ in range(2):
        assert "run ./build.sh" in (await served.events(BODY))[-1]["message"]
    status, data = await served.post(BODY)
    error = json.loads(data)["error"]
    assert (status, error["code"]) == (503, "unavailable")
    assert "3 times in a row with SIGILL" in error["message"]
    assert await health() == (503, {"status": "failed", "progress": 0.0, "error": error["message"]})
    assert (await served.post(BODY))[0] == 503

    hang_up()
    await logged(caplog, "the model stays as it was: the engine ended while running: signal SIGILL")
    assert (await health())[1]["status"] == "failed"
    engine = served.journal.with_name("engine")
    engine.write_text(engine.read_text().replace('"$@"', '"$@" --first-steps works'))
    hang_up()
    await logged(caplog, "SIGHUP: ", 2)
    assert await health() == (200, {"status": "ok"})
    assert (await served.events(BODY))[-1]["event"] == "done"


async def logged(caplog: pytest.LogCaptureFixture, line: str, times: int = 1) -> None:
    """Waits for a line in the log."""
    async with asyncio.timeout(PATIENCE):
        while caplog.text.count(line) < times:  # noqa: ASYNC110 (nothing else tells)
            await asyncio.sleep(0.01)


async def test_nobody_can_take_the_port_while_it_is_served(serving: Serving) -> None:
    served = await serving()
    port = int(served.url.rpartition(":")[2])
    with pytest.raises(StartError, match="in use"):
        await serving(port=port)
    assert (await served.events(BODY))[-1]["event"] == "done"


async def test_a_client_gone_while_it_sends_leaves_nothing(serving: Serving) -> None:
    served = await serving()
    whole = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{" + b'"prompt": "x"'
    for length in (1, 20, whole.index(b"\r\n\r\n"), whole.index(b"{"), len(whole)):
        host, port = served.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(whole[:length])
        await writer.drain()
        writer.close()
    assert (await served.events(BODY))[-1]["event"] == "done"
    assert [note["what"] for note in served.noted()].count("generate") == 1


@pytest.mark.parametrize("mode", ["resident", "per-request"])
async def test_a_client_gone_while_its_request_waits_leaves_nothing(serving: Serving, mode: str) -> None:
    served = await serving("--endless", parallel=1, engine_mode=mode, max_engines=1)
    async with served.http.post(served.url + "/v1/events", json=BODY | {"max_tokens": -1}) as first:
        await first.content.readuntil(b"\n\n")
        _, writer = await served.connect(BODY)
        await open_requests(served, 2)
        writer.close()
        await open_requests(served, 1)
    assert (await served.events(BODY))[-1]["event"] == "done"


async def test_a_thousand_clients_that_leave_leave_nothing(serving: Serving) -> None:
    served = await serving("--endless")
    for _ in range(1000):
        _, writer = await served.connect(BODY | {"max_tokens": -1})
        writer.close()
    await open_requests(served, 0)
    assert (await served.events(BODY))[-1]["event"] == "done"


async def open_requests(served: Served, n: int) -> None:
    """Waits until the server has so many open requests."""
    async with asyncio.timeout(PATIENCE):
        while True:
            async with served.http.get(served.url + "/v1/stats") as response:
                if (await response.json())["requests_open"] == n:
                    return
            await asyncio.sleep(0.01)


async def test_sighup_reads_presets_again_and_keeps_them_if_it_cannot(
    serving: Serving, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text("temperature = 0.5\n")
    served = await serving(presets=str(tmp_path))

    async def temperature_becomes(wanted: float | None) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                async with served.http.get(served.url + "/v1/presets") as response:
                    rows = {one["name"]: one["fields"] for one in (await response.json())["data"]}
                if rows["own"].get("temperature") == wanted:
                    return
                await asyncio.sleep(0.01)

    await temperature_becomes(0.5)
    file.write_text("temperature = 0.75\n")
    hang_up()
    await temperature_becomes(0.75)
    file.write_text("temperature = [\n")
    hang_up()
    await temperature_becomes(0.75)
    file.write_text("temperature = 1.5\n")
    hang_up()
    await temperature_becomes(1.5)


async def test_sighup_works_again_after_any_fault_of_a_reload(
    serving: Serving, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of these faults once ended the task of SIGHUP, without a line in the log."""
    presets, model = tmp_path / "presets", tmp_path / "model.gguf"
    presets.mkdir()
    model.symlink_to(STORYTELLER)
    served = await serving(presets=str(presets), model=str(model))
    preset = presets / "own.toml"
    preset.write_text("stop = " + 5000 * "[")
    await heard(caplog, "the presets stay as they were: " + str(preset))
    preset.unlink()
    link(model, "x" * 300)
    await heard(caplog, f"the model stays as it was: {model}: File name too long")
    link(model, str(STORYTELLER))
    presets.rmdir()
    presets.symlink_to("x" * 300)
    await heard(caplog, f"the presets stay as they were: {presets}: File name too long")
    presets.unlink()
    presets.mkdir()
    preset.write_text("temperature = 1.5")
    await heard(caplog, "SIGHUP: ")
    async with served.http.get(served.url + "/v1/presets") as response:
        assert "own" in {one["name"] for one in (await response.json())["data"]}
    assert "Traceback" not in caplog.text


def link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


async def heard(caplog: pytest.LogCaptureFixture, line: str) -> None:
    """Sends SIGHUP; returns the log's lines about it."""
    caplog.set_level("INFO")
    caplog.clear()
    hang_up()
    await logged(caplog, line)
    await logged(caplog, "SIGHUP: ")


def test_a_fault_in_one_part_of_a_reload_is_logged_and_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with kept("the keys stay as they were"):
        raise ZeroDivisionError
    assert "the keys stay as they were: a fault of ours" in caplog.text
    assert "Traceback" in caplog.text


async def test_the_fault_that_ends_a_task_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ZeroDivisionError

    await asyncio.wait({begin(fails(), "that one")})
    await asyncio.sleep(0)
    assert "the task 'that one' failed" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def hang_up() -> None:
    os.kill(os.getpid(), signal.SIGHUP)
