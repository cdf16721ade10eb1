"""From the tables [tasks.X] of a file to tasks; everything that can be wrong is an error at the start."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from llama_srb.config import Settings, SettingsError, Table
from llama_srb.config.words import Given, nearest
from llama_srb.request.fields import CANONICAL, STRUCTURES
from llama_srb.request.parse import canonical, read_fields
from llama_srb.request.values import (
    MAX_AROUND,
    SEARCHES,
    RequestError,
    is_text,
    named,
    share,
    switch,
    whole,
    wrong,
)  # fmt: skip
from llama_srb.tasks.task import POSITIONS, Recall, Task

Reader: TypeAlias = Callable[[object], Any]
MAX_RETRIEVED = 100
NOT_HERE = ("prompt", "continue", "messages", "sequences", "preset")  # are a client's, or have no one meaning
FILE = "json_schema_file"


def _text(name: str) -> Reader:
    def read(value: object) -> object:
        if not is_text(value):
            raise wrong(name, value, "a text")
        return value

    return read


def _names(name: str) -> Reader:
    def read(value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise wrong(name, value, "a list of texts, none of them empty")
        return tuple(value)

    return read


def _filter(name: str) -> Reader:
    def read(value: object) -> object:
        if not isinstance(value, dict):
            raise wrong(name, value, "a table")
        return value

    return read


RECALL: Mapping[str, Reader] = {
    "memory": _text("recall.memory"),
    "retrieve": lambda value: whole("recall.retrieve", value, 1, MAX_RETRIEVED),
    "store_prompts": partial(switch, "recall.store_prompts"),
    "retrieve_prompts": lambda value: whole("recall.retrieve_prompts", value, 0, MAX_RETRIEVED),
    "position": partial(named, "recall.position", POSITIONS),
    "search": partial(named, "recall.search", SEARCHES),
    "headings": partial(switch, "recall.headings"),
    "around": lambda value: whole("recall.around", value, 0, MAX_AROUND),
    "per_document": lambda value: whole("recall.per_document", value, 1, MAX_RETRIEVED),
    "diversity": partial(share, "recall.diversity"),
    "pre_filter": _filter("recall.pre_filter"),
    "post_filter": _filter("recall.post_filter"),
}


def _recall(value: object) -> Recall:
    if not isinstance(value, dict):
        raise wrong("recall", value, 'a table: { memory = "NAME", … }')
    try:
        given = read_fields(value, RECALL, required="memory", strict=True)
    except RequestError as error:
        if error.message.startswith("recall."):
            raise
        raise RequestError(f"recall: {error.message}") from None
    return Recall(**{name: one for name, one in given.items() if name != "warnings"})


OWN: Mapping[str, Reader] = {
    **{name: _text(name) for name in ("about", "model", "prelude", "prefix", "postfix")},
    "bias_prompt": _text("bias_prompt"),
    FILE: _text(FILE),
    "locked": _names("locked"),
    "private_tokens": _names("private_tokens"),
    "recall": _recall,
}
"""The fields of a task's table that are no request fields."""
KNOWN = (*OWN, *(name for name in CANONICAL if name not in NOT_HERE))


def read(settings: Settings) -> list[Task]:
    """The tasks of a server; SettingsError names the table and its field."""
    models = [name for model in settings.served for name in (*model.model_names, *model.adapters)]
    memories = [table.name for table in settings.memories]
    return [_task(table, models, memories) for table in settings.tasks]


def _task(table: Table, models: Iterable[str], memories: Iterable[str]) -> Task:
    for key, given in table.values.items():
        if key not in KNOWN:
            raise SettingsError(f"{given.place()} is not a field of a task{nearest(key, KNOWN)}")
    try:
        own = {key: read(table.values[key].value) for key, read in OWN.items() if key in table.values}
        fields = _fields(table, own)
    except RequestError as error:
        where = next((given.where for given in table.values.values()), "")
        raise SettingsError(f"{table.place}{where}: {error.message}") from None
    _require_known(table.values.get("model"), "model", models, "there is no such model")
    if "recall" in own:
        given, name = table.values["recall"], own["recall"].memory
        memory = Given(name, f"{given.key}.memory", given.where)
        _require_known(memory, name, memories, f"there is no table [memories.{name}]")
    locked = tuple(_locked(name, table.values["locked"]) for name in own.pop("locked", ()))
    kept = {key: value for key, value in own.items() if key not in (FILE, "bias_prompt")}
    return Task(table.name, **kept, fields=fields, locked=locked)


def _require_known(given: Given | None, name: str, known: Iterable[str], why: str) -> None:
    if given is not None and given.value not in (known := list(known)):
        raise SettingsError(f"{given.place()} is {given.value!r}; {why}{nearest(str(given.value), known)}")


def _locked(name: str, given: Given) -> str:
    if (field := CANONICAL.get(name)) is None or field in NOT_HERE:
        hint = nearest(name, KNOWN)
        raise SettingsError(f"{given.place()} has {name!r}, which is not a field of a request{hint}")
    return field


def _fields(table: Table, own: Mapping[str, Any]) -> dict[str, Any]:
    """The defaults of request fields, by canonical names, checked as those of a request."""
    fields = {key: given.value for key, given in table.values.items() if key not in OWN}
    if FILE in own:
        if "json_schema" in fields:
            raise RequestError(f"only one of json_schema and {FILE} may be given")
        fields["json_schema"] = _schema(table.folder / Path(own[FILE]).expanduser())
    if "bias_prompt" in own:
        fields = _with_second_answer(fields, own["bias_prompt"])
    made = canonical({**fields, "private_tokens": list(own.get("private_tokens", ()))})
    del made["private_tokens"]
    return made


def _with_second_answer(fields: dict[str, Any], text: str) -> dict[str, Any]:
    """The fields with the structure behind the text, as the field `then` has it."""
    if "then" in fields:
        raise RequestError("only one of bias_prompt and then may be given")
    structures = {name: one for name, one in fields.items() if CANONICAL[name] in STRUCTURES}
    if not structures:
        raise RequestError("bias_prompt needs one of " + ", ".join((*STRUCTURES, FILE)))
    second = {CANONICAL[name]: one for name, one in structures.items()}
    free = {name: one for name, one in fields.items() if name not in structures}
    return free | {"then": {"text": text, **second}}


def _schema(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{FILE}: cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise RequestError(f"{FILE}: {path} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise RequestError(f"{FILE}: {path} is not a JSON object, as a schema is")
    return found
