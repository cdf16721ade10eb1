"""A side of structure.py: how long xgrammar or llguidance takes for schemas.

`structure_peer.py xgrammar|llguidance` runs in an environment that has the package. The first line of stdin
is the vocabulary, {"texts": [in hexadecimal], "ends": [tokens]}; each further line is {"schema", "tokens":
of texts, "n": sequences}, and its answer a line with {"ms", "alone", "together", "rejected": texts with a
token that is not allowed} or {"error"}, as of engine-tests --masks. All times are the processor's.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Sequence(Protocol):
    """One text in its grammar."""

    def accept(self, token: int) -> bool: ...

    def mask(self) -> None: ...


class Xgrammar:
    """Its sequences share one compiled grammar."""

    def __init__(self, texts: list[bytes], ends: list[int]) -> None:
        import xgrammar

        self.lib = xgrammar
        info = xgrammar.TokenizerInfo(texts, vocab_size=len(texts), stop_token_ids=ends)
        self.compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)
        self.bits = xgrammar.allocate_token_bitmask(1, len(texts))

    def compile(self, schema: str) -> Callable[[], Sequence]:
        compiled = self.compiler.compile_json_schema(schema, strict_mode=False)
        return lambda: self.start(compiled)

    def start(self, compiled: Any) -> Sequence:
        matcher, bits = self.lib.GrammarMatcher(compiled), self.bits

        class One:
            accept = matcher.accept_token

            def mask(self) -> None:
                matcher.fill_next_token_bitmask(bits)

        return One()


class Llguidance:
    """Its sequences begin as copies of one matcher."""

    def __init__(self, texts: list[bytes], ends: list[int]) -> None:
        import llguidance

        class Tokens:
            def __init__(self) -> None:
                self.eos_token_id, self.bos_token_id, self.special_token_ids = ends[0], None, ends
                # a token without text has one of its own, with the mark of special tokens
                self.tokens = [text or b"\xff<%d>" % i for i, text in enumerate(texts)]

            def __call__(self, text: bytes | str) -> list[int]:
                return []

        self.lib = llguidance
        self.tokenizer = llguidance.LLTokenizer(
            llguidance.TokenizerWrapper(Tokens()), slices=llguidance.LLTokenizer.json_slices()
        )
        self.bits = np.zeros((len(texts) + 31) // 32, dtype=np.int32)

    def compile(self, schema: str) -> Callable[[], Sequence]:
        grammar = self.lib.LLMatcher.grammar_from_json_schema(schema)
        first = self.lib.LLMatcher(self.tokenizer, grammar, log_level=0)
        if first.is_error():
            raise ValueError(first.get_error())
        return lambda: self.start(first.deep_copy())

    def start(self, matcher: Any) -> Sequence:
        place, n_bytes = self.bits.ctypes.data, self.bits.nbytes

        class One:
            accept = matcher.consume_token

            def mask(self) -> None:
                matcher.unsafe_compute_mask_ptr(place, n_bytes)

        return One()


def walk(start: Callable[[], Sequence], all_tokens: list[list[int]], times: list[float]) -> int:
    """Times the mask of each token; sequence i begins i tokens later. Returns how many are rejected."""
    sequences = [start() for _ in all_tokens]
    alive = [True] * len(sequences)
    for step in range(max(i + len(tokens) + 1 for i, tokens in enumerate(all_tokens))):
        for i, tokens in enumerate(all_tokens[: step + 1]):
            n = step - i
            if n > len(tokens) or not alive[i]:
                continue
            begin = time.thread_time_ns()
            alive[i] = n == 0 or sequences[i].accept(tokens[n - 1])
            if alive[i]:
                sequences[i].mask()
                times.append((time.thread_time_ns() - begin - of_clock) / 1000)
    return alive.count(False)


def answer(peer: Any, line: dict[str, Any]) -> dict[str, Any]:
    """What took how long for one schema."""
    begin = time.process_time_ns()
    try:
        start = peer.compile(line["schema"])
    except Exception as e:
        return {"error": str(e)[:200]}
    ms = (time.process_time_ns() - begin) / 1e6
    alone: list[float] = []
    together: list[float] = []
    texts = line["tokens"]
    rejected = sum(walk(start, [tokens], alone) for tokens in texts)
    if line["n"]:
        walk(start, [texts[i % len(texts)] for i in range(line["n"])], together)
    return {"ms": ms, "alone": alone, "together": together, "rejected": rejected}


def time_clock() -> int:
    """What two calls of the clock take, in ns."""
    times = []
    for _ in range(1001):
        begin = time.thread_time_ns()
        times.append(time.thread_time_ns() - begin)
    return sorted(times)[500]


of_clock = time_clock()


def main() -> None:
    first = json.loads(sys.stdin.readline())
    kind = {"xgrammar": Xgrammar, "llguidance": Llguidance}[sys.argv[1]]
    peer = kind([bytes.fromhex(text) for text in first["texts"]], first["ends"])
    for line in sys.stdin:
        print(json.dumps(answer(peer, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
