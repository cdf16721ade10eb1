"""The log of aiohttp: invalid HTTP is one line without what was sent, other messages stay as they are."""

from __future__ import annotations

import logging

import pytest
from aiohttp.http_exceptions import BadStatusLine

from llama_srb.http.connections import http_log
from llama_srb.serving.observe.logs import keep_quiet


def logged(caplog: pytest.LogCaptureFixture, error: Exception | None) -> list[str]:
    with caplog.at_level(logging.INFO):
        http_log.error("Error handling request from %s", "127.0.0.1", exc_info=error)
    return [f"{record.name}: {record.getMessage()}" for record in caplog.records]


def test_invalid_http_is_one_line_without_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    error = BadStatusLine("GET /?key=secret NOT-HTTP")
    assert logged(caplog, error) == ["llama_srb.http.connections: no HTTP from 127.0.0.1: BadStatusLine"]
    assert "secret" not in caplog.text


@pytest.mark.parametrize("error", [None, ValueError("a fault of ours")])
def test_other_messages_keep_their_traceback(
    caplog: pytest.LogCaptureFixture, error: Exception | None
) -> None:
    assert logged(caplog, error) == ["llama_srb.http: Error handling request from 127.0.0.1"]
    assert ("a fault of ours" in caplog.text) == (error is not None)


def test_httpx_logs_its_requests_only_at_the_level_debug() -> None:
    logger = logging.getLogger("httpx")
    for level, shown in (("info", False), ("debug", True)):
        logger.parent = parent = logging.Logger("root", logging.DEBUG)
        keep_quiet(level)
        assert logger.isEnabledFor(logging.INFO) is shown, parent
    logger.parent = logging.root
