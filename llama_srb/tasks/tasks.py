"""The tasks of a server by name, and which of them a client may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from difflib import get_close_matches

from llama_srb.request.values import RequestError
from llama_srb.tasks.task import Task

NOT_FOUND, NOT_ALLOWED = "task_not_found", "task_not_allowed"
MAX_SHOWN = 100  # characters of a client's name in a message


class Tasks:
    """The tasks in the order of the file."""

    def __init__(self, tasks: Iterable[Task] = ()) -> None:
        self._tasks = {task.name: task for task in tasks}
        self.names: Collection[str] = self._tasks.keys()

    def __iter__(self) -> Iterator[Task]:
        return iter(self._tasks.values())

    def find(self, name: str | None) -> Task | None:
        return self._tasks.get(name) if name else None

    def require(self, name: str, allowed: Collection[str] | None) -> Task:
        """The task of this name; RequestError 404 if there is none, 403 if it is not allowed."""
        task = self._tasks.get(name)
        if task is None:
            near = get_close_matches(name[:MAX_SHOWN], list(self.names), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            message = f"there is no task {name[:MAX_SHOWN]} here{hint}"
            raise RequestError(message, param="name", status=404, code=NOT_FOUND)
        if allowed is not None and name not in allowed:
            may = "the tasks " + ", ".join(allowed) if allowed else "no task"
            message = f"this key may use {may}, not {name}"
            raise RequestError(message, param="name", status=403, code=NOT_ALLOWED)
        return task
