"""Command-line options made from tables: a server's settings (config.OPTIONS), a request's fields (ROWS).

Values are not checked here but with those from other sources, so that the messages are the same.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import click

from llama_srb import bundled, config, flags
from llama_srb.config import OPTIONS, Settings
from llama_srb.request.fields import CANONICAL, OVERRIDE_ROWS, ROWS, Row
from llama_srb.request.values import INT32_MAX

from .completion import models as model_names

GROUPS = {
    "request": "Request", "temperature": "Temperature", "truncation": "Truncation", "adaptive": "Adaptive",
    "repetition": "Repetition", "mirostat": "Mirostat", "other": "More of the sampler",
    "diversity": "Diversity and ranking",
    "structure": "What a text may be (one of these)",
}  # fmt: skip
FIELDS = {name: row for name, row in ROWS.items() if name != "prompt" and row.group != "chat"}
NAMES = {"n": ["-n", "--n"]}
SHORT = {"diversity_stats": ["--stats"]}
MORE = {"diversity_stats": " Also, how many tokens were guessed (draft), and how many of those were right."}
METAVARS = {
    "int": "NUMBER",
    "float": "NUMBER",
    "ranker": "NAME|JSON",
    "end of the rest": "JSON",
    "marks": "JSON",
    **dict.fromkeys(("text", "texts", "bans", "choices"), "TEXT"),
}
Completer: TypeAlias = Callable[[click.Context, click.Parameter, str], list[Any]]
MORE_FLAGS = "llama_srb.flags"  # in a context's meta
ENGINE_SETTINGS = ("model", "offline", "ctx", "parallel", "engine")


class Option(click.Option):
    """An option with the heading under which --help shows it."""

    def __init__(self, names: list[str], heading: str = "Options", **more: Any) -> None:
        super().__init__(names, **more)
        self.heading = heading


class Command(click.Command):
    """A command with options under headings. Arguments after `--` are the engine's: ctx.obj gets them.

    llama_server: flags of llama-server may stand before `--`, too; ctx.meta gets those that are not ours.
    """

    def __init__(self, name: str, *, llama_server: bool = False, **more: Any) -> None:
        super().__init__(name, **more)
        self._llama_server = llama_server

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ours, ctx.obj = config.split_arguments(args)
        if self._llama_server:
            try:
                ours, ctx.meta[MORE_FLAGS] = flags.translate(ours)
            except flags.FlagError as error:
                if not ctx.resilient_parsing:  # a shell asks how an unfinished line goes on
                    raise click.UsageError(str(error), ctx) from None
        try:
            return super().parse_args(ctx, ours)
        except click.NoSuchOption as error:
            name = CANONICAL.get(error.option_name.lstrip("-").replace("-", "_"))
            if name is not None and any(name == param.name for param in self.params):
                error.possibilities = [_flag(name)]  # type: ignore[misc]
            raise

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        headings: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                headings.setdefault(getattr(param, "heading", "Options"), []).append(record)
        for heading, records in headings.items():
            with formatter.section(heading):
                formatter.write_dl(records, col_max=34)


# Settings


def setting_options(names: Iterable[str] | None = None, heading: str = "Options") -> list[click.Parameter]:
    """Options for the settings of these names, or for all, and --config."""
    rows = [row for row in OPTIONS if names is None or row.name in names]
    file = Option(
        ["--config", "config_file"], heading, metavar="FILE", type=click.Path(),
        help="File with the same settings, and tables of models: TOML, or YAML (.yaml, .yml).",
    )  # fmt: skip
    return [*(_setting(row, heading) for row in rows), file]


def model_files() -> click.Argument:
    """The argument that names models without --model."""
    return click.Argument(["files"], nargs=-1, metavar="[FILE]…", type=click.Path())


def load_settings(
    options: Mapping[str, object], config_file: str | None, files: Sequence[str] = ()
) -> Settings:
    """The settings of the command at hand, whose `Command` knows the engine's arguments; SettingsError.

    files: models without --model.
    """
    context = click.get_current_context()
    return config.load(
        {**options, "engine_args": context.obj},
        config=config_file,
        more_flags=context.meta.get(MORE_FLAGS, ()),
        files=files,
    )


def refuse_engine_options(options: Mapping[str, object]) -> None:
    """click.UsageError if an option beside --url is for an engine. --model is then a name."""
    context = click.get_current_context()
    given = [name for name in (*ENGINE_SETTINGS, "config_file") if options[name] is not None]
    flags = ["--" + one.removesuffix("_file").replace("_", "-") for one in given if one != "model"]
    why = "for an engine that this command starts, not for a server (--url)."
    if flags:
        raise click.UsageError(f"{flags[0]} is {why}", context)
    if context.obj is not None:
        raise click.UsageError(f"Arguments after -- are {why}", context)


def _setting(row: config.Option, heading: str) -> Option:
    if isinstance(row.default, bool):
        both = [f"{row.flag}/--no-{row.flag[2:]}", row.name]
        return Option(both, heading, default=None, help=row.meaning + _if_on(row.default))
    shown = _shown_default(row.default)
    return Option(
        [row.flag, row.name],
        heading,
        metavar="|".join(row.choices) or row.kind,
        type=click.Path() if row.kind == "FILE" else None,
        shell_complete=_completer(row),
        help=row.meaning + (f"  [default: {shown}]" if shown else ""),
    )


def _if_on(default: object) -> str:
    """The default of a switch, if it is on; that the others are off needs no words."""
    return "  [default: on]" if default else ""


def _completer(row: config.Option) -> Completer | None:
    """What completes the option's value in a shell; None: what its type says."""
    if row.choices:
        return lambda context, parameter, start: [c for c in row.choices if c.startswith(start)]
    return model_names if row.name == "model" else None


def _shown_default(default: object) -> str:
    if isinstance(default, Path):
        return str(default.relative_to(bundled.CHECKOUT))
    return " ".join(default) if isinstance(default, tuple) else "" if default is None else str(default)


# Fields of a request


def field_options() -> list[click.Parameter]:
    """Options for all request fields but the prompt and those of chats."""
    order = list(GROUPS)
    return [_field(row) for row in sorted(FIELDS.values(), key=lambda row: order.index(row.group))]


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _field(row: Row) -> Option:
    flag, heading, meaning = _flag(row.name), GROUPS[row.group], _meaning(row)
    if row.type == "bool":
        flags = [f"{one}/--no-{one[2:]}" for one in (*SHORT.get(row.name, ()), flag)]
        return Option([*flags, row.name], heading, default=None, help=meaning + _if_on(row.default))
    return Option(
        [*NAMES.get(row.name, [flag]), row.name],
        heading,
        multiple=_is_repeatable(row),
        metavar=METAVARS.get(row.type, "JSON"),
        help=meaning,
    )


def _is_repeatable(row: Row) -> bool:
    """Whether the option may be repeated: stop, banned_strings, choice. Sampler lists are one text."""
    return row.type in ("choices", "bans") or (row.type == "texts" and row.group == "request")


def _is_per_sequence(row: Row) -> bool:
    return row.is_number and row.name in OVERRIDE_ROWS


def _meaning(row: Row) -> str:
    facts = [_bounds(row)] if row.bounds else []
    facts += ["repeatable"] if _is_repeatable(row) else []
    facts += [f"default: {row.default}"] if row.is_number and row.default is not None else []
    return row.meaning + MORE.get(row.name, "") + (f"  [{'; '.join(facts)}]" if facts else "")


def _bounds(row: Row) -> str:
    """The bounds in words, without an upper bound that is only the largest 32-bit number."""
    return f"at least {row.low:g}" if row.high == INT32_MAX else row.bounds


def fields_of(options: Mapping[str, object]) -> dict[str, Any]:
    """The request's fields among the given options, as values of JSON."""
    given = {name: value for name, value in options.items() if name in FIELDS and value not in (None, ())}
    return {name: _value(value, FIELDS[name]) for name, value in given.items()}


def _value(value: Any, row: Row) -> object:
    """Reads a value. An unreadable one stays a text, which the request's validation will report."""
    if isinstance(value, tuple):
        return [_ban(one) if row.type == "bans" else one for one in value]
    if not isinstance(value, str) or row.type in ("text", "texts", "JSON schema"):
        return value
    if not row.is_number:
        return _json(value)
    if "," in value and _is_per_sequence(row):
        return [_number(part.strip()) for part in value.split(",")]
    return _number(value)


def _ban(text: str) -> object:
    """A text that is JSON of {regex} is a regular expression."""
    value = _json(text)
    return value if isinstance(value, dict) and value.keys() == {"regex"} else text


SWITCHES = {"true": True, "false": False}  # of a field that takes either, such as draft


def _number(text: str) -> int | float | str:
    for read in (int, float):
        try:
            number = read(text)
        except ValueError:
            continue
        if math.isfinite(number):
            return number
    return SWITCHES.get(text, text)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
