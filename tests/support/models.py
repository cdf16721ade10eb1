"""Writes small models of five kinds, with random weights and 512 tokens of the bundled vocabulary.

Their texts have no meaning, but each token depends on every token before it, so a cell that is lost, doubled
or misplaced changes the text. Each model has less than 2 MB and is written in less than a second. Names and
shapes: src/models/*.cpp of llama.cpp. A matrix here is (out, in), which GGUF writes as (in, out).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFWriter, PoolingType, TokenType

from tests.reference.models import storyteller, write_out

Matrix = np.ndarray[Any, np.dtype[np.float32]]
Tensors = dict[str, Matrix]

N_VOCAB = 512  # the end of text, 256 bytes, 255 merges
N_EMBD = 64
N_HEAD = 4
N_FF = 128
N_LAYER = 2
N_EXPERT = 8
WINDOW = 24  # tokens of a sliding window
CONTEXT = 1024

# Kinds: metadata and the tensors of one layer

Fields = dict[str, int | float | bool | list[bool]]
Draw = Callable[..., Matrix]  # normal(*shape, scale), of a width that keeps the size of vectors


def _normal(random: np.random.Generator, *shape: int, scale: float = 1.0) -> Matrix:
    return (random.normal(0, scale / np.sqrt(shape[-1]), shape)).astype(np.float32)


def _near_one(random: np.random.Generator, *shape: int) -> Matrix:
    return (1 + 0.2 * random.normal(size=shape)).astype(np.float32)


def _attention(draw: Draw, sharpness: float = 3) -> Tensors:
    half = N_EMBD // 2  # two heads share keys and values
    return {
        "attn_q": draw(N_EMBD, N_EMBD, scale=sharpness),
        "attn_k": draw(half, N_EMBD),
        "attn_v": draw(half, N_EMBD, scale=4),
        "attn_output": draw(N_EMBD, N_EMBD),
    }


def _feed_forward(draw: Draw) -> Tensors:
    return {
        "ffn_gate": draw(N_FF, N_EMBD),
        "ffn_up": draw(N_FF, N_EMBD),
        "ffn_down": draw(N_EMBD, N_FF),
    }


def _norms(near_one: Draw, *names: str, size: int = N_EMBD) -> Tensors:
    return {name: near_one(size) for name in names}


def _llama(draw: Draw, near_one: Draw) -> Tensors:
    return _attention(draw) | _feed_forward(draw) | _norms(near_one, "attn_norm", "ffn_norm")


def _qwen3(draw: Draw, near_one: Draw) -> Tensors:
    sharp = {"attn_q_norm": 2 * near_one(N_EMBD // N_HEAD)}
    return _llama(draw, near_one) | _norms(near_one, "attn_k_norm", size=N_EMBD // N_HEAD) | sharp


def _gemma3(draw: Draw, near_one: Draw) -> Tensors:
    return _qwen3(draw, near_one) | _norms(near_one, "post_attention_norm", "post_ffw_norm")


def _experts(draw: Draw, near_one: Draw) -> Tensors:
    own = _qwen3(draw, near_one)
    for name in ("ffn_gate", "ffn_up", "ffn_down"):
        del own[name]
    n_ff = N_FF // 4
    # The first of four experts has nearly all of the weight: another fourth one, by rounding, has no effect.
    return own | {
        "ffn_gate_inp": draw(N_EXPERT, N_EMBD, scale=12),
        "ffn_gate_exps": draw(N_EXPERT, n_ff, N_EMBD),
        "ffn_up_exps": draw(N_EXPERT, n_ff, N_EMBD),
        "ffn_down_exps": draw(N_EXPERT, N_EMBD, n_ff, scale=0.6),
    }


def _mamba(draw: Draw, near_one: Draw) -> Tensors:
    n_inner, n_state, n_rank = 2 * N_EMBD, 16, 4
    states = np.arange(1, n_state + 1, dtype=np.float32)
    return {
        "attn_norm": near_one(N_EMBD),
        "ssm_in": draw(2 * n_inner, N_EMBD, scale=2),
        "ssm_conv1d": draw(n_inner, 4),
        "ssm_conv1d.bias": 0.1 * draw(n_inner),
        "ssm_x": draw(n_rank + 2 * n_state, n_inner, scale=2),
        "ssm_dt": draw(n_inner, n_rank),
        "ssm_dt.bias": near_one(n_inner) - 4,  # steps of some hundredths: a memory of a hundred tokens
        "ssm_a.": -np.tile(states, (n_inner, 1)),
        "ssm_d.": near_one(n_inner),
        "ssm_out": draw(N_EMBD, n_inner, scale=2),
    }


TRANSFORMER: Fields = {
    "feed_forward_length": N_FF,
    "attention.head_count": N_HEAD,
    "attention.head_count_kv": N_HEAD // 2,
    "rope.freq_base": 10000.0,
    "rope.dimension_count": N_EMBD // N_HEAD,
    "attention.key_length": N_EMBD // N_HEAD,
    "attention.value_length": N_EMBD // N_HEAD,
}
SLIDING: Fields = {"attention.sliding_window": WINDOW, "attention.sliding_window_pattern": 2}
EXPERTS: Fields = {"expert_count": N_EXPERT, "expert_used_count": 4, "expert_feed_forward_length": N_FF // 4}
RECURRENT: Fields = {
    "feed_forward_length": 0,
    "attention.head_count": 0,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 2 * N_EMBD,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 4,
}

KINDS: dict[str, tuple[Fields, Callable[[Draw, Draw], Tensors]]] = {
    "llama": (TRANSFORMER, _llama),
    "qwen3": (TRANSFORMER, _qwen3),
    "gemma3": (TRANSFORMER | SLIDING, _gemma3),
    "qwen3moe": (TRANSFORMER | EXPERTS, _experts),
    "mamba": (RECURRENT, _mamba),
}

# Writing


def write_model(
    path: Path,
    kind: str,
    written_as_ids: bool = False,
    *,
    chat_template: str | None = None,
    control: Sequence[str] = (),
    padding: Sequence[int] = (),
    sentencepiece: bool = False,
    context: int = CONTEXT,
    merged: Mapping[int, float] | None = None,
    split_max_tensors: int = 0,
    ranks: tuple[int, int] | None = None,
) -> None:
    """Writes a model of this kind.

    ranks: it ranks documents by how likely the first of these tokens is, beside the second, as its next one.

    written_as_ids: token 17 has the text "<17>" and no other, so that a text can give any list of tokens.
    control: texts of control tokens, which replace the last tokens of the vocabulary.
    padding: tokens that only fill up the vocabulary.
    sentencepiece: another vocabulary, which puts a space before each text.
    merged: by seed, the scale at which an adapter (see write_adapter) is added to the weights.
    split_max_tensors: the model is split so that no file has more tensors; file names derive from `path`.
    """
    fields, layer = KINDS[kind]
    writer = GGUFWriter(path, kind, split_max_tensors=split_max_tensors)
    writer.add_context_length(context)
    writer.add_embedding_length(N_EMBD)
    writer.add_block_count(N_LAYER)
    writer.add_layer_norm_rms_eps(1e-5)
    for name, value in fields.items():
        add = {int: writer.add_uint32, float: writer.add_float32, bool: writer.add_bool}[type(value)]
        add(f"{kind}.{name}", value)
    if sentencepiece:
        add_sentencepiece(writer)
    else:
        add_vocabulary(writer, written_as_ids, control, padding)
    if chat_template is not None and ranks is None:
        writer.add_chat_template(chat_template)
    random = np.random.default_rng(sum(kind.encode()))
    tensors = _tensors(partial(_normal, random), partial(_near_one, random), layer)
    for seed, scale in (merged or {}).items():
        for name, (a, b) in _deltas(seed).items():
            tensors[name] = tensors[name] + np.float32(scale) * (b @ a)
    if ranks is not None:
        writer.add_pooling_type(PoolingType.RANK)
        writer.add_classifier_output_labels(["yes", "no"])
        writer.add_chat_template([{"name": "rerank", "template": chat_template or "{query}{document}"}])
        tensors["cls.output.weight"] = tensors["output.weight"][list(ranks)]
    write_out(writer, tensors)


CHAT_TEMPLATE = Path(__file__).with_name("chat_template.jinja")
CHAT_TOKENS = {
    token: N_VOCAB - 6 + i
    for i, token in enumerate(
        ("<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<think>", "</think>")
    )
}


def write_chat_model(path: Path) -> None:
    """Writes a model with a chat template and the control tokens that the template names."""
    template = CHAT_TEMPLATE.read_text()
    write_model(path, "llama", chat_template=template, control=list(CHAT_TOKENS), context=4096)


RANK = 4
Pairs = dict[str, list[Any]]  # A and B by the name of the tensor that they change


def _deltas(seed: int, rank: int = RANK) -> dict[str, tuple[Matrix, Matrix]]:
    """An adapter's matrices a and b; their product is added to the weights of llama's and qwen3's layers."""
    draw = partial(_normal, np.random.default_rng(seed))
    shapes = {"attn_q": (N_EMBD, N_EMBD), "attn_v": (N_EMBD // 2, N_EMBD), "ffn_down": (N_EMBD, N_FF)}
    return {
        f"blk.{i}.{name}.weight": (draw(rank, n_in), draw(n_out, rank, scale=2))
        for i in range(N_LAYER)
        for name, (n_out, n_in) in shapes.items()
    }


def write_adapter(
    path: Path,
    kind: str,
    seed: int,
    rank: int = RANK,
    change: Callable[[GGUFWriter, Pairs], None] | None = None,
) -> None:
    """Writes an adapter; `change` may spoil it before its pairs of matrices are written."""
    writer = GGUFWriter(path, kind)
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_float32("adapter.lora.alpha", float(rank))  # so that scale 1 adds the product unchanged
    pairs: Pairs = {name: list(pair) for name, pair in _deltas(seed, rank).items()}
    if change is not None:
        change(writer, pairs)
    for name, matrices in pairs.items():
        for which, matrix in zip("ab", matrices, strict=False):
            writer.add_tensor(f"{name}.lora_{which}", matrix)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _tensors(draw: Draw, near_one: Draw, layer: Callable[[Draw, Draw], Tensors]) -> Tensors:
    tensors = {
        "token_embd.weight": draw(N_VOCAB, N_EMBD, scale=3),  # small enough that the layers' output counts
        "output_norm.weight": near_one(N_EMBD),
        "output.weight": draw(N_VOCAB, N_EMBD, scale=2.5),
    }
    tensors["output.weight"][0] = 0  # so that the end of text is seldom the likeliest token
    for i in range(N_LAYER):
        for name, tensor in layer(draw, near_one).items():
            full = name.rstrip(".") if "." in name else f"{name}.weight"
            tensors[f"blk.{i}.{full}"] = tensor
    return tensors


def add_vocabulary(
    writer: GGUFWriter, written_as_ids: bool, control: Sequence[str] = (), padding: Sequence[int] = ()
) -> None:
    bundled = storyteller().fields
    tokens = bundled["tokenizer.ggml.tokens"].contents()[:N_VOCAB]
    types = bundled["tokenizer.ggml.token_type"].contents()[:N_VOCAB]
    merges = bundled["tokenizer.ggml.merges"].contents()[: N_VOCAB - 257]
    if written_as_ids:
        tokens = [f"<{i}>" for i in range(N_VOCAB)]
        types = [int(TokenType.USER_DEFINED)] * N_VOCAB
    n_kept = N_VOCAB - len(control)
    tokens = [*tokens[:n_kept], *control]
    types = [*types[:n_kept], *[int(TokenType.CONTROL)] * len(control)]
    for token in padding:
        types[token] = int(TokenType.UNUSED)
    merges = merges[: n_kept - 257]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(0)
    writer.add_add_bos_token(not written_as_ids)


def add_sentencepiece(writer: GGUFWriter) -> None:
    """A vocabulary of bytes and of the space, as Llama 2 has it."""
    kinds = {
        TokenType.UNKNOWN: ["<unk>"],
        TokenType.CONTROL: ["<s>", "</s>"],
        TokenType.BYTE: [f"<0x{i:02X}>" for i in range(256)],
        TokenType.NORMAL: ["\u2581"],
        TokenType.UNUSED: [f"<pad {i}>" for i in range(N_VOCAB - 260)],
    }
    writer.add_tokenizer_model("llama")
    writer.add_token_list([text for texts in kinds.values() for text in texts])
    writer.add_token_types([int(kind) for kind, texts in kinds.items() for _ in texts])
    writer.add_token_scores([0.0] * N_VOCAB)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(True)
