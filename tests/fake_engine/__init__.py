"""A program that speaks protocol 1 without a model, in place of llama-batched, and makes faults on request.

Only the standard library, no thread: one loop of poll, commands, step. Texts are a function of prompt, seed
and index. Flags of llama.cpp (-m, -c, -np and any other) are accepted. `python -I -S tests/fake_engine` runs
it.
"""

from .stories import story, word
from .torrent import PREPARED

__all__ = ["PREPARED", "story", "word"]
