"""The tasks of a server, their paths, and exact prompts. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from llama_srb.client.core import Call, Message, Prompted, body_of
from llama_srb.client.errors import UnknownField
from llama_srb.client.reader import as_count, as_list, as_object, as_text, is_count, is_text, records


@dataclass(frozen=True, slots=True)
class TaskEntry:
    """A task of the server. model: its model's id; fields: its defaults of request fields.

    recall: the memory and how it is searched. private_tokens: only for admins, if the server asks for keys.
    """

    id: str
    about: str
    model: str
    prelude: str
    prefix: str
    postfix: str
    fields: Mapping[str, Any]
    locked: tuple[str, ...]
    recall: Mapping[str, Any] | None
    private_tokens: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PromptPart:
    """A part of a prompt, with the ids of the tokens that begin in it; docs/api.md has the kinds.

    special: the names of control tokens in it are these tokens. pieces: the tokens' texts; none if the prompt
    was given as ids.
    """

    kind: str
    text: str
    special: bool
    tokens: tuple[int, ...]
    pieces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MadePrompt:
    """The exact prompt of a request. model: the name of the model or the task.

    control: the ids of control tokens in it. story: as in the event Start.
    """

    model: str
    prompt: str
    prompt_tokens: int
    parts: tuple[PromptPart, ...]
    warnings: tuple[str, ...] = ()
    control: tuple[int, ...] = ()
    story: Mapping[str, Any] | None = None


TASKS: Call[list[TaskEntry]] = Call("/v1/tasks", None, lambda answer: records(TaskEntry, answer["data"]))


def path_of(name: str, messages: Sequence[Message] | None) -> str:
    """The path of a task's completions or, with messages, of its chats."""
    return f"/v1/tasks/{quote(name, safe='')}/{'completions' if messages is None else 'chat'}"


def check(fields: Mapping[str, Any]) -> None:
    """UnknownField if the fields of a request name a model: a task has its own."""
    if "model" in fields:
        raise UnknownField("model is no field of a request by a task", code="unknown_field", param="model")


def prompt(
    text: Prompted | None, messages: Sequence[Message] | None, more: Mapping[str, Any]
) -> Call[MadePrompt]:
    return Call("/v1/prompt", body_of(prompt=text, messages=messages, **more), _made)


def _made(answer: Mapping[str, Any]) -> MadePrompt:
    return MadePrompt(
        as_text(answer["model"]),
        as_text(answer["prompt"]),
        as_count(answer["prompt_tokens"]),
        tuple(records(PromptPart, answer["parts"])),
        tuple(as_list(answer.get("warnings", []), is_text)),
        tuple(as_list(answer.get("control", []), is_count)),
        as_object(answer["story"]) if answer.get("story") is not None else None,
    )
