"""The trainer (models/train): an interrupted run resumes, and llama.cpp computes the same as PyTorch.

Only these tests need `pip install .[train]`.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llama_srb.models import gguf_header
from models.figures import STORY, Engine
from tests.support.places import ROOT

torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")  # by PyTorch's compiler

STORIES = [STORY.replace("Finn", name) for name in ("Finn", "Lily", "Tom", "Anna", "Ben")] * 4
STEPS = 4
END = [0]


@pytest.fixture(scope="module")
def trainer() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "models/train"))
        torch.compiler.set_stance("force_eager")  # compiling takes longer than the steps
        import train

        yield train
        torch.compiler.set_stance("default")


def start(trainer: Any, folder: Path, **more: Any) -> Any:
    """Starts a run of two tiny layers, whose rows become longer half-way."""
    shape = trainer.Shape(vocabulary=400, width=32, layers=2, heads=2, feed_forward=64, context=64)
    recipe = trainer.Recipe(batch_tokens=256, phases=((0.0, 32), (0.5, 64)), **more)
    tokenizer = trainer.tokenizer_for(folder, STORIES, shape.vocabulary)
    return trainer.Run(folder, shape, recipe, trainer.encode(tokenizer, STORIES))


def advance(run: Any, steps: int) -> list[float]:
    return [run.update(run.progress(STEPS, 0)) for _ in range(steps)]


def test_an_interrupted_run_resumes_with_the_same_result(trainer: Any, tmp_path: Path) -> None:
    whole = advance(start(trainer, tmp_path), STEPS)
    before = start(trainer, tmp_path)
    losses = advance(before, 2)
    before.save("last")
    after = start(trainer, tmp_path)
    after.resume()
    assert losses + advance(after, STEPS - 2) == whole
    assert whole[-1] < whole[0]


def test_a_run_ends_with_its_schedule_and_logs_what_it_found(trainer: Any, tmp_path: Path) -> None:
    run = start(trainer, tmp_path)
    run.train(STEPS, 0)
    assert run.step == STEPS
    assert math.isfinite(run.best)
    assert (tmp_path / "best.pt").exists()
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 1


def test_a_run_that_stops_improving_ends_early_and_keeps_its_best_weights(
    trainer: Any, tmp_path: Path
) -> None:
    """With a learning rate of 0 every evaluation equals the first one."""
    run = start(trainer, tmp_path, valid_every=1, patience=2, muon_rate=0.0, adam_rate=0.0)
    run.train(1000, 0)
    assert run.step == 3
    assert torch.load(tmp_path / "best.pt")["place"][0] == 1
    assert torch.load(tmp_path / "last.pt")["place"][0] == 3


def test_too_few_stories_for_the_vocabulary_are_refused(trainer: Any, tmp_path: Path) -> None:
    with pytest.raises(trainer.click.ClickException, match=r"20 stories give .* it must have 4096"):
        trainer.tokenizer_for(tmp_path, STORIES, 4096)
    assert not (tmp_path / "tokenizer.json").exists()


def test_rows_are_the_stories_in_another_order_in_each_epoch(trainer: Any) -> None:
    feed = trainer.Feed([np.array([0, i, i], np.uint16) for i in range(1, 9)], seed=1)
    first = [feed.take(8, 4) for _ in range(3)]
    assert [row.shape for row in first] == [(2, 5)] * 3
    assert (first[0][0, -1], first[0][1, -1]) == (first[0][1, 0], first[1][0, 0])
    assert sorted({int(token) for batch in first for token in batch.flat}) == list(range(9))
    feed.take(8, 4)
    assert (feed.epoch, feed.offset) == (1, 8)


def test_llama_cpp_finds_a_text_as_likely_as_pytorch(trainer: Any, tmp_path: Path) -> None:
    run = start(trainer, tmp_path)
    advance(run, STEPS)
    run.save("best")
    trainer.export(tmp_path / "best.pt", tmp_path / "tokenizer.json", tmp_path / "m.gguf", "f32")
    ids = trainer.encode(trainer.Tokenizer.from_file(str(tmp_path / "tokenizer.json")), [STORY])[0][:60]
    rows = torch.from_numpy(ids.astype(np.int64))[None]
    with torch.no_grad():
        nats = run.model(rows[:, :-1], rows[:, 1:]).item() * (len(ids) - 1)
    with Engine(tmp_path / "m.gguf", "-c", "128", "-t", "1") as engine:
        assert engine.ask("tokenize", text=STORY, add_special=True)[-1]["tokens"][:60] == ids.tolist()
        scored = engine.ask("score", tokens=END, texts=[ids[1:].tolist()])
    (score,) = [event for event in scored if event["event"] == "score"]
    assert -score["logprob"] == pytest.approx(nats, abs=0.05)


def test_a_model_of_sums_has_a_token_for_each_digit(trainer: Any, tmp_path: Path) -> None:
    """As its script makes it: of one merge, since llama.cpp refuses a vocabulary without any."""
    import arithmetic

    shape = arithmetic.SHAPE
    tokenizer = trainer.tokenizer_for(tmp_path, ["so"], shape.vocabulary)
    texts = arithmetic.texts(200, seed=3)
    run = trainer.Run(tmp_path, shape, arithmetic.RECIPE, trainer.encode(tokenizer, texts))
    run.save("best")
    out = tmp_path / "sums.gguf"
    trainer.export(tmp_path / "best.pt", tmp_path / "tokenizer.json", out, about=arithmetic.NAMED)
    assert out.stat().st_size < 300_000
    assert gguf_header.read(out).name == "Sums"
    with Engine(out, "-c", "128", "-t", "1") as engine:
        tokens = engine.ask("tokenize", text=texts[0], add_special=True)[-1]["tokens"]
    assert tokens == trainer.encode(tokenizer, texts[:1])[0].tolist()
    assert len(tokens) == len(texts[0])  # a byte each and the first one, but for "so"


PAIR = {
    "kind": "exact",
    "right": [1],
    "question": "Who was it?",
    "passages": ["A ship.", "It was Finn.", "No.", "A fox."],
}


def test_a_reranker_is_the_body_without_its_mask_and_llama_cpp_computes_its_head(
    trainer: Any, tmp_path: Path
) -> None:
    import reranker

    run = start(trainer, tmp_path)
    run.save("best")
    trainer.export(tmp_path / "best.pt", tmp_path / "tokenizer.json", tmp_path / "body.gguf", "f32")
    model, vocabulary = reranker.read_body(tmp_path / "body.gguf")
    body = run.model.state_dict()
    assert all(torch.equal(body[name], one) for name, one in model.state_dict().items() if name in body)
    tokenizer = reranker.byte_level(reranker.models.BPE(**vocabulary))
    lines = [PAIR, PAIR | {"held_out": True}]
    (tmp_path / "pairs.jsonl").write_text("\n".join(json.dumps(one) for one in lines))
    training, held_out = reranker.read(tmp_path / "pairs.jsonl", tokenizer, model.shape.context)
    before = model.rank(training[0].texts).tolist()
    reranker.train(model, training, minutes=0.02)
    after = model.rank(training[0].texts).tolist()
    assert before == [before[0]] * 4  # the head starts with zeros
    assert after[1] == max(after)
    reranker.export(model, vocabulary, tmp_path / "r.gguf", "f32")
    with Engine(tmp_path / "r.gguf", "-t", "1") as engine:
        told = engine.ask("rerank", query=PAIR["question"], documents=PAIR["passages"])
    found = [event["embedding"][0] for event in told if event["event"] == "embedding"]
    assert found == pytest.approx(after, abs=1e-3)
    assert reranker.reciprocal_ranks(model, held_out) == (0.5, 1.0)
