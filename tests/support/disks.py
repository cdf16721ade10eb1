"""Small file systems of their own, which tests fill."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@contextlib.contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """An empty folder is a file system of this size, as "64k", in the block. It needs root."""
    folder.mkdir(exist_ok=True)
    options = ("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    if subprocess.run(["mount", *options], check=False).returncode != 0:
        pytest.skip("only root may mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def full(folder: Path) -> Iterator[None]:
    """There is no byte left on the folder's file system in the block."""
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1024)):
            pass
    try:
        yield
    finally:
        filler.unlink()
