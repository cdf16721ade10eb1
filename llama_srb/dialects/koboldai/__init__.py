"""KoboldAI and KoboldCpp: `generation`, `watched` (for those who look on at one), `info`. Pure."""

from llama_srb.dialects.koboldai.generation import (
    MESSAGES,
    REPLIES,
    KoboldError,
    KoboldResults,
    Results,
    error_body,
    genkey_of,
)
from llama_srb.dialects.koboldai.info import QUESTIONS
from llama_srb.dialects.koboldai.watched import Seen, aborted, last_logprobs, performance, so_far

__all__ = [
    "MESSAGES",
    "QUESTIONS",
    "REPLIES",
    "KoboldError",
    "KoboldResults",
    "Results",
    "Seen",
    "aborted",
    "error_body",
    "genkey_of",
    "last_logprobs",
    "performance",
    "so_far",
]
