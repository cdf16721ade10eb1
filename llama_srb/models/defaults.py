"""Checks the defaults of request fields that settings have, as a request's own fields are checked."""

from __future__ import annotations

from llama_srb.config import Settings, SettingsError
from llama_srb.request.parse import canonical, read_overrides
from llama_srb.request.values import RequestError


def check(settings: Settings) -> None:
    """SettingsError: a default of the server or of one of its models is wrong."""
    for model in (settings, *settings.models):
        try:
            canonical(model.flag_defaults)
        except RequestError as error:
            raise SettingsError(f"a flag of llama.cpp is wrong: {error.message}") from None
        try:
            canonical(model.sampling)
        except RequestError as error:
            raise SettingsError(f"{model.place}sampling is wrong: {error.message}") from None
        try:
            read_overrides(model.override)
        except RequestError as error:
            raise SettingsError(f"{model.place}override is wrong: {error.message}") from None
