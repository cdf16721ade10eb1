"""Writes an encoder of BERT's architecture with random weights, and computes the same encoder in numpy.

One that ranks has a head: a linear layer, tanh, and a linear layer with one output, of the first token's row.

Names and shapes: src/models/bert.cpp of llama.cpp. The computation: Devlin et al., 2019 (arXiv 1810.04805),
with GELU approximated by tanh.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, PoolingType

from tests.support.models import N_EMBD, N_FF, N_HEAD, N_LAYER, N_VOCAB, Tensors, add_vocabulary

Matrix = np.ndarray[Any, np.dtype[np.float64]]

CONTEXT = 300  # tokens; more than one default chunk of a causal model
RANK = "rank"
POOLING = {"mean": PoolingType.MEAN, "cls": PoolingType.CLS, "last": PoolingType.LAST}


def _tensors() -> Tensors:
    random = np.random.default_rng(5)

    def draw(*shape: int, scale: float = 1.0) -> np.ndarray[Any, np.dtype[np.float32]]:
        return random.normal(0, scale / np.sqrt(shape[-1]), shape).astype(np.float32)

    made: Tensors = {
        "token_embd.weight": draw(N_VOCAB, N_EMBD, scale=8),
        "token_types.weight": draw(2, N_EMBD),
        "position_embd.weight": draw(CONTEXT, N_EMBD, scale=4),
    }
    norms = ["token_embd_norm"]
    for i in range(N_LAYER):
        made |= {f"blk.{i}.{name}.weight": draw(N_EMBD, N_EMBD, scale=2) for name in ("attn_q", "attn_k")}
        made |= {f"blk.{i}.{name}.weight": draw(N_EMBD, N_EMBD) for name in ("attn_v", "attn_output")}
        made |= {f"blk.{i}.ffn_up.weight": draw(N_FF, N_EMBD), f"blk.{i}.ffn_down.weight": draw(N_EMBD, N_FF)}
        norms += [f"blk.{i}.attn_output_norm", f"blk.{i}.layer_output_norm"]
    for name in norms:
        made |= {f"{name}.weight": 1 + draw(N_EMBD), f"{name}.bias": draw(N_EMBD)}
    return made


def _head() -> Tensors:
    random = np.random.default_rng(6)
    shapes = {"cls.weight": (N_EMBD, N_EMBD), "cls.bias": (N_EMBD,), "cls.output.weight": (1, N_EMBD),
              "cls.output.bias": (1,)}  # fmt: skip
    return {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def relevance(tokens: Sequence[int]) -> float:
    """What the head gives for the tokens of a query and a document."""
    head = _head()
    first = np.tanh(head["cls.weight"] @ encoded(tokens)[0] + head["cls.bias"])
    return float((head["cls.output.weight"] @ first + head["cls.output.bias"])[0])


def write_encoder(path: Path, pooling: str) -> None:
    """pooling: a key of POOLING, or RANK, with a head."""
    writer = GGUFWriter(path, "bert")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(N_EMBD)
    writer.add_feed_forward_length(N_FF)
    writer.add_block_count(N_LAYER)
    writer.add_head_count(N_HEAD)
    writer.add_layer_norm_eps(1e-5)
    writer.add_causal_attention(False)
    writer.add_pooling_type(PoolingType.RANK if pooling == RANK else POOLING[pooling])
    writer.add_token_type_count(2)
    add_vocabulary(writer, False)
    for name, tensor in (_tensors() | (_head() if pooling == RANK else {})).items():
        writer.add_tensor(name, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _norm(x: Matrix, of: Tensors, name: str) -> Matrix:
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return x * of[f"{name}.weight"] + of[f"{name}.bias"]


def _attention(x: Matrix, of: Tensors, i: int) -> Matrix:
    def heads(name: str) -> Matrix:
        return (x @ of[f"blk.{i}.{name}.weight"].T).reshape(len(x), N_HEAD, -1).transpose(1, 0, 2)

    q, k, v = map(heads, ("attn_q", "attn_k", "attn_v"))
    scores = np.exp(q @ k.transpose(0, 2, 1) / np.sqrt(N_EMBD // N_HEAD))
    mixed = (scores / scores.sum(axis=2, keepdims=True)) @ v
    return mixed.transpose(1, 0, 2).reshape(x.shape) @ of[f"blk.{i}.attn_output.weight"].T


def encoded(tokens: Sequence[int]) -> Matrix:
    """The encoder's output: a row for each token."""
    of = _tensors()
    x: Matrix = of["token_embd.weight"][list(tokens)] + of["token_types.weight"][0].astype(np.float64)
    x = _norm(x + of["position_embd.weight"][: len(tokens)], of, "token_embd_norm")
    for i in range(N_LAYER):
        x = _norm(_attention(x, of, i) + x, of, f"blk.{i}.attn_output_norm")
        up = x @ of[f"blk.{i}.ffn_up.weight"].T
        up = up * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (up + 0.044715 * up**3)))
        x = _norm(up @ of[f"blk.{i}.ffn_down.weight"].T + x, of, f"blk.{i}.layer_output_norm")
    return x


def pooled(rows: Matrix, pooling: str) -> Matrix:
    """The mean of a text's rows, scaled to length 1."""
    vector: Matrix = {"mean": rows.mean(axis=0), "cls": rows[0], "last": rows[-1]}[pooling]
    return vector / np.linalg.norm(vector)
