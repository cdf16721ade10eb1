"""The engine and the model that come with this package, and how one gets an engine where there is none.

A wheel has both inside the package. In a checkout the model lies beside it, and ./build.sh makes the engine.
"""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
CHECKOUT = PACKAGE.parent


def is_checkout(package: Path = PACKAGE) -> bool:
    """Whether the engine is the one of ./build.sh; one inside the package goes first."""
    return (package.parent / "build.sh").is_file() and not (package / "_engine").is_dir()


def engine(package: Path = PACKAGE) -> Path:
    folder = package.parent / "build/bin" if is_checkout(package) else package / "_engine"
    return folder / "llama-batched"


def model(package: Path = PACKAGE) -> Path:
    folder = package.parent / "models" if is_checkout(package) else package / "_models"
    return folder / "storyteller.gguf"


def remedy(package: Path = PACKAGE) -> str:
    """What to do where the engine is missing or does not run: the end of a sentence."""
    if is_checkout(package):
        return "run ./build.sh"
    return "install llama-srb's wheel, or name an engine with --engine"


def oldest_glibc() -> str | None:
    """Of the systems that a wheel is for, as its tag says: "2.35"; None of a checkout."""
    try:
        tags = metadata.distribution("llama-srb").read_text("WHEEL") or ""
    except metadata.PackageNotFoundError:
        return None
    found = re.findall(r"manylinux_2_(\d+)_", tags)
    return f"2.{min(map(int, found))}" if found else None
