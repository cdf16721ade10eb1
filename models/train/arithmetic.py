#!/usr/bin/env python3
"""Train a model that adds three numbers step by step, on texts that it makes itself, to a GGUF file.

    models/train/arithmetic.py --steps 3000

Recipe, checkpoints and schedule are those of train.py. Each token is a byte, but for "so", since llama.cpp
refuses a vocabulary without merges. Ctrl-C ends the training before its schedule: a model that errs now and
then is what votes are measured with.
"""

from contextlib import suppress
from pathlib import Path

import click
import torch
from export import ABOUT, export
from model import Shape
from sums import texts
from text import encode
from train import Recipe, Run, tokenizer_for

SHAPE = Shape(vocabulary=258, width=64, layers=4, heads=2, feed_forward=192, context=256)
RECIPE = Recipe(batch_tokens=2048, phases=((0.0, 256),))
TEXTS = 200_000
NAMED = ABOUT | {
    "general.name": "Sums",
    "general.license": "MIT",
    "general.description": "Adds three numbers step by step; made for measurements of llama-srb",
}


@click.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path),
    default=Path("sums-run"),
    show_default=True,
    help="Tokenizer, checkpoints and log; an interrupted run in it goes on.",
)
@click.option("--steps", default=3000, show_default=True, help="The schedule's length.")
def main(folder: Path, steps: int) -> None:
    """Train on sums with their steps, then write FOLDER/sums.gguf."""
    torch.set_flush_denormal(True)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = tokenizer_for(folder, ["so"], SHAPE.vocabulary)
    run = Run(folder, SHAPE, RECIPE, encode(tokenizer, texts(TEXTS, RECIPE.seed)))
    if (folder / "last.pt").exists():
        run.resume()
    with suppress(KeyboardInterrupt):
        run.train(steps, 0)
    export(folder / "best.pt", folder / "tokenizer.json", folder / "sums.gguf", about=NAMED)


if __name__ == "__main__":
    main()
