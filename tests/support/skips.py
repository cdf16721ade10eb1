"""In CI (CI=true) a test that is skipped or expected to fail is a failure, unless it is in this list."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

MAY_SKIP = {  # the beginning of a test's id: the reason why CI cannot run it
    "tests/real/test_training.py": "CI does not install the extra `train`: PyTorch is larger than all else",
    "tests/real/test_cpu_check.py::test_a_portable_engine_takes": "CI builds the engine for its own CPU",
    "tests/real/test_folder.py::test_a_folder_that_may_not_be_used": "CI is root, who may use every folder",
}

Reports = Generator[None, pytest.TestReport, pytest.TestReport]
CollectReports = Generator[None, pytest.CollectReport, pytest.CollectReport]


def fail_unlisted_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """In CI, turns the report of a skip or an expected failure into a failure."""
    if os.environ.get("CI") and report.skipped and not report.nodeid.startswith(tuple(MAY_SKIP)):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else getattr(report, "wasxfail", "")
        if hasattr(report, "wasxfail"):
            del report.wasxfail
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} did not run in CI, and is not in tests/support/skips.py: {reason}"


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport() -> Reports:
    report = yield
    fail_unlisted_skip(report)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report() -> CollectReports:
    report = yield
    fail_unlisted_skip(report)
    return report
