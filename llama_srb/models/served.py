"""A model that a server serves: its settings, its file's facts, its pool."""

from __future__ import annotations

from dataclasses import dataclass

from llama_srb.config import Settings, child_environment
from llama_srb.engine.pool import Pool
from llama_srb.engine.settings import EngineSettings
from llama_srb.models import gguf_header, memory
from llama_srb.models.gguf_header import ModelInfo


@dataclass(eq=False, slots=True)
class ServedModel:
    """One model of a server. need: the bytes of memory that a load is estimated to need."""

    settings: Settings
    info: ModelInfo
    pool: Pool
    need: int

    @property
    def name(self) -> str:
        """The name in answers."""
        return self.settings.model_names[0]


def served(settings: Settings) -> ServedModel:
    """The model of these settings, with a pool that is not started; ModelFileError if its file is faulty."""
    info = gguf_header.read(settings.model)
    engine = EngineSettings(
        settings.engine_command,
        info.name,
        child_environment(),
        load_timeout=settings.load_timeout,
        step_timeout=settings.step_timeout,
        adapters=settings.adapter_names,
    )
    pool = Pool(engine, mode=settings.engine_mode, max_engines=settings.max_engines)
    return ServedModel(settings, info, pool, memory.needed(settings, info))
