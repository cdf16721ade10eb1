"""Writes a model that acts like an agent's: it thinks, calls a tool with a short text, and then says "Done.".

Each token depends on the one before it alone, so the answers are always the same, whatever the prompt. The
chat template ends a prompt after a tool's result otherwise than one before it: so the model calls once.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from tests.reference.models import vocabulary, write_out
from tests.support.models import CHAT_TEMPLATE, CHAT_TOKENS, N_VOCAB, Matrix, add_vocabulary

BEFORE, AFTER = "\n", "!"  # the last characters of prompts before a call and after its result
TEMPLATE = CHAT_TEMPLATE.read_text().replace(
    "<|im_start|>assistant\n",
    '<|im_start|>assistant{{ "' + AFTER + '" if messages[-1].role == "tool" or not tools else "\\n" }}',
)
THOUGHT, ARGUMENT, ANSWER = "Hm", "ls", "Done."
NAMES = "esw"  # first letters of the tools that it likes best
SURE = 4.0  # between two tokens' logits: a draw at any usual temperature takes the likeliest
LIKED = '}":,{'  # where a grammar leaves a choice: JSON begins at once, ends early, and has no spaces


def _rows(names: str, liked: str) -> Matrix:
    """The logits of each token (row) after each other (column); of two equal ones the first is likelier."""
    ids = {text: i for i, text in enumerate(vocabulary()[: N_VOCAB - len(CHAT_TOKENS)])}
    rows = np.repeat(-SURE * np.arange(N_VOCAB, dtype=np.float32)[:, None], N_VOCAB, axis=1)
    rows[[*CHAT_TOKENS.values(), *(i for text, i in ids.items() if not text.strip())]] -= SURE * N_VOCAB
    for rank, text in enumerate(reversed(liked), 1):
        rows[ids[text.encode()]] = SURE * rank

    def follow(before: int, *texts: int) -> None:
        """The first of these that may follow does."""
        for rank, text in enumerate(reversed(texts), 10):
            rows[text, before] = SURE * rank

    def spell(before: int, text: str, after: int) -> None:
        for one, other in pairwise([before, *(ids[c.encode()] for c in text), after]):
            follow(one, other)

    quote = ids[b'"']
    spell(ids[BEFORE.encode()], "", CHAT_TOKENS["<think>"])
    spell(CHAT_TOKENS["<think>"], THOUGHT, CHAT_TOKENS["</think>"])
    follow(CHAT_TOKENS["</think>"], CHAT_TOKENS["<tool_call>"])
    spell(quote, ARGUMENT, quote)
    follow(quote, *(ids[c.encode()] for c in ARGUMENT[0] + names))
    follow(ids[b"}"], ids[b"}"], CHAT_TOKENS["</tool_call>"])
    follow(CHAT_TOKENS["</tool_call>"], 0)
    spell(ids[AFTER.encode()], ANSWER, 0)
    return rows


def write_agent_model(path: Path, names: str = NAMES, context: int = 65536, liked: str = LIKED) -> None:
    """Writes the model; names: the first letters of the tools that it likes best; liked: as LIKED.

    A token's embedding is 1 in its own place, which attention and feed-forward leave as it is.
    """
    writer = GGUFWriter(path, "llama")
    sizes = {
        "embedding_length": N_VOCAB,
        "feed_forward_length": 8,
        "block_count": 1,
        "context_length": context,
    }
    sizes |= {"attention.head_count": 1, "attention.head_count_kv": 1, "rope.dimension_count": 8}
    sizes |= {"attention.key_length": 8, "attention.value_length": 8}
    for name, size in sizes.items():
        writer.add_uint32(f"llama.{name}", size)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_chat_template(TEMPLATE)
    add_vocabulary(writer, False, [*CHAT_TOKENS])
    small: Matrix = np.full((8, N_VOCAB), 0.01, np.float32)
    ones: Matrix = np.ones(N_VOCAB, np.float32)
    layer = {f"attn_{name}": small for name in "qkv"} | {"attn_output": np.zeros_like(small.T)}
    layer |= {"ffn_gate": small, "ffn_up": small, "ffn_down": np.zeros_like(small.T)}
    layer |= {"attn_norm": ones, "ffn_norm": ones}
    tensors = {f"blk.0.{name}.weight": value for name, value in layer.items()}
    tensors |= {"token_embd.weight": np.eye(N_VOCAB, dtype=np.float32), "output_norm.weight": ones}
    norm = np.sqrt(N_VOCAB)  # of an embedding, after the last norm
    write_out(writer, tensors | {"output.weight": _rows(names, liked) / norm})
