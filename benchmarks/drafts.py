"""Measures what drafts save on recorded texts, and what they cost where nothing repeats.

.venv/bin/python benchmarks/drafts.py MODEL FOLDER [--rounds 3] [--items 4] [--only edits/JSON] [--peer]

FOLDER has corpus/ and schemas/. The engine draws as usual, but takes the tokens of a recorded text in place
of those that it has drawn: a model of random weights repeats nothing by itself. Each row is asked with and
without `draft`, in turns; "free" is the model's own text. Figures are medians over rounds of sums over all
items; ms a token: of decoding, by the tokens of the longest sequence. "by guesses": the share of the tokens
that were guesses. "ceiling": the ratio if only the guesses that were right had been rows, and nothing else
had taken time, by the times of steps of so many rows, which are measured first. --draft-model: one that
guesses where texts say little, as of a model that padded.py has made of it. --peer: the same of the best of
llama-server's drafters that need no model (drafters.cpp), for each text by itself.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT)]

from benchmarks import peers  # noqa: E402
from benchmarks.draft_sets import Item, sets  # noqa: E402
from tests.support.lines import Lines  # noqa: E402

SIZES = {1: 240, 4: 160, 8: 120}  # sequences, and tokens of each
DRAFT = 16
LIBRARIES = (
    "common/libllama-common.a", "common/libllama-common-base.a", "src/libllama.a", "ggml/src/libggml.a",
    "ggml/src/libggml-cpu.a", "ggml/src/ggml-rpc/libggml-rpc.a", "ggml/src/libggml-base.a",
    "vendor/hash/libvendor-hash.a", "vendor/cpp-httplib/libcpp-httplib.a",
)  # fmt: skip
AGAIN = "edits, again"  # with an answer more than there are sequences: the one that came before
FOREST = "In the forest by the river lived a fox. " * 12
SAMPLING = {"temperature": 0.8, "seed": 1, "ignore_eos": True}


def tokens_of(engine: Lines, text: str) -> list[int]:
    """Those of a text in the midst of another one: some tokenizers put a space before a text."""
    before, both = (engine.ask("tokenize", text=one)["tokens"] for one in ("\n", "\n" + text))
    return list(both[len(before) :] if both[: len(before)] == before else both)


def replayed(engine: Lines, item: Item, n: int, most: int) -> dict[str, Any]:
    """The request that makes the item's texts."""
    texts = [tokens_of(engine, text)[:most] for text in item.answers[:n]]
    texts = [text for text in texts if text]
    rows = [{"replay": text, "max_tokens": len(text)} for text in texts]
    return {"prompt": item.prompt, "n": len(rows), "sequences": rows, "sampling": SAMPLING, **item.fields}


def requests(engine: Lines, items: list[Item], n: int, most: int) -> list[dict[str, Any]]:
    """Without those whose texts the engine refuses, such as a schema that it does not take."""
    asked = [replayed(engine, item, n, most) for item in items]
    return [one for one in asked if engine.generate(**one).events[-1]["event"] == "done"]


CLIENTS = itertools.count()
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def step_times(engine: Lines) -> dict[int, float]:
    """ms of a step, by its rows: of texts that differ from their first token on."""
    found = {}
    for n in ROWS:
        asked = {"n": n, "max_tokens": 40, "sampling": SAMPLING, "first_token": "distinct"}
        spent = [
            engine.generate(prompt=FOREST, **asked, draft=0).done["timings"]["decode_ms"] / 39 for _ in "ab"
        ]
        found[n] = min(spent)
    return found


def at(times: dict[int, float], n: float) -> float:
    """ms of a step of n rows: between two that were measured in a straight line."""
    some = sorted(times)
    above = next((one for one in some if one >= n), some[-1])
    below = max((one for one in some if one <= n), default=some[0])
    part = (min(n, above) - below) / (above - below) if above > below else 0.0
    return times[below] + part * (times[above] - times[below])


def rows_of(asked: list[dict[str, Any]], n: int) -> float:
    """Rows of a step without guesses, on average: texts that are still equal share one."""
    rows, steps = 0, 0
    for request in asked:
        texts = [tuple(one["replay"]) for one in request.get("sequences", [])[:n]]
        longest = max(map(len, texts), default=1)
        rows += sum(len({text[:i] for text in texts if len(text) > i}) for i in range(longest)) or n
        steps += longest
    return rows / steps


def ceiling(times: dict[int, float], rows: float, plain: float, share: float) -> float:
    """Of steps that take so many ms without guesses, where this share of the tokens were guesses."""
    more = plain - at(times, rows)  # of the texts, which are longer
    return plain / ((1 - share) * (at(times, rows / (1 - share)) + more))


def run(engine: Lines, asked: list[dict[str, Any]], draft: int, again: bool) -> tuple[float, dict[str, int]]:
    """ms of decoding, and how many tokens were guessed and right. Each request is that of another client.

    again: which has got the last one of its texts as an answer before.
    """
    timings = []
    for one in asked:
        client = str(next(CLIENTS))
        if again:
            engine.generate(**one | {"n": 1, "sequences": one["sequences"][-1:]}, client=client)
            one = one | {"n": one["n"] - 1, "sequences": one["sequences"][:-1]}
        timings.append(engine.generate(**one, draft=draft, client=client).done["timings"])
    counts = {key: sum(one.get(key, 0) for one in timings) for key in ("draft_n", "draft_n_accepted")}
    return sum(one["decode_ms"] for one in timings), counts


@functools.cache
def drafters() -> Path:
    """The compiled drafters.cpp, with the libraries of the engine's build."""
    folder, source, tree = Path(tempfile.mkdtemp()), peers.setting("CMAKE_HOME_DIRECTORY"), peers.objects()
    program = folder / "drafters"
    subprocess.run(
        ["g++", "-std=c++17", "-O1", "-fopenmp", *(f"-I{source}/{one}" for one in
         ("common", "include", "ggml/include", "vendor")), str(Path(__file__).with_name("drafters.cpp")),
         *(str(tree / one) for one in LIBRARIES), "-lpthread", "-ldl", "-o", str(program)],
        check=True,
    )  # fmt: skip
    return program


def best_peer(engine: Lines, asked: list[dict[str, Any]]) -> str:
    """The drafter of llama-server that makes the most tokens of these texts, and its shares."""
    lines = [
        json.dumps({"prompt": tokens_of(engine, request["prompt"]), "answer": one["replay"]})
        for request in asked
        for one in request["sequences"]
    ]
    found = subprocess.run(
        [drafters()], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True
    ).stdout
    sums: dict[str, Counter[str]] = {}
    for line in found.splitlines():
        for kind, counts in json.loads(line).items():
            sums.setdefault(kind, Counter()).update(counts)
    kind, most = max(sums.items(), key=lambda one: one[1]["right"])
    share = most["right"] / (most["right"] + most["steps"])
    return f" {kind} {share:.2f}, {most['right'] / max(1, most['guessed']):.2f} |"


def row(
    engine: Lines, name: str, n: int, asked: list[dict[str, Any]], rounds: int, steps: dict[int, float]
) -> str:
    times: dict[int, list[float]] = {0: [], DRAFT: []}
    counts: dict[str, int] = {}
    for i in range(rounds):
        for draft in (0, DRAFT) if i % 2 == 0 else (DRAFT, 0):
            spent, found = run(engine, asked, draft, name == AGAIN)
            counts = found if draft else counts
            times[draft].append(spent)
    longest = [max(one["max_tokens"] for one in request.get("sequences", [request])) for request in asked]
    ratios = [plain / drafted for plain, drafted in zip(*times.values(), strict=True)]
    guessed, right = counts["draft_n"], counts["draft_n_accepted"]
    made = [request.get("sequences", [request] * n)[:n] for request in asked]
    tokens = sum(one["max_tokens"] for rows in made for one in rows)
    plain, share = median(times[0]) / sum(longest), right / tokens
    return (
        f"| {name} | {n} | {len(asked)} | {plain:.2f} | {median(times[DRAFT]) / sum(longest):.2f} | "
        f"{median(ratios):.2f} | {ceiling(steps, rows_of(asked, n), plain, share):.2f} | {share:.2f} | "
        f"{right / max(1, guessed):.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--items", type=int, default=4)
    parser.add_argument("--only", default="")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--draft-model", type=Path)
    given = parser.parse_args()
    made = sets(given.folder, given.items)
    free = {"prompt": FOREST, "sampling": SAMPLING}
    peer = " llama-server's best: by guesses, right |" if given.peer else ""
    print(
        "| set | n | items | plain, ms a token | with drafts | ratio | ceiling | by guesses | right |" + peer
    )
    print("| -- | -- | -- | -- | -- | -- | -- | -- | -- |" + " -- |" * given.peer)
    more = ("-md", str(given.draft_model)) if given.draft_model else ()
    with Lines("-np", "64", "-c", "16384", *more, model=given.model) as engine:
        steps = step_times(engine)
        print("ms a step by rows:", ", ".join(f"{n}: {ms:.1f}" for n, ms in steps.items()), file=sys.stderr)
        for name in given.only.split("/") if given.only else (*made, "free"):
            for n, most in SIZES.items():
                if name == "free":
                    asked = [free | {"n": n, "max_tokens": most}]
                else:
                    asked = requests(engine, made[name], n + (name == AGAIN), most)
                if asked:
                    other = best_peer(engine, asked) if given.peer and name != "free" else ""
                    print(row(engine, name, n, asked, given.rounds, steps) + other, flush=True)


if __name__ == "__main__":
    main()
