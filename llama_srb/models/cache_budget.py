"""Host memory for snapshots of evicted prompts: one budget, divided among the loaded models' engines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from llama_srb.background import begin
from llama_srb.engine.exchange import EngineError
from llama_srb.engine.pool.terms import OWN
from llama_srb.models.residency import Residency
from llama_srb.models.served import ServedModel

FREED = 2.0  # seconds until an engine has returned the memory of dropped snapshots


class CacheBudget:
    """Divides --cache-ram equally among the engines that are loaded.

    With --models-memory it divides no more than what the models that are loaded or loading leave of it. An
    engine starts with all of --cache-ram, and is told its share as soon as it is loaded: until then it has no
    snapshots. Engines of the mode per-request live too short to be counted.
    """

    def __init__(self, residency: Residency, cache_ram: int) -> None:
        self._residency, self._cache_ram = residency, cache_ram
        self._told: dict[ServedModel, tuple[int, int]] = {}  # share, identity of the engine's ready event
        residency.on_loaded_change = self._divide

    def _divide(self, loaded: Sequence[ServedModel], loading: Sequence[ServedModel]) -> None:
        """Tells each of the loaded models' engines its share."""
        residents = [model for model in loaded if model.pool.mode == "resident"]
        total = self._cache_ram
        if (memory := self._residency.limits.memory) is not None:
            total = min(total, max(0, memory - sum(model.need for model in [*loaded, *loading])))
        before = self._told
        self._told = {model: (total // len(residents), id(model.pool.ready)) for model in residents}
        for model, told in self._told.items():
            if told != before.get(model):
                begin(self._tell(model, told[0]), f"share of {model.name}")

    async def _tell(self, model: ServedModel, share: int) -> None:
        """It counts as smaller only when the memory is free."""
        model.snapshots = max(model.snapshots, share)
        with contextlib.suppress(EngineError):  # it has just ended: then the loaded models change again
            await model.pool.command("limits", OWN, cache_ram=share)
            await asyncio.sleep(FREED)
        if self._told.get(model, (share,))[0] == share:
            model.snapshots = share
