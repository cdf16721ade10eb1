#!/usr/bin/env python3
"""A checkpoint and its tokenizer as one GGUF file, which llama.cpp loads as a plain `llama`.

models/train/export.py FOLDER --type q8_0
"""

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize
from model import Shape
from numpy.typing import NDArray

Matrix = NDArray[np.float32]

ABOUT = {
    "general.name": "Storyteller",
    "general.author": "llama-srb",
    "general.license": "CDLA-Sharing-1.0 (training data)",
    "general.description": "A storyteller trained on TinyStories; the default model of llama-srb",
}
TYPES = {
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "f32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
}
NAMES = {
    "weights.q": "attn_q.weight",
    "weights.k": "attn_k.weight",
    "weights.v": "attn_v.weight",
    "weights.o": "attn_output.weight",
    "weights.gate": "ffn_gate.weight",
    "weights.up": "ffn_up.weight",
    "weights.down": "ffn_down.weight",
    "attn_norm.weight": "attn_norm.weight",
    "ffn_norm.weight": "ffn_norm.weight",
}
TURNED = (".weights.q", ".weights.k")
OUTSIDE = {"embedding.weight": "token_embd.weight", "output_norm.weight": "output_norm.weight"}


def interleaved(matrix: Matrix, heads: int) -> Matrix:
    """The rows of queries or keys as llama.cpp turns them: pairs (2i, 2i + 1), not (i, i + half)."""
    halves = matrix.reshape(heads, 2, -1, matrix.shape[1])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(matrix.shape))


def gguf_name(name: str) -> str:
    """GGUF's name of a tensor."""
    if name in OUTSIDE:
        return OUTSIDE[name]
    _, block, inside = name.split(".", 2)
    return f"blk.{block}.{NAMES[inside]}"


def tensors(state: dict[str, torch.Tensor], shape: Shape) -> dict[str, Matrix]:
    """GGUF's names and float32 values of a model's state."""
    found = {}
    for name, value in state.items():
        matrix = value.float().cpu().numpy()
        turned = name.endswith(TURNED)
        found[gguf_name(name)] = interleaved(matrix, shape.heads) if turned else matrix
    return found


def add_fields(writer: GGUFWriter, about: dict[str, str], shape: Shape, file_type: LlamaFileType) -> None:
    for key, text in about.items():
        writer.add_string(key, text)
    writer.add_file_type(file_type)
    writer.add_vocab_size(shape.vocabulary)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.feed_forward)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.heads)
    writer.add_layer_norm_rms_eps(shape.norm_epsilon)
    writer.add_rope_freq_base(shape.rope_base)
    writer.add_rope_dimension_count(shape.head_size)


def add_vocabulary(writer: GGUFWriter, model: dict[str, Any]) -> None:
    """The byte-level BPE of a tokenizer.json; token 0 begins and ends a story. No chat template."""
    vocabulary: dict[str, int] = model["vocab"]
    tokens = sorted(vocabulary, key=lambda token: vocabulary[token])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([TokenType.CONTROL, *[TokenType.NORMAL] * (len(tokens) - 1)])
    writer.add_token_merges([" ".join(merge) for merge in model["merges"]])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(True)


def write(writer: GGUFWriter, found: dict[str, Matrix], kind: GGMLQuantizationType) -> None:
    """Ends the file: matrices in this type, all else in F32."""
    for name, matrix in found.items():
        if matrix.ndim == 1:
            writer.add_tensor(name, matrix)
        else:
            writer.add_tensor(name, quantize(matrix, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def export(
    checkpoint: Path, tokenizer: Path, out: Path, type_name: str = "q8_0", about: dict[str, str] = ABOUT
) -> None:
    """Write `out`: matrices in the type of that name, norms in F32; `about` is what it says of itself."""
    saved = torch.load(checkpoint, map_location="cpu")
    shape = Shape(**saved["shape"])
    kind, file_type = TYPES[type_name]
    writer = GGUFWriter(out, "llama")
    add_fields(writer, about, shape, file_type)
    add_vocabulary(writer, json.loads(tokenizer.read_text(encoding="utf-8"))["model"])
    write(writer, tensors(saved["model"], shape), kind)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--type", "type_name", type=click.Choice(list(TYPES)), default="q8_0", show_default=True)
def main(folder: Path, type_name: str) -> None:
    """Write FOLDER/storyteller-TYPE.gguf from the best checkpoint in FOLDER."""
    out = folder / f"storyteller-{type_name}.gguf"
    export(folder / "best.pt", folder / "tokenizer.json", out, type_name)
    print(f"{out}: {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
