"""What the scripts of foreign suites share: an environment of packages, pytest in it, and a report.

A script says by a table which tests differ and why. A failure that is not in it is new and fails the script,
as does an entry of which no test fails any more.
"""

from __future__ import annotations

import os
import subprocess
import venv
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from xml.etree import ElementTree

from benchmarks import peers

Results = Mapping[str, str]  # "" for a test that passed, "skipped", or the first line of the fault
Known = Mapping[str, str]  # why tests differ, by a pattern of their names


def folder(name: str) -> Path:
    """A folder of the cache for a suite."""
    path = peers.cache() / "suites" / name
    path.mkdir(parents=True, exist_ok=True)
    return path


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def environment(home: Path, packages: Sequence[str]) -> Path:
    """The python of an environment with these packages, which is made when the list has changed."""
    python, stamp = home / "venv/bin/python", home / "packages"
    wanted = "\n".join(packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        stamp.unlink(missing_ok=True)
        venv.create(home / "venv", clear=True, with_pip=True)
        run(python, "-m", "pip", "install", "--quiet", *packages, cwd=home)
        stamp.write_text(wanted)
    return python


def run_pytest(python: Path, cwd: Path, *arguments: str | Path, **variables: str) -> dict[str, str]:
    """What became of each test, by its name: CLASS_OR_MODULE::NAME."""
    report = cwd / "results.xml"
    report.unlink(missing_ok=True)
    own = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command: list[str | Path] = [
        python,
        "-m",
        "pytest",
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        f"--junit-xml={report}",
    ]
    command = [*map(str, command), *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env=own | variables, capture_output=True, text=True)
    (cwd / "output.txt").open("a").write(done.stdout + done.stderr)
    assert report.exists(), done.stdout + done.stderr
    return read_results(report.read_text())


def read_results(report: str) -> dict[str, str]:
    """The results in a JUnit file."""
    results = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('classname', '').split('.')[-1]}::{case.get('name')}"
        results[name] = ""
        for child in case:
            if child.tag == "skipped":
                results[name] = "skipped"
            elif child.tag in ("failure", "error"):
                results[name] = (child.get("message") or "failed").splitlines()[0][:160]
    return results


def tell(suite: str, results: Results, known: Known, by_chance: Collection[str] = ()) -> int:
    """Prints the counts and what is new; the exit status: 1 if something is.

    by_chance: patterns of tests that fail sometimes.
    """
    passed = [name for name, fault in results.items() if not fault]
    skipped = [name for name, fault in results.items() if fault == "skipped"]
    failed = [name for name, fault in results.items() if fault not in ("", "skipped")]
    told = (*known, *by_chance)
    new = [name for name in failed if not any(fnmatchcase(name, pattern) for pattern in told)]
    idle = [pattern for pattern in known if not any(fnmatchcase(name, pattern) for name in failed)]
    counts = f"{len(passed)} of {len(passed) + len(failed)} pass, {len(skipped)} skipped"
    print(f"{suite}: {counts}, {len(failed) - len(new)} known to differ")
    for name in new:
        print(f"  new: {name}: {results[name]}")
    for pattern in idle:
        print(f"  passes now, but stands in the table: {pattern}")
    return int(bool(new or idle))
