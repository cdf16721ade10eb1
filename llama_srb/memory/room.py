"""What one key may have in a memory: documents above a bound are refused, old prompts are forgotten."""

from __future__ import annotations

from llama_srb.request.values import RequestError

from .records import OPERATOR, MemorySettings
from .stores import NewDocument, Store


class Room:
    """The room that the owners of documents have in a store; the operator has any."""

    def __init__(self, settings: MemorySettings, store: Store) -> None:
        self._settings, self._bounds, self._store = settings, settings.bounds, store

    async def chunks_for(self, new: NewDocument) -> int | None:
        """How many chunks a document may have; None: any number. RequestError if its owner has too much."""
        if new.owner == OPERATOR:
            return None
        size, (used, _) = len(new.text.encode()), await self._store.owned(new.owner, new.id)
        if new.is_prompt:
            self._require("bytes of a prompt", size, "prompts_size")
        else:
            self._require("documents", used.documents + 1, "documents")
            self._require("bytes of documents", used.size + size, "size")
        return self._bounds.chunks - used.chunks

    def require_chunks(self, count: int, room: int | None) -> None:
        """RequestError if there are more chunks than chunks_for() has said."""
        if room is not None and count > room:
            self._require("chunks", self._bounds.chunks - room + count, "chunks")

    async def forget_prompts(self, owner: str) -> None:
        """Removes the oldest prompts of an owner that has too many."""
        total = 0
        _, prompts = await self._store.owned(owner, "")
        for i, (id, size) in enumerate(prompts):
            total += size
            if i >= self._bounds.prompts or total > self._bounds.prompts_size:
                await self._store.remove(owner, id)

    def _require(self, what: str, count: int, bound: str) -> None:
        if count > (most := getattr(self._bounds, bound)):
            message = (
                f"the memory {self._settings.name} would have {count:,} {what} of yours; it takes at most "
                f"{most:,} (max_{bound}): delete documents, or ask the operator for more"
            )
            raise RequestError(message, status=503, code="no_room")
