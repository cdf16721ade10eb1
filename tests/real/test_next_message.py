"""`continue` in chats: the next message stands behind the exact tokens of the answer before it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.real.test_token_ids import drawn, prompt_of
from tests.support.chats import HELLO, TOOLS, scripted
from tests.support.lines import Answer, Lines
from tests.support.models import CHAT_TOKENS

END = CHAT_TOKENS["<|im_end|>"]
NEXT = [{"role": "user", "content": "And tomorrow, in Bonn?"}]
BEHIND = "\n<|im_start|>user\nAnd tomorrow, in Bonn?<|im_end|>\n<|im_start|>assistant\n"
FREE = {"sampling": {"seed": 5, **scripted()}, "max_tokens": 12}
ENDED = {"sampling": {"seed": 5, **scripted("<|im_end|>")}, "max_tokens": 12}


@pytest.fixture(scope="module")
def engine(chat_model: Path) -> Iterator[Lines]:
    with Lines("-c", "16384", "-np", "4", "-t", "1", model=chat_model) as engine:
        yield engine


def chat(engine: Lines, **fields: Any) -> Answer:
    command = {"op": "chat", "messages": HELLO, "return_token_ids": True, "n": 3} | fields
    (answer,) = engine.answers(engine.send(command))
    return answer


def following(engine: Lines, first: Answer, index: int = 0, **fields: Any) -> Answer:
    at = {"id": first.start["id"], "index": index}
    return chat(engine, **{"messages": NEXT, "continue": at, "max_tokens": 4, "n": 1} | fields)


@pytest.mark.parametrize("index", range(3))
def test_the_next_message_stands_behind_the_exact_ids(engine: Lines, index: int) -> None:
    first = chat(engine, **FREE)
    answer = following(engine, first, index)
    behind = engine.ask("tokenize", text="<|im_end|>" + BEHIND)["tokens"]
    assert prompt_of(answer) == prompt_of(first) + drawn(first)[index] + behind
    assert answer.start["cached_tokens"] >= first.start["prompt_tokens"]
    third = following(engine, answer)
    assert prompt_of(third) == prompt_of(answer) + drawn(answer)[0] + behind


def test_an_end_token_that_was_drawn_stands_there_once(engine: Lines) -> None:
    first = chat(engine, **ENDED)
    (ids, *_) = drawn(first)
    assert ids[-1] == END
    answer = following(engine, first)
    behind = engine.ask("tokenize", text=BEHIND)["tokens"]
    assert prompt_of(answer) == prompt_of(first) + ids + behind


def test_a_stop_string_stays_in_the_next_prompt(engine: Lines) -> None:
    letter = chat(engine, **FREE).texts[0][3]
    first = chat(engine, **FREE, stop=[letter])
    answer = following(engine, first)
    ids = drawn(first)[0]
    assert prompt_of(answer)[: len(prompt_of(first)) + len(ids)] == prompt_of(first) + ids


def test_the_whole_conversation_may_be_sent(engine: Lines) -> None:
    """Of it only the messages behind the last answer count, which the client may have changed."""
    first = chat(engine, **FREE)
    whole = [*HELLO, {"role": "assistant", "content": "other words"}, *NEXT]
    answer = following(engine, first, messages=whole)
    assert prompt_of(answer) == prompt_of(following(engine, first))


@pytest.mark.parametrize(
    "more", [{"tools": TOOLS}, {"plain_content": True}, {"enable_thinking": False}], ids=str
)
def test_fields_of_a_chat_act_behind_the_answer(engine: Lines, more: dict[str, Any]) -> None:
    first = chat(engine, **FREE)
    answer = following(engine, first, **more)
    rest = "<think></think>" if "enable_thinking" in more else ""
    behind = engine.ask("tokenize", text="<|im_end|>" + BEHIND + rest)["tokens"]
    assert prompt_of(answer) == prompt_of(first) + drawn(first)[0] + behind


def test_in_plain_content_the_name_of_a_control_token_is_text(engine: Lines) -> None:
    first = chat(engine, **FREE)
    typed = [{"role": "user", "content": "a <|im_end|> b"}]
    counts = [
        prompt_of(following(engine, first, messages=typed, plain_content=plain)).count(END)
        for plain in (True, False)
    ]
    assert counts[1] == counts[0] + 1


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": [*HELLO, {"role": "assistant", "content": "Hm"}]}, "messages"),
        ({"continue": {"id": "unknown", "index": 0}}, "continue"),
        ({"continue": {"id": "1", "index": -1}}, "continue.index"),
        ({"continue_final_message": True}, "continue_final_message"),
    ],
    ids=str,
)
def test_wrong_values_are_refused(engine: Lines, fields: dict[str, Any], param: str) -> None:
    first = chat(engine, **FREE)
    at = {"id": first.start["id"], "index": 0}
    (answer,) = engine.answers(engine.send({"op": "chat", "messages": NEXT, "continue": at} | fields))
    assert answer.events[-1]["event"] == "error"
    assert answer.events[-1]["param"] == param
