"""An operator's settings that hold for all clients, and how they act on a client's fields. No I/O here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llama_srb.request import shapes
from llama_srb.request.fields import ROWS, STRUCTURES
from llama_srb.request.steps import without_values
from llama_srb.request.values import MAX_WARNINGS, RequestError, shown

Fields: TypeAlias = dict[str, Any]
SAID = "the operator's override"
LISTS = ("texts", "bans", "token ids", "biases")  # types of fields to which values can be added
STRUCTURED = (*STRUCTURES, "then", "tools", "tool_choice")  # one of them forced leaves none of the others
READ = {"logit_bias": shapes.logit_bias, "dry_sequence_breakers": shapes.breakers}


@dataclass(frozen=True, slots=True)
class Overrides:
    """Fields by canonical names.

    forced: in place of a client's values. added: in front of a client's lists. defaults: where it has none.
    """

    forced: Mapping[str, Any] = field(default_factory=dict)
    added: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def over(self, others: Overrides) -> Overrides:
        """These and others: what these force and add holds, and of the defaults those of the others."""
        forced = {**others.forced, **self.forced}
        mine = {**others.added, **self.added}
        added = {name: value for name, value in mine.items() if name not in forced}
        return Overrides(forced, added, {**self.defaults, **others.defaults})

    def without(self, *names: str) -> Overrides:
        parts = (self.forced, self.added, self.defaults)
        if not any(parts):
            return self
        return Overrides(*({name: one for name, one in part.items() if name not in names} for part in parts))

    def at_most(self, n: int) -> Overrides:
        """The same with n continuations at most."""
        if self.forced.get("n", 0) <= n and self.defaults.get("n", 0) <= n:
            return self
        forced, defaults = (
            {**part, "n": min(part["n"], n)} if "n" in part else part for part in (self.forced, self.defaults)
        )
        return Overrides(forced, self.added, defaults)

    @property
    def locks(self) -> dict[str, str]:
        """What a later change of a running request may not set."""
        return dict.fromkeys(self.forced, SAID)

    def applied(self, own: Fields, warnings: list[str]) -> Fields:
        """A client's fields as they hold; a warning for each that is another."""
        kept = self._kept(own, warnings, "")
        return {**self._with_added(kept, self.added), **self.forced}

    def applied_to_one(self, own: Fields, warnings: list[str], prefix: str) -> Fields:
        """The fields of one sequence, which has only those that are not its request's."""
        kept = self._kept(own, warnings, prefix)
        return self._with_added(kept, {name: one for name, one in self.added.items() if name in kept})

    def _kept(self, own: Fields, warnings: list[str], prefix: str) -> Fields:
        taken = {*self.forced}
        taken |= {*STRUCTURED} if taken & {*STRUCTURES} else set()
        for name in own:
            if name in taken and own[name] != self.forced.get(name) and len(warnings) < MAX_WARNINGS:
                here = shown(self.forced[name]) if name in self.forced else "not possible"
                warnings.append(f"{prefix}{name} is not used: by {SAID} it is {here}")
        kept = {name: value for name, value in own.items() if name not in taken}
        if "samplers" in kept and (plain := without_values(kept["samplers"], taken)) != kept["samplers"]:
            warnings.append(f"{prefix}samplers: values are not used where {SAID} says what they are")
            kept["samplers"] = plain
        return kept

    def _with_added(self, own: Fields, added: Mapping[str, Any]) -> Fields:
        return {**own, **{name: _joined(name, value, own.get(name)) for name, value in added.items()}}


def _joined(name: str, added: object, own: object) -> list[Any]:
    """Both lists, each value once; a value that is no list stays, and its reader refuses it."""
    values = [*_listed(name, added), *([] if own is None else _listed(name, own))]
    return (
        [value for i, value in enumerate(values) if value not in values[:i]] if len(values) < 100 else values
    )


def _listed(name: str, value: object) -> list[Any]:
    read = shapes.ids(name) if ROWS[name].type == "token ids" else READ.get(name)
    found = read(value) if read is not None else value
    return list(found) if isinstance(found, list | tuple) else [found]


NO_OVERRIDES = Overrides()
NOT_HERE = ("prompt", "story", "continue", "messages", "sequences", "preset", "truncation_side")
"""Fields that are a client's, or have no meaning alone."""
FORM = frozenset({"override", "force", "additive"})


def split(name: str, value: object) -> tuple[object, str]:
    """A value, and which part of the overrides gets it.

    TabbyAPI writes {override, force, additive}; another value is forced.
    """
    if not isinstance(value, dict) or "override" not in value or not value.keys() <= FORM:
        return value, "forced"
    for switch in ("force", "additive"):
        if not isinstance(value.get(switch, False), bool | None):
            raise RequestError(
                f"{name}.{switch} is {shown(value[switch])}; it must be true or false", param=name
            )
    kinds = ("forced", "force"), ("added", "additive")
    return value["override"], next((kind for kind, switch in kinds if value.get(switch)), "defaults")


def check_added(names: Mapping[str, Any]) -> None:
    """RequestError for a field that is no list."""
    for name in names:
        if ROWS[name].type not in LISTS:
            raise RequestError(f"{name} is no list: nothing can be added to it; force it, or not", param=name)
