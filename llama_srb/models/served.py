"""A model that a server serves: its settings, its file's facts, its pool."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from llama_srb.config import Settings
from llama_srb.engine.pool import Pool, warm_up
from llama_srb.engine.pool.terms import OWN
from llama_srb.engine.settings import EngineSettings
from llama_srb.models import gguf_header
from llama_srb.models import model_memory as memory
from llama_srb.models.gguf_header import ModelFileError, ModelInfo

log = logging.getLogger("llama_srb.models")  # this name is documented


@dataclass(eq=False, slots=True)
class ServedModel:
    """One model of a server.

    need: the bytes of memory that a load is estimated to need. snapshots: those that its engine may fill
    with snapshots beside it. n_users: the requests of clients that have chosen it and are not over; they may
    still use its pool. leaves: it is being removed, and no other request may choose it.
    """

    settings: Settings
    info: ModelInfo
    pool: Pool
    need: int
    snapshots: int = 0
    n_users: int = 0
    leaves: bool = False
    name: str = field(init=False)
    """In answers."""

    def __post_init__(self) -> None:
        self.name = self.settings.model_names[0]

    def begin_use(self) -> None:
        self.n_users += 1

    def end_use(self) -> None:
        self.n_users -= 1
        if self.leaves:
            self.pool.change.notify()


def share_engines(one: Settings, other: Settings) -> bool:
    """Whether the same engines serve both; then only facts for requests differ."""
    return _of_engines(one) == _of_engines(other)


def _of_engines(settings: Settings) -> tuple[object, ...]:
    return (
        settings.engine_command,
        settings.engine_env,
        settings.adapter_names,
        settings.load_timeout,
        settings.step_timeout,
        settings.engine_mode,
        settings.max_engines,
        settings.prompt,
        settings.prompt_file,
    )


def served(settings: Settings) -> ServedModel:
    """The model of these settings, with a pool that is not started.

    ModelFileError: a file is faulty. SettingsError: the prompt of its warm-up is.
    """
    info = gguf_header.read_model(settings.model)
    if settings.name:  # it may be loaded much later; a server of one model sees a fault when it starts
        for adapter in (*settings.lora, *settings.adapters.values()):
            gguf_header.check_adapter(adapter)
    engine = EngineSettings(
        settings.engine_command,
        info.name,
        settings.engine_environment,
        load_timeout=settings.load_timeout,
        step_timeout=settings.step_timeout,
        adapters=settings.adapter_names,
        warm_up=_warm_up(settings),
    )
    pool = Pool(engine, mode=settings.engine_mode, max_engines=settings.max_engines)
    return ServedModel(settings, info, pool, memory.needed(settings, info))


def readable(settings: Settings, known: Collection[str] = ()) -> Settings:
    """The settings without models of --models-dir whose files cannot be served, each with a warning.

    The model of default_model stays, those whose names are known, and the last ones: they have faults.
    """
    faults: dict[str, ModelFileError] = {}
    for one in settings.models:
        is_wanted = one.name in known or settings.default_model in (*one.model_names, *one.adapters)
        if one.in_folder and not is_wanted:
            try:
                gguf_header.read_model(one.model)
            except ModelFileError as error:
                faults[one.name] = error
    if len(faults) == len(settings.models):
        return settings
    for fault in faults.values():
        log.warning("a model of --models-dir is left out: %s", fault)
    left = (one for one in settings.models if one.name not in faults)
    return settings.model_copy(update={"models": tuple(left)})


def _warm_up(settings: Settings) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    text = settings.warm_up()
    return (("prefix", {"prompt": text}),) if text else ()


async def show_faults(model: ServedModel) -> None:
    """In the mode per-request runs one engine of a loaded model, so that a fault shows now; EngineError.

    It computes the prompt of the warm-up, if there is one, for the folder of prefixes.
    """
    if model.pool.mode != "per-request":
        return
    for op, arguments in (commands := model.pool.engines.settings.warm_up):
        await warm_up.run(model.pool.run(op, OWN, **arguments))
    if not commands:
        await model.pool.command("status", OWN)
