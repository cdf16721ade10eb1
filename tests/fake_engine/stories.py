"""The fake engine's texts and tokens: each word is a token."""

from __future__ import annotations

import json
import zlib
from typing import Any

WORDS = "and the old fox ran over a small hill to see who sang so late — naïve, “bright” 狐 🦊".split()  # noqa: SIM905


def word(prompt: str, seed: int, index: int, position: int) -> str:
    """The text of one token."""
    return " " + WORDS[zlib.crc32(f"{prompt}|{seed + index}|{position}".encode()) % len(WORDS)]


def story(prompt: str, seed: int, index: int, length: int) -> list[str]:
    """The tokens of one sequence."""
    return [word(prompt, seed, index, position) for position in range(length)]


def cut(words: list[str], at: int, end: int) -> list[str]:
    """The words up to character `end`, without the text from character `at` on."""
    kept, position = [], 0
    for one in words:
        if position >= end:
            break
        kept.append(one[: max(0, at - position)])
        position += len(one)
    return kept


def joined(prompt: str | list[dict[str, Any]]) -> str:
    """The text of a prompt, which may be given in parts."""
    return prompt if isinstance(prompt, str) else "".join(part["text"] for part in prompt)


def tokenize(text: str) -> list[int]:
    return [zlib.crc32(part.encode()) % 32000 for part in text.split(" ") if part]


def tokens_of(command: dict[str, Any]) -> list[int]:
    """The tokens of a command's prompt."""
    return command["tokens"] if "tokens" in command else tokenize(joined(command.get("prompt", "")))


def as_chatml(messages: str | list[dict[str, Any]]) -> str:
    parts = json.loads(messages) if isinstance(messages, str) else messages
    written = "".join(f"<|im_start|>{part['role']}\n{part['content']}<|im_end|>\n" for part in parts)
    return written + "<|im_start|>assistant\n"
