"""Writes models with real shapes and random weights for benchmarks: their speed is real, their text noise.

python benchmarks/models.py 0.5b 0.5b.gguf --vocabularies llama.cpp/models
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, GGUFWriter, LlamaFileType, quants


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
    finer: Kind | None = None  # for attn_v and ffn_down of half of the layers ("more bits")
    embedding: Kind = Kind.Q8_0
    output: Kind | None = None  # None: the embedding's weights are used
    context: int = 32768
    biases: bool = False
    head_width: int | None = None  # None: width / heads
    window: int | None = None  # tokens that five of six layers look back
    experts: tuple[int, int] | None = None  # how many, and how many of them a token uses

    def kind(self, columns: int, layer: int, name: str) -> Kind:
        """The type that llama-quantize chooses (llama-quant.cpp, use_more_bits)."""
        eighth = self.layers // 8
        more = layer < eighth or layer >= 7 * self.layers // 8 or (layer - eighth) % 3 == 2
        wanted = self.finer if self.finer and more and name in ("attn_v", "ffn_down") else self.weights
        return wanted if columns % 256 == 0 else SMALLER_BLOCKS.get(wanted, wanted)


# What llama-quantize takes for rows that are no multiple of 256.
SMALLER_BLOCKS = {Kind.Q4_K: Kind.Q5_0, Kind.Q6_K: Kind.Q8_0}
FILE_TYPES = {
    Kind.Q4_0: LlamaFileType.MOSTLY_Q4_0,
    Kind.Q8_0: LlamaFileType.MOSTLY_Q8_0,
    Kind.Q4_K: LlamaFileType.MOSTLY_Q4_K_M,
}
ENTROPY = 2.4  # nats of a row of logits, about what stories have


SHAPES = {
    "0.5b": Shape("qwen2", 24, 896, 14, 2, 4864, "qwen2", Kind.Q4_0, biases=True),
    "15m": Shape("llama", 6, 288, 6, 6, 768, "llama-spm", Kind.Q8_0, context=2048),
    "1b": Shape("llama", 16, 2048, 32, 8, 8192, "llama-bpe", Kind.Q4_K, Kind.Q6_K, embedding=Kind.Q6_K),
    "1.5b": Shape(
        "qwen2", 28, 1536, 12, 2, 8960, "qwen2", Kind.Q4_K, Kind.Q6_K, embedding=Kind.Q6_K, biases=True
    ),
    "gemma-270m": Shape(
        "gemma3",
        18,
        640,
        4,
        1,
        2048,
        "gemma-4",
        Kind.Q4_K,
        Kind.Q6_K,
        head_width=256,
        window=512,
    ),
    "experts": Shape(
        "llama", 16, 1024, 16, 8, 1024, "qwen2", Kind.Q4_K, Kind.Q6_K, embedding=Kind.Q6_K, experts=(32, 4)
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
    _add_facts(shape, writer, n_vocab)

    def matrix(name: str, rows: int, columns: int, kind: Kind, experts: int = 0) -> None:
        draw = _drawn_blocks if kind in BLOCKS else _quantised
        drawn = draw(random, max(experts, 1) * rows, columns, kind)
        if experts:
            drawn = drawn.reshape(experts, rows, -1)
        writer.add_tensor(name, drawn, raw_dtype=kind)

    def norm(name: str, size: int, value: float = 1.0) -> None:
        writer.add_tensor(name, np.full(size, value, np.float32))

    matrix("token_embd.weight", n_vocab, shape.width, shape.embedding)
    if shape.output is not None:
        matrix("output.weight", n_vocab, shape.width, shape.output)
    # The logits are normal variables with the norm's weight as their deviation s, and their entropy is
    # ln(n_vocab) - s^2 / 2.
    norm("output_norm.weight", shape.width, np.sqrt(2 * (np.log(n_vocab) - ENTROPY)))
    for i in range(shape.layers):
        for name, rows, columns, experts in _matrices(shape):
            place = f"blk.{i}.{name}{'_exps' if experts else ''}"
            matrix(f"{place}.weight", rows, columns, shape.kind(columns, i, name), experts)
            if shape.biases and name in ("attn_q", "attn_k", "attn_v"):
                writer.add_tensor(f"{place}.bias", np.zeros(rows, np.float32))
        for name, size in _norms(shape):
            norm(f"blk.{i}.{name}.weight", size)
        if shape.experts:
            gate = random.standard_normal((shape.experts[0], shape.width), dtype=np.float32)
            writer.add_tensor(f"blk.{i}.ffn_gate_inp.weight", gate / np.sqrt(np.float32(shape.width)))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_facts(shape: Shape, writer: GGUFWriter, n_vocab: int) -> None:
    writer.add_file_type(FILE_TYPES[shape.weights])  # OpenVINO reads no file without it
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
    if shape.head_width:
        writer.add_key_length(shape.head_width)
        writer.add_value_length(shape.head_width)
    if shape.window:
        writer.add_sliding_window(shape.window)
    if shape.experts:
        writer.add_expert_count(shape.experts[0])
        writer.add_expert_used_count(shape.experts[1])


def _matrices(shape: Shape) -> Iterator[tuple[str, int, int, int]]:
    """A layer's weights: name, rows, columns, and how many experts have such a matrix each, or 0."""
    head = shape.head_width or shape.width // shape.heads
    q, kv, n = head * shape.heads, head * shape.kv_heads, shape.experts[0] if shape.experts else 0
    yield "attn_q", q, shape.width, 0
    yield "attn_k", kv, shape.width, 0
    yield "attn_v", kv, shape.width, 0
    yield "attn_output", shape.width, q, 0
    yield "ffn_gate", shape.feed_forward, shape.width, n
    yield "ffn_up", shape.feed_forward, shape.width, n
    yield "ffn_down", shape.width, shape.feed_forward, n


def _norms(shape: Shape) -> Iterator[tuple[str, int]]:
    yield from (("attn_norm", shape.width), ("ffn_norm", shape.width))
    if shape.architecture == "gemma3":
        yield from (("post_attention_norm", shape.width), ("post_ffw_norm", shape.width))
        yield from (("attn_q_norm", shape.head_width or 0), ("attn_k_norm", shape.head_width or 0))


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
