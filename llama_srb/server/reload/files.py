"""Models whose files were replaced: they are loaded again, with the same settings."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TypeAlias

from llama_srb.config import Settings
from llama_srb.models import gguf_header
from llama_srb.models.served import ServedModel
from llama_srb.server.reload.faults import kept
from llama_srb.serving.model_facts import ModelFacts
from llama_srb.serving.model_registry import ModelRegistry

log = logging.getLogger("llama_srb.server")  # this name is documented

Identity: TypeAlias = tuple[int, ...]
"""Of a file: device, inode, size and time of change; empty if it cannot be read."""


class ReplacedFiles:
    """The files that the engines have loaded."""

    def __init__(self, registry: ModelRegistry) -> None:
        self._registry = registry
        self._loaded = {model.served: identities_of(model.settings) for model in registry}

    def note(self, model: ServedModel, identities: tuple[Identity, ...]) -> None:
        """Remembers the files of a new model, as they were before its engine loaded them."""
        self._loaded[model] = identities

    async def renew(self) -> None:
        """Loads each model whose files are others than those that were loaded."""
        models = list(self._registry)
        self._loaded = {one.served: self._loaded[one.served] for one in models if one.served in self._loaded}
        for model in models:
            name = f" {model.name}" if model.settings.name else ""
            with kept(f"the model{name} stays as it was"):
                await self._renew(model)

    async def _renew(self, model: ModelFacts) -> None:
        """Loads the model beside the old one if its file was replaced; running requests keep the old one.

        A failed pool tries again in any case, since the engine's program may have been replaced.
        """
        files = identities_of(model.settings)
        if self._loaded.get(model.served) != files:
            log.info("%s is another file now", model.settings.model)
        elif model.pool.state == "failed":
            log.info("the engine is tried again")
        else:
            return
        info = gguf_header.read_model(model.settings.model)
        await model.pool.renew()
        model.take_model(info)
        self._loaded[model.served] = files


def identities_of(settings: Settings) -> tuple[Identity, ...]:
    """The identities of the model's and the adapters' files. A path may be a link to another file by now."""
    paths = (settings.model, *settings.lora, *settings.adapters.values())
    return tuple(_identity(path) for path in paths)


def _identity(path: Path) -> Identity:
    """If there is an error, the reader of the file will report it."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
