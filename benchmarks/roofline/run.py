#!/usr/bin/env python3
"""How near each row of results.json is to what the machine can do at most: benchmarks/roofline/run.py

A step must read the weights once, the prompt's cells once, and each sequence's own cells, and must multiply.
A new prompt multiplies all its tokens with the weights, of the output only the last one. The greater of both
times, at the machine's peaks (peaks.cpp), is the least that either can take. Attention's products count at
the peak of F32, those of weights at that of 8 bits; AMX's peak has a line of its own.
"""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gguf import GGUFReader

sys.path[:0] = [str(Path(__file__).resolve().parent.parent.parent)]

from benchmarks import peers, report  # noqa: E402
from benchmarks.run import DECODE, PROMPTS, Row, model_file  # noqa: E402

F16 = 2  # bytes of a value in a cell


@dataclass(frozen=True, slots=True)
class Model:
    """What a step needs of a model. Sizes in bytes, products in multiplications for one token."""

    weights: int
    products: int
    expert_weights: int  # of all experts
    expert_products: int  # of the experts that a token uses
    experts: int
    used: int
    layers: int
    windowed: int  # of the layers
    window: int
    cell: int  # values of K and V in one layer and cell
    queries: int  # values of all query heads
    vocabulary: int
    output: int  # products of the output's matrix


@dataclass(frozen=True, slots=True)
class Least:
    """The least time in seconds: by bytes, and by products."""

    read: float
    multiply: float

    @property
    def whole(self) -> float:
        return max(self.read, self.multiply)


def measured_peaks() -> dict[str, float]:
    """The machine's peaks: 10^9 operations, or bytes, per second."""
    source = Path(__file__).with_name("peaks.cpp")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "peaks"
        flags = ["-O3", "-march=native", "-std=c++17", "-pthread"]
        subprocess.run(["c++", *flags, str(source), "-o", str(program)], check=True)
        lines = subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


@functools.cache
def read_model(path: Path) -> Model:
    reader = GGUFReader(path)
    architecture = str(reader.fields["general.architecture"].contents())

    def fact(key: str, default: int = 0) -> int:
        field = reader.fields.get(f"{architecture}.{key}")
        return int(field.contents()) if field else default

    heads, width = fact("attention.head_count"), fact("embedding_length")
    head = fact("attention.key_length", width // heads)
    experts, used = fact("expert_count"), fact("expert_used_count")
    names = {tensor.name for tensor in reader.tensors}
    multiplied = [
        tensor
        for tensor in reader.tensors
        if len(tensor.shape) > 1 and not (tensor.name == "token_embd.weight" and "output.weight" in names)
    ]
    own = [tensor for tensor in multiplied if "_exps" not in tensor.name]
    shared = [tensor for tensor in multiplied if "_exps" in tensor.name]
    layers, window = fact("block_count"), fact("attention.sliding_window")
    return Model(
        weights=sum(int(tensor.n_bytes) for tensor in own),
        products=sum(int(tensor.n_elements) for tensor in own),
        expert_weights=sum(int(tensor.n_bytes) for tensor in shared),
        expert_products=sum(int(tensor.n_elements) for tensor in shared) * used // max(experts, 1),
        experts=experts,
        used=used,
        layers=layers,
        windowed=layers - layers // 6 if window else 0,  # Gemma 3: five of six
        window=window,
        cell=2 * head * fact("attention.head_count_kv"),
        queries=head * heads,
        vocabulary=(vocabulary := len(reader.fields["tokenizer.ggml.tokens"].contents())),
        output=vocabulary * width,
    )


def least_of_step(model: Model, row: Row, peaks: dict[str, float], products: str) -> Least:
    """The least time of a step in the middle of the row's tails."""
    n, tail = row.n, row.tokens // 2
    known = 1 - (1 - model.used / model.experts) ** n if model.experts else 0.0  # expected share of experts
    read = model.weights + known * model.expert_weights + n * model.vocabulary * 4
    attended = 0
    for layers, seen in (
        (model.layers - model.windowed, row.prompt),
        (model.windowed, min(row.prompt, model.window)),
    ):
        read += layers * model.cell * F16 * (seen + n * tail)
        attended += layers * n * (seen + tail)
    weights = n * (model.products + model.expert_products)
    multiply = 2 * weights / peaks[products] + 4 * attended * model.queries / peaks["f32"]
    return Least(read / peaks["bytes"] / 1e9, multiply / 1e9)


def least_of_prompt(model: Model, row: Row, peaks: dict[str, float], products: str) -> Least:
    """The least time of a new prompt of a few hundred tokens or more, which use all experts."""
    tokens, window = row.prompt, min(row.prompt, model.window)
    attended = (model.layers - model.windowed) * tokens**2 / 2
    attended += model.windowed * (tokens - window / 2) * window
    weights = tokens * (model.products + model.expert_products - model.output) + model.output
    multiply = 2 * weights / peaks[products] + 4 * attended * model.queries / peaks["f32"]
    return Least((model.weights + model.expert_weights) / peaks["bytes"] / 1e9, multiply / 1e9)


Measured: TypeAlias = list[tuple[Row, Model, float]]  # the last is what it takes, in seconds


def table(what: str, least_of: Callable[..., Least], rows: Measured, peaks: dict[str, float]) -> str:
    """A line for each row, and one more for each other peak of 8 bits. Times in ms."""
    lines = [
        f"| model, prompt, n | by bytes | by products | a {what} takes | least / {what} |",
        "|---|---|---|---|---|",
    ]
    for row, model, took in rows:
        for products in (name for name in peaks if name.startswith("int8")) if "int8" in peaks else ("f32",):
            least = least_of(model, row, peaks, products)
            name = row.name.replace(":", ", ") + ("" if products in ("int8", "f32") else f", {products[6:]}")
            times = " | ".join(f"{1000 * one:,.2f}" for one in (least.read, least.multiply, took))
            lines.append(f"| {name} | {times} | {least.whole / took:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    results = Path(__file__).parent.parent / "results"
    parser.add_argument("--results", type=Path, default=results, help="folder of results.json")
    parser.add_argument("--models", type=Path, default=peers.cache() / "models", help="folder of the models")
    given = parser.parse_args()
    samples = report.Results(given.results, keep=True).samples
    peaks = measured_peaks()
    print("; ".join(f"{name}: {value:,.1f}" for name, value in peaks.items()) + " (10^9 per second)\n")
    rates = report.Figure(samples, "decode", "decode")
    times = report.Figure(samples, "prompts", "cold ms")

    def measured(rows: Sequence[Row], took: Callable[[Row], float | None]) -> Measured:
        found = ((row, took(row)) for row in rows)
        return [(row, read_model(model_file(row.model, given.models)), time) for row, time in found if time]

    def step(row: Row) -> float | None:
        rate = rates.median(row.name, "pipe")
        return rate and row.n / rate

    def prompt(row: Row) -> float | None:
        took = times.median(row.name, "ours")
        return took and took / 1000

    print(table("step", least_of_step, measured(DECODE, step), peaks), end="\n\n")
    print(table("prompt", least_of_prompt, measured(PROMPTS, prompt), peaks))


if __name__ == "__main__":
    main()
