"""What one key may have in a memory: documents above a bound are refused, old prompts are forgotten."""

from __future__ import annotations

from llama_srb.request.values import RequestError

from .records import OPERATOR, MemorySettings, Usage
from .stores import NewDocument, Sizes


class Room:
    """The room that the owners of documents have in a memory; the operator has any.

    A store asks it in the transaction that writes, so that it holds for all that is stored at the same time.
    """

    def __init__(self, settings: MemorySettings) -> None:
        self._settings, self._bounds = settings, settings.bounds

    def require(self, new: NewDocument, used: Usage, chunks: int) -> None:
        """RequestError if a document's owner would have too much. used: what it has besides."""
        if new.owner == OPERATOR:
            return
        size = len(new.text.encode())
        if new.is_prompt:
            self._require("bytes of a prompt", size, "prompts_size")
        else:
            self._require("documents", used.documents + 1, "documents")
            self._require("bytes of documents", used.size + size, "size")
        self._require("chunks", used.chunks + chunks, "chunks")

    def too_old(self, prompts: Sizes) -> list[str]:
        """The ids of prompts for which there is no room. prompts: of an owner, the newest first."""
        total, found = 0, list[str]()
        for i, (id, size) in enumerate(prompts):
            total += size
            if i >= self._bounds.prompts or total > self._bounds.prompts_size:
                found.append(id)
        return found

    def _require(self, what: str, count: int, bound: str) -> None:
        if count > (most := getattr(self._bounds, bound)):
            message = (
                f"the memory {self._settings.name} would have {count:,} {what} of yours; it takes at most "
                f"{most:,} (max_{bound}): delete documents, or ask the operator for more"
            )
            raise RequestError(message, status=503, code="no_room")
