"""The settings of a server, and of each model that it serves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from llama_srb import flags

from . import command
from .rows import Rows
from .sources import engine_environment
from .words import SettingsError, Table, quoted


class Settings(Rows):
    """The settings of a server or of one of its models: the table's rows, and what follows from them.

    name: of a model that has a table, else empty. in_folder: of a model in --models-dir. models: one for
    each table, in the file's order; the rows of the server are in each of them, with the table's values in
    place. tasks, memories: the tables of the file, which nobody has checked.
    """

    name: str = ""
    in_folder: bool = False
    models: tuple[Settings, ...] = ()
    tasks: tuple[Table, ...] = ()
    memories: tuple[Table, ...] = ()

    @property
    def served(self) -> tuple[Settings, ...]:
        """The settings of each model: those of the tables, or these."""
        return self.models or (self,)

    @property
    def socket(self) -> Path | None:
        """The Unix socket to listen on; None for a port."""
        path = self.host.removeprefix("unix:")
        is_one = path != self.host or path.endswith(".sock")
        return Path(path).expanduser() if is_one else None

    @property
    def grpc_host(self) -> str:
        """The address of the gRPC port: that of HTTP's, or this computer's beside a Unix socket."""
        return self.host if self.socket is None else "127.0.0.1"

    @property
    def place(self) -> str:
        """The beginning of a setting's place in a message: "models.NAME." for a model that has a table."""
        return f"models.{quoted(self.name)}." if self.name else ""

    @property
    def default(self) -> Settings:
        """The settings of the model for requests that name none."""
        named = (one for one in self.served if self.default_model in (*one.model_names, *one.adapters))
        return next(named, self.served[0])

    @property
    def model_names(self) -> tuple[str, ...]:
        """The names by which clients may ask for the model; the first one is in answers."""
        if self.name:
            return tuple(dict.fromkeys((self.name, *self.alias)))
        return (*sorted(set(self.alias)), self.model.stem, self.model.name)

    @property
    def adapter_names(self) -> tuple[str, ...]:
        """The names of the engine's adapters, by id."""
        return (*(path.stem for path in self.lora), *self.adapters)

    @property
    def flag_defaults(self) -> dict[str, Any]:
        """The defaults of request fields that llama.cpp's flags set; unchecked."""
        return flags.sort(self.engine_args).fields

    @property
    def field_defaults(self) -> dict[str, Any]:
        """The defaults of request fields: those of llama.cpp's flags, then those of `sampling`; unchecked."""
        return self.flag_defaults | self.sampling

    def warm_up(self) -> str:
        """The prompt that each engine computes first, empty if there is none; SettingsError.

        It reads the file, if that is set.
        """
        text, place = self.prompt or "", f"{self.place}prompt"
        if (file := self.prompt_file) is not None:
            place = f"{self.place}prompt_file"
            try:
                text = file.read_text(encoding="utf-8")
            except OSError as error:
                raise SettingsError(f"{place}: cannot read {file}: {error.strerror}") from None
            except UnicodeDecodeError as error:
                raise SettingsError(f"{place}: {file} is not UTF-8 (byte {error.start})") from None
        if text and self.engine_mode == "per-request" and self.prefix_cache is None:
            raise SettingsError(
                f"{place} needs --prefix-cache in the mode per-request, which keeps nothing else"
            )
        return text

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

    @property
    def engine_environment(self) -> dict[str, str]:
        """The engine's variables."""
        return engine_environment(self.engine_env)
