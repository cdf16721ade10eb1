"""Packages: the image has the files it needs, systemd reads the unit, the wheel has all modules and data."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Literal, TypeAlias

import pytest
from scikit_build_core.build import build_wheel
from scikit_build_core.settings.skbuild_read_settings import SettingsReader

from tests.support.places import ROOT
from tests.support.processes import installed

PACKAGING = ROOT / "packaging"
HADOLINT = Path(sys.executable).with_name("hadolint")
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "wheel"))
State: TypeAlias = Literal["wheel", "editable"]


def test_the_image_gets_all_files_that_build_sh_and_the_package_read() -> None:
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


def test_each_patch_is_described_and_said_to_be_offered_or_not() -> None:
    patches = {file.name: file.name[:4] for file in (ROOT / "patches").glob("*.patch")}
    upstream = ROOT / "patches/upstream"
    assert [name for name in patches if f"]({name})" not in (ROOT / "patches/README.md").read_text()] == []
    offers, _, others = (upstream / "README.md").read_text().partition("\nNot to be offered:")
    offered = re.findall(r"\(\.\./(\d{4})-", offers)
    assert offered == re.findall(r"^(\d{4}) ", (upstream / "check").read_text(), re.MULTILINE)
    assert {*offered, *re.findall(r"\b\d{4}\b", others)} >= {*patches.values()}


def test_the_image_holds_an_engine_for_every_cpu() -> None:
    assert "./build.sh --portable --locked ${FLAGS}" in (PACKAGING / "Dockerfile").read_text()


def test_the_image_does_not_run_as_root_and_has_a_health_check() -> None:
    last = (PACKAGING / "Dockerfile").read_text().rpartition("\nFROM ")[2]
    assert re.search(r"^USER [1-9]\d*$", last, re.MULTILINE)
    assert re.search(r"^HEALTHCHECK .*\n.*/health'", last, re.MULTILINE)
    assert "API_KEY" not in last


def test_the_extras_that_the_image_and_the_unit_name_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for name in ("Dockerfile", "llama-srb.service"):
        named = re.findall(r"(?:EXTRAS=|llama-srb\[)([a-z,]+)", (PACKAGING / name).read_text())
        assert [one for text in named for one in text.split(",")] == ["grpc", "memory"]
    assert {"grpc", "memory"} <= extras.keys()
    installed = "pip install --no-cache-dir --no-deps --require-hashes -r packaging/locks/${extra}.lock"
    assert re.findall(r"pip install .*?(?=;)", (PACKAGING / "Dockerfile").read_text()) == [installed]


@pytest.mark.skipif(not HADOLINT.exists(), reason="hadolint is installed on x86-64 Linux only")
def test_hadolint_has_no_complaint_about_the_dockerfile() -> None:
    done = subprocess.run([HADOLINT, PACKAGING / "Dockerfile"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_reads_the_unit(tmp_path: Path) -> None:
    analyze = installed("systemd", "systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here; as root on Debian the tests install it")
    unit = tmp_path / "llama-srb.service"
    unit.write_text(re.sub("ExecStart=.*", "ExecStart=/bin/true", (PACKAGING / unit.name).read_text()))
    done = subprocess.run([analyze, "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("state", "is_sdist", "compiles"),
    [("editable", False, False), ("wheel", False, False), ("editable", True, False), ("wheel", True, True)],
)
def test_the_engine_is_compiled_only_for_a_wheel_from_a_source_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: State, is_sdist: bool, compiles: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if is_sdist:
        (tmp_path / "PKG-INFO").write_text("")
    settings = SettingsReader.from_file("pyproject.toml", state=state).settings
    assert (settings.wheel.cmake, settings.editable.mode) == (compiles, "inplace")


def test_a_wheel_has_every_file_of_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    with zipfile.ZipFile(tmp_path / build_wheel(str(tmp_path))) as made:
        packed = {name for name in made.namelist() if name.startswith("llama_srb/")}
    there = [path for path in (ROOT / "llama_srb").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    assert packed == {str(path.relative_to(ROOT)) for path in there}
    assert {
        "llama_srb/py.typed",
        "llama_srb/studio/index.html",
        "llama_srb/preset_files/plain.toml",
    } <= packed


def test_the_source_archive_has_the_files_that_the_wheel_is_made_of(tmp_path: Path) -> None:
    """With empty files for llama.cpp, since the real source is there only after a build."""
    tree = tmp_path / "llama.cpp"
    for name in (
        *(pattern.replace("*", "file") for pattern in SCRIPT["LLAMA_CPP"]),
        *SCRIPT["LICENCES"],
        "docs/x",
    ):
        path = tree / name if "." in name or name.isupper() else tree / name / "file"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("// The licence\n\nint x;\n")
    SCRIPT["stage"](
        tmp_path / "staged", tree, ["-DBUILD_SHARED_LIBS=OFF", "-DA=$B", "-DBUILD_SHARED_LIBS=ON"]
    )
    staged = {str(path.relative_to(tmp_path / "staged")) for path in (tmp_path / "staged").rglob("*")}
    assert {"engine/main.cpp", "llama_srb/py.typed", "models/storyteller.gguf", "pyproject.toml"} <= staged
    assert {"llama.cpp/LICENSE", "llama.cpp/src/file", "llama.cpp/ggml/src/ggml-cpu/file"} <= staged
    assert "llama.cpp/docs" not in staged
    licence = tmp_path / "staged/llama.cpp/licenses/LICENSE-llamafile"
    flags = tmp_path / "staged/llama.cpp/flags.cmake"
    assert licence.read_text() == "The licence\n"
    assert flags.read_text().splitlines() == [
        'set(BUILD_SHARED_LIBS [==[ON]==] CACHE STRING "")',
        'set(A [==[$B]==] CACHE STRING "")',
    ]


def test_the_module_for_gpus_and_the_extra_that_names_it_fit_exactly_this_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module = tomllib.loads(SCRIPT["cuda_project"]("13.0"))["project"]
    (extra,) = project["optional-dependencies"]["cuda"]
    assert extra.startswith(f"{module['name']}=={project['version']};")
    assert module["version"] == project["version"]
    assert module["dependencies"] == [
        f"llama-srb=={project['version']}",
        "nvidia-cublas>=13.0,<14",
        "nvidia-cuda-runtime>=13.0,<14",
    ]


def test_the_module_for_gpus_is_made_of_ggml_alone_and_finds_nvidias_packages(tmp_path: Path) -> None:
    tree = tmp_path / "llama.cpp"
    parts = ("CMakeLists.txt", "src/ggml.c", "src/ggml-cuda/a.cu", "src/ggml-cpu/a.c", "cmake/a", "include/a")
    for name in ("LICENSE", "src/llama.cpp", *(f"ggml/{part}" for part in parts)):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("text\n")
    staged, flags = tmp_path / "staged", ["-DGGML_CUDA=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN"]
    SCRIPT["stage_cuda"](staged, tree, flags, "86-real;90-real", "13.0")
    names = {str(path.relative_to(staged)) for path in staged.rglob("*") if path.is_file()}
    assert {"CMakeLists.txt", "pyproject.toml", "LICENSE", "ggml/src/ggml-cuda/a.cu", "ggml/LICENSE"} <= names
    assert "src/llama.cpp" not in names
    given = (staged / "flags.cmake").read_text()
    assert 'set(CMAKE_CUDA_ARCHITECTURES [==[86-real;90-real]==] CACHE STRING "")' in given
    assert 'set(CMAKE_INSTALL_RPATH [==[$ORIGIN:$ORIGIN/../../nvidia/cu13/lib]==] CACHE STRING "")' in given
