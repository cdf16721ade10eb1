"""Writes a model that is as slow as a large one, and whose texts are those of a small one.

.venv/bin/python benchmarks/padded.py SMALL.gguf OUT.gguf [--bytes 370e6]

It is the small model (of the architecture llama, in Q8_0) with wider layers, and what is added to them is
multiplied by zero. So what a draft model saves can be measured on real texts: the small one is the draft
model, and how often it is right follows the temperature only.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import gguf
import numpy as np

WIDTH, LAYERS, INNER = "llama.embedding_length", "llama.block_count", "llama.feed_forward_length"
Q8 = gguf.GGMLQuantizationType.Q8_0
BLOCK = 34 / 32  # bytes of a weight in Q8_0
STEP = 256  # columns


def write_padded(small: Path, out: Path, n_bytes: float) -> None:
    reader = gguf.GGUFReader(small)
    width, layers, inner = (int(reader.fields[name].contents()) for name in (WIDTH, LAYERS, INNER))
    added = int(n_bytes / layers / (3 * width * BLOCK)) // STEP * STEP
    writer = gguf.GGUFWriter(out, "llama")
    for name, field in reader.fields.items():
        if not name.startswith(("GGUF.", "general.architecture", INNER)):
            sub = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub)
    writer.add_feed_forward_length(inner + added)
    dice = np.random.default_rng(1)
    for tensor in reader.tensors:
        data = tensor.data
        if "ffn_gate." in tensor.name or "ffn_up." in tensor.name:
            more = dice.standard_normal((added, width), np.float32) * 0.05
            data = np.vstack([data, gguf.quantize(more, Q8)])
        elif "ffn_down." in tensor.name:
            data = np.hstack([data, gguf.quantize(np.zeros((width, added), np.float32), Q8)])
        writer.add_tensor(tensor.name, data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("small", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--bytes", type=float, default=370e6)
    given = parser.parse_args()
    write_padded(given.small, given.out, given.bytes)


if __name__ == "__main__":
    main()
