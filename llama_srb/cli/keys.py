"""`llama-srb keys`: edits the key file that a server reads with --api-key-file, and signs JWTs."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from llama_srb import config
from llama_srb.config import SettingsError
from llama_srb.serving.keys import api_keys
from llama_srb.serving.keys.api_keys import SCOPES, USUAL, Key, KeyFileError

from . import Refused, say

UNITS = {"h": "hours", "d": "days", "w": "weeks"}
NAMES = {  # options that are lists of names
    "models": "Names or aliases of the models that it may use (default: all).",
    "tasks": "Names of the tasks that it may use, whatever their models (default: those of its models).",
    "memories": "Names of the memories that it may use (default: all).",
}
COLUMNS = ("name", "scopes", "expires", "max_n", "concurrent", "tokens_per_minute", *NAMES)


def _add(file: Path, name: str, scopes: str, expires: str | None, **limits: Any) -> None:
    known, key = _read(file) if file.exists() else (), api_keys.new_key()
    if any(name == one.name for one in known):
        raise Refused(f"{file} has a key {name} already; revoke it first, or use another name")
    given = {option: limits[option] for option in NAMES if limits[option] is not None}
    limits |= {option: list(filter(None, names.split(","))) for option, names in given.items()}
    row = _key(name=name, scopes=scopes.split(), hash=api_keys.hashed(key), expires=_date(expires), **limits)
    _write(file, (*known, row))
    click.echo(key)
    say(f"the key of {name} is shown only now; send SIGHUP to a running server to load it")


def _list(file: Path) -> None:
    for key in _read(file):
        row = key.model_dump(mode="json") | {"scopes": " ".join(key.scopes)}
        row |= {option: None if row[option] is None else ",".join(row[option]) for option in NAMES}
        click.echo("\t".join("" if row[name] is None else str(row[name]) for name in COLUMNS))


def _revoke(file: Path, name: str) -> None:
    known = _read(file)
    left = [key for key in known if key.name != name]
    if len(left) == len(known):
        raise Refused(f"{file} has no key {name}")
    _write(file, left)
    say(f"the key of {name} is revoked; send SIGHUP to a running server to end it there")


def _token(
    name: str, scopes: str, expires: str, key: Path | None, config_file: str | None, **limits: Any
) -> None:
    """Prints a JWT that the server of these settings accepts until it expires."""
    from llama_srb.serving.keys import jwt  # slow

    try:
        settings = config.load({}, config=config_file)
    except SettingsError as error:
        raise Refused(error) from None
    given = {option: value for option, value in limits.items() if value is not None}
    given |= {option: list(filter(None, given[option].split(","))) for option in NAMES if option in given}
    granted = _key(name=name, scopes=scopes.split(), hash="0" * 64, expires=_date(expires), **given)
    assert granted.expires is not None
    claims = {
        "sub": name,
        "scope": " ".join(granted.scopes),
        "exp": int(granted.expires.timestamp()),
        **given,
    }
    claims |= {"aud": settings.jwt_audience} if settings.jwt_audience else {}
    claims |= {"iss": settings.jwt_issuer} if settings.jwt_issuer else {}
    secret = settings.jwt_secret.get_secret_value() if settings.jwt_secret else None
    try:
        click.echo(jwt.signed({"iat": int(datetime.now(UTC).timestamp()), **claims}, secret, key))
    except KeyFileError as error:
        raise Refused(error) from None
    say(f"until {granted.expires.isoformat()}; it cannot be revoked before, but by another secret or key")


def _read(file: Path) -> tuple[Key, ...]:
    try:
        return api_keys.read(file)
    except KeyFileError as error:
        raise Refused(error) from None


def _write(file: Path, rows: Any) -> None:
    try:
        api_keys.write(file, rows)
    except OSError as error:
        raise Refused(f"cannot write {file}: {error.strerror}") from None


def _key(**values: Any) -> Key:
    try:
        return Key.model_validate(values)
    except ValidationError as invalid:
        first = invalid.errors(include_url=False)[0]
        known = f"; known are {' '.join(SCOPES)}" if first["loc"][0] == "scopes" else ""
        raise Refused(f"{first['loc'][0]} is {first['input']!r}: {first['msg']}{known}") from None


def _date(text: str | None) -> datetime | None:
    """A time from now (12h, 30d, 8w), or a date."""
    if text is None:
        return None
    if match := re.fullmatch(r"(\d{1,4})([hdw])", text):
        return datetime.now(UTC).replace(microsecond=0) + timedelta(**{UNITS[match[2]]: int(match[1])})
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        raise Refused(f"--expires is {text!r}; it must be like 12h, 30d, 8w or 2030-12-31") from None


FILE = click.Option(
    ["--file"], required=True, envvar="LLAMA_SRB_API_KEY_FILE", metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False), help="The file; LLAMA_SRB_API_KEY_FILE names it, too.",
)  # fmt: skip
NAME = click.Argument(["name"])
LIMITS = {
    "--max-n": "Most continuations of one request.",
    "--concurrent": "Most requests at once.",
    "--tokens-per-minute": "Most tokens a minute, prompts included; a running request is not cut off.",
}
SCOPES_OF_A_KEY = click.Option(
    ["--scopes"], default=" ".join(USUAL), metavar="WORDS", show_default=True,
    help=f"What the key may do: {' '.join(SCOPES)}; admin includes all.",
)  # fmt: skip
NAMES_AND_LIMITS = [
    *(click.Option([f"--{option}"], metavar="NAME,…", help=meaning) for option, meaning in NAMES.items()),
    *(
        click.Option([flag], type=click.IntRange(min=1), metavar="NUMBER", help=meaning)
        for flag, meaning in LIMITS.items()
    ),
]
COMMAND = click.Group(
    "keys",
    help="Make, list and revoke the keys of a server, in the file of --api-key-file. It holds only hashes. "
    "Also sign tokens (JWT).",
    commands=[
        click.Command(
            "add",
            callback=_add,
            params=[
                NAME,
                FILE,
                SCOPES_OF_A_KEY,
                click.Option(["--expires"], metavar="WHEN", help="12h, 30d, 8w from now, or a date."),
                *NAMES_AND_LIMITS,
            ],
            help="Make a key and print it. It cannot be shown again.",
        ),
        click.Command(
            "token",
            callback=_token,
            params=[
                NAME,
                SCOPES_OF_A_KEY,
                click.Option(["--expires"], default="12h", metavar="WHEN", show_default=True,
                             help="12h, 30d, 8w from now, or a date."),
                *NAMES_AND_LIMITS,
                click.Option(["--key"], metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
                             help="A private key as PEM (RSA or P-256), whose public key the server has as "
                             "--jwt-keys (default: the secret of the server)."),
                click.Option(["--config", "config_file"], metavar="FILE", type=click.Path(),
                             help="The server's settings: jwt_secret, jwt_audience, jwt_issuer. "
                             "LLAMA_SRB_CONFIG names it, too; LLAMA_SRB_JWT_SECRET is the secret alone."),
            ],
            help="Sign a JSON Web Token (JWT) and print it. A server accepts it as a key, without a file of "
            "keys: with the secret --jwt-secret, or with --jwt-keys.",
        ),
        click.Command("list", callback=_list, params=[FILE],
                      help=f"Print one line a key, fields separated by tabs: {', '.join(COLUMNS)}."),
        click.Command("revoke", callback=_revoke, params=[NAME, FILE], help="Remove a key."),
    ],
)  # fmt: skip
