"""Drafts: tasks that no file has yet, as the TOML that one would have."""

from __future__ import annotations

import dataclasses

from llama_srb.config import Settings, SettingsError, names, task_in
from llama_srb.memory.tables import check_recall
from llama_srb.memory.tables import read as read_memories
from llama_srb.request.values import RequestError, is_text, wrong
from llama_srb.tasks import FILE, Task, read

FIELD = "toml"


def draft_of(text: object, settings: Settings) -> Task:
    """The task of a table, which is read as a file's are; RequestError.

    It may not name a file, whose contents a client could then see in messages and answers.
    """
    if not (isinstance(text, str) and is_text(text)):
        raise wrong(FIELD, text, "a text: the table [tasks.NAME]")
    try:
        table = task_in(text, FIELD)
        if FILE in table.values:
            place = table.values[FILE].place()
            raise SettingsError(f"{place} names a file; here write its contents, json_schema")
        names.check(settings.models or (settings,), None, [table])
        (task,) = read(settings.model_copy(update={"tasks": (table,)}))
        if task.recall is not None:
            check_recall(task.name, task.recall, read_memories(settings))
    except SettingsError as error:
        raise RequestError(str(error), param=FIELD) from None
    return task


def without_storing(task: Task) -> Task:
    """The task, but no memory gets the prompts."""
    if task.recall is None:
        return task
    recall = dataclasses.replace(task.recall, store_prompts=False, retrieve_prompts=task.recall.prompts)
    return dataclasses.replace(task, recall=recall)
