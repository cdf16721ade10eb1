"""Token ids in vLLM's names and positions: bodies and streams of completions, chats and the event stream."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.support.places import STORYTELLER
from tests.support.rows import each_row
from tests.support.serving import Server

OPENING = "Once upon a time, there was a little"
ASKED: dict[str, Any] = {
    "prompt": OPENING, "n": 3, "max_tokens": 24, "seed": 4, "stop": ["ay", "he "], "logprobs": 1,
    "return_token_ids": True, "model": STORYTELLER.stem,
}  # fmt: skip
TALK: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell me a story!"}], "n": 2, "max_tokens": 24, "seed": 4,
    "logprobs": True, "top_logprobs": 1, "stop": ["he "], "return_token_ids": True,
}  # fmt: skip
CHAT = "/v1/chat/completions"


def asked(server: Server, body: dict[str, Any], path: str = "/v1/completions") -> dict[str, Any]:
    status, answer = server.json("POST", path, body)
    assert status == 200, answer
    assert "warnings" not in answer
    made: dict[str, Any] = answer
    return made


def tokens_of(server: Server, text: str) -> list[int]:
    ids: list[int] = asked(server, {"text": text, "add_bos_token": True}, "/v1/token/encode")["tokens"]
    return ids


def text_of(server: Server, ids: list[int]) -> str:
    text: str = asked(server, {"tokens": ids}, "/v1/token/decode")["text"]
    return text


def test_each_choice_of_a_completion_has_the_ids(server: Server) -> None:
    choices = asked(server, ASKED)["choices"]
    assert {choice["stop_reason"] for choice in choices} & {"ay", "he "}
    for choice in choices:
        assert choice["prompt_token_ids"] == tokens_of(server, OPENING)
        ids, cut = choice["token_ids"], choice["stop_reason"]
        assert (choice["finish_reason"] == "stop") or cut is None
        assert text_of(server, ids).startswith(choice["text"] + (cut or ""))
        assert len(choice["logprobs"]["token_logprobs"]) == len(ids)


def test_a_stream_has_the_same_ids(server: Server) -> None:
    body = asked(server, ASKED)["choices"]
    choices = [choice for frame in server.events(ASKED | {"stream": True}) for choice in frame["choices"]]
    for index, whole in enumerate(body):
        own = [choice for choice in choices if choice["index"] == index]
        assert [choice["prompt_token_ids"] for choice in own if "prompt_token_ids" in choice] == [
            whole["prompt_token_ids"]
        ]
        assert "prompt_token_ids" in own[0]
        assert [id for choice in own for id in choice["token_ids"]] == whole["token_ids"]
        assert own[-1]["stop_reason"] == whole["stop_reason"]
        assert "".join(choice["text"] for choice in own) == whole["text"]


def test_of_several_prompts_each_choice_has_its_own(server: Server) -> None:
    prompts = [OPENING, "Tim and Tom"]
    many = ASKED | {"prompt": prompts, "n": 2}
    expected = [tokens_of(server, prompt) for prompt in prompts for _ in range(2)]
    assert [choice["prompt_token_ids"] for choice in asked(server, many)["choices"]] == expected
    streamed: dict[int, list[int]] = {}
    for frame in server.events(many | {"stream": True}):
        for choice in frame["choices"]:
            streamed.setdefault(choice["index"], choice.get("prompt_token_ids"))
    assert [streamed[index] for index in range(4)] == expected


def test_in_a_chat_the_prompts_ids_stand_at_the_top(server: Server) -> None:
    answer = asked(server, TALK, CHAT)
    frames = server.events(TALK | {"stream": True}, CHAT)
    assert text_of(server, answer["prompt_token_ids"]).count("Tell me a story!") == 1
    assert frames[0]["prompt_token_ids"] == answer["prompt_token_ids"]
    assert frames[0]["choices"][0]["delta"]["role"] == "assistant", "as vLLM's first chunk"
    for index, choice in enumerate(answer["choices"]):
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"])
        assert text_of(server, choice["token_ids"]).startswith(choice["message"]["content"])
        own = [one for frame in frames for one in frame["choices"] if one["index"] == index]
        assert [id for one in own for id in one.get("token_ids", [])] == choice["token_ids"]
        assert own[-1]["stop_reason"] == choice["stop_reason"]


def test_the_event_stream_has_them_too(server: Server) -> None:
    events = server.events(ASKED | {"return_entropies": True, "prompt_logprobs": 0}, "/v1/events")
    start = next(event for event in events if event["event"] == "start")
    assert start["prompt_token_ids"] == tokens_of(server, OPENING)
    pieces = [event for event in events if event["event"] == "stream"]
    assert all(len(event["token_ids"]) == len(event["entropies"]) for event in pieces if "token_ids" in event)
    stops = [event for event in events if event["event"] == "stop"]
    assert sum(len(event.get("token_ids", [])) for event in pieces) == sum(stop["length"] for stop in stops)
    told = [token for event in events if event["event"] == "prompt_logprobs" for token in event["tokens"]]
    assert [token["id"] for token in told] == start["prompt_token_ids"]


def test_tokens_may_be_written_as_their_ids(server: Server) -> None:
    for choice in asked(server, ASKED | {"return_tokens_as_token_ids": True})["choices"]:
        assert choice["logprobs"]["tokens"] == [f"token_id:{id}" for id in choice["token_ids"]]
        assert all(name.startswith("token_id:") for top in choice["logprobs"]["top_logprobs"] for name in top)
    for choice in asked(server, TALK | {"return_tokens_as_token_ids": True}, CHAT)["choices"]:
        named = [token["token"] for token in choice["logprobs"]["content"]]
        assert named == [f"token_id:{id}" for id in choice["token_ids"]]


def test_prompt_logprobs_are_by_token_id(server: Server) -> None:
    """As vLLM documents them: null first, then {id: {logprob, rank, decoded_token}}."""
    for k in (0, 2):
        found = asked(server, ASKED | {"prompt_logprobs": k})["choices"][1]["prompt_logprobs"]
        assert found[0] is None
        for id, entry in zip(tokens_of(server, OPENING)[1:], found[1:], strict=True):
            own = entry[str(id)]
            assert own.keys() == {"logprob", "rank", "decoded_token"}
            ranks = {one["rank"] for one in entry.values()}
            assert ranks == {own["rank"], *range(1, k + 1)}
            assert own["decoded_token"] in OPENING
    assert asked(server, TALK | {"prompt_logprobs": 1}, CHAT)["prompt_logprobs"][0] is None
    assert "prompt_logprobs" not in asked(server, ASKED)["choices"][0]


def test_both_logprobs_stand_side_by_side(server: Server) -> None:
    wanted = {"logprobs_mode": "both", "temperature": 0.5}
    lists = asked(server, ASKED | wanted)["choices"][0]["logprobs"]
    assert len(lists["processed_token_logprobs"]) == len(lists["token_logprobs"])
    assert lists["processed_token_logprobs"] != lists["token_logprobs"]
    (token, *_) = asked(server, TALK | wanted, CHAT)["choices"][0]["logprobs"]["content"]
    assert len(token["processed_top_logprobs"]) == 1
    assert token["processed_logprob"] != token["logprob"]


def test_entropies_have_a_number_for_each_token(server: Server) -> None:
    for path, body in (("/v1/completions", ASKED), (CHAT, TALK)):
        for choice in asked(server, body | {"return_entropies": True}, path)["choices"]:
            assert len(choice["entropies"]) == len(choice["token_ids"])
            assert min(choice["entropies"]) >= 0


def test_the_stop_reason_is_a_token_of_stop_token_ids(server: Server) -> None:
    plain = ASKED | {"stop": [], "n": 1}
    token = asked(server, plain)["choices"][0]["token_ids"][4]
    (choice,) = asked(server, plain | {"stop_token_ids": [token]})["choices"]
    assert (choice["stop_reason"], choice["finish_reason"]) == (token, "stop")
    assert choice["token_ids"][-1] == token
    (choice,) = asked(server, plain | {"max_tokens": 2})["choices"]
    assert (choice["stop_reason"], choice["finish_reason"]) == (None, "length")


def test_a_conversation_goes_on_behind_the_exact_ids(server: Server) -> None:
    first = asked(server, TALK, CHAT)
    question = {"messages": [{"role": "user", "content": "And then?"}]}
    for index, choice in enumerate(first["choices"]):
        body = TALK | question | {"continue": {"id": first["id"], "index": index}}
        ids = asked(server, body, CHAT)["prompt_token_ids"]
        before = first["prompt_token_ids"] + choice["token_ids"]
        assert ids[: len(before)] == before
        assert text_of(server, ids[len(before) :]).count("And then?") == 1


@each_row(
    ("fields", "param"),
    [
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
        ({"prompt_logprobs": 101}, "prompt_logprobs"),
        ({"return_token_ids": "yes"}, "return_token_ids"),
        ({"return_entropies": 1}, "return_entropies"),
        ({"stop_token_ids": ["17"]}, "stop_token_ids"),
        ({"stop_token_ids": [10**9]}, "stop_token_ids"),
        ({"allowed_token_ids": 17}, "allowed_token_ids"),
        ({"skip_special_tokens": 0}, "skip_special_tokens"),
        ({"include_stop_str_in_output": None, "logprobs_mode": "raws"}, "logprobs_mode"),
        ({"return_token_ids": True, "then": {"text": "x"}}, "then"),
        ({"continue": {"id": "x", "index": 0, "exact": 1}}, "continue.exact"),
    ],
    ids=str,
)
def test_wrong_values_are_refused(server: Server, fields: dict[str, Any], param: str) -> None:
    status, answer = server.json("POST", "/v1/completions", ASKED | fields)
    assert (status, answer["error"]["param"]) == (400, param)


# abort


def test_abort_ends_all_requests_of_a_key(lasting: Server) -> None:
    answers: list[Any] = []
    paths = ("/v1/completions", CHAT, "/v1/completions")
    bodies: list[dict[str, Any]] = [
        ASKED | {"stop": [], "max_tokens": 6000, "ignore_eos": True},
        TALK | {"stop": [], "max_tokens": 6000, "ignore_eos": True},
        {"prompt": [OPENING, "Tim"], "max_tokens": 6000, "ignore_eos": True, "model": STORYTELLER.stem},
    ]
    threads = [
        threading.Thread(target=lambda path=path, body=body: answers.append(lasting.json("POST", path, body)))
        for path, body in zip(paths, bodies, strict=True)
    ]
    for thread in threads:
        thread.start()
    ended = 0
    while any(thread.is_alive() for thread in threads):
        status, answer = lasting.json("POST", "/v1/abort", {})
        assert status == 200
        ended += answer["aborted"]
    assert ended == 4
    assert [status for status, _ in answers] == [200] * 3
    assert all(choice["finish_reason"] == "length" for _, answer in answers for choice in answer["choices"])
    assert lasting.json("POST", "/v1/abort")[1] == {"aborted": 0}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"prompt": "Once", "texts": ["word " * 4000] * 8}),
        ("/tokenize", {"content": "Once upon a time. " * 40_000}),
        ("/v1/prefix", {"prompt": "word " * 5000}),
    ],
)
def test_an_abort_ends_commands_without_texts_with_an_error(
    lasting: Server, path: str, body: dict[str, Any]
) -> None:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(lasting.json("POST", path, body)))
    thread.start()
    while thread.is_alive():
        lasting.json("POST", "/v1/abort", {})
    status, answer = answers[0]
    assert (status, "POST /v1/abort" in answer["error"]["message"]) == (400, True), answer


TEXT = " the 日本 was 🙂 here"


def offset_of(text: str, at: int) -> int:
    """The character in which a byte of a text lies."""
    return len(text.encode()[:at].decode(errors="ignore"))


@each_row("more", [{}, {"stream": True}, {"echo": True}, {"return_tokens_as_token_ids": True}])
def test_parts_of_characters_have_bytes_names_and_offsets(server: Server, more: dict[str, Any]) -> None:
    """The bundled model has no token for these characters, so that they are made of their bytes."""
    sampling = {"regex": TEXT, "logprobs": 3, "max_tokens": 60, "temperature": 0}
    body = {"model": STORYTELLER.stem, "prompt": "Once, é", **sampling, **more}
    frames = server.events(body) if more.get("stream") else [asked(server, body)]
    lists: dict[str, list[Any]] = {"tokens": [], "text_offset": [], "top_logprobs": []}
    for choice in (choice for frame in frames for choice in frame["choices"]):
        for name, found in lists.items():
            found += (choice["logprobs"] or {}).get(name, [])
    whole = ("Once, é" if more.get("echo") else "") + TEXT
    assert {len(top) for top in lists["top_logprobs"] if top} == {3}
    if more.get("return_tokens_as_token_ids"):
        assert all(name.startswith("token_id:") for name in lists["tokens"])
        return
    at = 0
    for name, offset in zip(lists["tokens"], lists["text_offset"], strict=True):
        assert offset == offset_of(whole, at), (name, at, offset)
        at += name.count("\\x") if name.startswith("bytes:") else len(name.encode())
    assert at == len(whole.encode())


def test_bytes_of_a_chats_tokens_are_the_texts(server: Server) -> None:
    for more in ({}, {"return_tokens_as_token_ids": True}):
        body = {**TALK, "n": 1, "stop": [], "regex": TEXT, "max_tokens": 60, **more}
        (choice,) = asked(server, body, CHAT)["choices"]
        said = b"".join(bytes(one["bytes"]) for one in choice["logprobs"]["content"])
        assert said.decode() == choice["message"]["content"] == TEXT
