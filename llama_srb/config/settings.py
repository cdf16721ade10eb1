"""The settings of a server, and of each model that it serves."""

from __future__ import annotations

from typing import Any

from llama_srb import flags

from . import command
from .rows import Rows


class Settings(Rows):
    """The settings of a server: the table's rows, and what follows from them."""

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
        return command.of(self)
