"""The preludes that the engines of a model keep computed for its tasks."""

from __future__ import annotations

from collections.abc import Iterable

from llama_srb.config import Settings
from llama_srb.request.fields import CompletionRequest
from llama_srb.request.parse import request_from
from llama_srb.tasks.task import Task

MOST = 16  # pins of an engine; other preludes are found in the prefix cache
BYTES_OF_A_TOKEN = 4  # about, in English


def tasks_of(model: Settings, server: Settings, tasks: Iterable[Task]) -> list[Task]:
    """The tasks whose model this is, or an adapter of it."""
    names = {*model.model_names, *model.adapters}
    is_default = model.name == server.default.name
    return [task for task in tasks if (is_default if task.model is None else task.model in names)]


def pinned(tasks: Iterable[Task]) -> list[Task]:
    """The tasks of one model whose preludes are pinned; of several with the same one the first."""
    first: dict[tuple[str | None, str], Task] = {}
    for task in tasks:
        first.setdefault((task.model, task.prelude), task)
    return [task for task in first.values() if task.prelude][:MOST]


def pins_of(model: Settings, server: Settings, tasks: Iterable[Task]) -> dict[str, CompletionRequest]:
    """The prompts of a model's pins, by name."""
    return {f"task {task.name}": pin_of(task, model) for task in pinned(tasks_of(model, server, tasks))}


def pin_of(task: Task, model: Settings) -> CompletionRequest:
    """A prelude as a prompt, with the adapter that the task names: the cells of a prompt depend on it."""
    lora = [{"name": task.model, "scale": 1.0}] if task.model in model.adapters else None
    return request_from({"prompt": [{"text": task.prelude, "special": True}], "lora": lora})


def estimated(tasks: Iterable[Task]) -> int:
    """About how many tokens these preludes have."""
    return sum(len(task.prelude.encode()) // BYTES_OF_A_TOKEN + 1 for task in tasks)
