"""Host memory for snapshots of evicted prompts: one budget, divided among the loaded models' engines."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from llama_srb.background import begin
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool.terms import OWN
from llama_srb.models.served import ServedModel


class CacheBudget:
    """Divides a number of bytes equally among the engines that are loaded.

    An engine starts with all of it, and is told its share as soon as it is loaded: until then it has no
    snapshots. Engines of the mode per-request live too short to be counted.
    """

    def __init__(self, n_bytes: int) -> None:
        self._n_bytes = n_bytes

    def divide(self, loaded: Sequence[ServedModel]) -> None:
        """Tells each of these models' engines its share."""
        residents = [model for model in loaded if model.pool.mode == "resident"]
        for model in residents:
            begin(_tell(model, self._n_bytes // len(residents)), f"share of {model.name}")


async def _tell(model: ServedModel, n_bytes: int) -> None:
    with contextlib.suppress(EngineError):  # it has just ended: then the loaded models change again
        await model.pool.command("limits", OWN, cache_ram=n_bytes)
