"""Writes models of real shape with random weights, for benchmarks: what they say is noise, how fast is not.

python benchmarks/models.py 0.5b 0.5b.gguf --vocabularies llama.cpp/models
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants


@dataclass(frozen=True)
class Shape:
    """One model; widths in floats."""

    architecture: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    feed_forward: int
    vocabulary: str  # of llama.cpp's models/ggml-vocab-*.gguf
    weights: GGMLQuantizationType
    context: int = 32768
    biases: bool = False


SHAPES = {
    "0.5b": Shape("qwen2", 24, 896, 14, 2, 4864, "qwen2", GGMLQuantizationType.Q4_0, biases=True),
    "15m": Shape("llama", 6, 288, 6, 6, 768, "llama-spm", GGMLQuantizationType.Q8_0, context=2048),
}


def write(shape: Shape, vocabulary: Path, path: Path) -> None:
    """Writes the model; deterministic."""
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

    def matrix(name: str, rows: int, columns: int, kind: GGMLQuantizationType) -> None:
        values = random.standard_normal((rows, columns), dtype=np.float32) / np.sqrt(columns)
        writer.add_tensor(name, quants.quantize(values, kind), raw_dtype=kind)

    kv = shape.width // shape.heads * shape.kv_heads
    matrix("token_embd.weight", n_vocab, shape.width, GGMLQuantizationType.Q8_0)
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
            matrix(f"blk.{i}.{name}.weight", rows, columns, shape.weights)
            if shape.biases and name in ("attn_q", "attn_k", "attn_v"):
                writer.add_tensor(f"blk.{i}.{name}.bias", np.zeros(rows, np.float32))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{i}.{name}.weight", np.ones(shape.width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


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
