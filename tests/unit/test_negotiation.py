"""Which form a request is answered in: the rules one by one, then what clients really send."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from llama_srb.dialects.events import READ_ELSEWHERE
from llama_srb.dialects.negotiation import (
    CLIENT_MARKS,
    GENERIC_AGENT,
    GENERIC_ALWAYS,
    GENERIC_FIELDS,
    RULES,
    AnswerForm,
    accepted,
    negotiate,
)
from llama_srb.request.aliases import CONVERTED, REFUSED, UNSUPPORTED
from llama_srb.request.fields import ROWS
from llama_srb.request.parse import Defaults, request_from
from tests.clients.captured import Captured, read
from tests.clients.silly_tavern import SENT
from tests.support.places import ROOT
from tests.support.rows import each_row

EVENTS, OPENAI = "events", "openai"
PATH = "/v1/completions"
GENERIC = dict.fromkeys(GENERIC_ALWAYS, 0) | {"prompt": "Once"}


def decided(body: dict[str, Any], path: str = PATH, **headers: str) -> tuple[AnswerForm, str]:
    form, rule = negotiate(path, body, default="events", **headers)
    return form, rule.name


CASES: list[tuple[dict[str, Any], str, dict[str, str], tuple[str, str]]] = [
    # 1
    ({"stream": False, "model": "m"}, "/v1/events", {"accept": "application/json"}, (EVENTS, "path")),
    ({}, "/openai/v1/completions", {}, (OPENAI, "path")),
    ({}, "/openai/v1/completions", {"accept": "text/event-stream"}, (OPENAI, "path")),
    # 2
    ({"stream": True}, PATH, {}, (OPENAI, "body")),
    ({"stream": False}, PATH, {"accept": "text/event-stream"}, (OPENAI, "body")),
    ({"model": "m"}, PATH, {}, (OPENAI, "body")),
    ({"model": ""}, PATH, {}, (OPENAI, "body")),
    # 3
    ({}, PATH, {"accept": "application/json"}, (OPENAI, "accept")),
    ({}, PATH, {"accept": "text/event-stream, Application/JSON; q=0.1"}, (OPENAI, "accept")),
    ({}, PATH, {"accept": "application/json;q=0, text/event-stream"}, (EVENTS, "accept")),
    ({"api_type": "x"}, PATH, {"accept": "text/event-stream, */*"}, (EVENTS, "accept")),
    # 4
    *(({name: 1}, PATH, {"accept": "*/*"}, (OPENAI, "client-marks")) for name in CLIENT_MARKS),
    # 5
    (GENERIC, PATH, {"agent": "node-fetch"}, (OPENAI, "generic")),
    (
        GENERIC | {"stop": ["\n"], "logprobs": 5, "seed": 1},
        PATH,
        {"agent": "node-fetch"},
        (OPENAI, "generic"),
    ),
    (GENERIC | {"top_k": 4}, PATH, {"agent": "node-fetch"}, (EVENTS, "default")),
    (GENERIC | {"top_p": None}, PATH, {"agent": "node-fetch"}, (EVENTS, "default")),
    (GENERIC, PATH, {"agent": "node-fetch/1.0"}, (EVENTS, "default")),
    (GENERIC, PATH, {"agent": "curl/7.88.1"}, (EVENTS, "default")),
    # 6
    ({}, PATH, {}, (EVENTS, "default")),
    ({}, PATH, {"accept": "*/*"}, (EVENTS, "default")),
    ({}, PATH, {"accept": "application/json;q=0"}, (EVENTS, "default")),
    ({}, PATH, {"accept": "application/*, text/*"}, (EVENTS, "default")),
    (dict.fromkeys((*CLIENT_MARKS, "stream", "model")), PATH, {}, (EVENTS, "default")),
    ({"n": 2, "logprobs": 1, "echo": True, "best_of": 4, "top_k": 9}, PATH, {}, (EVENTS, "default")),
]


@each_row(("body", "path", "headers", "expected"), CASES)
def test_the_first_rule_that_says_something_decides(
    body: dict[str, Any], path: str, headers: dict[str, str], expected: tuple[str, str]
) -> None:
    assert decided(body, path, **headers) == expected


def test_the_last_rule_is_what_the_server_was_started_with() -> None:
    form, rule = negotiate(PATH, {"prompt": "Once"}, default="openai")
    assert (form, rule.name, rule.is_guess) == (OPENAI, "default", True)


def test_only_the_last_three_rules_guess() -> None:
    assert [rule.is_guess for rule in RULES] == [False, False, False, True, True, True]


@each_row("header", ["", ",", ";", "q=1", "a/b;q", "a/b;q=x", ";q=0", "a/b;;q=0.5;", "\x00"])
def test_no_accept_header_is_too_strange(header: str) -> None:
    assert "application/json" not in accepted(header)
    assert "application/json" in accepted(header + ", application/json")


# The table of client marks, and what our own fields are


def test_no_field_or_alias_of_ours_is_a_client_mark() -> None:
    ours = {name for row in ROWS.values() for name in (row.name, *row.aliases)}
    assert CLIENT_MARKS.keys().isdisjoint(ours | CONVERTED.keys() | UNSUPPORTED.keys() | REFUSED.keys())


@each_row("mark", CLIENT_MARKS)
def test_a_client_mark_changes_nothing_in_the_event_stream(mark: str) -> None:
    defaults = Defaults(n=8, max_n=8, strict=True)
    plain, marked = (
        request_from({"prompt": "Once"} | more, defaults, known=READ_ELSEWHERE) for more in ({}, {mark: 1})
    )
    assert marked == plain


def test_a_generic_body_has_all_that_it_must_have_among_the_14() -> None:
    assert len(GENERIC_FIELDS) == 14
    assert GENERIC_ALWAYS < GENERIC_FIELDS


# What clients really send


@each_row("sent", read("http_clients.json"), ids=str)
def test_scripts_that_say_nothing_get_events(sent: Captured) -> None:
    headers = {"accept": sent.header("Accept"), "agent": sent.header("User-Agent")}
    assert decided(sent.fields, sent.target, **headers) == (EVENTS, "default")


RULE_OF = {"vllm": "body", "aphrodite": "body", "generic": "generic"}  # without streaming; else client-marks


@each_row("sent", [one for one in SENT if one.target == PATH], ids=str)
def test_silly_tavern_gets_openais_form(sent: Captured) -> None:
    headers = {"accept": sent.header("Accept"), "agent": sent.header("User-Agent")}
    rule = "body" if sent.fields.get("stream") else RULE_OF.get(sent.client, "client-marks")
    assert decided(sent.fields, sent.target, **headers) == (OPENAI, rule)


def test_silly_tavern_asks_each_of_openais_types_with_and_without_probabilities() -> None:
    asking = {(one.client, one.what) for one in SENT if one.target == PATH}
    assert {client for client, _ in asking} == {"koboldcpp", "ooba", "tabby", "vllm", "aphrodite", "generic"}
    for what in ("whole", "stream", "whole, probabilities", "stream, probabilities"):
        assert {client for client, done in asking if done == what} == {client for client, _ in asking}


def test_generic_sends_nothing_beyond_its_fields() -> None:
    bodies = [one.fields for one in SENT if (one.client, one.target) == ("generic", PATH)]
    assert all(GENERIC_ALWAYS <= body.keys() <= GENERIC_FIELDS for body in bodies)
    assert len(bodies) >= 4


def test_a_client_of_node_fetch_3_is_told_from_silly_tavern_by_its_body() -> None:
    agents = {sent.header("User-Agent") for sent in read("http_clients.json")}
    assert GENERIC_AGENT in agents


# Each curl of README and docs


def commands(text: str) -> Iterator[tuple[list[str], str]]:
    """The words of each curl line, which may go on over several, and the line below it."""
    for found in re.finditer(r"(?:\$ |`)(?=curl )", text):
        lines = text[found.end() :].split("\n")
        if found[0] == "`":
            lines = [lines[0].partition("`")[0], ""]
        for n in range(1, len(lines)):
            command = "\n".join(lines[:n]).replace("\\\n", " ")
            if command.count("'") % 2 == 0 and "9090/" in command:
                yield shlex.split(command)[1:], lines[n].strip().removeprefix("```")
                break


def url_of(words: list[str]) -> str:
    url = next(word for word in words if "localhost:9090/" in word)
    return url if "//" in url else f"http://{url}"


def asks_for_completions(words: list[str]) -> bool:
    return urlsplit(url_of(words)).path in (PATH, "/openai/v1/completions", "/v1/events")


PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
CURLS = [(page.name, *one) for page in PAGES for one in commands(page.read_text())]
ASKING = [(words, shown) for _, words, shown in CURLS if asks_for_completions(words)]


@each_row(("words", "shown"), ASKING)
def test_each_curl_of_the_docs_gets_the_form_that_they_show(words: list[str], shown: str) -> None:
    curl = next(sent for sent in read("http_clients.json") if sent.client.startswith("curl"))
    body = json.loads(words[words.index("-d") + 1])
    path = urlsplit(url_of(words)).path
    form, _ = decided(body, path, accept=curl.header("Accept"), agent=curl.header("User-Agent"))
    assert form == (OPENAI if '"choices"' in shown or '"text_completion"' in shown else EVENTS)
    assert not shown or shown.startswith(('data: {"event"', '{"id"'))


def test_the_docs_curls_are_found() -> None:
    assert len(CURLS) >= 18
    assert len(ASKING) >= 6
