"""Holds the compiler of JSON schemas against schemas with valid and invalid instances.

`python benchmarks/structure.py FOLDER` reads FOLDER/official.jsonl.xz and FOLDER/real.jsonl.xz (one group a
line: {id, schema, tests: [{data, valid}]}) and prints how many schemas are accepted, how many invalid
instances are admitted, and how many valid ones are rejected. It needs build/bin/engine-tests, not a model.

`--times VOCABULARY` (a GGUF file) prints instead how long a sample of the real schemas takes to compile, and
the mask of each token of their valid instances, beside xgrammar and llguidance, which are installed into
`--peers FOLDER`. Times are the processor's.
"""

import argparse
import json
import lzma
import select
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

ENGINE_TESTS = Path(__file__).parents[1] / "build/bin/engine-tests"
MADE = ("Synthesized", "Handwritten")
PEERS = {"llguidance": "1.9.1", "xgrammar": "0.2.8"}


def groups(path: Path) -> list[dict[str, Any]]:
    """The groups of a file, without those whose schemas nobody used."""
    with lzma.open(path, "rt") as file:
        rows = [json.loads(line) for line in file]
    for row in rows:
        if row["id"].startswith("draft7/") and isinstance(row["schema"], dict):
            row["schema"].setdefault("$schema", "http://json-schema.org/draft-07/schema#")
    return [row for row in rows if not row["id"].startswith(MADE)]


def admit(command: list[str], rows: list[dict[str, Any]], options: dict[str, Any]) -> list[dict[str, Any]]:
    """What the engine says of each group."""
    lines = []
    for row in rows:
        values = [json.dumps(test["data"]) for test in row["tests"]]
        lines.append(json.dumps({"schema": json.dumps(row["schema"]), "values": values, **options}))
    done = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, encoding="utf-8"
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def report(name: str, rows: list[dict[str, Any]], answers: list[dict[str, Any]], show: int) -> None:
    """Prints the figures of one file."""
    reasons: Counter[str] = Counter()
    wrong: list[tuple[str, str, Any]] = []
    accepted = n_valid = n_invalid = with_admitted = warned = 0
    for row, answer in zip(rows, answers, strict=True):
        if "error" in answer:
            where, _, why = answer["error"].partition(": ")
            reasons[f"{where.rpartition('/')[2]}: {why[:70]}"] += 1
            continue
        accepted += 1
        warned += bool(answer["warnings"])
        kinds = set()
        for test, admitted in zip(row["tests"], answer["admitted"], strict=True):
            n_valid += test["valid"]
            n_invalid += not test["valid"]
            if admitted != test["valid"]:
                kind = "admitted" if admitted else "rejected"
                kinds.add(kind)
                wrong.append((kind, row["id"], test))
        with_admitted += "admitted" in kinds
    counts = Counter(kind for kind, _, _ in wrong)
    times = sorted(answer["ms"] for answer in answers)
    p99 = times[int(len(times) * 0.99)]
    print(
        f"{name}: {accepted} of {len(rows)} accepted ({warned} with warnings); "
        f"invalid admitted {counts['admitted']} of {n_invalid} in {with_admitted} schemas; "
        f"valid rejected {counts['rejected']} of {n_valid}; "
        f"compile ms p50 {statistics.median(times):.1f}, p99 {p99:.1f}, max {times[-1]:.0f}"
    )
    if show:
        for reason, n in reasons.most_common(show):
            print(f"  {n:4} {reason}")
        for kind, group, test in wrong[: 3 * show]:
            print(f"  {kind} {group}: {json.dumps(test)[:160]}")


class Side:
    """A program that answers lines; one that takes too long for a line is started again."""

    def __init__(self, command: list[str], first: str = "") -> None:
        self.command, self.first = command, first
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        if self.first:
            self.write(self.first)

    def write(self, line: str) -> None:
        assert self.process.stdin
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def read(self, seconds: float = 600) -> dict[str, Any]:
        assert self.process.stdout
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        line = self.process.stdout.readline() if ready else b""
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self.process.kill()
        self.process.wait()
        self.start()
        return {"error": "it crashed" if ready else f"it takes more than {seconds:.0f} seconds"}

    def ask(self, line: dict[str, Any]) -> dict[str, Any]:
        self.write(json.dumps(line))
        return self.read(120)


def sample(rows: list[dict[str, Any]], n: int, options: dict[str, Any]) -> list[dict[str, Any]]:
    """Schemas from the whole list, each with at most four valid instances in the order of properties here."""
    rows = [row for row in rows if any(test["valid"] for test in row["tests"])]
    rows = [rows[i * len(rows) // n] for i in range(min(n, len(rows)))]
    for row in rows:
        row["tests"] = [test for test in row["tests"] if test["valid"]][:4]
    answers = admit([str(ENGINE_TESTS), "--admits"], rows, {**options, "spaced": True})
    out = []
    for row, answer in zip(rows, answers, strict=True):
        plain = [json.dumps(test["data"], ensure_ascii=False) for test in row["tests"]]
        texts = [text for text in answer.get("written", plain) if text]
        if texts:
            out.append({"schema": json.dumps(row["schema"]), "texts": texts})
    return out


def install(folder: Path) -> str:
    """The peers in an environment of their own; its Python."""
    python = folder / "bin/python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        wanted = [f"{name}=={version}" for name, version in PEERS.items()]
        subprocess.run([python, "-m", "pip", "install", "-q", *wanted], check=True)
    return str(python)


def times(given: argparse.Namespace, options: dict[str, Any]) -> None:
    """Prints a row for each side: the compilation, and masks of one and of several sequences."""
    ours = Side([str(ENGINE_TESTS), "--masks", str(given.times)])
    vocabulary = json.dumps(ours.read())
    sides = {"here": ours}
    if given.peers:
        command = [install(given.peers), str(Path(__file__).with_name("structure_peer.py"))]
        sides |= {name: Side([*command, name], vocabulary) for name in given.peer or PEERS}
    rows = sample(groups(given.folder / "real.jsonl.xz"), given.schemas, options)
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in sides}
    for i, row in enumerate(rows):
        line = {**row, **options, "n": given.n if i % 5 == 0 else 0, "most": given.tokens}
        answers["here"].append(ours.ask(line))
        tokens = answers["here"][-1]["tokens"]
        for name, side in sides.items():
            if side is not ours:
                answers[name].append(side.ask({**line, "tokens": tokens}))
    print(f"{len(rows)} schemas, {len(json.loads(vocabulary)['texts'])} tokens")
    for name, all_of_it in answers.items():
        made = [answer for answer in all_of_it if "error" not in answer]
        print(f"{name}: {len(made)} accepted, {sum(a.get('rejected', 0) for a in made)} texts rejected")
        print(f"  compile, ms: {spread([answer['ms'] for answer in made])}")
        kinds = {"alone": "mask, n = 1", "together": f"mask, n = {given.n}", "held": "mutex"}
        for key, what in kinds.items():
            found = [us for answer in made for us in answer.get(key) or []]
            if found:
                print(f"  {what}, µs: {spread(found)}")
        if given.show:
            slow = sorted(((max(a.get("alone") or [0]), i) for i, a in enumerate(all_of_it)), reverse=True)
            for most, i in slow[: given.show]:
                print(f"    {most:8.0f} µs, {all_of_it[i]['ms']:.1f} ms: {rows[i]['schema'][:150]}")
            errors = Counter(answer["error"][:100] for answer in all_of_it if "error" in answer)
            print(*(f"    {n} {error}" for error, n in errors.most_common(given.show)), sep="\n")


def spread(found: list[float]) -> str:
    """The usual figures of a list."""
    found = sorted(found)
    p50, p99 = (found[int(len(found) * part)] for part in (0.5, 0.99))
    mean = statistics.fmean(found)
    return f"p50 {p50:.1f}, p99 {p99:.1f}, mean {mean:.1f}, max {found[-1]:.0f}, of {len(found)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", nargs="+", default=[str(ENGINE_TESTS), "--admits"])
    parser.add_argument("--show", type=int, default=0, help="so many reasons and instances")
    parser.add_argument("--lenient", action="store_true")
    parser.add_argument("--closed", action="store_true")
    parser.add_argument("--only", choices=("official", "real"))
    parser.add_argument("--times", type=Path, metavar="VOCABULARY")
    parser.add_argument("--peers", type=Path, metavar="FOLDER")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one, or these")
    parser.add_argument("--schemas", type=int, default=250, help="of the sample for --times")
    parser.add_argument("--tokens", type=int, default=1000, help="of each text, at most")
    parser.add_argument("-n", type=int, default=64, help="sequences of a fifth of the sample")
    given = parser.parse_args()
    options = {"lenient": given.lenient, "open": not given.closed}
    if given.times:
        times(given, options)
        return
    for name in ("official", "real"):
        if given.only in (None, name):
            rows = groups(given.folder / f"{name}.jsonl.xz")
            report(name, rows, admit(given.program, rows, options), given.show)


if __name__ == "__main__":
    main()
