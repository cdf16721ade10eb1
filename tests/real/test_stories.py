"""Stories longer than the context, over HTTP: what is sent, what is computed, in each API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.bundled import CHECKOUT
from tests.support.encoder import CONTEXT, write_encoder
from tests.support.serving import Server, serving

Body = dict[str, Any]
CTX, ANSWER, DEPTH = 512, 16, 40
ROOM = CTX - ANSWER
SENTENCES = (
    "Lily went to the park with her mom. She saw a big dog and a small cat. They played with a red ball. "
    "Then Tom came, too. He had a kite, and the wind was strong. \"Look!\" he said. The sun was warm.\n"
)  # fmt: skip
LORE = [
    {"keys": ["cat"], "text": "The cat is called Mia.", "name": "Mia"},
    {"keys": ["dragon"], "text": "The dragon is green."},
    {"text": "The park has a lake.", "always": True},
]
STORY: Body = {
    "memory": "A story for children.",
    "note": {"text": "A funny tale.", "depth": DEPTH},
    "lore": LORE,
    "summary": "Lily is a girl who likes to play.",
}
FIELDS: Body = {"n": 2, "max_tokens": ANSWER, "temperature": 1, "top_k": 0, "ignore_eos": True, "seed": 3}


@pytest.fixture(scope="module")
def books() -> Iterator[Server]:
    """A server whose sequences have 512 tokens at most, and cells for eight of them."""
    flags = ("--override-kv", f"llama.context_length=int:{CTX}")
    with serving("--ctx", str(CTX * 8), "--parallel", "8", "--", *flags) as server:
        yield server


def book(contexts: float) -> str:
    """A text of about so many contexts: a token has about four characters."""
    text = "".join(f"Day {i} was fine. {SENTENCES}" for i in range(1, 1000))
    return text[: int(contexts * CTX * 4)]


def asked(server: Server, prompt: str, story: Body = STORY, **fields: Any) -> tuple[Body, list[str], Body]:
    """The start event, the texts, and done."""
    body = {**FIELDS, "prompt": prompt, "story": story, **fields}
    events = server.events(body, "/v1/events")
    assert events[-1]["event"] == "done", events[-1]
    texts = [""] * int(body["n"])
    for event in events:
        if event["event"] == "stream":
            texts[event["index"]] += event["text"]
    return events[0], texts, events[-1]


def exact(server: Server, prompt: str, story: Body = STORY, **fields: Any) -> Body:
    status, made = server.json("POST", "/v1/prompt", {**FIELDS, "prompt": prompt, "story": story, **fields})
    assert status == 200, made
    return dict(made)


# ----------------------------------------------------------------------------------------------------
# What is sent
# ----------------------------------------------------------------------------------------------------


def test_a_story_of_ten_contexts_gets_candidates(books: Server) -> None:
    start, texts, done = asked(books, book(10))
    assert all(texts)
    assert done["completion_tokens"] == 2 * ANSWER
    assert ROOM // 2 <= start["prompt_tokens"] <= ROOM
    story = start["story"]
    assert [part["name"] for part in story["parts"] if part["name"] != "lore"] == [
        "memory", "summary", "text", "note", "text"
    ]  # fmt: skip
    assert start["prompt_tokens"] - sum(part["tokens"] for part in story["parts"]) + len(story["parts"]) >= 0
    assert book(10)[story["begins"] - 1] == "\n"
    assert [(one["place"], one["why"]) for one in story["lore"]] == [
        ("top", "key"), (None, "no_key"), ("top", "always")
    ]  # fmt: skip
    assert story["lore"][0]["name"] == "Mia"
    assert book(10)[story["lore"][0]["at"] :].startswith("cat")


def test_without_a_story_it_is_refused(books: Server) -> None:
    status, body = books.json("POST", "/v1/events", {**FIELDS, "prompt": book(2), "stream": False})
    assert status == 400, body


def test_the_exact_prompt_is_the_one_that_is_sent(books: Server) -> None:
    made, (start, _, _) = exact(books, book(10)), asked(books, book(10))
    assert made["story"] == start["story"]
    assert made["prompt_tokens"] == start["prompt_tokens"]
    kinds = [part["kind"] for part in made["parts"]]
    assert kinds == ["begin", "memory", "lore", "lore", "summary", "text", "note", "text"]
    assert "".join(part["text"] for part in made["parts"]) == made["prompt"]
    echoed = books.events({**FIELDS, "prompt": book(10), "story": STORY, "echo": True}, "/v1/events")
    assert echoed[1]["text"] == made["prompt"]
    assert sum(len(part["tokens"]) for part in made["parts"]) == made["prompt_tokens"]


def test_the_note_stands_at_its_depth(books: Server) -> None:
    made = exact(books, book(3))
    behind = made["parts"][-1]
    assert DEPTH // 2 - 1 <= len(behind["tokens"]) <= DEPTH
    assert made["parts"][-2]["text"] == "A funny tale.\n"


def test_what_is_found_after_the_cut_stands_beside_the_note(books: Server) -> None:
    text = book(10) + " They saw a dragon."
    story = asked(books, text)[0]["story"]
    assert (story["lore"][1]["place"], story["lore"][1]["key"]) == ("note", "dragon")
    assert text[story["lore"][1]["at"] :] == "dragon."
    kinds = [(part["kind"], part["text"]) for part in exact(books, text)["parts"]]
    assert kinds[-3:-1] == [("lore", "The dragon is green.\n"), ("note", "A funny tale.\n")]


# ----------------------------------------------------------------------------------------------------
# What is computed
# ----------------------------------------------------------------------------------------------------


def test_forty_choices_on_a_long_story_compute_only_the_end(books: Server) -> None:
    text, computed, moved, begins = book(10), list[int](), list[bool](), -1
    for i in range(40):
        start, texts, _ = asked(books, text, seed=i)
        computed.append(start["prompt_tokens"] - start["cached_tokens"])
        moved.append(start["story"]["begins"] != begins)
        begins, text = start["story"]["begins"], text + texts[i % 2]
        time.sleep(0.1)  # a writer reads, and the prompt behind the next cut is computed
    assert moved[0]
    assert 3 <= sum(moved[1:]) <= 8
    assert [n for n, is_new in zip(computed, moved, strict=True) if not is_new and n > DEPTH + 64] == []
    assert max(n for n, is_new in zip(computed[1:], moved[1:], strict=True) if is_new) <= 2 * DEPTH + 64


def test_the_same_text_gives_the_same_prompt_on_another_server(books: Server) -> None:
    flags = ("--override-kv", f"llama.context_length=int:{CTX}")
    with serving("--ctx", str(CTX * 2), "--parallel", "2", "--", *flags) as other:
        assert exact(other, book(7)) == exact(books, book(7))


# ----------------------------------------------------------------------------------------------------
# continue
# ----------------------------------------------------------------------------------------------------


def test_continue_is_cut_where_it_would_be_refused(books: Server) -> None:
    story, text = {"memory": "A story for children."}, book(0.9)
    start, _, _ = asked(books, text, story)
    cuts, cached = [], []
    for _ in range(30):
        named = {"id": start["id"], "index": 0}
        start, _, _ = asked(books, "", story, **{"continue": named, "echo": True})
        cuts.append(start.get("cut_tokens", 0))
        cached.append(start["prompt_tokens"] - start["cached_tokens"])
        assert start["prompt_tokens"] <= ROOM
    assert 2 <= sum(map(bool, cuts)) <= 6
    assert all(n <= 2 * ANSWER for n, cut in zip(cached, cuts, strict=True) if not cut)
    events = books.events(
        {**FIELDS, "prompt": "", "continue": {"id": start["id"], "index": 0}, "echo": True, "story": story},
        "/v1/events",
    )
    assert events[1]["text"].startswith("A story for children.\n")


def test_without_a_story_continue_is_refused(books: Server) -> None:
    start, _, _ = asked(books, book(0.9))
    for _ in range(30):
        body = {**FIELDS, "prompt": "", "continue": {"id": start["id"], "index": 0}}
        status, _, data = books.call("POST", "/v1/events", body)
        if status == 400:
            assert json.loads(data)["error"]["code"] == "context_length_exceeded"
            return
        start = json.loads(data.decode().partition("\n")[0].removeprefix("data: "))
    raise AssertionError("it was never too long")


# ----------------------------------------------------------------------------------------------------
# APIs
# ----------------------------------------------------------------------------------------------------

OPENAI: Body = {**FIELDS, "prompt": book(5), "story": STORY, "stream": False}


def test_openai_completions_have_the_parts(books: Server) -> None:
    status, body = books.json("POST", "/v1/completions", {**OPENAI, "model": "storyteller"})
    assert status == 200, body
    assert body["story"]["begins"] > 0
    assert body["usage"]["prompt_tokens"] <= ROOM
    frames = books.events({**OPENAI, "model": "storyteller", "stream": True})
    assert frames[0]["story"] == body["story"]


def test_several_prompts_are_several_stories(books: Server) -> None:
    status, body = books.json("POST", "/v1/completions", {**OPENAI, "prompt": [book(5), book(4)]})
    assert status == 200, body
    assert len(body["choices"]) == 4
    assert body["usage"]["prompt_tokens"] <= 2 * ROOM


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/completion", {"n_predict": ANSWER}),
        ("/api/v1/generate", {"max_length": ANSWER, "max_context_length": 300}),
        ("/api/generate", {"model": "storyteller", "stream": False, "options": {"num_predict": ANSWER}}),
        ("/v1/prefix", {}),
    ],
)
def test_other_apis_take_a_story(books: Server, path: str, fields: Body) -> None:
    status, body = books.json("POST", path, {"prompt": book(5), "story": STORY, **fields})
    assert status == 200, body
    assert "is not a known field" not in json.dumps(body)


def test_the_limit_of_a_dialect_is_the_room(books: Server) -> None:
    body = {"prompt": book(5), "max_length": ANSWER, "max_context_length": 300, "memory": "A tale. ", "n": 1}
    status, answer = books.json("POST", "/api/v1/generate", body)
    assert status == 200
    assert 100 <= answer["results"][0]["prompt_tokens"] <= 300 - ANSWER
    assert "warnings" not in answer


def test_koboldcpps_memory_stands_directly_before_the_prompt(books: Server) -> None:
    def answer(**body: str) -> Any:
        status, made = books.json(
            "POST", "/api/v1/generate", {**body, "max_length": 12, "temperature": 0, "n": 1}
        )
        assert status == 200, made
        return made["results"]

    assert answer(memory="Once", prompt=" upon a time") == answer(prompt="Once upon a time")


def test_a_task_stands_around_a_story(books: Server, tmp_path: Any) -> None:
    file = tmp_path / "tasks.toml"
    file.write_text('[tasks.tale]\nprelude = "A tale for all."\nprefix = "\\n"\npostfix = " So"\n')
    flags = ("--override-kv", f"llama.context_length=int:{CTX}")
    with serving("--config", str(file), "--ctx", str(CTX * 4), "--parallel", "4", "--", *flags) as server:
        made = exact(server, book(5), model="tale")
        assert made["prompt"].startswith("A tale for all.\nA story for children.\n")
        assert made["prompt"].endswith(" So")
        kinds = [part["kind"] for part in made["parts"]]
        assert kinds[:4] == ["begin", "prelude", "prefix", "memory"]
        assert kinds[-3:] == ["note", "text", "postfix"]
        start, texts, _ = asked(server, book(5), model="tale")
        assert start["prompt_tokens"] == made["prompt_tokens"] <= ROOM
        assert all(texts)


# ----------------------------------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------------------------------


def test_parts_that_leave_no_room_are_refused(books: Server) -> None:
    body = {**FIELDS, "prompt": "x", "story": {"memory": SENTENCES * 10}, "stream": False}
    status, answer = books.json("POST", "/v1/events", body)
    assert status == 400
    assert "they may have 240 together" in answer["error"]["message"]
    assert answer["error"]["param"] == "story"


def test_a_memory_that_leaves_no_room_behind_it_is_refused_with_continue_too(books: Server) -> None:
    start, _, _ = asked(books, book(0.5), {"memory": SENTENCES * 3})
    body = {**FIELDS, "prompt": "", "continue": {"id": start["id"], "index": 0}, "max_tokens": 400}
    body |= {"story": {"memory": SENTENCES * 3}, "stream": False}
    status, answer = books.json("POST", "/v1/events", body)
    assert status == 400
    assert "half of the 256 that the prompt may have" in answer["error"]["message"]


# ----------------------------------------------------------------------------------------------------
# Lore by meaning
# ----------------------------------------------------------------------------------------------------


def test_lore_comes_by_its_meaning_where_an_embedding_model_is_loaded(tmp_path: Path) -> None:
    """The encoder's weights are random, so only texts that are alike are near."""
    write_encoder(tmp_path / "encoder.gguf", "mean")
    (tmp_path / "srb.toml").write_text(f"""
        [models.tale]
        path = "{CHECKOUT}/models/storyteller.gguf"
        preload = true
        [models.mini]
        path = "encoder.gguf"
        ctx = {CONTEXT}
        """)
    end = "Lily saw a grey cat in the park."
    lore = [
        {"text": end, "name": "alike", "meaning": 0.99},
        {"text": "Ten cold ships sailed north.", "name": "other", "meaning": 0.99},
        {"text": "Mia is a cat.", "keys": ["cat"], "meaning": 0.99},
    ]
    body = {"model": "tale", "prompt": end, "max_tokens": ANSWER, "story": {"lore": lore}}
    with serving("--config", str(tmp_path / "srb.toml")) as server:
        status, refused = server.json("POST", "/v1/prompt", body)
        assert (status, refused["error"]["param"]) == (400, "story.lore"), "the encoder is not loaded yet"
        assert server.json("POST", "/v1/embeddings", {"model": "mini", "input": "x"})[0] == 200
        status, made = server.json("POST", "/v1/prompt", body)
        assert status == 200, made
        events = server.events({**body, "n": 2, "stream": True}, "/v1/events")
    notes = made["story"]["lore"]
    assert [note["why"] for note in notes] == ["meaning", "no_key", "key"]
    assert notes[0]["nearness"] >= 0.999
    assert notes[1]["nearness"] < 0.99
    assert "nearness" not in notes[2]
    assert end in made["prompt"].removesuffix(end), "the entry stands before the text"
    assert "Ten cold ships" not in made["prompt"]
    assert next(one for one in events if one["event"] == "start")["story"]["lore"] == notes
