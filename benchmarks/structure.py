"""Holds the compiler of JSON schemas against schemas with valid and invalid instances.

`python benchmarks/structure.py FOLDER` reads FOLDER/official.jsonl.xz and FOLDER/real.jsonl.xz (one group a
line: {id, schema, tests: [{data, valid}]}) and prints how many schemas are accepted, how many invalid
instances are admitted, and how many valid ones are rejected. It needs build/bin/engine-tests, not a model.
"""

import argparse
import json
import lzma
import statistics
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

ENGINE_TESTS = Path(__file__).parents[1] / "build/bin/engine-tests"
MADE = ("Synthesized", "Handwritten")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--program", nargs="+", default=[str(ENGINE_TESTS), "--admits"])
    parser.add_argument("--show", type=int, default=0, help="so many reasons and instances")
    parser.add_argument("--lenient", action="store_true")
    parser.add_argument("--closed", action="store_true")
    parser.add_argument("--only", choices=("official", "real"))
    given = parser.parse_args()
    options = {"lenient": given.lenient, "open": not given.closed}
    for name in ("official", "real"):
        if given.only in (None, name):
            rows = groups(given.folder / f"{name}.jsonl.xz")
            report(name, rows, admit(given.program, rows, options), given.show)


if __name__ == "__main__":
    main()
