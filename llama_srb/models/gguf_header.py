"""Reads the header of a GGUF file: name, architecture, size, quantisation, context.

It skips arrays. The gguf package takes seconds for a vocabulary of 250,000 texts, and its import alone takes
0.1 s at each start of the server. So the two tables are our own; tests/unit/test_model_info.py compares them
with the tables of that package.
Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# ggml's tensor types: number -> elements per block, bytes per block (ggml-common.h)
BLOCK_SIZES: dict[int, tuple[int, int]] = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 9: (32, 40),
    10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), 15: (256, 292),
    16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18), 21: (256, 110), 22: (256, 82),
    23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2),
    34: (256, 54), 35: (256, 66), 39: (32, 17), 40: (64, 36), 41: (128, 18),
}  # fmt: skip

# llama.cpp's file types (llama.h, llama_ftype): the usual names of quantisations
FILE_TYPES: dict[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K",
    19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL",
    26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0",
    37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip

SCALARS: dict[int, struct.Struct] = {
    number: struct.Struct("<" + letter)
    for number, letter in {
        0: "B",
        1: "b",
        2: "H",
        3: "h",
        4: "I",
        5: "i",
        6: "f",
        7: "?",
        10: "Q",
        11: "q",
        12: "d",
    }.items()
}
STRING, ARRAY = 8, 9
TOKENS = "tokenizer.ggml.tokens"
SPECIAL_TOKENS = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
"""Hugging Face's names -> the part of GGUF's keys."""
MAX_DIMENSIONS = 4  # GGML_MAX_DIMS
MAX_CONTEXT = (1 << 31) - 1  # tokens: positions are of 32 bits
U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


class ModelFileError(Exception):
    """The file cannot be served; the message is one line and begins with the path."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """The facts in a GGUF header. context: the training length in tokens; None: the header has none.

    header_bytes: the header's own size, up to the end of the list of tensors. n_tokens: those of the
    vocabulary; 0: the header has none. special_tokens: texts by the names of Hugging Face.
    """

    path: Path
    name: str
    architecture: str
    parameters: int
    quantisation: str
    context: int | None
    size_bytes: int
    header_bytes: int = 0
    n_tokens: int = 0
    special_tokens: dict[str, str] = field(default_factory=dict, compare=False)
    metadata: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_adapter(self) -> bool:
        return self.metadata.get("general.type") == "adapter"


class _Truncated(Exception):
    pass


@dataclass(slots=True)
class _Header:
    """A reader at a position of the file; each read moves the position."""

    data: mmap.mmap
    at: int = 0

    def number(self, shape: struct.Struct) -> Any:
        self.skip(shape.size)
        return shape.unpack_from(self.data, self.at - shape.size)[0]

    def skip(self, size: int) -> None:
        if size > len(self.data) - self.at:
            raise _Truncated
        self.at += size

    def text(self) -> str:
        size = self.number(U64)
        self.skip(size)
        return self.data[self.at - size : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        """Reads a scalar or a text; skips an array and returns None."""
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self._skip_array()
        if kind not in SCALARS:
            raise ValueError(f"it has a value of the unknown type {kind}")
        return self.number(SCALARS[kind])

    def _skip_array(self) -> None:
        kind, count = self.number(U32), self.number(U64)
        if kind in SCALARS:
            return self.skip(count * SCALARS[kind].size)
        if kind != STRING:
            raise ValueError(f"it has an array of the unknown type {kind}")
        return self.skip_texts(count)

    def skip_texts(self, count: int) -> None:
        unpack, data, at, end = U64.unpack_from, self.data, self.at, len(self.data) - 8
        for _ in range(count):  # a vocabulary has some 100,000
            if at > end:
                raise _Truncated
            at += 8 + unpack(data, at)[0]
        self.skip(at - self.at)


@dataclass(frozen=True, slots=True)
class _Tensor:
    elements: int
    type: int
    offset: int

    @property
    def end(self) -> int:
        """The end in bytes from the start of the tensor data; the start if this table lacks the type."""
        elements, size = BLOCK_SIZES.get(self.type, (1, 0))
        return self.offset + self.elements // elements * size


def read(path: str | Path) -> ModelInfo:
    """Reads a file's header; ModelFileError if it is missing, empty, truncated or not a GGUF."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            if not (size := path.stat().st_size):
                raise ModelFileError(f"{path}: the file is empty")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(path, _Header(data), size)
    except FileNotFoundError:
        raise ModelFileError(f"{path}: there is no such file") from None
    except OSError as error:
        raise ModelFileError(f"{path}: {error.strerror}") from None
    except _Truncated:
        raise ModelFileError(f"{path}: the file is truncated ({size:,} bytes); download it again") from None
    except ValueError as error:
        raise ModelFileError(f"{path}: {error}") from None


def read_model(path: Path) -> ModelInfo:
    """The header of a model's file; ModelFileError also if it is an adapter's."""
    info = read(path)
    if info.is_adapter:
        raise ModelFileError(f"{path} is an adapter, not a model")
    return info


def check_adapter(path: Path) -> None:
    """ModelFileError unless it is an adapter's file."""
    if not read(path).is_adapter:
        raise ModelFileError(f"{path} is not an adapter")


def _read(path: Path, header: _Header, size: int) -> ModelInfo:
    if header.data[:4] != b"GGUF"[: len(header.data)]:
        raise ValueError("not a GGUF file")
    header.skip(4)
    version = header.number(U32)
    if version not in (2, 3):
        raise ValueError(f"GGUF version {version}; only versions 2 and 3, little-endian, are supported")
    n_tensors, n_values = header.number(U64), header.number(U64)
    metadata: dict[str, Any] = {}
    tokens_at = 0
    for _ in range(n_values):
        key, kind = header.text(), header.number(U32)
        tokens_at = header.at if key == TOKENS and kind == ARRAY else tokens_at
        metadata[key] = header.value(kind)
    tensors = [_tensor(header) for _ in range(n_tensors)]
    _check_whole(header.at, tensors, metadata, size)
    special = _special_tokens(_Header(header.data, tokens_at), metadata) if tokens_at else {}
    n_tokens = U64.unpack_from(header.data, tokens_at + U32.size)[0] if tokens_at else 0
    return _info(
        path, metadata, tensors, size, header_bytes=header.at, n_tokens=n_tokens, special_tokens=special
    )


def _special_tokens(header: _Header, metadata: dict[str, Any]) -> dict[str, str]:
    """The texts of the special tokens; header: at the list of all tokens, which has been skipped before."""
    if header.number(U32) != STRING:
        return {}
    count = header.number(U64)
    named = {name: metadata.get(f"tokenizer.ggml.{key}_token_id") for name, key in SPECIAL_TOKENS.items()}
    ids = {name: id for name, id in named.items() if isinstance(id, int) and 0 <= id < count}
    texts: dict[int, str] = {}
    seen = 0
    for id in sorted(set(ids.values())):
        header.skip_texts(id - seen)
        texts[id], seen = header.text(), id + 1
    return {name: texts[id] for name, id in ids.items()}


def _tensor(header: _Header) -> _Tensor:
    header.text()
    n_dimensions = header.number(U32)
    if n_dimensions > MAX_DIMENSIONS:
        raise ValueError(f"a tensor has {n_dimensions} dimensions; at most {MAX_DIMENSIONS} are possible")
    elements = math.prod(header.number(U64) for _ in range(n_dimensions))
    return _Tensor(elements, header.number(U32), header.number(U64))


def _check_whole(header_end: int, tensors: list[_Tensor], metadata: dict[str, Any], size: int) -> None:
    """Tensor data begins at the next multiple of the alignment and must end within the file."""
    alignment = metadata.get("general.alignment") or 32
    if not isinstance(alignment, int):
        raise ValueError("general.alignment is not a number")
    start = -(-header_end // alignment) * alignment
    if tensors and start + max(tensor.end for tensor in tensors) > size:
        raise _Truncated


def _info(path: Path, metadata: dict[str, Any], tensors: list[_Tensor], size: int, **more: Any) -> ModelInfo:
    architecture = str(metadata.get("general.architecture", "unknown"))
    file_type = metadata.get("general.file_type")
    context = metadata.get(key := f"{architecture}.context_length")
    if isinstance(context, int) and not 0 <= context <= MAX_CONTEXT:
        raise ValueError(f"{key} is {context}; it must be between 0 and {MAX_CONTEXT}")
    return ModelInfo(
        path=path,
        name=str(metadata.get("general.name") or path.stem),
        architecture=architecture,
        parameters=sum(tensor.elements for tensor in tensors),
        quantisation=FILE_TYPES.get(file_type, f"type {file_type}")
        if isinstance(file_type, int)
        else "unknown",
        context=context if isinstance(context, int) else None,
        size_bytes=size,
        **more,
        metadata=metadata,
    )
