"""From a client's body, with any aliases, to a request, or a RequestError with the reason. No I/O here."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError

from llama_srb.request.aliases import (
    CONVERSIONS,
    CONVERTED,
    NON_SAMPLING_FIELDS,
    REFUSED,
    UNSUPPORTED,
    Fields,
)
from llama_srb.request.chain import settle_chain
from llama_srb.request.conflicts import check_together
from llama_srb.request.fields import (
    BY_LIST,
    CANONICAL,
    CHAT,
    OVERRIDE_ROWS,
    REQUEST_ROWS,
    ROWS,
    SAME_DISTRIBUTION,
    SAMPLING_ROWS,
    STRUCTURES,
    CompletionRequest,
    Extension,
    Override,
    Sampling,
)
from llama_srb.request.json_text import read_json
from llama_srb.request.overrides import NO_OVERRIDES, NOT_HERE, Overrides, check_added, split
from llama_srb.request.sequence_name import sequence_name
from llama_srb.request.shapes import unread_arguments
from llama_srb.request.steps import values_of
from llama_srb.request.values import (
    INT32_MAX,
    MAX_INDEX,
    MAX_WARNINGS,
    RequestError,
    is_number,
    shown,
    whole,
    wrong,
)

Reader: TypeAlias = Callable[[object], Any]
"""Reads the value of one field, or raises RequestError."""
NOT_SETTINGS = (*REFUSED, *UNSUPPORTED, *NON_SAMPLING_FIELDS)
KNOWN_NAMES = (*CANONICAL, *CONVERTED, *NOT_SETTINGS)


@dataclass(frozen=True, slots=True)
class Defaults:
    """The server's or dialect's defaults for a body, and its rules.

    Defaults: n, max_tokens, diversity, sampling; the operator's go before those of a dialect. Rules: max_n;
    strict: unknown fields are errors. whole: the answer is one body. presets: those that the body may name.
    """

    n: int = 8
    max_tokens: int = 128
    max_n: int = 1024
    strict: bool = False
    diversity: str = "none"
    whole: bool = False
    sampling: Mapping[str, Any] = field(default_factory=dict)  # canonical names
    presets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by name, canonical names too
    operator: Mapping[str, Any] = field(default_factory=dict)  # of llama.cpp's flags, canonical names
    warnings: tuple[str, ...] = ()  # of the request, before those about its fields
    locked: Mapping[str, str] = field(default_factory=dict)  # fields that a body may not have: what sets them
    most_n: int | None = None  # of the caller's key
    overrides: Overrides = NO_OVERRIDES  # the operator's, which hold whatever a body says
    untold: frozenset[str] = frozenset()  # fields for whose answers the dialect has no place

    def of_the_dialect(self) -> Defaults:
        """For fields that a dialect sets, not its client: none is locked, and there is no second answer."""
        operator = {name: value for name, value in self.operator.items() if name != "then"}
        return replace(self, locked={}, operator=operator, overrides=self.overrides.without("then"))

    def of_one(self) -> Defaults:
        """For a dialect whose answer is one text: n is 1 unless the body has n."""
        operator = {name: value for name, value in self.operator.items() if name not in ("n", "best_of")}
        return replace(self, n=1, operator=operator, overrides=self.overrides.without("n", "best_of"))


PLAIN = {"prompt": ""}
A_CHAT = {"messages": [{"role": "user", "content": ""}]}
MAX_EXPLAINED = 1 << 20  # bytes; finding the exact error takes ten times as long as parsing


def parse_body(data: bytes, list_as: str = "") -> dict[str, Any]:
    """Parses a body as a JSON object. list_as: a body that is a list is the object with this one field.

    RequestError if it is empty, not UTF-8, not a JSON object, nested too deeply, or has too many values.
    """
    if not data.strip():
        raise RequestError("the body is empty; it must be a JSON object")
    try:
        body = read_json("the body", data)
    except json.JSONDecodeError as error:
        raise RequestError(*_why_not_json(data, error)) from None
    if list_as and isinstance(body, list):
        return {list_as: body}
    if not isinstance(body, dict):
        wanted = "a JSON object" + (f", or a list, which is its {list_as}" if list_as else "")
        raise RequestError(f"the body is {shown(body)}; it must be {wanted}")
    return body


def _why_not_json(data: bytes, error: json.JSONDecodeError) -> tuple[str]:
    if len(data) > MAX_EXPLAINED:
        return (f"the body is not JSON: {error.msg}",)
    try:
        body = json.loads(data.decode("utf-8"))  # accepts NaN and lone surrogates, so that they can be named
        if isinstance(body, dict):
            for name, value in body.items():
                _refuse_non_json(name, value)
    except RecursionError:
        pass
    except UnicodeDecodeError as wrong:
        return (f"the body is not UTF-8 (byte {wrong.start})",)
    except ValueError:
        return (f"the body is not JSON: {error.msg} (line {error.lineno}, column {error.colno})",)
    return (f"the body is not JSON: {error.msg}",)


def _refuse_non_json(name: str, value: object) -> None:
    """RequestError for NaN, Infinity and lone surrogates at any depth, which strict JSON does not have."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except UnicodeEncodeError:
        raise RequestError(
            f"{shown(name)[1:-1]} holds a lone surrogate, which is no character", param=name
        ) from None
    except ValueError:
        raise RequestError(f"{name} is {shown(value)}; JSON has no such number", param=name) from None


Model = TypeVar("Model", bound=BaseModel)


def request_from(
    body: Mapping[str, Any],
    defaults: Defaults = Defaults(),
    *,
    known: frozenset[str] = frozenset(),
    ours: Mapping[str, Any] = {},
) -> CompletionRequest:
    """Makes a request from a client's fields, with any aliases. known: fields that the dialect reads itself.

    ours: canonical fields that the dialect sets, whatever client and defaults say, also if they are locked;
    None: it is absent. RequestError names the field, its value and its bound. Unknown fields are listed in
    `warnings`; with defaults.strict they are a RequestError.
    """
    fields = {name: value for name, value in body.items() if value is not None and name not in known}
    warnings = [*defaults.warnings]
    preset = _preset(fields.pop("preset", None), defaults.presets)
    own = _sort(fields, CANONICAL, defaults.strict, warnings)
    held = _held(defaults, is_chat="messages" in {**preset, **own, **ours})
    unread = {*held.forced, *defaults.locked}
    _settle(own, unread, warnings)
    own = {**preset, **own}
    refuse_locked([*own, *_in_kwargs(own), *_in_chain(own)], defaults.locked)
    own = _without_untold(own, defaults.untold, warnings)
    own = held.applied(own, warnings)
    given = {**defaults.sampling, **_of_operator(defaults.operator, own), **own, **ours}
    given = {name: value for name, value in given.items() if name not in ours or value is not None}
    if not given.keys() & {"prompt", "continue", "messages"}:
        raise RequestError("prompt is missing", param="prompt")
    request: Fields = {"n": defaults.n, "max_tokens": defaults.max_tokens, "whole": defaults.whole}
    request |= {name: value for name, value in given.items() if name in REQUEST_ROWS and name != "sequences"}
    request["n"] = n = whole("n", request["n"], 1, defaults.max_n)
    sequences = _sequences(given.pop("sequences", []), n, defaults.strict, unread, warnings)
    for i, one in enumerate(sequences if defaults.locked else ()):
        refuse_locked([*one, *_in_chain(one)], defaults.locked, f"sequences[{i}].")
    sequences = [held.applied_to_one(one, warnings, f"sequences[{i}].") for i, one in enumerate(sequences)]
    sampling = {name: value for name, value in given.items() if name in SAMPLING_ROWS}
    _distribute_lists(request, sequences, defaults)
    _distribute_lists(sampling, sequences, defaults)
    overrides = enumerate(sequences) if any(sequences) else ()
    request["sequences"] = tuple(_build(Override, own, f"sequences[{i}].") for i, own in overrides)
    request["sampling"] = _build(Sampling, sampling)
    request["locked"] = {**held.locks, **defaults.locked}
    _set_diversity(request, defaults.diversity)
    warnings += islice(unread_arguments(given.get("messages")), MAX_WARNINGS)
    made = _build(CompletionRequest, request | {"warnings": tuple(warnings[:MAX_WARNINGS])})
    check_together(made, defaults.max_n)
    for settings in (made.sampling, *made.sequences):
        _ = settings.given
    return made


def _held(defaults: Defaults, *, is_chat: bool) -> Overrides:
    """The operator's overrides that a request can have."""
    held = defaults.overrides.without(*defaults.untold)
    return held if is_chat else held.without(*CHAT)


def _without_untold(own: Fields, untold: frozenset[str], warnings: list[str]) -> Fields:
    """Without fields that would cost time and change nothing; a warning for each."""
    for name in sorted(own.keys() & untold):
        warnings.append(f"{name} is not used: answers of this path have no place for it")
    return {name: value for name, value in own.items() if name not in untold}


def refuse_locked(names: Iterable[str], locked: Mapping[str, str], prefix: str = "") -> None:
    """RequestError if one of these fields is locked. prefix: stands before the name, as "sequences[0]."."""
    for name in names:
        if name in locked:
            written = prefix + name
            raise RequestError(
                f"{written} is set by {locked[name]}; leave it out", param=written, code="locked"
            )


def _in_kwargs(own: Fields) -> list[str]:
    """The fields that chat_template_kwargs, an object or its JSON, sets as well."""
    kwargs = own.get("chat_template_kwargs")
    has_it = isinstance(kwargs, str | Mapping) and "enable_thinking" in kwargs
    return ["enable_thinking"] if has_it else []


def _settle(own: Fields, unread: set[str], warnings: list[str], prefix: str = "") -> None:
    """The values in the chain of samplers, unless it is a field that is not the client's to set."""
    if own.get("samplers") is not None and "samplers" not in unread:
        settle_chain(own, warnings, prefix)


def _in_chain(own: Fields) -> list[str]:
    """The fields for which steps of samplers have values of their own."""
    steps = own.get("samplers")
    return [field for step in steps for field in values_of(step)] if isinstance(steps, tuple) else []


def _of_operator(operator: Mapping[str, Any], own: Fields) -> Fields:
    """The operator's defaults for a request that has these fields; replaces its max_tokens -1, no limit."""
    given = dict(operator)
    if own.keys() & {*STRUCTURES, "tools"}:
        given = {name: value for name, value in given.items() if name not in STRUCTURES}
    if own.get("max_tokens") == -1 and "max_tokens" in given:
        del own["max_tokens"]
    return given


def _preset(name: object, presets: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    """The fields of a preset, which the body's own fields override. text-generation-webui sends "None"."""
    if name in (None, "", "None"):
        return {}
    if not isinstance(name, str) or name not in presets:
        raise wrong("preset", name, "one of " + (", ".join(sorted(presets)) or "none: there are no presets"))
    return presets[name]


def canonical(fields: Mapping[str, Any], about: Mapping[str, Any] = PLAIN) -> Fields:
    """A preset's fields by their canonical names; RequestError for those that a request may not have.

    about: what the request is about.
    """
    defaults = Defaults(strict=True)
    request_from({**about, **fields}, defaults)
    given = _sort(dict(fields), CANONICAL, True, [])
    _settle(given, set(), [])
    return given


def read_overrides(given: Mapping[str, Any]) -> Overrides:
    """An operator's overrides from a table or an object of fields, by any names; RequestError."""
    parts: dict[str, Fields] = {"forced": {}, "added": {}, "defaults": {}}
    for name, written in given.items():
        value, part = split(name, written)
        if CANONICAL.get(name, name) in NOT_HERE:
            raise RequestError(f"{name} can be no override: it is a client's", param=name)
        if value is not None:
            about = A_CHAT if CANONICAL.get(name) in CHAT else PLAIN
            parts[part] |= canonical({name: value}, about)
    check_added(parts["added"])
    for fields in parts.values():
        canonical(fields, A_CHAT if fields.keys() & {*CHAT} else PLAIN)
    return Overrides(**parts)


NEWER = ("max_completion_tokens",)
"""Aliases by which OpenAI has renamed a field: clients that send both mean this one."""


def _sort(
    fields: Fields, aliases: Mapping[str, str], strict: bool, warnings: list[str], prefix: str = ""
) -> Fields:
    """Converts fields and returns them by canonical names; adds warnings for unknown or ignored ones.

    If a field is given by its canonical name and by an alias, the canonical name counts, but not beside a
    NEWER one.
    """
    _refuse(fields)
    for convert in CONVERSIONS:
        convert(fields)
    given: Fields = {name: value for name, value in fields.items() if aliases.get(name) == name}
    given |= {
        aliases[name]: fields[name] for name in NEWER if name in aliases and fields.get(name) is not None
    }
    for name, value in fields.items():
        if strict and name not in aliases and name not in NOT_SETTINGS:
            raise RequestError(unknown_field(name, aliases), param=name)
        if name in aliases and _is_same(given.setdefault(aliases[name], value), value):
            continue
        if len(warnings) < MAX_WARNINGS and (warning := _warning(name, value, fields, aliases)):
            warnings.append(prefix + warning)
    return given


def _refuse(fields: Fields) -> None:
    """RequestError for a field that other servers have, at a value at which it would do something."""
    for name in fields.keys() & REFUSED.keys():
        neutral, why = REFUSED[name]
        if not _is_neutral(fields[name], (neutral,)):
            raise RequestError(
                f"{name} is {shown(fields[name])}; it must be {neutral}, which is off: {why}", param=name
            )


def _is_same(one: object, other: object) -> bool:
    """Whether they are equal. `==` alone would compare all members of an object with themselves."""
    return one is other or one == other


def _warning(name: str, value: object, fields: Fields, aliases: Mapping[str, str]) -> str:
    """Why a field is ignored; empty if it would have no effect anyway."""
    if name in aliases:
        counts = next((new for new in NEWER if aliases[new] == name and new in fields), aliases[name])
        return f"{name} is not used, because {counts} is given too"
    if name in NON_SAMPLING_FIELDS or name in REFUSED:
        return ""
    if name not in UNSUPPORTED:
        return unknown_field(name, aliases)
    if _is_neutral(value, UNSUPPORTED[name]):
        return ""
    return f"{name} is {shown(value)}, but there is no such setting here; it is not used"


def _is_neutral(value: object, neutral: tuple[object, ...]) -> bool:
    return any(value == at and isinstance(value, bool) == isinstance(at, bool) for at in neutral)


def unknown_field(name: str, known: Iterable[str] = KNOWN_NAMES) -> str:
    """The message for an unknown field, with the nearest known one."""
    nearest = difflib.get_close_matches(name[:100], list(known), n=1)
    return f"{shown(name)} is not a known field" + (f"; did you mean {shown(nearest[0])}?" if nearest else "")


def read_fields(
    body: Mapping[str, Any], readers: Mapping[str, Reader], *, required: str = "", strict: bool = False
) -> Fields:
    """Reads a small body by a reader for each field; `warnings` lists unknown ones. Null counts as absent."""
    given = {name: value for name, value in body.items() if value is not None}
    unknown = [name for name in given if name not in readers]
    if unknown and strict:
        raise RequestError(unknown_field(unknown[0], readers), param=unknown[0])
    if required and required not in given:
        raise RequestError(f"{required} is missing", param=required)
    warnings = tuple(unknown_field(name, readers) for name in unknown[:MAX_WARNINGS])
    values = {name: read(given[name]) for name, read in readers.items() if name in given}
    return values | {"warnings": warnings}


OVERRIDE_NAMES = {alias: name for alias, name in CANONICAL.items() if name in OVERRIDE_ROWS}


def _sequences(value: object, n: int, strict: bool, unread: set[str], warnings: list[str]) -> list[Fields]:
    """A dict of overrides for each sequence, by canonical names; n empty dicts if none are given."""
    if not isinstance(value, list | tuple) or not all(isinstance(own, dict) for own in value):
        raise wrong("sequences", value, "a list of objects, one per sequence")
    if value and len(value) != n:
        raise RequestError(f"sequences has {len(value)} entries; it must have n, {n}", param="sequences")
    sequences: list[Fields] = [{} for _ in range(n)]
    for index, own in enumerate(value):
        prefix, given = f"sequences[{index}].", {k: v for k, v in own.items() if v is not None}
        try:
            sequences[index] = _sort(given, OVERRIDE_NAMES, strict, warnings, prefix)
            _settle(sequences[index], unread, warnings, prefix)
        except RequestError as error:
            raise _prefixed(error, prefix) from None
    return sequences


def _distribute_lists(fields: Fields, sequences: list[Fields], defaults: Defaults) -> None:
    """Moves lists of values, one per sequence, into the overrides, which go before the lists."""
    for name in [name for name in fields if name in BY_LIST]:
        values = _spread_out(name, fields[name], len(sequences))
        if not isinstance(values, list | tuple):
            continue
        if len(values) != len(sequences):
            raise RequestError(
                f"{name} is a list of {len(values)}; it must have n, {len(sequences)}", param=name
            )
        del fields[name]
        if name == "max_tokens":
            fields[name] = defaults.max_tokens
        for own, value in zip(sequences, values, strict=True):
            if value is not None:
                own.setdefault(name, value)


def _spread_out(name: str, value: object, n: int) -> object:
    """`{from, to}` as n values from the first to the last, evenly; other values as they are."""
    if not isinstance(value, Mapping) or not ROWS[name].is_number:
        return value
    if value.keys() != {"from", "to"} or not all(map(is_number, value.values())):
        raise wrong(name, value, 'a number, a list of n numbers, or {"from": 0.5, "to": 1}')
    first, last = value["from"], value["to"]
    values = [first + (last - first) * i / max(1, n - 1) for i in range(n)]
    return [round(one) if ROWS[name].type == "int" else round(one, 6) for one in values]


def _build(model: type[Model], fields: Fields, prefix: str = "") -> Model:
    integers = {
        name: int(value)
        if isinstance(value, float) and value.is_integer() and ROWS[name].type == "int"
        else value
        for name, value in fields.items()
        if name in ROWS
    }
    try:
        return model.model_validate(fields | integers)
    except ValidationError as invalid:
        raise _request_error(invalid, prefix) from None
    except RequestError as error:
        raise _prefixed(error, prefix) from None


def _prefixed(error: RequestError, prefix: str) -> RequestError:
    return RequestError(prefix + error.message, param=prefix + (error.param or ""), status=error.status)


_OUT_OF_BOUNDS = frozenset({"greater_than_equal", "less_than_equal", "finite_number"})


def _request_error(invalid: ValidationError, prefix: str) -> RequestError:
    """pydantic's first error as one of ours."""
    first = invalid.errors(include_url=False)[0]
    name = str(first["loc"][0])
    row = ROWS[name]
    wanted = row.bounds if first["type"] in _OUT_OF_BOUNDS and row.bounds else row.wanted
    return wrong(prefix + name, first["input"], wanted)


def _set_diversity(request: Fields, default: str) -> None:
    """Sets diversity if it is not given; RequestError if it is given but impossible with other settings."""
    own = _own_settings(request["sequences"])
    obstacles = {"diversity": _stateful_sampler(request["sampling"]) or own, "first_token": own}
    for name, obstacle in obstacles.items():
        if obstacle and (value := request.get(name)) in ("arithmetic", "distinct"):
            raise RequestError(f'{name} is "{value}", which is not possible with {obstacle}', param=name)
    request.setdefault("diversity", "none" if obstacles["diversity"] else default)


def _stateful_sampler(sampling: Sampling) -> str:
    """The name of a sampler whose draws depend on earlier draws; empty if there is none."""
    if sampling.mirostat:
        return "mirostat"
    return "adaptive_p" if sampling.adaptive_target >= 0 or "adaptive_p" in sampling.samplers else ""


def _own_settings(sequences: Iterable[Override]) -> str:
    """A sequence's own setting that changes its distribution; empty if there is none."""
    own = {name for sequence in sequences for name in sequence.model_fields_set}
    return f"{min(differing)} of one choice" if (differing := own - SAME_DISTRIBUTION) else ""


_READERS: dict[str, Reader] = {
    "add": lambda value: whole("add", value, 0, MAX_INDEX),
    "max_tokens": lambda value: whole("max_tokens", value, -1, INT32_MAX),
    "fork": sequence_name("fork", with_id=False),
}


def extension_from(body: Mapping[str, Any], *, strict: bool = False) -> Extension:
    """Makes an extension from a client's fields; RequestError names the field, its value and its bound."""
    values = read_fields(body, _READERS, strict=strict)
    if "max_tokens" in values and "fork" not in values:
        values.setdefault("add", 0)  # only the limit is changed
    return Extension(**values)
