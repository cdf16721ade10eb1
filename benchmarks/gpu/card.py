"""The card, the processor, and whether the module finds its libraries and the engine the GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

from programs import WORK

ENGINE, MODULE = WORK / "bin/llama-batched", WORK / "bin/libggml-cuda.so"


def output(*command: object) -> str:
    try:
        done = subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=25, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
    return (done.stdout + done.stderr).strip()


def main() -> None:
    query = "--query-gpu=name,memory.total,memory.free,driver_version"
    print(output("nvidia-smi", query, "--format=csv,noheader"))
    processors = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
    print(*processors[:1], output("nproc"), "cores")
    missing = [line.strip() for line in output("ldd", MODULE).splitlines() if "not found" in line]
    print(f"{MODULE.name}: {MODULE.stat().st_size / 1e6:.0f} MB, missing libraries: {missing or 'none'}")
    devices = output(ENGINE, "--list-devices")
    print(devices)
    if "CUDA0" not in devices:
        raise SystemExit("the engine sees no GPU")


if __name__ == "__main__":
    main()
