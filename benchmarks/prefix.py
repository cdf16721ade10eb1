#!/usr/bin/env python3
"""What the prefix cache saves: .venv/bin/python benchmarks/prefix.py [--model M.gguf] [--tokens N] [--json]

One row for each case and engine mode: the cached part of the prompt, the time to the first token, the cells
in use afterwards, the bytes of a prefix on disk. Nothing else should run beside it.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import dataclasses
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).resolve().parent.parent)]

from llama_srb import config  # noqa: E402
from llama_srb.engine.events import Done, Error, Stream  # noqa: E402
from llama_srb.engine.exchange import Exchange  # noqa: E402
from llama_srb.engine.pool import Mode, Pool  # noqa: E402
from llama_srb.engine.settings import EngineSettings  # noqa: E402
from llama_srb.request.fields import CompletionRequest, Sampling  # noqa: E402
from llama_srb.request.shapes import SequenceName  # noqa: E402

SENTENCE = "The old fox ran over a small hill to see who sang so late in the night. "
N, MAX_TOKENS, CHOSEN = 8, 8, 5
ROOM = 64  # tokens of the context for the prompt's number, a candidate and its continuation
LIMIT = 55.0  # seconds for all measurements


@dataclass(frozen=True)
class Row:
    """One measurement. cells_used is None if the process has ended; prefix_bytes is None without a folder."""

    mode: Mode
    case: str
    prompt_tokens: int
    cached_tokens: int
    first_token_ms: float
    cells_used: int | None = None
    prefix_bytes: int | None = None

    def cells(self) -> list[str]:
        saved = f"{100 * self.cached_tokens / self.prompt_tokens:.1f} %"
        rest = ["" if value is None else f"{value:,}" for value in (self.cells_used, self.prefix_bytes)]
        first = f"{self.first_token_ms:.1f}"
        return [self.mode, self.case, str(self.prompt_tokens), str(self.cached_tokens), saved, first, *rest]


HEADS = [
    "mode", "case", "prompt", "cached", "prefill saved", "first token ms", "cells used", "bytes per prefix",
]  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """The result of one request."""

    id: str
    done: Done
    first_token_ms: float
    texts: list[str]


class Bench:
    """The measurements of one mode. Prompts have the same length and begin differently: no shared prefix."""

    def __init__(self, model: Path | None, mode: Mode, body: str, report: Callable[[Row], None]) -> None:
        self.model, self.mode, self.body, self.report = model, mode, body, report
        self._names = itertools.count(1)

    def a_request(self, prompt: str = "", continue_from: SequenceName | None = None) -> CompletionRequest:
        prompt = prompt or ("" if continue_from else f"{next(self._names)}. {self.body}")
        sampling = Sampling(seed=7, ignore_eos=True)
        return CompletionRequest(
            prompt=prompt, continue_=continue_from, n=N, max_tokens=MAX_TOKENS, sampling=sampling
        )

    @contextlib.asynccontextmanager
    async def pool(self, **options: Any) -> AsyncIterator[Pool]:
        async with a_pool(self.model, self.mode, **options) as pool:
            yield pool

    async def row(
        self, pool: Pool, case: str, request: CompletionRequest, folder: Path | None = None
    ) -> Answer:
        answer = await measured(pool.generate(request))
        done = answer.done
        used = (await pool.command("status"))["cells_used"] if self.mode == "resident" else None
        row = Row(
            self.mode,
            case,
            done.prompt_tokens,
            done.cached_tokens,
            answer.first_token_ms,
            used,
            largest(folder),
        )
        self.report(row)
        return answer


def largest(folder: Path | None) -> int | None:
    """The size of the largest file in a folder."""
    return max((path.stat().st_size for path in folder.iterdir()), default=None) if folder else None


@contextlib.asynccontextmanager
async def a_pool(model: Path | None, mode: Mode, **options: Any) -> AsyncIterator[Pool]:
    """A pool whose model is loaded; the bundled one if none is given."""
    settings = config.load({"model": model, "engine_mode": mode, "parallel": N, **options}, environ={})
    async with Pool(EngineSettings(settings.engine_command, "the model"), mode=mode) as pool:
        await pool.wait_ready()
        yield pool


async def measured(generation: Exchange) -> Answer:
    """Runs a request. The time to the first token includes the start of a process, if there is one."""
    began, first, texts = time.perf_counter(), 0.0, [""] * N
    async with generation:
        async for events in generation:
            for event in events:
                if isinstance(event, Stream):
                    first = first or time.perf_counter() - began
                    texts[event.index] += event.text
    end = events[-1]
    if isinstance(end, Error):
        sys.exit(f"prefix.py: {end.message}")
    assert isinstance(end, Done)
    return Answer(generation.id, end, 1000 * first, texts)


# Cases


async def in_cells(bench: Bench) -> None:
    """The prefixes are in the KV cache of one process."""
    async with bench.pool() as pool:
        await measured(pool.generate(bench.a_request("Warm up.")))
        request = bench.a_request()
        await bench.row(pool, "cold", request)
        answer = await bench.row(pool, "identical prompt", request)
        chosen = str(request.prompt) + answer.texts[CHOSEN]
        await bench.row(pool, "chosen candidate, as text", bench.a_request(chosen))
        continued = bench.a_request(continue_from=SequenceName(CHOSEN, id=answer.id))
        await bench.row(pool, "chosen candidate, by name", continued)
        request = bench.a_request()
        await measured(pool.prefix(request))
        await bench.row(pool, "prefix first", request)


async def in_memory(bench: Bench) -> None:
    """No idle prefix may stay in cells, so it is restored from host memory."""
    async with bench.pool(cache_cells=0) as pool:
        request = bench.a_request()
        await measured(pool.generate(request))
        await bench.row(pool, "from memory", request)


async def on_disk(bench: Bench) -> None:
    """The prefix is restored from a folder after a restart."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        request = bench.a_request()
        async with bench.pool(prefix_cache=folder) as pool:
            await measured(pool.generate(request))
        async with bench.pool(prefix_cache=folder) as pool:
            await bench.row(pool, "from disk, after a restart", request, folder)


async def alone_cold(bench: Bench) -> None:
    async with bench.pool() as pool:
        await bench.row(pool, "cold", bench.a_request())


async def alone_from_disk(bench: Bench) -> None:
    """Each request has its own process, so prefixes are restored from the folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with bench.pool(prefix_cache=folder) as pool:
            request = bench.a_request()
            answer = await measured(pool.generate(request))
            await bench.row(pool, "identical prompt, from disk", request, folder)
            chosen = str(request.prompt) + answer.texts[CHOSEN]
            await bench.row(pool, "chosen candidate, from disk", bench.a_request(chosen), folder)
            request = bench.a_request()
            await measured(pool.prefix(request))
            await bench.row(pool, "prefix first, from disk", request, folder)
    await on_disk(bench)


CASES: dict[Mode, tuple[Callable[[Bench], Awaitable[None]], ...]] = {
    "resident": (in_cells, in_memory, on_disk),
    "per-request": (alone_cold, alone_from_disk),
}


# The run


async def a_body(model: Path | None, max_tokens: int) -> str:
    """The longest text that leaves ROOM in the context, of at most max_tokens."""
    async with a_pool(model, "resident") as pool:
        assert pool.ready is not None
        wanted = min(pool.ready.n_ctx_sequence - ROOM, max_tokens)
        tokens = (await pool.command("tokenize", text=SENTENCE * 100))["tokens"]
        return SENTENCE * max(1, wanted * 100 // len(tokens))


async def run(model: Path | None, max_tokens: int, report: Callable[[Row], None]) -> bool:
    """Runs all cases; False if LIMIT was too short for them."""
    try:
        async with asyncio.timeout(LIMIT):
            await run_cases(model, max_tokens, report)
    except TimeoutError:
        return False
    return True


async def run_cases(model: Path | None, max_tokens: int, report: Callable[[Row], None]) -> None:
    body = await a_body(model, max_tokens)
    for mode, cases in CASES.items():
        bench = Bench(model, mode, body, report)
        for case in cases:
            await case(bench)


def printed(rows: list[Row]) -> str:
    lines = [HEADS, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADS))]
    aligned = ([cell.ljust(w) for cell, w in zip(line, widths, strict=True)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, help="a GGUF file (default: the bundled model)")
    parser.add_argument("--tokens", type=int, default=8000, help="of the prompt, if it fits (default: 8000)")
    parser.add_argument("--json", action="store_true")
    wanted, rows = parser.parse_args(), list[Row]()
    in_time = asyncio.run(run(wanted.model, wanted.tokens, rows.append))
    print(json.dumps([dataclasses.asdict(row) for row in rows], indent=1) if wanted.json else printed(rows))
    if not in_time:
        sys.exit(f"prefix.py: stopped after {LIMIT:.0f} s; use fewer --tokens")


if __name__ == "__main__":
    main()
