"""Phrases that are made likelier or rarer as a whole, with the bundled model."""

from __future__ import annotations

from typing import Any

from tests.support.serving import Server

ASKED: dict[str, Any] = {"prompt": "Once upon a time, there was a", "n": 8, "max_tokens": 60, "stream": False}
ASKED |= {"seed": 3, "temperature": 1, "top_k": 0, "top_p": 1, "min_p": 0}


def texts(server: Server, **fields: Any) -> list[str]:
    status, answer = server.json("POST", "/v1/completions", ASKED | fields)
    assert status == 200, answer
    return [choice["text"] for choice in answer["choices"]]


def test_a_likelier_phrase_comes_and_with_once_it_is_left_to_the_model_then(server: Server) -> None:
    phrase = {"text": "purple dragon", "bias": 25}
    assert not any("purple dragon" in text for text in texts(server))
    assert all(text.count(" purple dragon") > 5 for text in texts(server, phrase_bias=[phrase]))
    once = texts(server, phrase_bias=[phrase | {"once": True}])
    assert all(1 <= text.count(" purple dragon") <= 3 for text in once)


def test_a_phrase_that_has_begun_is_finished(server: Server) -> None:
    begun = [{"text": " was very happy to see the old purple dragon.", "bias": 0, "finish": True}]
    for plain, text in zip(texts(server), texts(server, phrase_bias=begun), strict=True):
        assert " was" not in plain or text != plain
        assert all(
            rest.startswith(begun[0]["text"][4:]) for rest in text[:150].split(" was")[1:] if len(rest) > 50
        )


def test_a_rarer_phrase_does_not_come_and_its_words_do(server: Server) -> None:
    plain = texts(server, n=32)
    assert sum("little girl" in text for text in plain) > 2
    rarer = texts(server, n=32, phrase_bias=[{"text": "little girl", "bias": -100}])
    assert not any("little girl" in text for text in rarer)
    assert sum(" little" in text for text in rarer) > 2
    assert any(" girl" in text for text in rarer)
    toys = texts(server, prompt="The girls had many toy", phrase_bias=[{"text": "s", "bias": -1000}])
    assert any(text.startswith("s") for text in toys)  # the end of a word is no word


def test_sequences_have_their_own_and_a_grammar_comes_first(server: Server) -> None:
    own = [{}, {"phrase_bias": [{"text": " dragon", "bias": 50, "ensure_sequence_finish": True}]}]
    first, second = texts(server, n=2, sequences=own)
    assert " dragon dragon" not in first
    assert second.startswith(" dragon dragon")
    asked = {
        "regex": "( cat| dog){3}",
        "phrase_bias": [{"text": " dragon", "bias": 900}, {"text": " dog", "bias": 90}],
    }
    assert texts(server, n=1, **asked) == [" dog dog dog"]
