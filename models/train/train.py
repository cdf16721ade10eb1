#!/usr/bin/env python3
"""Train the storyteller: one command from a folder of stories to a GGUF file.

    models/train/train.py CORPUS --minutes 95

Stories stand in CORPUS's text files, an <|endoftext|> after each. The schedule runs on the clock, so a busy
machine gives a model that has seen less, at the same time; --steps makes a run that can be repeated.
"""

import json
import math
import time
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from export import export
from model import Llama, Shape
from numpy.typing import NDArray
from text import Feed, Tokens, encode, stories, train_tokenizer
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import tqdm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True, slots=True)
class Recipe:
    """What decides the result beside shape and data; the phases are (from this progress, row length)."""

    batch_tokens: int = 4096
    phases: tuple[tuple[float, int], ...] = ((0.0, 256), (0.8, 1024))
    muon_rate: float = 0.014
    adam_rate: float = 0.003
    weight_decay: float = 0.1
    warm_until: float = 0.01
    decay_from: float = 0.2
    valid_every: int = 200
    patience: int = 5
    seed: int = 1

    def rate(self, progress: float) -> float:
        """The share of the full learning rate: up, level, then straight to 0 at progress 1."""
        return min(progress / self.warm_until + 0.01, (1 - progress) / (1 - self.decay_from), 1.0)

    def length(self, progress: float) -> int:
        return [length for since, length in self.phases if since <= progress][-1]


def optimizers(model: Llama, recipe: Recipe) -> list[torch.optim.Optimizer]:
    """Muon (Jordan et al. 2024) for the matrices inside the blocks, AdamW for the embedding and the norms."""
    matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
    inside = {id(p) for p in matrices}
    rest = [p for p in model.parameters() if id(p) not in inside]
    muon = torch.optim.Muon(matrices, lr=recipe.muon_rate, weight_decay=recipe.weight_decay, momentum=0.95)
    adam = torch.optim.AdamW(rest, lr=recipe.adam_rate, betas=(0.9, 0.95), weight_decay=0.0)
    return [muon, adam]


def half_precision() -> AbstractContextManager[Any]:
    return torch.autocast(DEVICE, torch.bfloat16)


class Run:
    """One training run: model, optimizers and its place in the data, kept in a folder between sittings."""

    def __init__(self, folder: Path, shape: Shape, recipe: Recipe, documents: list[Tokens]) -> None:
        torch.manual_seed(recipe.seed)
        self.folder, self.shape, self.recipe = folder, shape, recipe
        held_out = min(max(len(documents) // 100, 1), 200)  # so many decide when to stop
        self.valid = Feed(documents[:held_out], recipe.seed)
        self.feed = Feed(documents[held_out:], recipe.seed)
        self.model = Llama(shape).to(DEVICE)
        self.compiled = torch.compile(self.model)
        self.optimizers = optimizers(self.model, recipe)
        self.step, self.seconds = 0, 0.0
        self.best, self.worse = math.inf, 0  # lowest loss on the stories that don't train, readings since

    def save(self, name: str) -> None:
        """Written beside and renamed: an interrupted write leaves the last one."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "feed": (self.feed.epoch, self.feed.offset),
            "place": (self.step, self.seconds, self.best, self.worse),
            "shape": asdict(self.shape),
        }
        torch.save(state, self.folder / f"{name}.new")
        (self.folder / f"{name}.new").rename(self.folder / f"{name}.pt")

    def resume(self) -> None:
        state = torch.load(self.folder / "last.pt", map_location=DEVICE)
        self.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.feed.seek(*state["feed"])
        self.step, self.seconds, self.best, self.worse = state["place"]

    def loss(self, batch: NDArray[np.int64]) -> Tensor:
        rows = torch.from_numpy(batch).to(DEVICE)
        with half_precision():
            loss: Tensor = self.compiled(rows[:, :-1].contiguous(), rows[:, 1:].contiguous())
        return loss

    def update(self, progress: float) -> float:
        """One step at the learning rate of `progress`; returns the batch's loss."""
        full_rates = (self.recipe.muon_rate, self.recipe.adam_rate)
        for optimizer, full in zip(self.optimizers, full_rates, strict=True):
            optimizer.param_groups[0]["lr"] = full * self.recipe.rate(progress)
        loss = self.loss(self.feed.take(self.recipe.batch_tokens, self.recipe.length(progress)))
        torch.autograd.backward(loss)
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item()

    def validate(self, progress: float) -> float:
        """Mean loss on the stories kept aside; saves the model when it is the best so far."""
        length = self.recipe.length(progress)
        tokens = min(self.recipe.batch_tokens, (self.valid.size - 1) // length * length)
        self.valid.seek(0, 0)
        batches = [self.valid.take(tokens, length) for _ in range((self.valid.size - 1) // tokens)]
        with torch.no_grad():
            losses = [self.loss(batch).item() for batch in batches]
        mean = sum(losses) / len(losses)
        self.best, self.worse = (mean, 0) if mean < self.best else (self.best, self.worse + 1)
        self.save("last")
        if not self.worse:
            self.save("best")
        return mean

    def progress(self, steps: int | None, minutes: float) -> float:
        return self.step / steps if steps else self.seconds / 60 / minutes

    def train(self, steps: int | None, minutes: float) -> None:
        """Until the schedule's end, or until the stories that don't train have got worse `patience` times."""
        loss = math.nan
        done = round(100 * self.progress(steps, minutes), 1)
        form = "{l_bar}{bar}| {elapsed}<{remaining} {postfix}"
        with tqdm(total=100, initial=done, unit="%", bar_format=form) as bar:
            while (progress := self.progress(steps, minutes)) < 1 and self.worse < self.recipe.patience:
                started = time.monotonic()
                loss = self.update(progress)
                if self.step % self.recipe.valid_every == 0:
                    self.log(progress, loss, self.validate(progress))
                self.seconds += time.monotonic() - started
                bar.n = round(100 * progress, 1)
                bar.set_postfix(
                    step=self.step, epoch=self.feed.epoch, loss=f"{loss:.3f}", best=f"{self.best:.4f}"
                )
        if self.worse < self.recipe.patience:
            self.log(1.0, loss, self.validate(1.0))

    def log(self, progress: float, loss: float, valid: float) -> None:
        reading = {"step": self.step, "epoch": self.feed.epoch, "offset": self.feed.offset, "loss": loss}
        reading |= {"valid": valid, "progress": progress, "seconds": self.seconds}
        with (self.folder / "log.jsonl").open("a") as file:
            file.write(json.dumps(reading) + "\n")


def tokenizer_for(folder: Path, texts: list[str], vocabulary: int) -> Tokenizer:
    """The folder's tokenizer, trained on `texts` the first time."""
    file = folder / "tokenizer.json"
    if not file.exists():
        trained = train_tokenizer(texts, vocabulary)
        if (found := trained.get_vocab_size()) < vocabulary:
            raise click.ClickException(
                f"{len(texts)} stories give a vocabulary of {found} tokens; it must have {vocabulary}"
            )
        trained.save(str(file))
    return Tokenizer.from_file(str(file))


@click.command()
@click.argument("corpus", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--files", default="*train*.txt,*extra*.txt", show_default=True, help="Patterns in CORPUS.")
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("storyteller-run"),
    show_default=True,
    help="Tokenizer, checkpoints and log; an interrupted run in it goes on.",
)
@click.option("--minutes", default=95.0, show_default=True, help="The schedule's length on the clock.")
@click.option("--steps", type=int, help="The schedule's length in steps instead: a run that can be repeated.")
@click.option("--layers", default=4, show_default=True, help="Of another model than the bundled one.")
@click.option("--width", default=256, show_default=True, help="A multiple of 64: each head has 64 channels.")
def main(
    corpus: Path, files: str, folder: Path, minutes: float, steps: int | None, layers: int, width: int
) -> None:
    """Train on the stories in CORPUS, then write FOLDER/storyteller.gguf."""
    torch.set_flush_denormal(True)
    folder.mkdir(parents=True, exist_ok=True)
    if layers < 1 or width < 64 or width % 64:
        raise click.UsageError(f"--layers {layers} --width {width}: 1 or more, and a multiple of 64")
    shape = Shape(layers=layers, width=width, heads=width // 64, feed_forward=3 * width)
    recipe = Recipe()
    texts = stories([file for pattern in files.split(",") for file in sorted(corpus.glob(pattern))])
    tokenizer = tokenizer_for(folder, texts, shape.vocabulary)
    run = Run(folder, shape, recipe, encode(tokenizer, texts))
    if (folder / "last.pt").exists():
        run.resume()
    run.train(steps, minutes)
    export(folder / "best.pt", folder / "tokenizer.json", folder / "storyteller.gguf")


if __name__ == "__main__":
    main()
