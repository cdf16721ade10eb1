#!/usr/bin/env python3
"""Train a small reranker out of the storyteller: one command from questions with passages to a GGUF file.

    models/train/reranker.py PAIRS.jsonl --minutes 25

PAIRS is what `python -m benchmarks.recall.pairs` writes. The body is the storyteller's without its causal
mask, so each token sees the whole question and the whole passage; llama.cpp has that as `neo-bert`. The head
reads the first token. The loss is the cross-entropy of a right passage among wrong ones of the same search.
"""

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from export import ABOUT, TURNED, TYPES, Matrix, add_fields, add_vocabulary, gguf_name, tensors, write
from gguf import GGUFReader, GGUFWriter, PoolingType
from gguf.quants import dequantize
from model import Llama, Shape
from text import END, byte_level
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm
from train import Recipe

TEMPLATE = f"{END}{{query}}{END}{{document}}"
RECIPE = Recipe(adam_rate=0.001, warm_until=0.03, decay_from=0.3)
QUESTIONS = 6  # of a batch
PASSAGES = 4  # of a question: a right one and wrong ones
MOST = 320  # tokens of a question with a passage; more are cut
SHORT = 170  # tokens of those that train: a batch computes as many for each of its texts as the longest has
NAMED = ABOUT | {
    "general.name": "Reranker",
    "general.description": "Orders passages by a question; trained from the storyteller for measurements",
}


class Reranker(Llama):
    """The storyteller's body, each of whose tokens sees all, and a head that reads the first one."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.shape = shape
        self.dense = nn.Linear(shape.width, shape.width)
        self.relevance = nn.Linear(shape.width, 1)
        nn.init.zeros_(self.relevance.weight)

    def rank(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """The relevance of each text, a question with a passage: logits."""
        length = max(map(len, texts))
        tokens = torch.tensor([[*one, *[0] * (length - len(one))] for one in texts])
        lengths = torch.tensor([len(one) for one in texts])
        seen = (torch.arange(length) < lengths[:, None])[:, None, None]
        x, turns = self.embedding(tokens), self.turns[:, :length]
        for i, block in enumerate(self.blocks, 1):
            x = block(x, turns, seen, 1 if i == len(self.blocks) else None)
        first = self.output_norm(x[:, 0])
        return self.relevance(torch.tanh(self.dense(first)))[:, 0]


# ----------------------------------------------------------------------------------------------------
# From the storyteller's file, and to a reranker's
# ----------------------------------------------------------------------------------------------------

FIELDS = {
    "vocabulary": "vocab_size",
    "width": "embedding_length",
    "layers": "block_count",
    "heads": "attention.head_count",
    "feed_forward": "feed_forward_length",
    "context": "context_length",
}
HEAD = {
    "dense.weight": "cls.weight",
    "dense.bias": "cls.bias",
    "relevance.weight": "cls.output.weight",
    "relevance.bias": "cls.output.bias",
}
FUSED = {"attn_qkv": ("attn_q", "attn_k", "attn_v"), "ffn_up": ("ffn_gate", "ffn_up")}


def read_body(path: Path, layers: int | None = None) -> tuple[Reranker, dict[str, Any]]:
    """A reranker with the weights of a storyteller, and the vocabulary as a tokenizer.json has it.

    layers: the first ones only.
    """
    reader = GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    shape = Shape(**{own: fields[f"llama.{name}"] for own, name in FIELDS.items()})
    shape = replace(shape, layers=min(layers or shape.layers, shape.layers))
    found = {one.name: dequantize(one.data, one.tensor_type) for one in reader.tensors}
    model = Reranker(shape)
    body = {}
    for name in model.state_dict().keys() - HEAD.keys():
        matrix = np.array(found[gguf_name(name)], np.float32)
        body[name] = torch.from_numpy(halved(matrix, shape.heads) if name.endswith(TURNED) else matrix)
    model.load_state_dict(body, strict=False)
    tokens, merges = fields["tokenizer.ggml.tokens"], fields["tokenizer.ggml.merges"]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return model, {"vocab": vocabulary, "merges": [tuple(one.split(" ")) for one in merges]}


def halved(matrix: Matrix, heads: int) -> Matrix:
    """The inverse of export.py's `interleaved`."""
    pairs = matrix.reshape(heads, -1, 2, matrix.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(matrix.shape))


def named(model: Reranker) -> dict[str, Matrix]:
    """The tensors as llama.cpp's neo-bert has them: queries, keys and values in one, gate and up in one."""
    state = model.state_dict()
    found = tensors({name: one for name, one in state.items() if name not in HEAD}, model.shape)
    found["enc.output_norm.weight"] = found.pop("output_norm.weight")
    for i in range(model.shape.layers):
        for whole, parts in FUSED.items():
            some = [found.pop(f"blk.{i}.{part}.weight") for part in parts]
            found[f"blk.{i}.{whole}.weight"] = np.concatenate(some)
    return found | {HEAD[name]: state[name].numpy() for name in HEAD}


def export(model: Reranker, vocabulary: dict[str, Any], out: Path, type_name: str = "q8_0") -> None:
    kind, file_type = TYPES[type_name]
    writer = GGUFWriter(out, "neo-bert")
    add_fields(writer, NAMED, model.shape, file_type)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.RANK)
    writer.add_chat_template([{"name": "rerank", "template": TEMPLATE}])
    add_vocabulary(writer, vocabulary)
    write(writer, named(model), kind)


# ----------------------------------------------------------------------------------------------------
# Training
# ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Question:
    """texts: of each passage that the search found, the best first: the tokens of question and passage."""

    texts: list[list[int]]
    right: frozenset[int]

    @property
    def trains(self) -> bool:
        return len(self.texts) - len(self.right) >= PASSAGES - 1 and max(map(len, self.texts)) <= SHORT

    def some(self, drawn: random.Random) -> list[list[int]]:
        """A right one, then wrong ones, oftener the first of them."""
        wrong = [i for i in range(len(self.texts)) if i not in self.right]
        wrong.sort(key=lambda i: (i + 1) * drawn.random())
        chosen = [drawn.choice(sorted(self.right)), *wrong[: PASSAGES - 1]]
        return [self.texts[i] for i in chosen]


def read(file: Path, tokenizer: Tokenizer, most: int) -> tuple[list[Question], list[Question]]:
    """The questions that train, and those that don't. most: tokens of a question with a passage."""
    kept: tuple[list[Question], list[Question]] = ([], [])
    with file.open(encoding="utf-8") as lines:
        for line in tqdm(lines, desc="tokens"):
            one = json.loads(line)
            asked = [0, *tokenizer.encode(one["question"]).ids, 0]
            passages = tokenizer.encode_batch(one["passages"])
            texts = [(asked + passage.ids)[:most] for passage in passages]
            kept[one.get("held_out", False)].append(Question(texts, frozenset(one["right"])))
    return kept


def batches(questions: list[Question], drawn: random.Random) -> Iterator[list[list[int]]]:
    """Without end: of so many questions a right passage, each with its wrong ones behind it.

    Questions of similar length are in one batch.
    """
    while True:
        size = 32 * QUESTIONS
        order = drawn.sample(questions, len(questions))
        for first in range(0, len(order), size):
            pool = [one.some(drawn) for one in order[first : first + size]]
            pool.sort(key=lambda some: max(map(len, some)))
            rows = [pool[i : i + QUESTIONS] for i in range(0, len(pool), QUESTIONS)]
            for row in drawn.sample(rows, len(rows)):
                yield [text for some in row for text in some]


def reciprocal_ranks(model: Reranker, questions: Sequence[Question]) -> tuple[float, float]:
    """Of the first right passage in the search's order, and in the model's: the means."""
    before, after = 0.0, 0.0
    with torch.no_grad():
        for one in questions:
            scores = model.rank(one.texts).tolist()
            order = sorted(range(len(scores)), key=lambda i: -scores[i])
            before += 1 / (1 + min(one.right))
            after += 1 / (1 + min(map(order.index, one.right)))
    return before / len(questions), after / len(questions)


def train(model: Reranker, questions: list[Question], minutes: float) -> None:
    """By the clock: a busy machine gives a model that has seen less, at the same time."""
    usable = [one for one in questions if one.trains]
    if not usable:
        raise click.ClickException(
            f"none of {len(questions)} questions has {PASSAGES - 1} wrong passages, "
            f"and at most {SHORT} tokens with each passage"
        )
    feed = batches(usable, random.Random(RECIPE.seed))
    # A step of Muon takes nine times as long as a batch, on a CPU without bfloat16.
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.01)
    begun = time.monotonic()
    with tqdm(total=100, unit="%", bar_format="{l_bar}{bar}| {elapsed}<{remaining} {postfix}") as bar:
        while (progress := (time.monotonic() - begun) / 60 / minutes) < 1:
            optimizer.param_groups[0]["lr"] = RECIPE.adam_rate * RECIPE.rate(progress)
            scores = model.rank(next(feed)).view(-1, PASSAGES)
            loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
            torch.autograd.backward(loss)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            bar.n = round(100 * progress, 1)
            bar.set_postfix(loss=f"{loss.item():.3f}")


@click.command()
@click.argument("pairs", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--body",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    default=Path(__file__).parents[1] / "storyteller.gguf",
    help="A file of train.py; the bundled storyteller if none is given.",
)
@click.option("--out", type=click.Path(path_type=Path), default=Path("reranker.gguf"), show_default=True)
@click.option("--minutes", default=25.0, show_default=True, help="Of training, by the clock.")
@click.option("--layers", default=2, show_default=True, help="Of the body: the first ones.")
@click.option(
    "--threads", default=1, show_default=True, help="More help only on a machine without other work."
)
def main(pairs: Path, body: Path, out: Path, minutes: float, layers: int, threads: int) -> None:
    """Train on PAIRS, then write a reranker."""
    torch.set_num_threads(threads)
    torch.set_flush_denormal(True)
    torch.manual_seed(RECIPE.seed)
    model, vocabulary = read_body(body, layers)
    tokenizer = byte_level(models.BPE(**vocabulary))
    training, held_out = read(pairs, tokenizer, min(MOST, model.shape.context))
    train(model, training, minutes)
    if held_out:
        before, after = reciprocal_ranks(model, held_out[:: max(1, len(held_out) // 200)])
        print(f"{len(training)} questions; others: MRR {after:.3f}, by the search {before:.3f}")
    export(model, vocabulary, out)


if __name__ == "__main__":
    main()
