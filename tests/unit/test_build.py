"""build.sh: the commands it runs on each machine, the work it does not repeat, and how it fails.

It runs here in a copy of the checkout with a tiny llama.cpp. Compilers, CMake, pip and the GPU's tools are
stand-ins, first on PATH. They record each call in a file; a call that matches $KILL_AT kills build.sh in the
middle of its work.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.support.rows import each_row
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]

CALL = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
killed() { if [[ -n "${KILL_AT:-}" && "$name $*" == *"$KILL_AT"* ]]; then kill -9 $PPID; exit 1; fi; }
name=${0##*/}
"""

PYTHON = (
    f"""
python={sys.executable} # for what build.sh asks by -c
"""
    + """
case "$*" in
    "-c "*) killed "$@"; exec "$python" "$@" ;;
    *"-m venv"*) mkdir -p .venv/bin && cat "$0" > .venv/bin/python && chmod +x .venv/bin/python ;;
    *"pip download"*)
        if [ -n "${SDISTS:-}" ]; then PIP_NO_INDEX=1 PIP_FIND_LINKS=$SDISTS exec "$python" "$@"; fi
        echo rubbish > "${@: -1}/llama_cpp_python-0.3.36.tar.gz" ;;
esac
killed "$@"
"""
)

CMAKE = """
case "$1" in
    -S) mkdir -p "$4"; echo "$*" > "$4/configured"; killed "$@" ;;
    --build)
        killed "$@"
        mkdir -p "$2/bin" && cd "$2/bin" || exit
        if [[ "$(cat ../configured)" == *SHARED_LIBS=ON* ]]; then touch libllama.so libggml-cpu-zen4.so; fi
        { echo "$ENGINE"; printf 'configured=%q\n' "$(cat ../configured)"; } > llama-batched
        find ../checkout/engine -name "*.cpp" -exec cat {} + >> llama-batched && chmod +x llama-batched
        if [[ "$*" == *ggml-rpc-server* ]]; then touch ggml-rpc-server; fi
        if [[ "$*" == *engine-tests* ]]; then cat ../checkout/tests/engine/*.cpp > engine-tests; fi ;;
esac
"""

# The self-test runs $FAULT, unless the compiler got the flag $MENDED_BY.
ENGINE = """#!/bin/bash
echo "${0##*/} $*" >> "$CALLS"
configured=$(sed -n 's/^configured=//p' "$0")
if [[ -n "${FAULT:-}" && ( -z "${MENDED_BY:-}" || "$configured" != *"$MENDED_BY"* ) ]]; then eval "$FAULT"; fi
exit
"""
ILLEGAL = "kill -ILL $$"
WRONG = "echo 'llama-batched: self-test: q4_0, 8 columns: wrong' >&2; exit 1"

# The CPU has the features in $CPU.
GREP = f"""
case "$*" in
    */proc/cpuinfo) echo "flags : fpu ${{CPU-amx_tile avx512f}}" ;;
    *) exec {shutil.which("grep")} "$@" ;;
esac
"""

ABSENT = "exit 127\n"


def failing_at(option: str) -> str:
    return f'[ "$1" != {option} ] || {{ echo "main.cpp:1: error: no such thing" >&2; exit 1; }}\n'


TREE = "project(llama)\n#\n#\n#\n#\n"
PATCH = """say what changes

--- a/CMakeLists.txt
+++ b/CMakeLists.txt
@@ -1,3 +1,4 @@
 project(llama)
+add(engine)
 #
 #
"""
SECOND_PATCH = PATCH.replace(" project(llama)\n+add(engine)", " project(llama)\n+more\n add(engine)")
SECOND_PATCH = SECOND_PATCH.replace("-1,3 +1,4", "-1,4 +1,5")


def uname(system: str, machine: str) -> str:
    return f"""for flag; do
    case $flag in -s) echo {system} ;; -m) echo {machine} ;; *) echo {system} {machine} ;; esac
done
"""


def really(program: str) -> str:
    return f'killed "$@"; exec {shutil.which(program)} "$@"\n'


LINUX = {"uname": uname("Linux", "x86_64")}
NVIDIA = {"nvcc": "", "nvidia-smi": "echo 'GPU 0: NVIDIA H200'\n"}
NO_GPU = {"nvcc": "", "nvidia-smi": "echo 'No devices found'; exit 6\n"}
MAC = {"uname": uname("Darwin", "arm64")}
INTEL_MAC = {"uname": uname("Darwin", "x86_64")}


# The steps from objects to the installed folder
SWAP = [
    "cmake --build",
    "bin/llama-batched build/bin",
    "--self-test",
    "mv build/bin.new",
    "ln -sfn",
    "os.replace",
]


@dataclass
class Outcome:
    """One run of build.sh: exit status, output, and the calls of stand-ins."""

    status: int
    out: str
    err: str
    calls: list[str]

    def called(self, part: str) -> bool:
        return any(part in call for call in self.calls)


@dataclass
class Checkout:
    """A copy of the files that build.sh reads, with a tiny llama.cpp and an empty cache."""

    base: Path
    env: dict[str, str] = field(default_factory=dict)
    name: str = "check out"

    @property
    def path(self) -> Path:
        return self.base / self.name

    def another(self, name: str) -> "Checkout":
        """A second checkout with the same cache, in which nothing is built yet."""
        made = replace(self, name=name)
        shutil.copytree(self.path, made.path, ignore=shutil.ignore_patterns(".venv", "build"))
        return made

    def stand_in(self, programs: dict[str, str]) -> None:
        for name, body in programs.items():
            program = self.base / "programs" / name
            program.write_text(CALL + body)
            program.chmod(0o755)

    def build(self, *options: str, **env: str) -> Outcome:
        calls = self.base / "calls"
        calls.write_text("")
        result = subprocess.run(
            [str(self.path / "build.sh"), *options],
            env=self.env | {"CALLS": str(calls)} | env,
            cwd=self.base,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        kept = [
            call for call in calls.read_text().splitlines() if "--version" not in call and " -c " not in call
        ]
        return Outcome(result.returncode, result.stdout, result.stderr, kept)

    def binary(self) -> str:
        """The text of engine/ from which the binary was made."""
        return (
            (self.path / "build/bin/llama-batched")
            .read_text()
            .rpartition("configured=")[2]
            .partition("\n")[2]
        )

    def files(self) -> set[Path]:
        return set(self.base.rglob("*"))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    made = Checkout(tmp_path)
    for folder in ("patches", "engine", "tests/engine", "packaging/locks"):
        (made.path / folder).mkdir(parents=True)
    for name in ("build.sh", "pyproject.toml", "requirements-dev.lock", "packaging/locks/image.lock"):
        shutil.copy2(ROOT / name, made.path / name)
    (made.path / "patches/0001-engine.patch").write_text(PATCH)
    (made.path / "engine/main.cpp").write_text("first\n")
    (made.path / "tests/engine/main.cpp").write_text("first cases\n")
    (tmp_path / "llama.cpp").mkdir()
    (tmp_path / "llama.cpp/CMakeLists.txt").write_text(TREE)
    (tmp_path / "programs").mkdir()
    made.stand_in(LINUX | {"python3": PYTHON, "cmake": CMAKE, "ninja": "", "c++": "", "cc": ""})
    made.stand_in(dict.fromkeys(("nvcc", "nvidia-smi", "ccache"), ABSENT))
    made.env = {
        "PATH": f"{tmp_path / 'programs'}:{os.environ['PATH']}",
        "HOME": str(tmp_path / "home"),
        "LLAMA_CPP_DIR": str(tmp_path / "llama.cpp"),
        "LLAMA_SRB_CACHE": str(tmp_path / "cache"),
        "ENGINE": ENGINE,
    }
    return made


# ---- commands by machine ----


@pytest.mark.parametrize(
    ("machine", "options", "backend"),
    [
        pytest.param(LINUX, [], set(), id="Linux CPU"),
        pytest.param(LINUX | NVIDIA, [], {"CUDA"}, id="Linux CUDA"),
        pytest.param(LINUX | NO_GPU, [], set(), id="nvcc without a GPU"),
        pytest.param(LINUX, ["--cuda"], {"CUDA"}, id="CUDA asked for"),
        pytest.param(LINUX | NVIDIA, ["--vulkan"], {"VULKAN"}, id="another backend than the one at hand"),
        pytest.param(LINUX, ["--hip"], {"HIP"}, id="HIP"),
        pytest.param(LINUX | NVIDIA, ["--rpc"], {"CUDA"}, id="RPC goes with the backend at hand"),
        pytest.param(MAC, [], {"METAL"}, id="macOS Metal"),
        pytest.param(INTEL_MAC, [], set(), id="macOS on Intel"),
        pytest.param(INTEL_MAC, ["--metal"], {"METAL"}, id="Metal asked for"),
    ],
)
def test_a_dry_run_prints_the_backend_of_the_machine(
    checkout: Checkout, machine: dict[str, str], options: list[str], backend: set[str]
) -> None:
    checkout.stand_in(machine)
    outcome = checkout.build("--dry-run", *options)
    configure = next(line for line in outcome.out.splitlines() if "cmake -S" in line)
    assert outcome.status == 0, outcome.err
    assert set(re.findall(r"-DGGML_(\w+)=ON", configure)) == backend | {"RPC"}
    compile = next(line for line in outcome.out.splitlines() if "cmake --build" in line)
    assert ("ggml-rpc-server" in compile) == ("--rpc" in options)
    assert ("-DGGML_RPC_RDMA=OFF" in configure) == ("--rpc" not in options)
    assert "-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF" in configure


@pytest.mark.parametrize(
    ("option", "flags"),
    [
        ("--debug", ["-DCMAKE_BUILD_TYPE=Debug"]),
        ("--sanitize", ["-DLLAMA_SANITIZE_ADDRESS=ON", "-DGGML_SANITIZE_UNDEFINED=ON"]),
    ],
)
def test_an_options_flags_come_last(checkout: Checkout, option: str, flags: list[str]) -> None:
    out = checkout.build("--dry-run", option).out
    assert all(out.rindex(flag) > out.index("-DCMAKE_BUILD_TYPE=Release") for flag in flags)


@pytest.mark.parametrize(
    ("machine", "options", "flags"),
    [
        (LINUX, [], ["-DCMAKE_INSTALL_RPATH=\\$ORIGIN"]),
        (INTEL_MAC, [], ["-DCMAKE_INSTALL_RPATH=@loader_path"]),
        (LINUX, ["--cuda"], ["-DGGML_CUDA=ON", "-DGGML_BACKEND_DL=ON"]),
    ],
)
def test_a_portable_build_has_a_module_for_each_cpu(
    checkout: Checkout, machine: dict[str, str], options: list[str], flags: list[str]
) -> None:
    checkout.stand_in(machine)
    out = checkout.build("--dry-run", "--portable", *options).out
    configure = next(line for line in out.splitlines() if "cmake -S" in line).split(" -D")
    last = dict(flag.split("=") for flag in configure[1:])
    wanted = [*flags, "-DGGML_NATIVE=OFF", "-DGGML_CPU_ALL_VARIANTS=ON", "-DBUILD_SHARED_LIBS=ON"]
    assert {f"-D{name}={last[name]}" for name in last} >= set(wanted)


@pytest.mark.parametrize(
    ("level", "commands"),
    [
        ([], ["python3 -m venv .venv", "pip install -e ."]),
        (
            ["--dev"],
            ["--require-hashes -r requirements-dev.lock", "--no-deps --no-build-isolation -e .", "pip check"],
        ),
        (
            ["--locked"],
            ["--require-hashes -r packaging/locks/image.lock", "--no-build-isolation -e .", "pip check"],
        ),
    ],
)
def test_a_dry_run_prints_every_stage_in_order_and_does_nothing(
    checkout: Checkout, level: list[str], commands: list[str]
) -> None:
    before = checkout.files()
    out = checkout.build("--dry-run", *level, LLAMA_CPP_DIR="").out
    stages = [
        *commands,
        "git ls-remote",
        "fetch --depth 1",
        "pip download",
        "tar -C",
        "apply",
        "cmake -S",
        "cmake --build",
    ]
    places = [out.index(stage) for stage in [*stages, "build/bin/llama-batched"]]
    assert places == sorted(places)
    assert checkout.files() - before <= {checkout.base / "calls"}


def cuda_13(toolkit: Path) -> dict[str, str]:
    """A toolkit without cuBLAS and libcuda: its compiler says where it lies and which release it is."""
    says = (
        f"*--dryrun*) echo '#$ TOP={toolkit}' >&2 ;; *) echo 'Cuda compilation tools, release 13.0, V13' ;;"
    )
    return {"nvcc": f'case "$*" in {says} esac\n'}


def test_cublas_of_a_python_package_is_used_if_the_toolkit_has_none(checkout: Checkout) -> None:
    toolkit = checkout.base / "toolkit"
    checkout.stand_in(cuda_13(toolkit))
    package = checkout.path / ".venv/lib/python3.12/site-packages/nvidia/cu13"
    (package / "lib").mkdir(parents=True)
    (package / "lib/libcublas.so.13").touch()
    out = checkout.build("--cuda", "--source", "--dry-run").out.splitlines()
    assert f"-DCUDA_cublas_LIBRARY={package}/lib/libcublas.so.13" in out
    assert f"-DCMAKE_CUDA_FLAGS= -isystem {package}/include" in out
    assert f"-DCUDA_cuda_driver_LIBRARY={checkout.base}/cache/stubs/libcuda.so" in out

    complete(toolkit)
    assert "-DCUDA_" not in checkout.build("--cuda", "--source", "--dry-run").out


def complete(toolkit: Path) -> None:
    (toolkit / "lib64/stubs").mkdir(parents=True)
    (toolkit / "lib64/libcublas.so").touch()
    (toolkit / "lib64/stubs/libcuda.so").touch()


def test_an_engine_for_a_gpu_is_not_tested_where_there_is_none(checkout: Checkout) -> None:
    checkout.stand_in(cuda_13(checkout.base / "toolkit"))
    complete(checkout.base / "toolkit")
    outcome = checkout.build("--cuda", FAULT=ILLEGAL)
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert "llama-batched: no self-test, since there is no GPU here\n" in outcome.out


@pytest.mark.parametrize(
    ("programs", "message"),
    [
        (
            {},
            "build.sh: no nvcc on PATH or in /usr/local/cuda/bin: "
            "install NVIDIA's CUDA toolkit (cuda-toolkit)",
        ),
        (
            cuda_13(Path("/nowhere/cuda")),
            "build.sh: no cuBLAS of CUDA 13 in /nowhere/cuda: install the toolkit's libcublas-dev, or run "
            "'.venv/bin/python -m pip install nvidia-cublas==13.*'",
        ),
    ],
    ids=["nvcc", "cuBLAS"],
)
def test_what_cuda_needs_and_lacks_is_one_line(
    checkout: Checkout, programs: dict[str, str], message: str
) -> None:
    checkout.stand_in(programs)
    for options in (("--cuda",), ("--cuda", "--source")):
        outcome = checkout.build(*options)
        assert (outcome.status, outcome.err) == (1, message + "\n")
        assert not outcome.called("cmake")


@pytest.mark.parametrize(
    ("option", "nearest"),
    [("--cude", "--cuda"), ("--dryrun", "--dry-run"), ("--sanitise", "--sanitize"), ("-x", "--help")],
)
def test_an_unknown_option_is_one_line_that_names_the_nearest(
    checkout: Checkout, option: str, nearest: str
) -> None:
    outcome = checkout.build(option)
    assert outcome.status == 2
    assert outcome.err == f"build.sh: unknown option {option}; did you mean {nearest}?\n"


def test_source_is_only_patched_and_named_with_the_flags_of_every_machine(checkout: Checkout) -> None:
    checkout.stand_in(LINUX | NVIDIA)
    outcome = checkout.build("--portable", "--source")
    tree, objects, *flags = [line for line in outcome.out.splitlines() if line[0] in "/-"]
    assert (outcome.status, outcome.called("cmake")) == (0, False), outcome.err
    assert Path(tree, "CMakeLists.txt").read_text().startswith("project(llama)\nadd(engine)\n")
    assert Path(objects).parent == checkout.base / "cache/wheel"
    assert {"-DLLAMA_OPENSSL=OFF", "-DGGML_CPU_ALL_VARIANTS=ON", "-DCMAKE_INSTALL_RPATH=$ORIGIN"} < set(flags)
    assert "-DGGML_RPC_RDMA=OFF" in flags
    assert not any("CUDA" in flag for flag in flags)


# ---- no work is repeated ----


def test_with_nothing_to_do_it_says_so_and_runs_no_tool(checkout: Checkout) -> None:
    first = checkout.build()
    assert (first.status, checkout.binary()) == (0, "first\n"), first.err
    second = checkout.build()
    assert second.out == "llama-batched is up to date: build/bin/llama-batched\n"
    assert (second.status, second.calls) == (0, ["uname -s", "uname -m", "uname -sm"])


@pytest.mark.parametrize(
    ("change", "options", "again", "kept"),
    [
        ("engine/main.cpp", [], ["cmake --build"], ["pip", "cmake -S"]),
        ("engine/new.cpp", [], ["cmake --build"], ["pip", "cmake -S"]),
        ("engine/room/new.h", [], ["cmake --build"], ["pip", "cmake -S"]),
        ("pyproject.toml", [], ["pip install"], ["venv", "cmake"]),
        ("patches/0002-more.patch", [], ["cmake -S", "cmake --build"], ["pip"]),
        ("../llama.cpp/CMakeLists.txt", [], ["cmake -S", "cmake --build"], ["pip"]),
        ("README.md", ["--rpc"], ["cmake -S", "cmake --build"], ["pip"]),
        ("README.md", ["--dev"], ["pip install --require-hashes", "cmake --build"], ["venv", "cmake -S"]),
    ],
)
def test_only_changed_parts_are_built_again(
    checkout: Checkout, change: str, options: list[str], again: list[str], kept: list[str]
) -> None:
    checkout.build()
    (checkout.path / change).parent.mkdir(exist_ok=True)
    with (checkout.path / change).open("a") as file:
        file.write(SECOND_PATCH if "patches" in change else "\n# more\n")
    outcome = checkout.build(*options)
    assert outcome.status == 0, outcome.err
    assert [part for part in again if not outcome.called(part)] == []
    assert [part for part in kept if outcome.called(part)] == []


def test_engine_tests_are_compiled_for_development_only(checkout: Checkout) -> None:
    program = checkout.path / "build/bin/engine-tests"
    plain = checkout.build()
    assert (plain.status, plain.called("engine-tests"), program.exists()) == (0, False, False), plain.err
    (checkout.path / "tests/engine/main.cpp").write_text("second cases\n")
    assert "up to date" in checkout.build().out
    dev = checkout.build("--dev")
    assert (dev.status, program.read_text()) == (0, "second cases\n"), dev.err
    assert "up to date" in checkout.build("--dev").out


def test_after_dev_a_changed_case_is_compiled_again_by_every_run(checkout: Checkout) -> None:
    checkout.build("--dev")
    for options, text in ([], "second cases\n"), (["--dev"], "third cases\n"):
        (checkout.path / "tests/engine/main.cpp").write_text(text)
        outcome = checkout.build(*options)
        assert (outcome.status, outcome.called("cmake -S"), outcome.called("pip")) == (0, False, False)
        assert (checkout.path / "build/bin/engine-tests").read_text() == text
        assert checkout.binary() == "first\n"


def copied(checkout: Checkout) -> dict[str, int]:
    """The files that are compiled, with their times, by which Ninja decides."""
    (folder,) = (checkout.base / "cache/objects").glob("*/checkout")
    return {
        str(path.relative_to(folder)): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()
    }


def test_a_second_checkout_uses_the_objects_of_the_first(checkout: Checkout) -> None:
    checkout.build()
    before = copied(checkout)
    second = checkout.another("second")
    for path in second.path.rglob("*"):  # as git writes them
        path.touch()
    outcome = second.build()
    assert (outcome.status, second.binary()) == (0, "first\n"), outcome.err
    assert not outcome.called("cmake -S")
    assert outcome.called("cmake --build")
    assert copied(checkout) == before


def test_of_a_checkout_that_differs_only_changed_files_are_compiled(checkout: Checkout) -> None:
    (checkout.path / "engine/gone.cpp").write_text("gone\n")
    checkout.build()
    before = copied(checkout)
    second = checkout.another("second")
    (second.path / "engine/gone.cpp").unlink()
    (second.path / "engine/main.cpp").write_text("second\n")
    (second.path / "engine/deep/er").mkdir(parents=True)
    (second.path / "engine/deep/er/new file.h").write_text("new\n")
    outcome = second.build()
    assert (outcome.status, second.binary()) == (0, "second\n"), outcome.err
    after = copied(checkout)
    assert after.keys() == {"engine/main.cpp", "engine/deep/er/new file.h", "tests/engine/main.cpp"}
    assert after["engine/main.cpp"] > before["engine/main.cpp"]
    assert after["tests/engine/main.cpp"] == before["tests/engine/main.cpp"]
    (checkout.path / "build/bin/stamp").write_text("")
    assert (checkout.build().status, sorted(checkout.binary().splitlines())) == (0, ["first", "gone"])


def test_a_tree_that_was_configured_for_a_checkouts_engine_keeps_its_objects(checkout: Checkout) -> None:
    """As build.sh did before it compiled a copy."""
    checkout.build()
    (objects,) = (checkout.base / "cache/objects").iterdir()
    (objects / "llama.o").write_text("compiled then")
    (objects / "engine-of").write_text(f"{checkout.path}\n")
    second = checkout.another("second")
    outcome = second.build()
    assert outcome.called(f"-DLLAMA_BATCHED_SOURCE={objects}/checkout/engine"), outcome.err
    assert (objects / "llama.o").exists()


def test_a_checkout_behind_a_link_is_the_same_checkout(checkout: Checkout) -> None:
    checkout.build()
    checkout.path.rename(checkout.base / "another")
    checkout.path.symlink_to(checkout.base / "another")
    outcome = checkout.build()
    assert outcome.status == 0, outcome.err
    assert f"{checkout.base / 'another'}" in (checkout.path / ".venv/stamp").read_text()


def test_a_plain_run_after_dev_keeps_what_dev_installed(checkout: Checkout) -> None:
    checkout.build("--dev")
    assert not checkout.build().called("pip")
    with (checkout.path / "pyproject.toml").open("a") as file:
        file.write("# more\n")
    assert checkout.build().called("--require-hashes -r requirements-dev.lock")


def test_a_given_tree_is_never_changed(checkout: Checkout) -> None:
    before = {path for path in checkout.files() if "llama.cpp" in path.parts}
    assert checkout.build().status == 0
    assert {path for path in checkout.files() if "llama.cpp" in path.parts} == before
    assert (checkout.base / "llama.cpp/CMakeLists.txt").read_text() == TREE


@pytest.mark.parametrize("name", ["CFLAGS", "CXXFLAGS", "LDFLAGS"])
def test_other_compiler_flags_are_another_build(checkout: Checkout, name: str) -> None:
    checkout.build()
    other = checkout.build(**{name: "-O1"})
    assert (other.status, other.called("cmake -S"), other.called("cmake --build")) == (0, True, True)
    assert "up to date" in checkout.build(**{name: "-O1"}).out
    back = checkout.build()
    assert (back.called("cmake -S"), back.called("cmake --build")) == (False, True)


# ---- the installed folder is replaced in one step ----


def test_the_folder_is_swapped_and_the_last_one_stays_for_engines_that_start_from_it(
    checkout: Checkout,
) -> None:
    build = checkout.path / "build"
    used = []
    for text in ("first\n", "second\n", "third\n"):
        (checkout.path / "engine/main.cpp").write_text(text)
        assert checkout.build().status == 0
        assert checkout.binary() == text
        used.append((build / "bin").resolve())
        assert all((folder / "llama-batched").exists() for folder in used[-2:])
    assert not (build / "bin").readlink().is_absolute()  # so that it also works in a copy of the checkout
    assert len(set(used)) == len([path for path in build.glob("bin*") if not path.is_symlink()]) == 2


@pytest.mark.parametrize("kill_at", [*SWAP, "mv build/bin build/bin.", ""])
def test_the_folder_of_an_older_build_sh_is_replaced(checkout: Checkout, kill_at: str) -> None:
    checkout.stand_in({name: really(name) for name in ("mv", "cp", "ln")})
    old = checkout.path / "build/bin"
    old.mkdir(parents=True)
    (old / "llama-batched").write_text("old")
    (old.parent / "stamp").write_text("old")
    assert checkout.build(KILL_AT=kill_at).status == (-9 if kill_at else 0)
    outcome = checkout.build()
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert not (old.parent / "stamp").exists()
    assert "up to date" in checkout.build().out


def test_a_portable_build_is_a_folder_with_libraries_and_modules(checkout: Checkout) -> None:
    assert checkout.build("--portable").status == 0
    files = {path.name for path in (checkout.path / "build/bin").iterdir()}
    assert files == {"llama-batched", "libllama.so", "libggml-cpu-zen4.so", "stamp"}
    assert checkout.build().status == 0
    assert {path.name for path in (checkout.path / "build/bin").iterdir()} == {"llama-batched", "stamp"}


@pytest.mark.parametrize(("options", "up_to_date"), [(["--portable"], True), ([], False)])
def test_only_a_portable_build_runs_on_every_cpu(
    checkout: Checkout, options: list[str], up_to_date: bool
) -> None:
    checkout.stand_in({"grep": GREP})
    checkout.build(*options, CPU="avx2")
    assert ("up to date" in checkout.build(*options, CPU="avx2 avx512f").out) == up_to_date


# ---- the self-test ----


@pytest.mark.parametrize(("model", "command"), [(True, " -m models/storyteller.gguf"), (False, "")])
def test_the_new_engine_is_tested_before_it_is_used(checkout: Checkout, model: bool, command: str) -> None:
    if model:
        (checkout.path / "models").mkdir()
        (checkout.path / "models/storyteller.gguf").write_text("")
    outcome = checkout.build()
    assert f"llama-batched --self-test{command}" in outcome.calls
    assert outcome.out.splitlines()[-2:] == [
        "llama-batched: self-test",
        "llama-batched is ready: build/bin/llama-batched",
    ]


@pytest.mark.parametrize(
    ("fault", "mended_by", "lines"),
    [
        (ILLEGAL, "-mno-amx-tile", ["(signal ILL); building without AMX"]),
        (WRONG, "-mno-amx-tile", ["(exit status 1); building without AMX"]),
        (
            ILLEGAL,
            "-mno-avx512f",
            ["(signal ILL); building without AMX", "(signal ILL); building without AMX and AVX-512"],
        ),
    ],
)
def test_a_build_that_fails_its_self_test_is_made_without_the_likeliest_feature(
    checkout: Checkout, fault: str, mended_by: str, lines: list[str]
) -> None:
    checkout.stand_in({"grep": GREP})
    outcome = checkout.build(FAULT=fault, MENDED_BY=mended_by, CXXFLAGS="-O1 -g")
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert [line for line in outcome.out.splitlines() if "failed" in line] == [
        f"llama-batched failed its self-test {line}" for line in lines
    ]
    last = [call for call in outcome.calls if "cmake -S" in call][-1]
    assert "-DCMAKE_CXX_FLAGS=-O1 -g -mno-amx-tile -mno-amx-int8 -mno-amx-bf16" in last
    again = checkout.build(FAULT=fault, MENDED_BY=mended_by, CXXFLAGS="-O1 -g")
    assert (again.out, again.called("cmake"), again.called("llama-batched")) == (
        "llama-batched is up to date: build/bin/llama-batched\n",
        False,
        False,
    )


def test_a_second_checkout_leaves_out_a_failed_feature_at_once_and_other_patches_try_it_again(
    checkout: Checkout,
) -> None:
    checkout.stand_in({"grep": GREP})
    fault = {"FAULT": ILLEGAL, "MENDED_BY": "-mno-amx-tile"}
    checkout.build(**fault)
    second = checkout.another("second")
    outcome = second.build(**fault)
    assert (outcome.status, second.binary()) == (0, "first\n"), outcome.err
    assert [call.count("--self-test") for call in outcome.calls].count(1) == 2  # timeout, the engine
    assert not any("cmake -S" in call and "-mno-amx-tile" not in call for call in outcome.calls)
    (second.path / "patches/0002-more.patch").write_text(SECOND_PATCH)
    assert "without AMX" in second.build(**fault).out


def test_a_changed_engine_is_built_without_the_features_left_out(checkout: Checkout) -> None:
    checkout.stand_in({"grep": GREP})
    fault = {"FAULT": ILLEGAL, "MENDED_BY": "-mno-amx-tile"}
    checkout.build(**fault)
    (checkout.path / "engine/main.cpp").write_text("second\n")
    outcome = checkout.build(**fault)
    assert (outcome.status, checkout.binary()) == (0, "second\n"), outcome.err
    assert "failed" not in outcome.out
    assert not outcome.called("cmake -S")


OLD_COMPILER = '[[ "$*" != *-mno-amx* ]]\n'


@pytest.mark.parametrize(
    ("cpu", "compiler", "tried"),
    [
        ("amx_tile avx512f", "", ["AMX", "AMX and AVX-512"]),
        ("amx_tile avx512f", OLD_COMPILER, ["AVX-512"]),
        ("avx512f", "", ["AVX-512"]),
        ("avx2", "", []),
    ],
)
def test_when_no_build_passes_the_self_test_the_old_engine_stays(
    checkout: Checkout, cpu: str, compiler: str, tried: list[str]
) -> None:
    checkout.stand_in({"grep": GREP, "c++": compiler})
    assert checkout.build(CPU=cpu).status == 0
    (checkout.path / "engine/main.cpp").write_text("second\n")
    outcome = checkout.build(CPU=cpu, FAULT=WRONG)
    assert re.findall(r"building without (.*)", outcome.out) == tried
    *shown, line = outcome.err.splitlines()
    assert set(shown) == {"llama-batched: self-test: q4_0, 8 columns: wrong"}
    assert line.startswith(
        "build.sh: llama-batched failed its self-test (exit status 1); try another compiler"
    )
    assert (outcome.status, checkout.binary()) == (1, "first\n")
    (checkout.path / "engine/main.cpp").write_text("third\n")
    assert "without" not in checkout.build(CPU=cpu).out
    assert checkout.binary() == "third\n"


def test_a_portable_build_that_fails_its_self_test_is_one_line(checkout: Checkout) -> None:
    checkout.stand_in({"grep": GREP})
    outcome = checkout.build("--portable", FAULT=ILLEGAL)
    assert outcome.status == 1
    assert outcome.err.startswith(
        "build.sh: llama-batched failed its self-test (signal ILL); try it without --portable, and report it."
    )


def test_a_self_test_that_hangs_is_ended(checkout: Checkout) -> None:
    checkout.stand_in({"grep": GREP})
    script = checkout.path / "build.sh"
    script.write_text(script.read_text().replace("run_within 120", "run_within 0.2"))
    outcome = checkout.build(CPU="avx2", FAULT="sleep 60")
    assert outcome.status == 1
    assert "failed its self-test (no end within 120 s); try another compiler" in outcome.err


@pytest.mark.parametrize("kill_at", ["-AMX --target", "cmake -S", "-AMX/bin/llama-batched"])
def test_after_a_kill_while_a_feature_is_left_out_the_next_run_repairs_it(
    checkout: Checkout, kill_at: str
) -> None:
    checkout.stand_in({"grep": GREP, "cp": really("cp")})
    fault = {"FAULT": ILLEGAL, "MENDED_BY": "-mno-amx-tile"}
    assert checkout.build(KILL_AT=kill_at, **fault).status == -9
    outcome = checkout.build(**fault)
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert "up to date" in checkout.build(**fault).out


@pytest.mark.parametrize(
    ("programs", "options", "env", "reason"),
    [
        ({"c++": "echo aarch64-linux-gnu\n"}, [], {}, "it is for another machine"),
        ({}, [], {"CMAKE_TOOLCHAIN_FILE": "arm.cmake"}, "it is for another machine"),
        ({}, ["--debug"], {}, "a build for finding faults may have some"),
        ({}, ["--sanitize"], {}, "a build for finding faults may have some"),
    ],
)
def test_an_engine_that_cannot_run_here_is_not_tested_and_one_line_says_so(
    checkout: Checkout, programs: dict[str, str], options: list[str], env: dict[str, str], reason: str
) -> None:
    checkout.stand_in(programs)
    outcome = checkout.build(*options, FAULT=ILLEGAL, **env)
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert f"llama-batched: no self-test, since {reason}\n" in outcome.out


@pytest.mark.parametrize(
    ("programs", "options"),
    [({"c++": "echo x86_64-linux-gnu\n"}, []), (NVIDIA, [])],
    ids=["the compiler is for this machine", "there is a GPU"],
)
def test_an_engine_that_can_run_here_is_tested(
    checkout: Checkout, programs: dict[str, str], options: list[str]
) -> None:
    checkout.stand_in({"grep": GREP} | programs)
    assert checkout.build(*options, FAULT=ILLEGAL, CPU="avx2").status == 1


# ---- killed anywhere ----


@pytest.mark.parametrize(
    "kill_at",
    [
        "-m venv",
        "-m pip install",
        "tar -C",
        "git -C",
        "mv",
        "cmake -S",
        *SWAP,
    ],
)
def test_after_a_kill_the_next_run_repairs_it(checkout: Checkout, kill_at: str) -> None:
    checkout.stand_in({name: really(name) for name in ("tar", "git", "mv", "cp", "ln")})
    assert checkout.build(KILL_AT=kill_at).status == -9
    outcome = checkout.build()
    assert (outcome.status, checkout.binary()) == (0, "first\n"), outcome.err
    assert "up to date" in checkout.build().out


@pytest.mark.parametrize("kill_at", SWAP)
def test_after_a_kill_the_previous_engine_works_and_the_next_run_replaces_it(
    checkout: Checkout, kill_at: str
) -> None:
    checkout.stand_in({name: really(name) for name in ("mv", "cp", "ln")})
    checkout.build()
    (checkout.path / "engine/main.cpp").write_text("second\n")
    assert checkout.build(KILL_AT=kill_at).status == -9
    assert checkout.binary() == "first\n"
    outcome = checkout.build()
    assert (outcome.status, checkout.binary()) == (0, "second\n"), outcome.err
    assert "up to date" in checkout.build().out


@pytest.mark.parametrize("kill_at", SWAP)
def test_after_a_kill_a_restored_engine_works(checkout: Checkout, kill_at: str) -> None:
    checkout.stand_in({name: really(name) for name in ("mv", "cp", "ln")})
    checkout.build()
    (checkout.path / "engine/main.cpp").write_text("second\n")
    checkout.build(KILL_AT=kill_at)
    (checkout.path / "engine/main.cpp").write_text("first\n")
    assert checkout.build().status == 0
    assert checkout.binary() == "first\n"


# ---- an error is one line with advice ----


@pytest.mark.parametrize(
    ("programs", "env", "line"),
    [
        (
            dict.fromkeys(("c++", "g++", "clang++"), ABSENT),
            {},
            r"no C\+\+ compiler: 'apt install g\+\+' \(Debian\), .*",
        ),
        ({}, {"CXX": "no-such-compiler"}, "the C\\+\\+ compiler CXX=no-such-compiler does not run; .*"),
        (
            {},
            {"LLAMA_SRB_PYTHON": "no-such-python"},
            "no Python 3.11 or newer at no-such-python: install one .*",
        ),
        ({}, {"LLAMA_CPP_DIR": "/nowhere"}, "LLAMA_CPP_DIR=/nowhere holds no llama.cpp; .*"),
        ({"git": ABSENT, "patch": ABSENT}, {}, "neither git nor patch: install git, .*"),
        (
            {"git": ABSENT},
            {"LLAMA_CPP_DIR": ""},
            "the download's sha256 is not 832db0699007.*; run it again, .*",
        ),
        (
            {"cmake": failing_at("-S")},
            {},
            "CMake stopped; mend what the log names and run it again. Log: /.*/build/build.log",
        ),
        (
            {"cmake": 'mkdir -p "$4"\n' + failing_at("--build")},
            {},
            "llama-batched does not compile; mend what the log names and run it again. Log: /.*/build.log",
        ),
    ],
)
def test_an_error_is_one_line_with_advice(
    checkout: Checkout, programs: dict[str, str], env: dict[str, str], line: str
) -> None:
    checkout.stand_in(programs)
    outcome = checkout.build(**env)
    assert outcome.status == 1
    assert re.fullmatch(f"build.sh: {line}", outcome.err.splitlines()[-1])


BACKEND = """
from pathlib import Path

Path({mark!r}).touch()
"""


def test_nothing_of_an_archive_with_another_hash_runs(checkout: Checkout) -> None:
    """By the real pip, which runs the build backend of the archive that it downloads."""
    mark, sdist = checkout.base / "has run", "llama_cpp_python-0.3.36"
    source = checkout.base / sdist
    source.mkdir()
    (source / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: llama-cpp-python\nVersion: 0.3.36\n")
    (source / "backend.py").write_text(BACKEND.format(mark=str(mark)))
    build = 'requires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    (source / "pyproject.toml").write_text(f"[build-system]\n{build}")
    (checkout.base / "sdists").mkdir()
    with tarfile.open(checkout.base / f"sdists/{sdist}.tar.gz", "w:gz") as archive:
        archive.add(source, sdist)
    checkout.stand_in({"git": ABSENT})
    outcome = checkout.build(LLAMA_CPP_DIR="", SDISTS=str(checkout.base / "sdists"))
    assert outcome.status == 1
    assert "DO NOT MATCH THE HASHES" in outcome.err
    assert "build.sh: 'pip download' failed" in outcome.err
    assert not mark.exists()


@pytest.mark.parametrize("tool", ["git", "patch"])
def test_a_patch_that_does_not_apply_stops_with_its_name(checkout: Checkout, tool: str) -> None:
    checkout.stand_in({"git": ABSENT} if tool == "patch" else {})
    (checkout.path / "patches/0002-stale.patch").write_text(
        PATCH.replace(" project(llama)", " project(other)")
    )
    outcome = checkout.build()
    assert outcome.status == 1
    assert (
        "build.sh: patches/0002-stale.patch does not apply to llama.cpp 0c1e57098;"
        in outcome.err.splitlines()[-1]
    )
    assert not outcome.called("cmake")
    (checkout.path / "patches/0002-stale.patch").unlink()
    assert checkout.build().status == 0


def test_cmake_and_ninja_are_installed_where_the_machine_has_none(checkout: Checkout) -> None:
    checkout.stand_in({"cmake": ABSENT, "ninja": ABSENT})
    out = checkout.build("--dry-run").out
    assert ".venv/bin/python -m pip install cmake ninja\n" in out
    assert f"{checkout.path}/.venv/bin/cmake".replace(" ", "\\ ") + " --build" in out


# ---- the lock file ----


PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NEEDED, BUILDERS = PYPROJECT["project"]["dependencies"], PYPROJECT["build-system"]["requires"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
NOT_IN_CONTAINERS = {"bench", "cuda", "dev", "evals", "ray", "train"}
IMAGE = "packaging/locks/image.lock"
LOCKS: list[tuple[tuple[str, ...], list[str]]] = [  # files that are installed together, and what they are for
    (("requirements-dev.lock",), [*NEEDED, *EXTRAS["dev"], *BUILDERS]),
    ((IMAGE,), [*NEEDED, *BUILDERS, "cmake", "ninja"]),
    *(((f"packaging/locks/{name}.lock", IMAGE), EXTRAS[name]) for name in EXTRAS.keys() - NOT_IN_CONTAINERS),
]


def pins(lock: str) -> dict[str, str]:
    """The entries of a lock by name and version."""
    return {one[1]: one[0] for one in re.finditer(r"^(\S+==\S+)[^#]*?(?=^\S|\Z)", lock, re.MULTILINE)}


@each_row(("files", "asked"), LOCKS)
def test_a_lock_has_every_dependency_with_hashes_and_no_address(
    files: tuple[str, ...], asked: list[str]
) -> None:
    lock = "".join((ROOT / file).read_text() for file in files)
    pinned = pins(lock)
    names = {re.split(r"[^a-z0-9-]", requirement)[0] for requirement in asked}
    assert names - {pin.partition("==")[0] for pin in pinned} == set()
    assert [name for name, entry in pinned.items() if "--hash=sha256:" not in entry] == []
    assert "://" not in lock
    tested = pins((ROOT / "requirements-dev.lock").read_text()).keys()
    assert {pin for pin in pinned if pin.partition("==")[0] not in ("cmake", "ninja")} - tested == set()
