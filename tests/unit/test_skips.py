"""A skip is a failure in CI unless it is in the list of tests/support/skips.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.places import ROOT
from tests.support.skips import MAY_SKIP

pytest_plugins = ["pytester"]

TESTS = {
    "a_mark": "@pytest.mark.skip(reason='no browser')\ndef test_it(): pass\n",
    "a_condition": "@pytest.mark.skipif(True, reason='no browser')\ndef test_it(): pass\n",
    "inside": "def test_it(): pytest.skip('no browser')\n",
    "a_fixture": "@pytest.fixture\ndef page(): pytest.skip('no browser')\ndef test_it(page): pass\n",
    "a_module": "pytest.importorskip('nothing_of_this_name', reason='no browser')\ndef test_it(): pass\n",
    "expected_to_fail": "@pytest.mark.xfail(reason='no browser')\ndef test_it(): assert False\n",
    "failing_in_vain": "@pytest.mark.xfail(reason='no browser')\ndef test_it(): pass\n",
}

Run = Callable[[dict[str, str]], pytest.RunResult]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Runs files of tests inside of this process, with the options of pyproject.toml."""

    def run(sources: dict[str, str]) -> pytest.RunResult:
        for name, source in sources.items():
            file = pytester.path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("import pytest\n" + source)
        options = ["-p", "tests.support.skips", "-p", "no:cacheprovider", "--continue-on-collection-errors"]
        places = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={pytester.path}"]
        return pytester.runpytest_inprocess(*options, *places, *sources)

    return run


def test_a_skip_fails_in_ci_with_its_reason(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    done = run({f"tests/real/test_{name}.py": source for name, source in TESTS.items()})
    assert done.ret == 1
    lines = [line for line in done.outlines if line.startswith(("FAILED ", "ERROR "))]
    said = {line.split(".py")[0].partition("test_")[2]: line.count("no browser") for line in lines}
    assert said == dict.fromkeys(TESTS, 1)


def test_a_skip_is_a_skip_elsewhere(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CI", raising=False)
    done = run({"tests/real/test_x.py": TESTS["a_mark"]})
    assert (done.ret, done.parseoutcomes()) == (0, {"skipped": 1})


def test_a_listed_test_may_be_skipped_in_ci(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    done = run({"tests/real/test_training.py": TESTS["a_module"]})
    assert (done.ret, "did not run" in done.stdout.str()) == (5, False), "no test is left"


def test_each_entry_of_the_list_names_a_test_and_a_reason() -> None:
    for name, reason in MAY_SKIP.items():
        file, _, test = name.partition("::")
        assert test in (ROOT / file).read_text()
        assert len(reason) > 10
