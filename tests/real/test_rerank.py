"""Documents are ranked by what numpy makes of the same tokens, in the forms of five servers."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llama_srb.dialects.rerank import logistic
from tests.support.encoder import CONTEXT, RANK, relevance, write_encoder
from tests.support.lines import Lines
from tests.support.models import write_model
from tests.support.places import BINARY, ROOT, STORYTELLER
from tests.support.rows import each_row
from tests.support.serving import Server, serving

QUERY = "Where is the cat?"
DOCUMENTS = ["The cat sat on the warm roof.", "A ship sailed.", "</s> it was a dog", "", "the cat " * 30]
CLOSE = 5e-3  # of the logits; GELU is by a table of F16


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rank") / "ranker.gguf"
    write_encoder(path, RANK)
    return path


@pytest.fixture(scope="module")
def engine(model: Path) -> Iterator[Lines]:
    with Lines(model=model) as engine:
        yield engine


def pair(engine: Lines, query: str, document: str) -> list[int]:
    """Beginning, query, end, document, end, where the vocabulary has them; all of the texts is plain."""
    [begin, *end] = engine.ask("tokenize", text="", add_special=True)["tokens"] or [None]
    parts = [
        engine.ask("tokenize", text=[{"text": text, "special": False}])["tokens"] if text else []
        for text in (query, document)
    ]
    before = [] if begin is None else [begin]
    return [*before, *parts[0], *end, *parts[1], *end]


def test_each_document_has_the_relevance_that_numpy_computes(engine: Lines) -> None:
    (answer,) = engine.answers(engine.send({"op": "rerank", "query": QUERY, "documents": DOCUMENTS}))
    found = answer.named("embedding")
    assert [event["index"] for event in found] == list(range(len(DOCUMENTS)))
    for event, document in zip(found, DOCUMENTS, strict=True):
        tokens = pair(engine, QUERY, document)
        assert event["count"] == len(tokens)
        assert event["embedding"] == [pytest.approx(relevance(tokens), abs=CLOSE)]
    assert len({round(event["embedding"][0], 2) for event in found}) == len(DOCUMENTS)


def test_a_document_that_is_too_long_is_refused_or_cut(engine: Lines) -> None:
    asked = {"op": "rerank", "query": QUERY, "documents": ["short", "long " * CONTEXT]}
    error, cut = engine.answers(engine.send(asked, asked | {"truncate": True}))
    assert error.events[-1]["code"] == "context_exceeded"
    assert error.events[-1]["message"].startswith("documents[1] has with the query ")
    assert cut.named("embedding")[1]["count"] <= CONTEXT
    long = " ".join(["cat"] * CONTEXT + ["roof"])
    sides = [
        asked | {"truncate": True, "documents": [long], "truncation_side": side} for side in ("left", "right")
    ]
    left, right = engine.answers(engine.send(*sides))
    assert left.named("embedding")[0]["embedding"] != right.named("embedding")[0]["embedding"]


def test_a_query_that_is_too_long_is_refused_by_name_or_loses_its_beginning(engine: Lines) -> None:
    long = {"op": "rerank", "query": "dog " * 3 * CONTEXT + "cat", "documents": ["cat", "ship"]}
    error, cut = engine.answers(engine.send(long, long | {"truncate": True}))
    assert (error.events[-1]["code"], error.events[-1]["param"]) == ("context_exceeded", "query")
    assert [event["count"] <= CONTEXT for event in cut.named("embedding")] == [True, True]


def test_models_without_a_head_say_so(tmp_path: Path, engine: Lines) -> None:
    run = subprocess.run(
        (BINARY, "-m", STORYTELLER, "--pooling", "rank"),
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert run.returncode == 1
    assert "storyteller.gguf has no head (cls.weight, cls.output.weight), so it cannot rank" in run.stderr
    with Lines("-c", "256") as plain:
        error = plain.ask("rerank", query="a", documents=["b"])
    assert error["message"].startswith("this model ranks no documents")
    assert engine.ask("embed", input=["a"])["message"].startswith("this model ranks documents")


@pytest.fixture(scope="module")
def server(model: Path) -> Iterator[Server]:
    with serving("--model", str(model), "--rerank") as server:
        yield server


def asked(server: Server, path: str, **body: Any) -> Any:
    status, _, answer = server.call("POST", path, body)
    assert status == 200, answer
    return json.loads(answer)


FORMS = {  # path, body, the list of results in the answer, the name of the score, whether it is a logit
    "Jina": ("/v1/rerank", {"documents": DOCUMENTS}, "results", "relevance_score", False),
    "vLLM": (
        "/rerank",
        {"documents": [{"text": one} for one in DOCUMENTS]},
        "results",
        "relevance_score",
        False,
    ),
    "Cohere": ("/v2/rerank", {"documents": DOCUMENTS}, "results", "relevance_score", False),
    "llama-server": ("/v1/reranking", {"documents": DOCUMENTS}, "results", "relevance_score", True),
    "llama-server, the short path": (
        "/reranking",
        {"documents": DOCUMENTS},
        "results",
        "relevance_score",
        True,
    ),
    "TEI": ("/rerank", {"texts": DOCUMENTS, "return_text": True}, "", "score", False),
    "TEI, raw": ("/rerank", {"texts": DOCUMENTS, "raw_scores": True}, "", "score", True),
}


@each_row(("path", "body", "results", "score", "is_logit"), FORMS.values(), ids=FORMS)
def test_each_server_has_its_form(
    server: Server, engine: Lines, path: str, body: Any, results: str, score: str, is_logit: bool
) -> None:
    logits = [relevance(pair(engine, QUERY, document)) for document in DOCUMENTS]
    answer = asked(server, path, query=QUERY, **body)
    found = answer[results] if results else answer
    best = sorted(range(len(DOCUMENTS)), key=lambda i: -logits[i])
    assert [one["index"] for one in found] == best
    wanted = [logits[i] if is_logit else logistic(logits[i]) for i in best]
    assert [one[score] for one in found] == pytest.approx(wanted, abs=CLOSE)
    if results:
        assert ("document" in found[0]) is (path in ("/v1/rerank", "/rerank"))
        (first,) = asked(server, path, query=QUERY, top_n=1, **body)[results]
        assert first["index"] == best[0]
    else:
        assert ("text" in found[0]) is ("return_text" in body)


def test_what_is_wrong_is_said(server: Server) -> None:
    for body, said in (
        ({"query": QUERY}, "documents is missing"),
        ({"query": "", "documents": ["a"]}, "query is"),
        ({"query": "a", "documents": []}, "documents is"),
        ({"query": "a", "documents": ["a", 7]}, "documents[1] is 7; it must be a text"),
        ({"query": "a", "documents": ["a"], "top_n": 0}, "top_n is 0"),
    ):
        status, _, answer = server.call("POST", "/v1/rerank", body)
        assert status == 400
        assert json.loads(answer)["error"]["message"].startswith(said)
    status, _, answer = server.call("POST", "/v1/completions", {"prompt": "a"})
    assert status == 400


CONFIG = """
[models.teller]
path = "{teller}"
[models.ranker]
path = "{ranker}"
[memories.notes]
store = {{ file = "{folder}/notes.db" }}
embedding_model = false
reranker = "{reranker}"
"""


def configured(folder: Path, model: Path, reranker: str) -> str:
    text = CONFIG.format(teller=STORYTELLER, ranker=model, folder=folder, reranker=reranker)
    (folder / "server.toml").write_text(text)
    return str(folder / "server.toml")


def test_a_memory_is_ordered_by_its_reranker(engine: Lines, model: Path, tmp_path: Path) -> None:
    notes = [
        f"The cat {what}." for what in ("sat on the roof", "ate a fish", "ran home", "saw a ship", "slept")
    ]
    with serving("--config", configured(tmp_path, model, "ranker")) as server:
        for i, note in enumerate(notes):
            path = f"/v1/memories/notes/documents/{i}"
            assert server.call("PUT", path, note.encode(), "text/plain")[0] == 201
        found = asked(server, "/v1/memories/notes/search", query="the cat", k=3)["data"]
        ranked = asked(server, "/v1/reranking", query="the cat", documents=notes, model="ranker")["results"]
    best = [one["index"] for one in ranked[:3]]
    assert [one["document"] for one in found] == [str(i) for i in best]
    scores = [one["scores"]["relevance"] for one in found]
    assert scores == pytest.approx([one["relevance_score"] for one in ranked[:3]], abs=1e-4)
    assert all("words" in one["scores"] for one in found)


UNFIT = {
    "reranker": "memories.notes.reranker is teller, which ranks no documents",
    "embedding_model": "memories.notes.embedding_model is ranker, which ranks documents and makes no vectors",
}


@each_row(("setting", "said"), UNFIT.items(), ids=UNFIT)
def test_a_model_that_does_not_fit_a_memory_is_refused_at_the_start_and_before(
    model: Path, tmp_path: Path, setting: str, said: str
) -> None:
    file = Path(configured(tmp_path, model, "ranker" if setting == "embedding_model" else "teller"))
    if setting == "embedding_model":
        file.write_text(file.read_text().replace("embedding_model = false", 'embedding_model = "ranker"'))
    for command in (("serve", "--port", "0", "--config", file), ("config", "check", file)):
        run = subprocess.run(
            (sys.executable, "-m", "llama_srb.cli", *command),
            cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert run.returncode != 0
        assert said in " ".join((run.stdout + run.stderr).split())


TEMPLATE = "<|im_start|>Query: {query}\nText: {document}\nIs it an answer?<|im_end|>"
CONTROL = ("<|im_start|>", "<|im_end|>")
YES, NO = 70, 90  # tokens


def test_a_causal_model_ranks_by_its_next_token(tmp_path: Path) -> None:
    """The probability of yes beside no, behind the file's template as a whole, in which texts are plain."""
    plain, ranker = tmp_path / "plain.gguf", tmp_path / "ranker.gguf"
    write_model(plain, "qwen3", control=CONTROL)
    write_model(ranker, "qwen3", control=CONTROL, ranks=(YES, NO), chat_template=TEMPLATE)
    documents = ["a cat", "<|im_end|> a cat", "a long ship " * 60, "", "{query}"]
    wanted = []
    with Lines("-c", "4096", model=plain) as engine:
        for document in documents:
            parts = [("<|im_start|>Query: ", True), (QUERY, False), ("\nText: ", True), (document, False),
                     ("\nIs it an answer?<|im_end|>", True)]  # fmt: skip
            prompt: Any = [{"text": text, "special": special} for text, special in parts if text]
            if "<|" not in document:
                prompt = "".join(text for text, _ in parts)
            tokens = engine.ask("tokenize", text=prompt)["tokens"]
            (told,) = engine.answers(engine.send({"op": "score", "tokens": tokens, "texts": [[YES], [NO]]}))
            yes, no = (event["logprob"] for event in told.named("score"))
            wanted.append(logistic(yes - no))
    with serving("--model", str(ranker), "--ctx", "4096") as server:
        found = asked(server, "/v1/rerank", query=QUERY, documents=documents)["results"]
        raw = asked(server, "/v1/reranking", query=QUERY, documents=documents)["results"]
    scores = {one["index"]: one["relevance_score"] for one in found}
    assert [scores[i] for i in range(len(documents))] == pytest.approx(wanted, abs=0.01)
    assert [one["relevance_score"] for one in raw] == [one["relevance_score"] for one in found]
    assert len({round(score, 3) for score in wanted}) > 2


def test_a_ranker_chooses_the_best_of_n(model: Path, tmp_path: Path) -> None:
    with serving("--config", configured(tmp_path, model, "ranker")) as server:
        asked(server, "/v1/rerank", query="a", documents=["b"], model="ranker")  # which loads it
        body = {
            "model": "teller", "prompt": "Once upon a time", "n": 6, "max_tokens": 12, "stream": False,
            "form": "openai", "rank_by": {"reward": {"model": "ranker"}},
        }  # fmt: skip
        texts = [one["text"] for one in asked(server, "/v1/completions", **body)["choices"]]
        about = {"query": "Once upon a time", "documents": texts, "model": "ranker"}
        ranked = asked(server, "/v1/reranking", **about)["results"]
        assert [one["index"] for one in ranked] == list(range(6))
        for wrong, said in (("teller", "it must be a loaded model that ranks documents"), ("x", "ranker")):
            body["rank_by"] = {"reward": {"model": wrong}}
            status, _, answer = server.call("POST", "/v1/completions", body)
            assert status == 400
            assert said in json.loads(answer)["error"]["message"]
