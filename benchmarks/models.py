"""Writes models with real shapes and random weights for benchmarks: their speed is real, their text noise.

python benchmarks/models.py 0.5b 0.5b.gguf --vocabularies llama.cpp/models
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, GGUFWriter, quants


@dataclass(frozen=True)
class Shape:
    """The shape of one model; widths in floats."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: str  # the name of one of llama.cpp's models/ggml-vocab-*.gguf
    weights: Kind
    finer: Kind | None = None  # for half of attn_v and ffn_down, as llama-quantize does ("more bits")
    embedding: Kind = Kind.Q8_0
    output: Kind | None = None  # None: the embedding's weights are used
    context: int = 32768
    biases: bool = False


SHAPES = {
    "0.5b": Shape("qwen2", 24, 896, 14, 2, 4864, "qwen2", Kind.Q4_0, biases=True),
    "15m": Shape("llama", 6, 288, 6, 6, 768, "llama-spm", Kind.Q8_0, context=2048),
    "1b": Shape("llama", 16, 2048, 32, 8, 8192, "llama-bpe", Kind.Q4_K, Kind.Q6_K, embedding=Kind.Q6_K),
    "1.5b": Shape(
        "qwen2", 28, 1536, 12, 2, 8960, "qwen2", Kind.Q4_K, Kind.Q6_K, embedding=Kind.Q6_K, biases=True
    ),
    "8b": Shape(
        "llama",
        32,
        4096,
        32,
        8,
        14336,
        "llama-bpe",
        Kind.Q4_K,
        Kind.Q6_K,
        embedding=Kind.Q4_K,
        output=Kind.Q6_K,
    ),
}

# The layout of blocks of 256 weights (ggml-common.h). All scales are equal, and all minima are equal.
BLOCKS = {
    Kind.Q4_K: np.dtype([("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("qs", "u1", 128)]),
    Kind.Q6_K: np.dtype([("qs", "u1", 192), ("scales", "i1", 16), ("d", "<f2")]),
}


def write(shape: Shape, vocabulary: Path, path: Path) -> None:
    """Writes the model. The same shape gives the same bytes."""
    random = np.random.default_rng(1)
    writer = GGUFWriter(path, shape.architecture)
    n_vocab = _copy_vocabulary(GGUFReader(vocabulary), writer)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(1e6)
    if shape.architecture == "llama":
        writer.add_rope_dimension_count(shape.width // shape.heads)
        writer.add_vocab_size(n_vocab)

    def matrix(name: str, rows: int, columns: int, kind: Kind) -> None:
        draw = _drawn_blocks if kind in BLOCKS else _quantised
        writer.add_tensor(name, draw(random, rows, columns, kind), raw_dtype=kind)

    kv = shape.width // shape.heads * shape.kv_heads
    matrix("token_embd.weight", n_vocab, shape.width, shape.embedding)
    if shape.output is not None:
        matrix("output.weight", n_vocab, shape.width, shape.output)
    writer.add_tensor("output_norm.weight", np.ones(shape.width, np.float32))
    for i in range(shape.layers):
        for name, rows, columns in (
            ("attn_q", shape.width, shape.width),
            ("attn_k", kv, shape.width),
            ("attn_v", kv, shape.width),
            ("attn_output", shape.width, shape.width),
            ("ffn_gate", shape.feed_forward, shape.width),
            ("ffn_up", shape.feed_forward, shape.width),
            ("ffn_down", shape.width, shape.feed_forward),
        ):
            fine = shape.finer if i % 2 and name in ("attn_v", "ffn_down") else None
            matrix(f"blk.{i}.{name}.weight", rows, columns, fine or shape.weights)
            if shape.biases and name in ("attn_q", "attn_k", "attn_v"):
                writer.add_tensor(f"blk.{i}.{name}.bias", np.zeros(rows, np.float32))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(shape.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _quantised(random: np.random.Generator, rows: int, columns: int, kind: Kind) -> np.ndarray:
    """Random weights with mean 0 and variance 1/columns, quantised."""
    values = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
    return quants.quantize(values, kind)


def _drawn_blocks(random: np.random.Generator, rows: int, columns: int, kind: Kind) -> np.ndarray:
    """The same for types that the gguf package cannot quantise to: random bits are valid weights."""
    blocks = np.zeros((rows, columns // 256), BLOCKS[kind])
    blocks["qs"] = random.integers(0, 256, blocks["qs"].shape, np.uint8)
    if kind == Kind.Q4_K:  # d * 32 * q - dmin * 32, q = 0 .. 15
        blocks["d"] = 1 / (32 * np.sqrt((16**2 - 1) / 12 * columns))
        blocks["dmin"] = blocks["d"] * 7.5
        blocks["scales"] = [0xA0] * 8 + [0] * 4  # 6 bits of each of eight scales and eight minima: 32
    else:  # d * 8 * q, q = -32 .. 31
        blocks["d"] = 1 / (8 * np.sqrt((64**2 - 1) / 12 * columns))
        blocks["scales"] = 8
    return blocks.view(np.uint8).reshape(rows, -1)


def _copy_vocabulary(source: GGUFReader, writer: GGUFWriter) -> int:
    for key, field in source.fields.items():
        if key.startswith("tokenizer."):
            kind = field.types[0]
            writer.add_key_value(
                key, field.contents(), kind, field.types[-1] if len(field.types) > 1 else None
            )
    return len(source.fields["tokenizer.ggml.tokens"].contents())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("path", type=Path)
    parser.add_argument("--vocabularies", type=Path, required=True, help="llama.cpp's folder models/")
    given = parser.parse_args()
    chosen = SHAPES[given.shape]
    write(chosen, given.vocabularies / f"ggml-vocab-{chosen.vocabulary}.gguf", given.path)
    sys.exit(0)
