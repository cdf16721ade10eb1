"""A task as data, and what it does to the fields of a request."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from llama_srb.request.fields import CANONICAL, STRUCTURES
from llama_srb.request.parse import Defaults, refuse_locked
from llama_srb.request.values import SearchBy

Position: TypeAlias = Literal["turn", "prelude"]
POSITIONS: tuple[Position, ...] = ("turn", "prelude")


@dataclass(frozen=True, slots=True)
class Recall:
    """What a task recalls from a memory for each request.

    retrieve: how many chunks of documents. store_prompts: the memory gets the prompts, too. retrieve_prompts:
    how many chunks of them. position: the chunks stand before the current turn's prefix, or behind the
    prelude. pre_filter, post_filter: which chunks are looked at, and which are used of those that were found.
    search: words, meaning or hybrid; None: as the memory is searched. headings: those above a chunk stand in
    front of it. around: how many neighbours it has on both sides. per_document, diversity: as in a search.
    """

    memory: str
    retrieve: int = 2
    store_prompts: bool = False
    retrieve_prompts: int | None = None
    position: Position = "turn"
    pre_filter: Mapping[str, Any] = field(default_factory=dict)
    post_filter: Mapping[str, Any] = field(default_factory=dict)
    search: SearchBy | None = None
    headings: bool = False
    around: int = 0
    per_document: int | None = None
    diversity: float = 0.0

    @property
    def prompts(self) -> int:
        """How many chunks of stored prompts; if the task does not say, one if it stores prompts."""
        return int(self.store_prompts) if self.retrieve_prompts is None else self.retrieve_prompts


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the configuration.

    model: the name of a model or an adapter; None is the default model. prelude: the beginning of each
    prompt. prefix, postfix: around each prompt of a client, and around each message of a user. fields:
    defaults of request fields, by canonical names. locked: canonical names that a client may not send.
    """

    name: str
    about: str = ""
    model: str | None = None
    prelude: str = ""
    prefix: str = ""
    postfix: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    locked: tuple[str, ...] = ()
    private_tokens: tuple[str, ...] = ()
    recall: Recall | None = None

    @property
    def has_turns(self) -> bool:
        """Whether prefix and postfix divide the messages of a chat; else the model's template does it."""
        return bool(self.prefix or self.postfix)

    @property
    def recalls_in_front(self) -> bool:
        """Whether recalled texts stand behind the prelude, not before the prefix."""
        return self.recall is not None and self.recall.position == "prelude"

    @property
    def locks(self) -> Mapping[str, str]:
        """The locked fields and what locks them. One locked structure locks all: each replaces the others."""
        names = dict.fromkeys(self.locked)
        if names.keys() & {*STRUCTURES}:
            names |= dict.fromkeys((*STRUCTURES, "then", "tools"))
        return dict.fromkeys(names, f"the task {self.name}")

    def check(self, body: Mapping[str, Any]) -> None:
        """RequestError if a client's body has a locked field."""
        for name, value in body.items():
            if value is not None and CANONICAL.get(name) in (locks := self.locks):
                refuse_locked([name], {name: locks[CANONICAL[name]]})

    def over(self, defaults: Defaults) -> Defaults:
        """These defaults with the task's in place of the operator's. Its n is at most that of a key."""
        fields = dict(self.fields)
        if "n" in fields and defaults.most_n is not None:
            fields["n"] = min(fields["n"], defaults.most_n)
        return dataclasses.replace(defaults, operator={**defaults.operator, **fields}, locked=self.locks)
