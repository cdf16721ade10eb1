"""Stories to token ids: reads the corpus, trains the byte-level BPE, feeds batches."""

import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

END = "<|endoftext|>"  # id 0: begins and ends every story

Tokens = NDArray[np.uint16]  # two bytes each: the full data set has half a billion


def stories(files: list[Path]) -> list[str]:
    """Every story of `files`, whatever white space stands around its END."""
    parts = (part.strip() for file in files for part in file.read_text(encoding="utf-8").split(END))
    return [part for part in parts if part]


def byte_level(model: models.BPE) -> Tokenizer:
    """A BPE with GPT-2's splitting, which llama.cpp knows as the pre-tokenizer 'gpt-2'."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def train_tokenizer(texts: list[str], vocabulary: int) -> Tokenizer:
    """Byte-level BPE of the words in `texts`."""
    tokenizer = byte_level(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()  # all 256 bytes: no text is unknown
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=[END], initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def encode(tokenizer: Tokenizer, texts: list[str], at_once: int = 1000) -> list[Tokens]:
    """Each story as END and its tokens."""
    batches = (texts[i : i + at_once] for i in range(0, len(texts), at_once))
    return [
        np.array([0, *e.ids], dtype=np.uint16) for batch in batches for e in tokenizer.encode_batch(batch)
    ]


class Feed:
    """Batches without end, every epoch in an order of its own; `epoch` and `offset` say where it stands."""

    def __init__(self, documents: list[Tokens], seed: int) -> None:
        self.documents, self.seed = documents, seed
        self.epoch, self.offset = 0, 0
        self._packed = self._shuffled()

    @property
    def size(self) -> int:
        return len(self._packed)

    def _shuffled(self) -> Tokens:
        order = random.Random(self.seed + self.epoch).sample(self.documents, len(self.documents))
        return np.concatenate([*order, np.zeros(1, dtype=np.uint16)])

    def seek(self, epoch: int, offset: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self._packed = self._shuffled()
        self.offset = offset

    def take(self, tokens: int, length: int) -> NDArray[np.int64]:
        """The next (tokens / length, length + 1) of the epoch; neighbouring rows share one token."""
        if self.offset + tokens >= len(self._packed):
            self.seek(self.epoch + 1, 0)
        starts = range(self.offset, self.offset + tokens, length)
        self.offset += tokens
        return np.stack([self._packed[i : i + length + 1] for i in starts]).astype(np.int64)
