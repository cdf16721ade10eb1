"""KoboldAI and KoboldCpp: `generation`, `watched` (answers of the polling paths), `info`. Pure."""

from llama_srb.dialects.koboldai.generation import (
    MESSAGES,
    REPLIES,
    KoboldError,
    KoboldResults,
    Results,
    error_body,
    genkey_of,
)
from llama_srb.dialects.koboldai.info import INFO_ENDPOINTS, latest
from llama_srb.dialects.koboldai.watched import GenerationRecord, aborted, last_logprobs, performance, so_far

__all__ = [
    "INFO_ENDPOINTS",
    "MESSAGES",
    "REPLIES",
    "GenerationRecord",
    "KoboldError",
    "KoboldResults",
    "Results",
    "aborted",
    "error_body",
    "genkey_of",
    "last_logprobs",
    "latest",
    "performance",
    "so_far",
]
