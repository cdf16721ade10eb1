#!/usr/bin/env python3
"""A batch beside the engine alone: .venv/bin/python benchmarks/loads/batch.py MODEL.gguf

Lines of mixed lengths are answered by `llama-srb batch`, and by llama-batched, which gets all of them at
once; both sides alternate, each round in new processes with the same settings. The seconds are those from
the first line to the last answer, without the load of the model. Prints a row for each round and the ratio
of the medians of tokens a second. It exits with 1 if a line failed. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT)]

from llama_srb.config import load  # noqa: E402
from llama_srb.engine.commands import encode_generate  # noqa: E402
from llama_srb.request.parse import Defaults, request_from  # noqa: E402

WORDS = ("once", "upon", "a", "time", "dog", "cat", "river", "said", "old", "house", "under", "moon")
READ = 1 << 20  # bytes
SUMMARY = re.compile(r"(\d+) of \1 lines in ([\d.]+) s; (\d+) tokens")


@dataclass(frozen=True)
class Row:
    """One round of one side."""

    seconds: float
    tokens: int

    @property
    def rate(self) -> float:
        return self.tokens / self.seconds


def bodies(given: argparse.Namespace) -> list[dict[str, Any]]:
    """The requests. With --beginnings each prompt has one of so many common beginnings."""
    dice = random.Random(given.seed)

    def words(count: int) -> str:
        return " ".join(dice.choices(WORDS, k=count))

    beginnings = [words(given.common) for _ in range(given.beginnings)] or [""]
    return [
        {
            "prompt": f"{dice.choice(beginnings)} {i} {words(dice.randint(4, given.words))}",
            "max_tokens": dice.randint(8, given.tokens),
            "n": 1,
            "ignore_eos": True,
        }
        for i in range(given.lines)
    ]


def settings_of(given: argparse.Namespace) -> dict[str, Any]:
    return {"model": str(given.model), "ctx": given.ctx, "parallel": given.parallel}


async def by_batch(given: argparse.Namespace, asked: list[dict[str, Any]]) -> Row:
    """`llama-srb batch` with a server of its own."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("LLAMA_SRB_")}
    flags = [word for name, value in settings_of(given).items() for word in (f"--{name}", str(value))]
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        line = {"method": "POST", "url": "/v1/completions"}
        lines = [{"custom_id": str(i), **line, "body": body} for i, body in enumerate(asked)]
        source.write_text("".join(json.dumps(one) + "\n" for one in lines))
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "llama_srb.cli", "batch", str(source), str(output), *flags,
            stderr=asyncio.subprocess.PIPE, env=ours | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        _, told = await process.communicate()
    if process.returncode or (found := SUMMARY.search(told.decode())) is None:
        raise RuntimeError(f"llama-srb batch ended with {process.returncode}: {told.decode()[-2000:]}")
    return Row(float(found[2]), int(found[3]))


async def by_engine(given: argparse.Namespace, asked: list[dict[str, Any]]) -> Row:
    """llama-batched with the same settings, and all commands at once."""
    settings = load(settings_of(given), environ={})
    requests = [request_from(body, Defaults(n=1)) for body in asked]
    commands = b"".join(encode_generate(str(i), request) for i, request in enumerate(requests))
    pipe = asyncio.subprocess.PIPE
    engine = await asyncio.create_subprocess_exec(
        *settings.engine_command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL,
        env=settings.engine_environment,
    )  # fmt: skip
    assert engine.stdin
    assert engine.stdout
    try:
        told = b""
        while b'"event":"ready"' not in told:
            told += await _read(engine.stdout)
        began, left, tokens, rest = time.monotonic(), len(asked), 0, b""
        engine.stdin.write(commands)
        while left:
            *lines, rest = (rest + await _read(engine.stdout)).split(b"\n")
            for line in lines:
                if b'"event":"error"' in line:
                    raise RuntimeError(f"llama-batched refused a line: {line[:500]!r}")
                if b'"event":"done"' in line:
                    left, tokens = left - 1, tokens + json.loads(line)["completion_tokens"]
        return Row(time.monotonic() - began, tokens)
    finally:
        engine.kill()
        await engine.wait()


async def _read(stream: asyncio.StreamReader) -> bytes:
    if not (data := await stream.read(READ)):
        raise RuntimeError("llama-batched has ended")
    return data


SIDES: dict[str, Callable[[argparse.Namespace, list[dict[str, Any]]], Coroutine[Any, Any, Row]]] = {
    "llama-srb batch": by_batch,
    "llama-batched": by_engine,
}


async def measure(given: argparse.Namespace) -> None:
    asked = bodies(given)
    wanted = sum(body["max_tokens"] for body in asked)
    rows: dict[str, list[Row]] = {name: [] for name in SIDES}
    print("| round | side | seconds | tokens | tokens/s |\n|---|---|---|---|---|", flush=True)
    for number in range(given.rounds):
        for name in list(SIDES)[:: 1 if number % 2 else -1]:
            row = await SIDES[name](given, asked)
            if row.tokens != wanted:
                raise RuntimeError(f"{name} generated {row.tokens} tokens, not {wanted}")
            rows[name].append(row)
            print(f"| {number} | {name} | {row.seconds:.2f} | {row.tokens} | {row.rate:.0f} |", flush=True)
    batch, engine = (statistics.median(row.rate for row in rows[name]) for name in SIDES)
    print(f"llama-srb batch / llama-batched: {batch / engine:.3f}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    for name, default, what in (
        ("lines", 400, ""), ("rounds", 5, ""), ("words", 200, "most of a prompt, beside its beginning"),
        ("tokens", 128, "most of an answer; the fewest are 8"), ("beginnings", 0, "common ones of prompts"),
        ("common", 200, "words of each"), ("ctx", 16384, ""), ("parallel", 32, ""), ("seed", 1, ""),
    ):  # fmt: skip
        about = f"{what} (default: {default})".strip()
        parser.add_argument(f"--{name}", type=int, default=default, help=about)
    try:
        asyncio.run(measure(parser.parse_args()))
    except RuntimeError as error:
        print(f"WRONG: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
