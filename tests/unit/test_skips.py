"""A skip is a failure in CI unless it is in the list of tests/support/skips.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.skips import MAY_SKIP

HEAD = "import pytest\n"
TESTS = {
    "a mark": "@pytest.mark.skip(reason='no browser')\ndef test_it(): pass\n",
    "a condition": "@pytest.mark.skipif(True, reason='no browser')\ndef test_it(): pass\n",
    "inside": "def test_it(): pytest.skip('no browser')\n",
    "a fixture": "@pytest.fixture\ndef page(): pytest.skip('no browser')\ndef test_it(page): pass\n",
    "a module": "pytest.importorskip('nothing_of_this_name', reason='no browser')\ndef test_it(): pass\n",
    "expected to fail": "@pytest.mark.xfail(reason='no browser')\ndef test_it(): assert False\n",
    "failing in vain": "@pytest.mark.xfail(reason='no browser')\ndef test_it(): pass\n",
}


def run(folder: Path, source: str, name: str, **environ: str) -> tuple[int, str]:
    file = folder / name
    file.parent.mkdir(parents=True)
    file.write_text(HEAD + source)
    options = ["-p", "tests.support.skips", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    command = [sys.executable, "-m", "pytest", *options, f"--rootdir={folder}", str(file)]
    environment = {name: value for name, value in os.environ.items() if name != "CI"} | environ
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@each_row("source", TESTS.values(), ids=TESTS)
def test_a_skip_fails_in_ci_with_its_reason(tmp_path: Path, source: str) -> None:
    code, output = run(tmp_path, source, "tests/real/test_x.py", CI="true")
    assert code in (1, 2)
    assert "no browser" in output


def test_a_skip_is_a_skip_elsewhere(tmp_path: Path) -> None:
    code, output = run(tmp_path, TESTS["a mark"], "tests/real/test_x.py")
    assert (code, "1 skipped" in output) == (0, True)


def test_a_listed_test_may_be_skipped_in_ci(tmp_path: Path) -> None:
    source = f"{TESTS['a module']}"
    code, output = run(tmp_path, source, "tests/real/test_training.py", CI="true")
    assert (code, "did not run" in output) == (5, False), "no test is left"


def test_each_entry_of_the_list_names_a_test_and_a_reason() -> None:
    for name, reason in MAY_SKIP.items():
        file, _, test = name.partition("::")
        assert test in (ROOT / file).read_text()
        assert len(reason) > 10
