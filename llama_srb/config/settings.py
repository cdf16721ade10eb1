"""The settings of a server, and of each model that it serves."""

from __future__ import annotations

from typing import Any

from llama_srb import flags

from . import command
from .rows import Rows


class Settings(Rows):
    """The settings of a server or of one of its models: the table's rows, and what follows from them.

    name: of a model that has a table, else empty. models: one for each table, in the file's order; the rows
    of the server are in each of them, with the table's values in place.
    """

    name: str = ""
    models: tuple[Settings, ...] = ()

    @property
    def served(self) -> tuple[Settings, ...]:
        """The settings of each model: those of the tables, or these."""
        return self.models or (self,)

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names by which clients may ask for the model; the first one is in answers."""
        if self.name:
            return tuple(dict.fromkeys((self.name, *self.alias)))
        return (*sorted(set(self.alias)), self.model.stem, self.model.name)

    @property
    def field_defaults(self) -> dict[str, Any]:
        """The defaults of request fields that llama.cpp's flags and `sampling` set; unchecked."""
        return flags.sort(self.engine_args).fields | self.sampling

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
