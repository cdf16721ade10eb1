#!/usr/bin/env bash
# Sets up a fresh machine: .venv with the package, llama.cpp at the pinned commit with patches/ applied, and
# build/bin/llama-batched, compiled from engine/ and tested. It runs with bash 3.2, which macOS has.
#
# It owns .venv and build/ of this checkout, and the cache, which all checkouts share and which may always be deleted:
#   download/  the source archive, where git cannot reach llama.cpp
#   source/    llama.cpp with the patches applied, by commit and patches
#   objects/   CMake's trees, by source, flags, compilers and machine
#   wheel/     those of scripts/wheel
#
# It may be killed at any time and run again: a stage works under a temporary name and renames the result at its end, or
# has a mark while it is unfinished. A stamp is part of the renamed result, or is written after the work.
set -euo pipefail

commit=0c1e57098bba43ac29e6e3b677cdceebdd22334f
repository=https://github.com/ggml-org/llama.cpp
sdist=llama_cpp_python-0.3.36 # its vendor/llama.cpp is the same commit
sdist_sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e

# option, one of its CMake flags (or a dot), description
options() {
    cat << 'END'
--dev       .                              also install what tests and checks need, and compile engine-tests
--locked    .                              install the versions of packaging/locks/image.lock, with their hashes
--cuda      -DGGML_CUDA=ON                 NVIDIA GPUs (the default if nvcc and a GPU are found)
--metal     -DGGML_METAL=ON                Apple GPUs (the default on Apple silicon)
--vulkan    -DGGML_VULKAN=ON               GPUs by Vulkan
--hip       -DGGML_HIP=ON                  AMD GPUs by ROCm
--rpc       .                              also compile ggml-rpc-server, for a machine that lends its memory
--portable  -DGGML_NATIVE=OFF              runs on every CPU of this architecture: it loads the best of several modules
--portable  -DGGML_CPU_ALL_VARIANTS=ON
--portable  -DGGML_BACKEND_DL=ON
--portable  -DBUILD_SHARED_LIBS=ON
--portable  -DCMAKE_PLATFORM_NO_VERSIONED_SONAME=ON
--portable  -DCMAKE_BUILD_WITH_INSTALL_RPATH=ON
--portable  -DCMAKE_INSTALL_RPATH=$ORIGIN
--debug     -DCMAKE_BUILD_TYPE=Debug       without optimisation, with symbols
--sanitize  -DLLAMA_SANITIZE_ADDRESS=ON    stop at memory errors and undefined behaviour
--sanitize  -DLLAMA_SANITIZE_UNDEFINED=ON
--sanitize  -DGGML_SANITIZE_ADDRESS=ON
--sanitize  -DGGML_SANITIZE_UNDEFINED=ON
--source    .                              only get llama.cpp's source, for scripts/wheel
--dry-run   .                              print the commands without running them
--help      .                              print this
END
}

# CPU features that are left out of a build if its self-test fails, the likeliest cause first: a feature of x86 CPUs,
# its name in /proc/cpuinfo, the compiler flags that leave it out
features() {
    cat << 'END'
AMX      amx_tile  -mno-amx-tile -mno-amx-int8 -mno-amx-bf16
AVX-512  avx512f   -mno-avx512f -mno-avx10.1
END
}

flags=(
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF # static: one file that runs from anywhere
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_TOOLS=OFF
    -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_SUBPROCESS=OFF
    -DGGML_RPC=ON # small, and used only by an engine that is started with --rpc
    -DLLAMA_BUILD_COMMIT="${commit:0:9}" -DLLAMA_BUILD_NUMBER=0
    -DGGML_CCACHE=OFF # it would also use sccache, whose server would inherit our lock
)

main() {
    set_up
    read_options "$@"
    find_compiler
    choose_rdma
    if [ -n "$source_only" ]; then choose_cuda && give_source && return; fi
    choose_backend
    choose_cuda
    choose_rpath
    use_ccache
    read_venv_stamp
    name_the_trees
    if venv_is_current && binary_is_current; then
        say "llama-batched is up to date: build/bin/llama-batched"
        return
    fi
    find_python
    take_lock
    ensure_venv
    ensure_binary
    say "llama-batched is ready: build/bin/llama-batched"
}

set_up() {
    dev='' locked='' rpc='' dry_run='' has_reported='' left_out=''
    cache=$(absolute "${LLAMA_SRB_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/llama-srb}")
    given_tree=${LLAMA_CPP_DIR:+$(absolute "$LLAMA_CPP_DIR")}
    root=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd -P)
    log=$root/build/build.log
    cd "$root"
    export GIT_TERMINAL_PROMPT=0 PATH="$PATH:/usr/local/cuda/bin:$root/.venv/bin"
    trap 'exit 130' INT TERM
    trap '[ $? = 0 ] || [ -n "$has_reported" ] || tell "stopped; run it again, it goes on from here"' EXIT
}

absolute() { case $1 in /*) echo "$1" ;; *) echo "$PWD/$1" ;; esac; }

# ---- messages and commands -------------------------------------------------------------------------------------------

say() { printf '%s%s\n' "${dry_run:+# }" "$1"; }

tell() { printf 'build.sh: %s\n' "$1" >&2 && has_reported=yes; }

fail() { tell "$1" && exit 1; }

fail_with_log() {
    local lines
    lines=$(grep -E -m 5 '([Ee]rror|ERROR|FAILED)[: ]' "$log" || true)
    printf '%s' "${lines:+${lines//"$objects/checkout/"/}$'\n'}" >&2 # a file of engine/ by its name here, not by the copy's
    fail "$1. Log: $log"
}

# run COMMAND…: runs a command with its output in the log and, on a terminal, the last line on the screen
run() {
    if [ -n "$dry_run" ]; then print_command "$@" && return; fi
    print_command "$@" >> "$log"
    "$@" 2>&1 < /dev/null | show_last_line
}

print_command() {
    local line
    printf -v line '%q ' "$@"
    printf '%s\n' "${line% }"
}

show_last_line() {
    [ -t 1 ] || exec cat >> "$log"
    local line
    while IFS= read -r line; do
        printf '%s\n' "$line" >> "$log"
        printf '\r\033[K%.78s' "$line"
    done
    printf '\r\033[K'
}

# run_within SECONDS COMMAND…: as coreutils' timeout, which macOS lacks; it ends all processes of the command. The
# status is as in a shell: 124 after a timeout, 128 plus the signal's number after a signal
run_within() {
    if [ -n "$dry_run" ]; then print_command "${@:2}" && return; fi
    run "$python" -c 'import os, signal, subprocess, sys
command = subprocess.Popen(sys.argv[2:], start_new_session=True)
try: status = command.wait(float(sys.argv[1]))
except subprocess.TimeoutExpired: status = 124
if status == 124: os.killpg(command.pid, signal.SIGKILL)
sys.exit(status if status >= 0 else 128 - status)' "$@"
}

works() { "$1" --version > /dev/null 2>&1; } # a program on PATH may be a shim that runs nothing

sha256() { if works sha256sum; then sha256sum; else shasum -a 256; fi | cut -c 1-64; }

# The kernel releases this lock with the last process that holds it. So it is never stale, and after a kill -9 of this
# script the next one waits for compilers that still write.
take_lock() {
    [ -z "$dry_run" ] || return 0
    mkdir -p "$cache/download" "$cache/source" "$cache/objects" build
    exec 9> "$cache/lock"
    "$python" -c 'import fcntl
try: fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError: print("waiting for another build.sh to end", flush=True)
fcntl.flock(9, fcntl.LOCK_EX)'
    : > "$log"
}

# ---- options and environment -----------------------------------------------------------------------------------------

read_options() {
    local given name flag _
    source_only=''
    for given in "$@"; do
        options | grep -q -e "^$given " || refuse "$given"
        while read -r name flag _; do
            if [ "$name" = "$given" ] && [ "$flag" != . ]; then flags+=("$flag"); fi
        done < <(options)
        case $given in
            --dev) dev=dev ;;
            --locked) locked=locked ;;
            --rpc) rpc=rpc ;;
            --source) source_only=yes ;;
            --dry-run) dry_run=yes log=/dev/null ;;
            --help) usage && exit ;;
        esac
    done
}

refuse() {
    local stem=$1 near=''
    while [ ${#stem} -gt 3 ] && [ -z "$near" ]; do
        near=$(options | grep -o -m 1 -e "^${stem}[a-z-]*") || stem=${stem%?}
    done
    tell "unknown option $1; did you mean ${near:---help}?"
    exit 2
}

usage() {
    local name _ help
    echo "./build.sh [option…]: makes .venv, gets llama.cpp, compiles build/bin/llama-batched"
    while read -r name _ help; do
        [ -z "$help" ] || printf '  %-16s %s\n' "$name" "$help"
    done < <(options)
    echo "Environment:
  LLAMA_CPP_DIR    a llama.cpp tree or checkout to use; it is copied, never changed
  LLAMA_SRB_CACHE  sources and objects, default ~/.cache/llama-srb
  LLAMA_SRB_PYTHON the Python (3.11 or newer) for .venv
  CC, CXX          the compilers
  CFLAGS, CXXFLAGS, LDFLAGS  additional flags"
}

find_compiler() {
    for compiler in "${CXX:-c++}" g++ clang++; do
        if works "$compiler"; then return; fi
        [ -z "${CXX:-}" ] || fail "the C++ compiler CXX=$CXX does not run; unset it or name another"
    done
    fail "no C++ compiler: 'apt install g++' (Debian), 'dnf install gcc-c++' (Fedora), 'xcode-select --install' (macOS)"
}

find_python() {
    for python in "${LLAMA_SRB_PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
        if "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2> /dev/null; then return; fi
        [ -z "${LLAMA_SRB_PYTHON:-}" ] || break
    done
    fail "no Python 3.11 or newer${LLAMA_SRB_PYTHON:+ at $LLAMA_SRB_PYTHON}: install one or name it in LLAMA_SRB_PYTHON"
}

has_flag() { [[ " ${flags[*]} " == *"$1"* ]]; }

is_portable() { has_flag GGML_CPU_ALL_VARIANTS=ON; }

choose_backend() {
    case " ${flags[*]} " in *_CUDA=* | *_METAL=* | *_VULKAN=* | *_HIP=*) return ;; esac
    case "$(uname -s) $(uname -m)" in
        "Darwin arm64") flags+=(-DGGML_METAL=ON) ;;
        *) if works nvcc && has_nvidia_gpu; then flags+=(-DGGML_CUDA=ON); fi ;;
    esac
}

# What CUDA needs beside nvcc: cuBLAS, of the toolkit, the system or Python's package nvidia-cublas (of .venv, or of the
# cache, where scripts/wheel puts it), and libcuda, of the driver, the toolkit or, only to link with it, made here.
choose_cuda() {
    cuda_lacks=''
    has_flag GGML_CUDA=ON || return 0
    if ! works nvcc; then
        cuda_lacks="no nvcc on PATH or in /usr/local/cuda/bin: install NVIDIA's CUDA toolkit (cuda-toolkit)" && return
    fi
    local toolkit major
    toolkit=$(nvcc --dryrun -x cu /dev/null 2>&1 | sed -n 's/^#\$ TOP=//p')
    major=$(nvcc --version | sed -n 's/.*release \([0-9]*\).*/\1/p')
    has_cuda_library libcublas.so "$toolkit" || use_cublas_of_python "$toolkit" "$major"
    if ! has_cuda_library libcuda.so "$toolkit"; then flags+=("-DCUDA_cuda_driver_LIBRARY=$(libcuda_stub)"); fi
}

has_cuda_library() { # has_cuda_library FILE TOOLKIT
    local folder
    for folder in "$2"/lib64 "$2"/lib64/stubs "$2"/targets/*/lib "$2"/targets/*/lib/stubs \
        /usr/lib /usr/lib64 /usr/lib/*-linux-gnu; do
        if [ -e "$folder/$1" ]; then return; fi
    done
    return 1
}

use_cublas_of_python() { # use_cublas_of_python TOOLKIT MAJOR
    local found
    for found in {"$root"/.venv/lib/python3*/site-packages,"$cache/cublas"}/nvidia/c*/lib/libcublas.so."$2"; do
        [ -e "$found" ] || continue
        flags+=("-DCUDA_cublas_LIBRARY=$found" "-DCMAKE_CUDA_FLAGS=${CUDAFLAGS:-} -isystem ${found%/lib/*}/include")
        return
    done
    cuda_lacks="no cuBLAS of CUDA $2 in ${1:-the toolkit}: install the toolkit's libcublas-dev, or run"
    cuda_lacks+=" '.venv/bin/python -m pip install nvidia-cublas==$2.*'"
}

libcuda_stub() { echo "$cache/stubs/libcuda.so"; }

make_libcuda_stub() {
    has_flag "$(libcuda_stub)" || return 0
    run mkdir -p "$cache/stubs"
    run "${CC:-cc}" -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$(libcuda_stub)" packaging/cuda/libcuda.c ||
        fail_with_log "no libcuda to link with can be made"
}

fail_if_cuda_lacks() {
    [ -n "$cuda_lacks" ] || return 0
    if [ -n "$dry_run" ]; then say "$cuda_lacks"; else fail "$cuda_lacks"; fi
}

has_nvidia_gpu() { [[ $(nvidia-smi -L 2> /dev/null) == *GPU* ]]; }

# RDMA is for those who ask for --rpc: a build for all would need its library where it runs.
choose_rdma() { [ -n "$rpc" ] || flags+=(-DGGML_RPC_RDMA=OFF); }

choose_rpath() { # the binary's own folder has another name on macOS
    if is_portable && [ "$(uname -s)" = Darwin ]; then flags+=(-DCMAKE_INSTALL_RPATH=@loader_path); fi
}

use_ccache() {
    works ccache || return 0
    flags+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
    if has_flag _CUDA=; then flags+=(-DCMAKE_CUDA_COMPILER_LAUNCHER=ccache); fi
}

# The names of trees contain hashes of their inputs, so an existing tree is up to date.
name_the_trees() {
    local patches
    patches=$(cat patches/*.patch | sha256)
    source_tree=$cache/source/$(origin)-${patches:0:12}
    key=$({ printf '%s\n' "$source_tree" "${flags[@]}" && compilers_and_machine; } | sha256)
    objects=$cache/objects/${key:0:16}
    without=$objects.without # the CPU features that a build with this key leaves out
    binary_wanted="$key $(engine_texts | sha256)"
}

# The names and texts of the engine's files.
engine_texts() { find engine ${dev:+tests/engine} -type f | LC_ALL=C sort | tr '\n' '\0' | xargs -0 tail -n +1; }

compilers_and_machine() {
    local name
    "$compiler" --version && uname -sm
    for name in "${CC:-cc}" nvcc; do "$name" --version 2> /dev/null || true; done
    # CMake reads these variables
    for name in CFLAGS CXXFLAGS LDFLAGS CUDAFLAGS CUDAARCHS CMAKE_TOOLCHAIN_FILE; do echo "$name=${!name:-}"; done
    is_portable || cpu_features # other builds are for exactly this CPU
}

cpu_features() { grep -E -m 1 '^(flags|Features)' /proc/cpuinfo 2> /dev/null || true; }

# The commit or, for a tree without it, a hash of its files.
origin() {
    if [ -z "$given_tree" ] || given_tree_has_commit; then echo "${commit:0:9}" && return; fi
    local files
    files=$(cd "$given_tree" &&
        find . -path ./.git -prune -o -path './build*' -prune -o -type f -exec cksum {} + | LC_ALL=C sort)
    echo "tree-$(echo "$files" | sha256 | cut -c 1-12)"
}

given_tree_has_commit() {
    [ -e "$given_tree/.git" ] && git -C "$given_tree" cat-file -e "$commit^{commit}" 2> /dev/null
}

# ---- .venv -----------------------------------------------------------------------------------------------------------
# Its scripts contain its path, so it cannot be made elsewhere and renamed. While work on it is unfinished, it contains
# a file "unfinished". Its stamp: "dev", "locked" or "run", the hash of the files that list its packages, and its path.

read_venv_stamp() {
    local level='' inputs
    venv_stamp='' venv_path=$root
    if [ -f .venv/stamp ]; then
        venv_stamp=$(cat .venv/stamp)
        read -r level inputs venv_path < .venv/stamp || true
    fi
    if [ "$level" = dev ]; then dev=dev; fi # a plain ./build.sh does not remove the dev packages
    if [ "$level" = locked ]; then locked=locked; fi
    lock=${locked:+packaging/locks/image.lock}
    if [ -n "$dev" ]; then lock=requirements-dev.lock; fi
    inputs=$(cat pyproject.toml ${lock:+"$lock"} | sha256)
    venv_wanted="${dev:-${locked:-run}} $inputs $root"
}

venv_is_whole() { [ -x .venv/bin/python ] && [ ! -e .venv/unfinished ] && [ "$venv_path" = "$root" ]; }

venv_is_current() { read_venv_stamp && venv_is_whole && [ "$venv_stamp" = "$venv_wanted" ]; }

ensure_venv() {
    ! venv_is_current || return 0
    venv_is_whole || make_venv
    run touch .venv/unfinished
    install_package
    if [ -z "$dry_run" ]; then echo "$venv_wanted" > .venv/stamp; fi
    run rm .venv/unfinished
}

make_venv() {
    say ".venv: with $("$python" --version)"
    "$python" -c 'import venv, ensurepip' 2> /dev/null ||
        fail "$python cannot make .venv: 'apt install python3-venv' on Debian and Ubuntu"
    run rm -rf .venv
    run mkdir .venv
    run touch .venv/unfinished
    run "$python" -m venv .venv || fail_with_log "cannot make .venv with $python; name another in LLAMA_SRB_PYTHON"
}

# For development and in the container every version is pinned with its hash, in files that scripts/lock writes.
install_package() {
    say ".venv: installing the package${dev:+ and what tests and checks need}"
    [ -n "$lock" ] || { pip install -e . && return; }
    pip install --require-hashes -r "$lock" ${dev:+--no-compile} # Python compiles what is used, when it is
    pip install --no-deps --no-build-isolation -e .
    run .venv/bin/python -m pip check || fail_with_log "$lock misses something; run scripts/lock"
}

pip() { run .venv/bin/python -m pip "$@" || fail_with_log "'pip $1' failed; is the network there? Run it again"; }

ensure_build_tools() {
    cmake=$(tool cmake) ninja=$(tool ninja)
    [ ! -x "$cmake" ] || [ ! -x "$ninja" ] || return 0
    say ".venv: installing CMake and Ninja, since this machine lacks them"
    run touch .venv/unfinished
    pip install cmake ninja
    run rm .venv/unfinished
}

tool() { if works "$1"; then command -v "$1"; else echo "$root/.venv/bin/$1"; fi; }

# ---- llama.cpp's source ----------------------------------------------------------------------------------------------

ensure_source() {
    [ ! -d "$source_tree" ] || return 0
    begin_source
    if [ -n "$given_tree" ]; then
        copy_given_tree
    else
        fetch_by_git || unpack_sdist
    fi
    run rm -rf "$source_tree.new/.git" # the archive's .git points nowhere, and llama.cpp's CMake files would read it
    apply_patches
    run mv "$source_tree.new" "$source_tree"
}

# For scripts/wheel: prints the source's folder, the folder for objects, and the flags without those for this machine's
# GPU, one a line.
give_source() {
    name_the_trees
    find_python
    fail_if_cuda_lacks
    take_lock
    ensure_venv
    ensure_build_tools
    ensure_source
    make_libcuda_stub
    printf '%s\n' "$source_tree" "$cache/wheel/${key:0:16}" "${flags[@]}"
}

begin_source() { run rm -rf "$source_tree.new" && run mkdir -p "$source_tree.new"; }

copy_given_tree() {
    [ -f "$given_tree/CMakeLists.txt" ] || fail "LLAMA_CPP_DIR=$given_tree holds no llama.cpp; name a checkout of it"
    say "llama.cpp: out of $given_tree"
    if given_tree_has_commit; then
        run git -C "$given_tree" archive -o "$source_tree.tar" "$commit"
    else
        run tar -C "$given_tree" --exclude ./.git --exclude './build*' -cf "$source_tree.tar" .
    fi
    run tar -C "$source_tree.new" -xf "$source_tree.tar"
    run rm "$source_tree.tar"
}

# With --dry-run it fails at the end, so that the other way to the source is shown, too.
fetch_by_git() {
    local in_tree=(git -C "$source_tree.new")
    works git || return 1
    say "llama.cpp: fetching commit ${commit:0:9} by git"
    run_within 10 git ls-remote --exit-code "$repository" HEAD &&
        run "${in_tree[@]}" init --quiet &&
        run "${in_tree[@]}" config http.lowSpeedLimit 1000 &&
        run "${in_tree[@]}" config http.lowSpeedTime 30 &&
        run "${in_tree[@]}" fetch --depth 1 "$repository" "$commit" &&
        run "${in_tree[@]}" checkout --quiet FETCH_HEAD &&
        [ -z "$dry_run" ]
}

# Only this package is downloaded as source: with ":all:" pip may compile CMake itself to read the archive's metadata.
# It runs the archive's build backend for that, so it must compare the hash before. Each lock has that backend; else pip
# downloads it.
unpack_sdist() {
    local archive=$cache/download/$sdist.tar.gz new=$cache/download.new
    if ! is_the_sdist "$archive"; then
        say "llama.cpp: downloading the source archive of $sdist (73 MB)"
        run rm -rf "$new"
        run mkdir "$new"
        if [ -z "$dry_run" ]; then echo "llama-cpp-python==${sdist#*-} --hash=sha256:$sdist_sha256" > "$new/wanted"; fi
        pip download --require-hashes -r "$new/wanted" --no-deps --no-binary llama-cpp-python \
            ${lock:+--no-build-isolation} --dest "$new"
        [ -n "$dry_run" ] || is_the_sdist "$new/$sdist.tar.gz" ||
            fail "the download's sha256 is not $sdist_sha256; run it again, or set LLAMA_CPP_DIR"
        run mv "$new/$sdist.tar.gz" "$archive"
    fi
    begin_source
    run tar -C "$source_tree.new" -xzf "$archive" --strip-components 3 "$sdist/vendor/llama.cpp"
}

is_the_sdist() { [ -f "$1" ] && [ "$(sha256 < "$1")" = "$sdist_sha256" ]; }

apply_patches() {
    local patch
    works git || works patch || fail "neither git nor patch: install git, as with 'apt install git'"
    for patch in patches/*.patch; do
        apply "$root/$patch" || fail_with_log "$patch does not apply to llama.cpp ${commit:0:9}; mend it"
    done
}

# GIT_DIR, because inside another repository git apply silently skips files that are not part of it.
apply() {
    if works git; then
        run env GIT_DIR=/nowhere git -C "$source_tree.new" apply "$1"
    else
        run patch -d "$source_tree.new" -p1 --batch --forward -F 0 -i "$1"
    fi
}

# ---- llama-batched ---------------------------------------------------------------------------------------------------
# build/bin is a link to bin.a or bin.b. Each folder has a binary with its libraries, modules and stamp. The stamp's
# words: key, hash of engine/ (with --dev also of tests/engine/), name of the tree of objects. With --dev a folder has
# engine-tests, too, and with --dev or --rpc ggml-rpc-server.

binary_is_current() {
    [ -x build/bin/llama-batched ] && [[ $(cat build/bin/stamp 2> /dev/null) == "$binary_wanted "* ]]
}

ensure_binary() {
    ! binary_is_current || return 0
    fail_if_cuda_lacks
    ensure_build_tools
    ensure_source
    make_libcuda_stub
    programs=(llama-batched ${dev:+engine-tests})
    if [ -n "$dev$rpc" ]; then programs+=(ggml-rpc-server); fi
    leave_out "$(cat "$without" 2> /dev/null)"
    compile
    until passes_self_test; do
        leave_out_next
        compile
    done
    if [ -n "$left_out" ] && [ -z "$dry_run" ]; then echo "$left_out" > "$without"; fi
    swap_in
}

compile() {
    configure
    say "llama-batched: compiling (a few minutes the first time)"
    run "$cmake" --build "$objects" --target "${programs[@]}" --parallel "$(getconf _NPROCESSORS_ONLN)" ||
        fail_with_log "llama-batched does not compile; mend what the log names and run it again"
    fill_folder
}

# A tree of objects has a copy of engine/ (and of tests/engine/) that is compiled there, and a file that names it. Without
# this file CMake's first run was interrupted; trees of older versions were configured for the engine/ of a checkout.
configure() {
    local engine_of=$objects/engine-of copy=$objects/checkout
    if [ ! -e "$engine_of" ]; then run rm -rf "$objects"; fi
    copy_engine "$copy"
    [ "$(cat "$engine_of" 2> /dev/null)" != "$copy" ] || return 0
    say "llama-batched: CMake"
    run "$cmake" -S "$source_tree" -B "$objects" -G Ninja -DCMAKE_MAKE_PROGRAM="$ninja" \
        -DLLAMA_BATCHED_SOURCE="$copy/engine" "${flags[@]}" ||
        fail_with_log "CMake stopped; mend what the log names and run it again"
    if [ -z "$dry_run" ]; then echo "$copy" > "$engine_of"; fi
}

# Only files that differ are copied, since Ninja goes by their times: in a new checkout all times are new.
copy_engine() {
    local file
    if [ -n "$dry_run" ]; then print_command cp -R engine tests/engine "$1" && return; fi
    while read -r file; do
        cmp -s "$file" "$1/$file" || { mkdir -p "$1/${file%/*}" && cp "$file" "$1/$file"; }
    done < <(engine_files)
    while read -r file; do
        [ -e "$file" ] || rm "$1/$file"
    done < <(cd "$1" && engine_files)
}

engine_files() { find engine tests/engine -type f 2> /dev/null; }

fill_folder() {
    local file
    run rm -rf build/bin.new
    run mkdir build/bin.new
    for file in "${programs[@]}"; do run cp "$objects/bin/$file" build/bin.new; done
    for file in "$objects"/bin/lib*.so "$objects"/bin/lib*.dylib; do # of --portable; macOS has both kinds
        if [ -e "$file" ]; then run cp "$file" build/bin.new; fi
    done
    if [ -z "$dry_run" ]; then echo "$binary_wanted ${objects##*/}" > build/bin.new/stamp; fi
}

# Replaces the link by one rename, so that no process ever sees half of a build. The old folder is kept until the next
# swap: an engine that has just started from it may still load its modules, or restart itself.
swap_in() {
    local free=a used=b
    if [ "$(readlink build/bin)" = bin.a ]; then free=b used=a; fi
    run rm -rf build/bin.$free
    run mv build/bin.new build/bin.$free
    if [ ! -L build/bin ] && [ -d build/bin ]; then # of an older build.sh
        run rm -rf build/bin.$used build/stamp
        run mv build/bin build/bin.$used
    fi
    run ln -sfn bin.$free build/bin.link
    run "$python" -c 'import os; os.replace("build/bin.link", "build/bin")' # mv would follow the old link
}

# ---- self-test, and CPU features that are left out -------------------------------------------------------------------
# Compilers generate wrong code for features that few machines have. The features that a build must leave out are stored
# in the cache by the key of its objects: with another source, flag, compiler or CPU all features are tried again.

passes_self_test() {
    local reason status=0 command=(build/bin.new/llama-batched --self-test)
    reason=$(reason_for_no_self_test)
    if [ -n "$reason" ]; then say "llama-batched: no self-test, since $reason" && return; fi
    if [ -f models/storyteller.gguf ]; then command+=(-m models/storyteller.gguf); fi
    say "llama-batched: self-test"
    run_within 120 "${command[@]}" || status=$?
    failure="exit status $status"
    if [ "$status" = 124 ]; then failure="no end within 120 s"; fi
    if [ "$status" -gt 128 ]; then failure="signal $(kill -l "$status")"; fi
    return "$status"
}

reason_for_no_self_test() {
    if has_flag BUILD_TYPE=Debug || has_flag SANITIZE; then
        echo "a build for finding faults may have some"
    elif is_for_another_machine; then
        echo "it is for another machine"
    elif ! has_its_gpu; then
        echo "there is no GPU here"
    fi
}

is_for_another_machine() {
    local target
    [ -z "${CMAKE_TOOLCHAIN_FILE:-}" ] || return 0
    target=$("$compiler" -dumpmachine 2> /dev/null)
    [ -n "$target" ] && [ "${target%%-*}" != "$(uname -m)" ]
}

has_its_gpu() {
    case " ${flags[*]} " in
        *_CUDA=ON*) has_nvidia_gpu ;;
        *_HIP=ON* | *_VULKAN=ON*)
            [ -e /dev/dri ] || [ -e /dev/dxg ] || [ -e /dev/nvidiactl ] || [ "$(uname -s)" = Darwin ]
            ;;
    esac
}

leave_out_next() {
    local name remedy="another compiler (CXX)"
    if is_portable; then remedy="it without --portable"; fi
    name=$(features_to_leave_out | sed -n 1p)
    if [ -z "$name" ]; then
        grep 'self-test: ' "$log" | tail -n 5 >&2 || true
        fail "llama-batched failed its self-test ($failure); try $remedy, and report it. Log: $log"
    fi
    leave_out "$left_out $name"
    name=${left_out# }
    say "llama-batched failed its self-test ($failure); building without ${name// / and }"
}

# The features in the code that can be left out. A module of --portable has flags for its own CPU, which override ours.
features_to_leave_out() {
    local name in_cpuinfo _
    ! is_portable || return 0
    while read -r name in_cpuinfo _; do
        if [[ "$(cpu_features) " == *" $in_cpuinfo "* && "$left_out " != *" $name "* ]] &&
            [ -n "$(flags_without "$name")" ]; then echo "$name"; fi
    done < <(features)
}

# leave_out " NAME NAME…": the features that this build leaves out
leave_out() {
    local name less
    [ -n "$1" ] || return 0
    left_out=$1 objects=$cache/objects/${key:0:16}${1// /-}
    less=$(for name in $left_out; do flags_without "$name"; done)
    flags+=("-DCMAKE_C_FLAGS=${CFLAGS:-}$less" "-DCMAKE_CXX_FLAGS=${CXXFLAGS:-}$less")
}

flags_without() { # only flags that the compiler knows; one without the flag does not generate such code
    local flag
    for flag in $(features | sed -n "s/^$1 *[^ ]* *//p"); do
        if "$compiler" "$flag" -fsyntax-only -x c++ /dev/null 2> /dev/null; then printf ' %s' "$flag"; fi
    done
}

main "$@"
