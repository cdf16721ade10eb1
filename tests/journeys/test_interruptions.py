"""What ends in the middle: Ctrl+C, and an engine that is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess

from playwright.sync_api import Browser, expect

from tests.real.test_life import alive, engines_of, running, texts_of
from tests.support.browser import visiting
from tests.support.places import ROOT
from tests.support.serving import LASTING, serving
from tests.support.steps import LONG, over, settings, streaming, texts
from tests.support.terminal import PATIENCE, started

ENDLESS = '{"prompt": "Once upon a time,", "n": 4, "max_tokens": -1, "ignore_eos": true}'
LONGEST = ("--ctx", "262144", "--", "--override-kv", "llama.context_length=int:65536")
"""No sequence reaches its end within the five seconds that a server waits for requests."""


def test_ctrl_c_while_four_texts_stream_ends_them_with_a_reason_and_leaves_nothing() -> None:
    with started(str(ROOT / "api.py"), *LONGEST) as server:
        (engine,) = engines_of(server.process.pid)
        curl = ["curl", "-sN", f"{server.url}/v1/completions", "-d", ENDLESS]
        with subprocess.Popen(curl, stdout=subprocess.PIPE, text=True) as client:
            assert client.stdout
            waiting = {0, 1, 2, 3}
            while waiting:
                waiting -= {int(i) for i in re.findall(r'"stream", "index": (\d)', client.stdout.readline())}
            server.interrupt()
            *_, last, _ = client.stdout.read().split("\n\n")
            assert client.wait(PATIENCE) == 0
        assert server.process.wait(PATIENCE) == 0
        assert last.startswith('data: {"event": "error", "code": "shutting_down"'), last
        assert "Traceback" not in server.messages()
        assert not alive(engine)


def test_a_killed_engine_is_an_error_for_its_requests_and_the_next_one_works() -> None:
    with running() as server, server.streaming() as events:
        (engine,) = engines_of(server.process.pid)
        os.kill(engine, signal.SIGKILL)
        last = list(events)[-1]
        assert (last["event"], last["code"]) == ("error", "engine_died")
        assert "SIGKILL" in last["message"]
        assert len(texts_of(server)) == 4  # waits for the new engine
        assert engines_of(server.process.pid) != [engine]


def test_an_engine_that_is_killed_in_mid_stream_costs_the_writer_no_word(browser: Browser) -> None:
    with serving("--", "-t", "1", *LASTING) as server, visiting(browser, server.url) as [page]:
        settings(page, **LONG)
        streaming(page)
        (engine,) = engines_of(server.pid)
        os.kill(engine, signal.SIGKILL)
        expect(page.locator(".facts", has_text="interrupted")).to_have_count(4)
        before = texts(page)
        settings(page, max_tokens=5)
        page.get_by_role("button", name="Resume 4 interrupted").click()
        expect(page.locator(".facts", has_text="interrupted")).to_have_count(0)
        over(page, 4)
        assert all(now.startswith(then) and now > then for now, then in zip(texts(page), before, strict=True))
