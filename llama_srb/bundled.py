"""The paths of the bundled engine and model, and the advice for a missing engine.

A wheel has both inside the package. In a checkout the model is beside the package, and ./build.sh makes the
engine.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent


def is_checkout(package: Path = PACKAGE) -> bool:
    """Whether this is a checkout, whose engine ./build.sh makes. An engine inside the package goes first."""
    return (package.parent / "build.sh").is_file() and not (package / "_engine").is_dir()


def engine(package: Path = PACKAGE) -> Path:
    folder = package.parent / "build/bin" if is_checkout(package) else package / "_engine"
    return folder / "llama-batched"


def model(package: Path = PACKAGE) -> Path:
    folder = package.parent / "models" if is_checkout(package) else package / "_models"
    return folder / "storyteller.gguf"


def remedy(package: Path = PACKAGE) -> str:
    """What to do if the engine is missing or does not run; the end of a sentence."""
    if is_checkout(package):
        return "run ./build.sh"
    return "install llama-srb's wheel, or name an engine with --engine"


def oldest_glibc() -> str | None:
    """The oldest glibc that this wheel supports, from its tag ("2.35"); None in a checkout."""
    try:
        tags = metadata.distribution("llama-srb").read_text("WHEEL") or ""
    except metadata.PackageNotFoundError:
        return None
    found = re.findall(r"manylinux_2_(\d+)_", tags)
    return f"2.{min(map(int, found))}" if found else None
