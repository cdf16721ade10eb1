"""Short hashes of the model and the adapters, for `system_fingerprint` and for the vectors of memories."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

from llama_srb.models import gguf_header
from llama_srb.models.gguf_header import ModelFileError, ModelInfo

PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\.gguf")
DIGEST = 4  # bytes
SAMPLES, SAMPLE = 64, 4096  # parts of a file whose weights are hashed; bytes of each


def parts_of(path: Path) -> list[Path]:
    """The files of a model: several if the name is that of a part, as llama-gguf-split writes it."""
    if (part := PART.fullmatch(path.name)) is None:
        return [path]
    name, count = part.groups()
    return [path.with_name(f"{name}-{i:05d}-of-{count}.gguf") for i in range(1, int(count) + 1)]


def of_model(model: ModelInfo) -> str:
    """A hash of header, size and time of change of each of the model's files."""
    digest = blake2b(digest_size=DIGEST)
    for path in parts_of(model.path):
        try:
            info = model if path == model.path else gguf_header.read(path)
            changed = path.stat().st_mtime_ns
            with path.open("rb") as file:
                header = file.read(info.header_bytes)
        except (OSError, ModelFileError):  # the engine will say what is wrong with it
            digest.update(b"unreadable")
            continue
        digest.update(f"{len(header)} {info.size_bytes} {changed} ".encode() + header)
    return digest.hexdigest()


def of_weights(model: ModelInfo) -> str:
    """A hash of size, header and samples of the weights of each of the model's files.

    A copy of the files has the same, and other weights of the same shape have another one. ModelFileError.
    """
    digest = blake2b(digest_size=2 * DIGEST)
    for path in parts_of(model.path):
        info = model if path == model.path else gguf_header.read(path)
        try:
            with path.open("rb") as file:
                header = file.read(info.header_bytes)
                digest.update(f"{len(header)} {info.size_bytes} ".encode() + header)
                for i in range(SAMPLES):
                    file.seek(info.header_bytes + (info.size_bytes - info.header_bytes) * i // SAMPLES)
                    digest.update(file.read(SAMPLE))
        except OSError as error:
            raise ModelFileError(f"{path}: {error.strerror}") from None
    return digest.hexdigest()


def of_adapters(adapters: Iterable[Mapping[str, Any]]) -> str:
    """A hash of id, file name and size of each adapter; adapters: those of the engine's ready event."""
    digest = blake2b(digest_size=DIGEST)
    for adapter in adapters:
        path = Path(adapter["path"])
        size = path.stat().st_size if path.exists() else 0
        digest.update(f"{adapter['id']} {size} {path.name}\0".encode())
    return digest.hexdigest()
