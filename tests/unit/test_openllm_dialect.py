"""OpenLLM-Server's shapes: what is read of a body, and what the answers have."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from llama_srb.dialects.common.reply import ServerInfo
from llama_srb.dialects.openllm import REPLIES, merged
from llama_srb.dialects.vectors import VECTORS
from llama_srb.engine.events import Done, Embedding, Prompt, Start, Stop, Stream
from llama_srb.request.parse import parse_body
from llama_srb.request.values import RequestError
from tests.support.rows import each_row

ABOUT = ServerInfo("m")
STORY = [{"role": "system", "content": "Be brief."}]
HI = {"role": "user", "content": "Hi"}


def answer(path: str, body: dict[str, Any], texts: list[str], seed: int = 1) -> Any:
    reply = REPLIES[path](merged(body), ABOUT)
    n = len(texts)
    reply.take([Start("a", n, 3, 0, seed)])
    for i, text in enumerate(texts):
        reply.take([Stream("a", i, text), Stop("a", i, 2, 1, "stop")])
    reply.take([Done("a", n, 3, 0, 2 * n)])
    return orjson.loads(reply.json())


@each_row(
    ("path", "body", "prompt"),
    [
        ("/complete", {"prompt": "x"}, "x"),
        ("/complete", {"configuration": {"prompt": "x"}}, "x"),
        ("/complete", {"prompt": [1, 2]}, [1, 2]),
        ("/chat", {"prompt": "Hi"}, "Hi"),
        ("/chat", {"message": "Hi"}, "Hi"),
        ("/chat", {"messages": STORY, "prompt": "Hi"}, [*STORY, HI]),
        ("/chat", {"message": HI}, [HI]),
        ("/chat", {"messages": STORY}, STORY),
    ],
)
def test_texts_are_strings_and_the_configuration_has_the_prompt(
    path: str, body: dict[str, Any], prompt: Any
) -> None:
    got = answer(path, body, ["Hello"])
    assert got["message" if path == "/chat" else "choices"] == ("Hello" if path == "/chat" else ["Hello"])
    assert got.keys() - {"message", "choices"} == {"configuration"}
    assert got["configuration"]["prompt"] == prompt
    if path == "/chat" and isinstance(prompt, list):
        assert orjson.loads(REPLIES[path](merged(body), ABOUT).request.messages) == prompt


SETTINGS: dict[str, Any] = {
    "temp": 0.5, "top_k": 3, "top_p": 0.5, "stop_sequence": ["#"], "n_predict": 3, "n_cmpl": 2,
    "sampler_seed": -1, "sampler_order": [0, 5], "xtc_threshold": 0.2, "logit_bias": [[5, 1.0]],
}  # fmt: skip


@each_row(("body",), [({"prompt": "x", **SETTINGS},), ({"prompt": "x", "configuration": SETTINGS},)])
def test_each_setting_that_was_used_is_told_by_the_client_s_name(body: dict[str, Any]) -> None:
    got = answer("/complete", body, ["a", "b"], seed=7)
    assert got["choices"] == ["a", "b"]
    told = got["configuration"]
    assert {**told, **SETTINGS, "sampler_seed": 7} == told
    assert told["min_p"] == 0.05  # by default
    assert not told.keys() & {"temperature", "stop", "seed", "n", "max_tokens"}


@each_row(
    ("body",),
    [({},), (SETTINGS,), ({"dynatemp_low": 0.5, "dynatemp_high": 1},), ({"mirostat": 2},)],
)
def test_a_configuration_sent_again_is_the_same_request(body: dict[str, Any]) -> None:
    first = REPLIES["/complete"](merged({"prompt": "x", **body}), ABOUT)
    told = answer("/complete", {"prompt": "x", **body}, ["a"] * first.request.n, seed=7)["configuration"]
    again = REPLIES["/complete"](merged(told), ABOUT)
    was, now = first.request.engine_fields(), again.request.engine_fields()
    defaults = {**told, "seed": 7}
    sampling = {name: defaults[name] for name in now["sampling"] if name not in was.get("sampling", {})
                and name in defaults}  # fmt: skip
    assert now == {**was, "sampling": {**sampling, **was.get("sampling", {}), "seed": 7}}
    assert answer("/complete", told, ["a"] * first.request.n, seed=7)["configuration"] == told


def test_a_field_of_the_configuration_beats_one_beside_it() -> None:
    body = {"prompt": "x", "n": 2, "configuration": {"n": 3}}
    assert REPLIES["/complete"](merged(body), ABOUT).request.n == 3


def test_a_chat_with_several_answers_has_them_all_as_choices() -> None:
    two = answer("/chat", {"message": "Hi", "n": 2}, ["Hello", "Ho"])
    assert (two["message"], two["choices"]) == ("Hello", ["Hello", "Ho"])


def test_echo_repeats_what_was_asked() -> None:
    assert answer("/chat", {"prompt": "Hi", "echo": True}, [" you"])["message"] == "Hi you"
    request = REPLIES["/chat"](merged({"prompt": "Hi", "echo": True}), ABOUT).request
    assert not request.echo  # the engine would write the template's words
    two = REPLIES["/complete"](merged({"prompt": "Hi", "echo": True, "n": 2}), ABOUT)
    assert two.request.echo
    two.take([Start("a", 2, 3, 0, 1), Prompt("a", "Hi"), Stream("a", 0, " you"), Stream("a", 1, " all")])
    two.take([Stop("a", i, 1, 1, "stop") for i in range(2)])
    two.take([Done("a", 2, 3, 0, 2)])
    assert orjson.loads(two.json())["choices"] == ["Hi you", "Hi all"]


@each_row(
    ("path", "body", "param"),
    [
        ("/complete", {}, "prompt"),
        ("/complete", {"prompt": "x", "configuration": 3}, "configuration"),
        ("/complete", {"prompt": "x", "configuration": {"n": 0}}, "n"),
        ("/complete", {"prompt": "x", "configuration": {"stream": True}}, "stream"),
        ("/complete", {"prompt": "x", "unknown_field": 1}, "unknown_field"),
        ("/complete", {"prompt": "x", "configuration": {"unknown_field": 1}}, "unknown_field"),
        ("/complete", {"prompt": "x", "message": "y"}, "message"),
        ("/chat", {}, "message"),
        ("/chat", {"message": 3}, "message"),
        ("/chat", {"prompt": [1, 2]}, "prompt"),
        ("/chat", {"message": "x", "prompt": "y"}, "message"),
        ("/chat", {"message": "x", "messages": 3}, "messages"),
        ("/chat", {"message": "x", "unknown_field": 3}, "unknown_field"),
        ("/embed", {"input": "x", "unknown_field": 3}, "unknown_field"),
        ("/embed", {"configuration": {"dimensions": 3}}, "input"),
    ],
)
def test_a_wrong_or_unknown_field_is_named(path: str, body: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as raised:
        {**REPLIES, **VECTORS}[path](merged(body), ABOUT)
    assert raised.value.param == param
    assert param in raised.value.message


def test_a_list_of_texts_becomes_a_list_of_vectors() -> None:
    body = merged(parse_body(b'["a", "b"]', "input"))
    made = VECTORS["/embed"](body, ABOUT)
    made.take([Embedding("a", 1, 1, (0.0, 1.0)), Embedding("a", 0, 2, (1.0, 0.0)), Done("a", 2, 3, 0, 0)])
    made.warnings = ("has no place",)
    assert orjson.loads(made.json()) == [[1, 0], [0, 1]]
    with pytest.raises(RequestError, match="JSON object"):
        parse_body(b'["a", "b"]')


@pytest.mark.parametrize("field", ["prompt_logprobs", "return_token_ids", "return_entropies"])
def test_a_field_whose_answer_has_no_place_is_a_warning(field: str) -> None:
    value = 1 if field == "prompt_logprobs" else True
    got = answer("/complete", {"prompt": "x", "configuration": {field: value}}, ["a"])
    assert got["warnings"] == [f"{field} is not used: answers of this path have no place for it"]
