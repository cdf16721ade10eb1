"""A server's settings: one table, filled from the command line, the environment (LLAMA_SRB_*), a TOML file.

Only this module reads argv and the environment. The command line overrides the environment, which overrides
the file. cli.py makes its options, and docs/operations.md its table, from `OPTIONS`.
"""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError

from llama_srb import bundled, flags
from llama_srb.flags import FlagError
from llama_srb.flags.fates import Ours

from .readers import arguments as words_of_shell
from .readers import at_home, files, names, size, words

PREFIX = "LLAMA_SRB_"
NOT_SETTINGS = frozenset({"LLAMA_SRB_CONFIG", "LLAMA_SRB_CACHE", "LLAMA_SRB_PYTHON"})  # build.sh reads two


class SettingsError(Exception):
    """A setting is wrong; the message is one line with the setting's name as the operator wrote it."""


class Settings(BaseModel):
    """One row for each setting, named as in the file; --NAME with dashes is its option."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, validate_default=False)

    # fmt: off
    model: Annotated[Path, AfterValidator(Path.expanduser)] = Field(bundled.model(),
        description="The GGUF file to serve, or hf:USER/REPO[:QUANT or FILE] for one of a hub.")
    offline: bool = Field(False,
        description="Download nothing: a model of a hub must be there.")
    alias: Annotated[tuple[str, ...], BeforeValidator(names)] = Field((),
        description="The model's names for clients, with commas between them; answers have the first one in "
        "alphabetical order (default: the file's name).")
    tags: Annotated[tuple[str, ...], BeforeValidator(names)] = Field((),
        description="Words about the model that /v1/models shows, with commas between them.")
    lora: Annotated[tuple[Path, ...], BeforeValidator(files)] = Field((),
        description="LoRA adapters to load, with commas between them; their ids are 0, 1 and so on.")
    host: str = Field("127.0.0.1",
        description="Address to listen on; 0.0.0.0 is all addresses of the machine.")
    port: int = Field(9090, ge=0, le=65535,
        description="Port to listen on; 0 is any free port.")
    reuse_port: bool = Field(False,
        description="Let several servers listen on the same port; the system divides the connections.")
    n: int = Field(8, ge=1,
        description="Continuations of a request without n; the default is at most --max-n.")
    max_n: int = Field(1024, ge=1,
        description="Most continuations that one request may ask for; the default is at least --n.")
    ctx: int | None = Field(None, ge=1, le=2**31 - 1,
        description="Tokens in the engine's KV cache, shared by all sequences (default: the engine decides).")
    parallel: int = Field(32, ge=1, le=256,
        description="Sequences that are generated at the same time; more sequences wait.")
    cache_cells: int | None = Field(None, ge=0, le=2**31 - 1,
        description="Tokens of the KV cache for idle prompts and continuations (default: a quarter).")
    cache_ram: Annotated[int, BeforeValidator(size)] = Field(4 << 30, ge=0, le=2**63 - 1,
        description="Host memory for prompts that are evicted from the KV cache.")
    prefix_cache: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder that stores computed prompts for later starts and for the mode per-request.")
    prefix_cache_size: Annotated[int, BeforeValidator(size)] = Field(16 << 30, ge=0, le=2**63 - 1,
        description="Size of that folder; the least recently used prompts are removed first.")
    engine_mode: Literal["resident", "per-request"] = Field("resident",
        description="One engine for all requests, or one process for each request.")
    max_engines: int = Field(4, ge=1, le=1024,
        description="Engine processes at the same time in the mode per-request.")
    engine: Annotated[Path, AfterValidator(Path.expanduser)] = Field(bundled.engine(),
        description="The engine's program.")
    max_body: Annotated[int, BeforeValidator(size)] = Field(16 << 20, ge=1, le=64 << 20,
        description="Largest request body, in bytes or as 16MiB.")
    default_form: Literal["events", "openai"] = Field("events",
        description="Form of /v1/completions' answers if no other rule of the form applies.")
    slots: bool = Field(True,
        description="Answer /slots, which shows how many sequences run.")
    studio: bool = Field(True,
        description="Show the studio, the page at /.")
    strict: bool = Field(False,
        description="Refuse unknown request fields, instead of a warning, and names of other models.")
    presets: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Folder of TOML files; each is a preset that requests may name, as the built-in ones.")
    cors: Annotated[tuple[str, ...], BeforeValidator(words)] = Field(("localhost",),
        description="Origins of web pages that may call this server; localhost: pages and programs of this "
        "computer, *: all, empty: none.")
    allowed_hosts: Annotated[tuple[str, ...], BeforeValidator(words)] = Field((),
        description="More host names under which a server without keys may be called, beside localhost, its "
        "own name and addresses; *: all.")
    insecure: bool = Field(False,
        description="Accept requests of other computers without a key.")
    api_key: Annotated[tuple[SecretStr, ...], BeforeValidator(words)] = Field((),
        description="Keys; a request must have one of them. The environment is safer than the command line.")
    api_key_file: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="File of keys, made by `llama-srb keys`; SIGHUP reads it again.")
    jwt_secret: SecretStr | None = Field(None,
        description="Secret of JWTs (HS256), which are accepted like keys; at least 32 bytes.")
    jwt_keys: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Public keys of JWTs (RS256, ES256, HS256): a JWKS, or one key as PEM.")
    jwt_audience: str | None = Field(None,
        description="Audience (aud) that JWTs must have.")
    jwt_issuer: str | None = Field(None,
        description="Issuer (iss) that JWTs must have.")
    tls_cert: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="Certificate chain as PEM, for https; needs --tls-key.")
    tls_key: Annotated[Path | None, AfterValidator(at_home)] = Field(None,
        description="The certificate's private key as PEM.")
    max_queue: int = Field(256, ge=0, le=100_000,
        description="Requests that may wait in the queue, each prompt of a list counted; more get 503.")
    max_unread: int = Field(250_000, ge=1, le=10_000_000,
        description="Unread events of a client, tokens and alternatives of logprobs counted too; above this "
        "its connection is ended. An answer in one piece may have four times as many.")
    queue_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which a request that is still queued gets an error (default: none).")
    request_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which a generation is cancelled; a request that generates nothing gets an "
        "error (default: none).")
    load_timeout: float | None = Field(None, gt=0, le=86400,
        description="Seconds after which an engine that is still loading is ended (default: none).")
    step_timeout: float = Field(120.0, ge=10, le=86400,
        description="Seconds without a decode step after which an engine that has requests is restarted.")
    body_timeout: float = Field(30.0, gt=0, le=3600,
        description="Seconds within which a request's body must arrive.")
    write_timeout: float = Field(60.0, gt=0, le=86400,
        description="Seconds in which a client reads nothing although data waits for it, after which its "
        "connection is ended; longer than a phone needs to change cells.")
    idle_timeout: float = Field(75.0, gt=0, le=86400,
        description="Seconds after which a connection without a request is closed.")
    keep_alive: float = Field(15.0, gt=0, le=3600,
        description="Seconds of silence after which a stream gets a comment line: so proxies keep it open.")
    stop_grace: float = Field(5.0, ge=0, le=3600,
        description="Seconds that running requests may take to finish when the server stops.")
    log_level: Literal["debug", "info", "warning", "error"] = Field("info",
        description="Lowest level of the messages that are logged to stderr.")
    log_format: Literal["text", "json"] = Field("text",
        description="Log lines as text for people, or as JSON for programs.")
    log_prompts: bool = Field(False,
        description="Log the lines to and from engines at the level debug; they have all prompts and texts.")
    engine_args: Annotated[tuple[str, ...], BeforeValidator(words_of_shell)] = Field((),
        description="Flags of llama.cpp, of which docs/flags.md has the list; on the command line after --.")
    # fmt: on

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names by which clients may ask for the model; the first one is in answers."""
        return (*sorted(set(self.alias)), self.model.stem, self.model.name)

    @property
    def field_defaults(self) -> dict[str, Any]:
        """The defaults of request fields that llama.cpp's flags set; unchecked."""
        return flags.sort(self.engine_args).fields

    @property
    def chat_template(self) -> str:
        """The template that llama.cpp's flags set in place of the model's; empty if they set none."""
        return flags.chat_template(flags.sort(self.engine_args).passed)

    @property
    def verbose(self) -> bool:
        """Whether -v is given: then answers in OpenAI's form have `__verbose`, as llama-server's."""
        return "--verbose" in flags.sort(self.engine_args).passed

    @property
    def engine_command(self) -> tuple[str, ...]:
        """The engine's argv."""
        given = {
            "-m": self.model,
            "--lora": ",".join(map(str, self.lora)) or None,
            "-np": self.parallel,
            "-c": self.ctx,
            "--cache-cells": self.cache_cells,
            "--cache-ram": self.cache_ram,
            "--prefix-cache": self.prefix_cache,
            "--prefix-cache-size": self.prefix_cache_size if self.prefix_cache else None,
        }
        pairs = ((flag, str(value)) for flag, value in given.items() if value is not None)
        given_words = flags.sort(self.engine_args).engine
        return (str(self.engine), *(word for pair in pairs for word in pair), *given_words)


@dataclass(frozen=True, slots=True)
class Option:
    """One setting as a command line shows it; choices is empty if it is not one of a few values."""

    name: str
    flag: str
    meaning: str
    default: object
    kind: str
    choices: tuple[str, ...] = ()


_KINDS: dict[object, str] = {
    int: "NUMBER",
    int | None: "NUMBER",
    float: "SECONDS",
    float | None: "SECONDS",
    bool: "",
    Path: "FILE",
    Path | None: "DIR",
    tuple[Path, ...]: "FILE,…",
}
FILES = frozenset({"api_key_file", "jwt_keys", "tls_cert", "tls_key"})  # optional files, not folders
PATHS = FILES | {"model", "engine", "prefix_cache", "lora", "presets"}


def _as_size(value: int) -> str:
    """Bytes in a short form: 4G."""
    power = max(power for power in range(4) if value % (1 << 10 * power) == 0)
    return f"{value >> 10 * power}{'BKMG'[power].strip('B')}"


def _option(name: str) -> Option:
    row = Settings.model_fields[name]
    choices = get_args(row.annotation) if get_origin(row.annotation) is Literal else ()
    is_size = any(isinstance(rule, BeforeValidator) and rule.func is size for rule in row.metadata)
    kind = "SIZE" if is_size else "FILE" if name in FILES else _KINDS.get(row.annotation, "TEXT")
    default = _as_size(row.default) if is_size else row.default
    return Option(name, "--" + name.replace("_", "-"), row.description or "", default, kind, choices)


OPTIONS = tuple(_option(name) for name in Settings.model_fields if name != "engine_args")

# Engine flags that only the server may give.
_ENGINE_ONLY = {flag: flag for flag in ("--cache-cells", "--prefix-cache", "--prefix-cache-size")}
OWNED_FLAGS = _ENGINE_ONLY | {
    name: flag.fate.instead
    for name, flag in flags.BY_NAME.items()
    if isinstance(flag.fate, Ours) and not flag.fate.after
}


_SECRET = re.compile(rf"{PREFIX}|.*PASSW(OR)?D|(.*_)?(TOKEN|SECRET|CREDENTIAL|KEY)S?(_.*)?$", re.IGNORECASE)


def child_environment() -> dict[str, str]:
    """The environment of a child process: without this server's settings and variables with secret names."""
    return {name: value for name, value in os.environ.items() if not _SECRET.match(name)}


def environment(settings: Mapping[str, Any]) -> dict[str, str]:
    """The environment of a server with only these settings; None is absent. SettingsError: unknown name."""
    _refuse_unknown(settings, Settings.model_fields, "")
    given = {name: value for name, value in settings.items() if value is not None}
    return child_environment() | {PREFIX + name.upper(): _as_text(name, one) for name, one in given.items()}


def _as_text(name: str, value: object) -> str:
    """A setting's value as the text of a variable."""
    if isinstance(value, list | tuple):
        return (shlex.join if name == "engine_args" else ",".join)(map(str, value))
    return str(value)


def arguments() -> list[str]:
    """This process's command line, without the program's name."""
    return sys.argv[1:]


def split_arguments(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...] | None]:
    """The server's arguments and, after the first `--`, the engine's; None if there is no `--`."""
    if "--" not in argv:
        return list(argv), None
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def load(
    options: Mapping[str, object],
    *,
    config: str | None = None,
    environ: Mapping[str, str] = os.environ,
    more_flags: Sequence[str] = (),
) -> Settings:
    """Settings from options (names as in `Settings`; None is absent), the environment and the file.

    more_flags: flags of llama.cpp beside those of engine_args, wherever these are from.
    SettingsError if a name is unknown, a value is out of bounds or the file is unreadable.
    """
    file = config or environ.get(PREFIX + "CONFIG")
    sources: dict[str, str] = {}
    values: dict[str, object] = {}
    for found, source in (
        (_from_file(file), f"{{}} in {file}"),
        (_from_environment(environ), "{}"),
        (options, "{}"),
    ):
        for written, value in found.items():
            if value is not None:
                name = _name(written)
                values[name], sources[name] = value, source.format(_shown_name(written, found is options))
    settings = _validated(values, sources)
    settings = settings.model_copy(update={"engine_args": (*settings.engine_args, *more_flags)})
    _check_engine_args(settings)
    return settings


def _shown_name(written: str, is_option: bool) -> str:
    return "--" + written.replace("_", "-") if is_option else written


def _name(written: str) -> str:
    """The name of the setting for a key of a file or a variable."""
    return written.removeprefix(PREFIX).lower().replace("-", "_")


def _from_file(file: str | None) -> dict[str, object]:
    if file is None:
        return {}
    try:
        with open(file, "rb") as opened:
            found: dict[str, object] = tomllib.load(opened)
    except OSError as error:
        raise SettingsError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise SettingsError(f"{file} is not TOML: {error}") from None
    _refuse_unknown(found, Settings.model_fields, f" in {file}")
    return {key: _beside(file, value) if _name(key) in PATHS else value for key, value in found.items()}


def _beside(file: str, value: object) -> object:
    """Resolves a relative path in a file: it is relative to the file's folder."""
    if isinstance(value, list):
        return [_beside(file, one) for one in value]
    is_path = isinstance(value, str) and not value.startswith("hf:")
    return Path(file).resolve().parent / Path(str(value)).expanduser() if is_path else value


def _from_environment(environ: Mapping[str, str]) -> dict[str, object]:
    found = {
        key: value for key, value in environ.items() if key.startswith(PREFIX) and key not in NOT_SETTINGS
    }
    _refuse_unknown(found, [PREFIX + name.upper() for name in Settings.model_fields], " in the environment")
    return {key: value for key, value in found.items() if value}


def _refuse_unknown(found: Iterable[str], known: Iterable[str], where: str) -> None:
    known = list(known)
    for key in found:
        if key not in known and _name(key) not in known:
            nearest = difflib.get_close_matches(key, known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise SettingsError(f"{key}{where} is not a setting{hint}")


def _validated(values: Mapping[str, object], sources: Mapping[str, str]) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        name = str(first["loc"][0])
        raise SettingsError(f"{sources[name]} is {first['input']!r}; {_wanted(first)}") from None
    return _within_bounds(settings, sources)


AT_MOST = {"n": "max_n"}  # a setting, and the setting that bounds it


def _within_bounds(settings: Settings, sources: Mapping[str, str]) -> Settings:
    """Adapts a default to the given setting that bounds it; SettingsError if both are given and conflict."""
    for name, bound in AT_MOST.items():
        value, most = getattr(settings, name), getattr(settings, bound)
        if value <= most:
            continue
        if name in sources and bound in sources:
            raise SettingsError(f"{sources[name]} is {value}; it must be at most {sources[bound]}, {most}")
        settings = settings.model_copy(update={bound: value} if name in sources else {name: most})
    return settings


_PARSING = {"int_parsing": "a whole number", "float_parsing": "a number", "bool_parsing": "true or false"}


def _wanted(error: Any) -> str:
    """pydantic's message as the rest of a sentence: "Input should be …" becomes "it must be …"."""
    message = str(error["msg"]).removeprefix("Input should be ")
    return "it must be " + _PARSING.get(error["type"], message)


def _check_engine_args(settings: Settings) -> None:
    for argument in settings.engine_args:
        if (instead := _ENGINE_ONLY.get(argument.partition("=")[0].replace("_", "-"))) is not None:
            raise SettingsError(f"{argument} after -- is a setting of the server; use {instead}")
    try:
        flags.chat_template(flags.sort(settings.engine_args).passed)
    except FlagError as error:
        raise SettingsError(str(error)) from None
