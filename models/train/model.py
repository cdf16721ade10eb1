"""A small Llama in PyTorch: RMS norm, rotary positions, SwiGLU, tied embeddings, no biases.

Knows nothing of text or of training; the state's names are the ones that export.py turns into GGUF's.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Shape:
    """What fixes every tensor's size; Q8_0 wants widths that are multiples of 32."""

    vocabulary: int = 4096
    width: int = 256
    layers: int = 4
    heads: int = 4
    feed_forward: int = 768
    context: int = 1024
    rope_base: float = 10_000.0
    norm_epsilon: float = 1e-5

    @property
    def head_size(self) -> int:
        return self.width // self.heads


def rotations(shape: Shape) -> Tensor:
    """Cosine and sine of every position and pair of channels: (2, context, head_size / 2)."""
    steps = torch.arange(0, shape.head_size, 2) / shape.head_size
    angles = torch.outer(torch.arange(shape.context), shape.rope_base**-steps)
    return torch.stack([angles.cos(), angles.sin()])


def rotate(x: Tensor, turns: Tensor) -> Tensor:
    """Turn the pairs (i, i + head_size / 2) of x: (batch, heads, length, head_size)."""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = turns
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        d, f = shape.width, shape.feed_forward
        self.heads = shape.heads
        self.attn_norm = nn.RMSNorm(d, eps=shape.norm_epsilon)
        self.ffn_norm = nn.RMSNorm(d, eps=shape.norm_epsilon)
        sizes = {
            "q": (d, d),
            "k": (d, d),
            "v": (d, d),
            "o": (d, d),
            "gate": (f, d),
            "up": (f, d),
            "down": (d, f),
        }
        self.weights = nn.ParameterDict(
            {name: nn.Parameter(torch.randn(size) * size[1] ** -0.5) for name, size in sizes.items()}
        )
        for name in ("o", "down"):  # every block starts as the identity
            nn.init.zeros_(self.weights[name])

    def project(self, x: Tensor, *names: str) -> tuple[Tensor, ...]:
        """One product for matrices that share their input, each still a parameter of its own for Muon."""
        return F.linear(x, torch.cat([self.weights[name] for name in names])).chunk(len(names), dim=-1)

    def forward(
        self, x: Tensor, turns: Tensor, seen: Tensor | None = None, rows: int | None = None
    ) -> Tensor:
        """seen: what is seen, (batch, 1, 1 or length, length); None: each position and those before it.

        rows: how many of the first positions are computed; None: all.
        """
        batch, length, _ = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.project(self.attn_norm(x), "q", "k", "v")
        )
        x, q = x[:, :rows], q[:, :, :rows]
        mixed = F.scaled_dot_product_attention(
            rotate(q, turns[:, :rows]), rotate(k, turns), v, attn_mask=seen, is_causal=seen is None
        )
        x = x + F.linear(mixed.transpose(1, 2).reshape(x.shape), self.weights["o"])
        gate, up = self.project(self.ffn_norm(x), "gate", "up")
        return x + F.linear(F.silu(gate) * up, self.weights["down"])


class Llama(nn.Module):
    turns: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        self.register_buffer("turns", rotations(shape), persistent=False)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy in nats of `targets` after `tokens`, both (batch, length)."""
        x, turns = self.embedding(tokens), self.turns[:, : tokens.shape[1]]
        for block in self.blocks:
            x = block(x, turns)
        logits = F.linear(self.output_norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
