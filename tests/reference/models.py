"""Makes models from the bundled one, with other weights or another vocabulary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, TokenType
from gguf.quants import IQ4_NL, dequantize, quantize

from tests.support.places import ROOT

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@cache
def storyteller() -> GGUFReader:
    return GGUFReader(ROOT / "models/storyteller.gguf")


@cache
def vocabulary() -> list[bytes]:
    """The bytes of each token."""
    byte_of = {text: byte for byte, text in _gpt2_alphabet()}
    pieces = storyteller().fields["tokenizer.ggml.tokens"].contents()
    return [
        piece.encode() if piece.startswith("<|") else bytes(byte_of[c] for c in piece) for piece in pieces
    ]


def _gpt2_alphabet() -> Iterator[tuple[int, str]]:
    """GPT-2's printable character for each byte: the byte itself, or a character from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    yield from ((byte, chr(byte)) for byte in printable)
    yield from ((byte, chr(256 + i)) for i, byte in enumerate(others))


def write_plain(path: Path, written_as_ids: bool = False) -> None:
    """Writes the bundled model in F32: Q8_0 rounds activations, and a difference of 1e-7 becomes 1e-2.

    written_as_ids: token 17 has the text "<17>" and no other, so that a text can give any list of tokens.
    """
    n_vocab = len(vocabulary())
    changed: dict[str, Any] = {"general.file_type": 0}
    if written_as_ids:
        changed["tokenizer.ggml.tokens"] = [f"<{i}>" for i in range(n_vocab)]
        changed["tokenizer.ggml.token_type"] = [int(TokenType.USER_DEFINED)] * n_vocab
        changed["tokenizer.ggml.add_bos_token"] = False
    tensors = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in storyteller().tensors}
    _write(path, changed, tensors)


def write_packable(path: Path) -> None:
    """Writes the bundled model with matrices in IQ4_NL, which the CPU packs for its products, with AMX too.

    AMX has a form of its own for Q4_0, which is not packed then.
    """
    tensors = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in storyteller().tensors}
    _write(path, {"general.file_type": 25}, tensors, GGMLQuantizationType.IQ4_NL)


def _as_iq4_nl(matrix: Matrix) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The blocks of a matrix in IQ4_NL, which gguf only reads: a scale, and the nearest of 16 values each."""
    blocks = matrix.reshape(-1, 32)
    levels = np.array(IQ4_NL.kvalues, np.float32)
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = (largest / levels[0]).astype(np.float16)
    steps = np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale != 0)
    nearest = np.searchsorted((levels[1:] + levels[:-1]) / 2, steps).astype(np.uint8)
    packed = nearest[:, :16] | nearest[:, 16:] << 4
    return np.hstack([scale.view(np.uint8), packed]).reshape(len(matrix), -1)


N_CLASSES = 64


def write_bigram(path: Path) -> None:
    """Writes a model whose logits depend on the last token only: the same bits in any batch, at any position.

    Attention and feed-forward add zero. A token's embedding has one value that is not zero (in its
    class), so each logit is a sum of one product, and no order of summation can change it.
    """
    random = np.random.default_rng(7)
    n_vocab = len(vocabulary())
    classes = random.integers(N_CLASSES, size=n_vocab)
    output = random.normal(0, 0.5, (n_vocab, N_CLASSES)).astype(np.float32)  # the norm multiplies it by 8
    output[[not _is_text(piece) for piece in vocabulary()]] = -8
    output[0] = output[1:].max(axis=0) - 0.5  # the end of text has a probability of 1 in 50
    square = random.normal(0, 0.1, (N_CLASSES, N_CLASSES)).astype(np.float32)
    zeros, ones = np.zeros_like(square), np.ones(N_CLASSES, np.float32)
    layer = {f"attn_{name}": square for name in ("q", "k", "v")} | {"attn_output": zeros}
    layer |= {"ffn_gate": square, "ffn_up": square, "ffn_down": zeros, "attn_norm": ones, "ffn_norm": ones}
    tensors = {f"blk.0.{name}.weight": value for name, value in layer.items()}
    tensors |= {"token_embd.weight": np.eye(N_CLASSES, dtype=np.float32)[classes]}
    tensors |= {"output.weight": output, "output_norm.weight": ones}
    sizes = {"embedding_length": N_CLASSES, "feed_forward_length": N_CLASSES, "block_count": 1}
    sizes |= {"attention.head_count": 2, "attention.head_count_kv": 2, "rope.dimension_count": 32}
    _write(path, {"general.file_type": 0} | {f"llama.{name}": size for name, size in sizes.items()}, tensors)


def _is_text(piece: bytes) -> bool:
    try:
        return piece.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _write(
    path: Path,
    changed: dict[str, Any],
    tensors: dict[str, Matrix],
    matrices: GGMLQuantizationType = GGMLQuantizationType.F32,
) -> None:
    writer = GGUFWriter(path, "llama")
    for name, field in storyteller().fields.items():
        if not name.startswith(("GGUF.", "general.architecture")):
            inner = field.types[1] if field.types[0] == GGUFValueType.ARRAY else None
            writer.add_key_value(name, changed.get(name, field.contents()), field.types[0], inner)
    write_out(writer, tensors, matrices)


def write_out(
    writer: GGUFWriter,
    tensors: dict[str, Matrix],
    matrices: GGMLQuantizationType = GGMLQuantizationType.F32,
) -> None:
    """Writes the tensors, those of one dimension in F32, and closes the file."""
    for name, tensor in tensors.items():
        kind = GGMLQuantizationType.F32 if tensor.ndim == 1 else matrices
        floats = np.ascontiguousarray(tensor, np.float32)
        as_kind = _as_iq4_nl(floats) if kind == GGMLQuantizationType.IQ4_NL else quantize(floats, kind)
        writer.add_tensor(name, as_kind, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
