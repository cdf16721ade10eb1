"""Compares outcomes with those of llama-server, which `tests.peer --baseline` writes to baseline.json.

known.json lists the tests of the baseline that do not pass here: `excluded`, by design, and `failing`, each
with its reason. `absent` lists tests of routers and of security that llama-server does not pass either, each
with the model or page that is not at hand. `subset` lists the tests that CI runs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.peer import suite
from tests.support.places import STORYTELLER

HERE = Path(__file__).resolve().parent
BASELINE, KNOWN = HERE / "baseline.json", HERE / "known.json"
MOST_EXCLUDED, MOST_MISSING = 20, 31
RUNS = 2  # of the baseline; the better outcome counts, since tests time out on a busy machine
ORDER = ("passed", "skipped", "failed")


def make(workers: int) -> str:
    """Runs all tests against llama-server and writes which of them pass there."""
    runs = [suite.run(suite.llama_server(), suite.all_tests(), workers) for _ in range(RUNS)]
    outcomes = {test: min((run[test] for run in runs), key=ORDER.index) for test in runs[0]}
    written = {
        "llama.cpp": suite.commit(),
        "model": {"name": STORYTELLER.name, "sha256": suite.sha256(STORYTELLER)},
        "outcomes": outcomes,
    }
    BASELINE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    return f"{BASELINE.name}: {_counts(outcomes.values())}"


def recorded() -> dict[str, Any]:
    """The baseline: llama.cpp's commit, the model, and llama-server's outcomes by test."""
    found: dict[str, Any] = json.loads(BASELINE.read_text())
    return found


def known() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(KNOWN.read_text())
    return found


def subset() -> list[str]:
    return list(known()["subset"])


def faults(outcomes: Mapping[str, str]) -> list[str]:
    """What differs from the baseline and is not known; what is known and does not differ."""
    listed = known()
    missing = listed["excluded"] | listed["failing"]
    theirs = recorded()["outcomes"]
    found = [
        f"{test} has {outcome}; it passes with llama-server, and is not in known.json"
        for test, outcome in outcomes.items()
        if outcome != "passed" and theirs.get(test) == "passed" and test not in missing
    ]
    return found + [
        f"{test} passes, but known.json says that it does not: {missing[test]}"
        for test, outcome in outcomes.items()
        if outcome == "passed" and test in missing
    ]


def report(outcomes: Mapping[str, str]) -> list[str]:
    """The figures, and the faults, as lines."""
    theirs = recorded()["outcomes"]
    in_baseline = [outcome for test, outcome in outcomes.items() if theirs.get(test) == "passed"]
    return [
        *faults(outcomes),
        f"of {len(in_baseline)} tests that llama-server passes: {_counts(in_baseline)}",
        f"of {len(outcomes)} tests in all: {_counts(outcomes.values())}",
    ]


def _counts(outcomes: Iterable[str]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(outcomes).items()))
