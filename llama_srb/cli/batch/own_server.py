"""A server for one batch, in this process: it ends with the batch, also when the process is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

from pydantic import SecretStr

from llama_srb.background import begin
from llama_srb.cli import Refused, fetching
from llama_srb.cli.options import load_settings
from llama_srb.cli.serve import CANNOT_START, LoadingBar, run
from llama_srb.config import Settings
from llama_srb.server import lifetime as server
from llama_srb.serving.keys import api_keys

__all__ = ["run", "running", "settings_of"]


def settings_of(options: dict[str, Any], config_file: str | None) -> Settings:
    """The settings of the server, with models that are here; Refused."""
    try:
        return fetching.with_models(load_settings(options, config_file))
    except CANNOT_START as error:
        raise Refused(error) from error


@contextlib.asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    """Runs a server on a free port of this computer; yields its address and a key that only this run has.

    Refused if it cannot start.
    """
    if settings.log_level == "debug":
        logging.basicConfig(level=logging.DEBUG)
    key = api_keys.new_key()
    own = settings.model_copy(
        update={
            "host": "127.0.0.1", "port": 0, "grpc": None, "tls_cert": None, "tls_key": None,
            "api_key": (SecretStr(key),), "api_key_file": None, "jwt_secret": None, "jwt_keys": None,
            "stop_grace": 0.0, "files_dir": None, "stories": None,
        }
    )  # fmt: skip
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    bar = LoadingBar(own)

    async def serve() -> None:
        try:
            await server.serve(own, on_loading=bar.show, on_ready=ready.set_result, signals=False)
        except Exception as error:  # the block gets it
            if ready.done():
                raise
            ready.set_exception(error)

    serving = begin(serve(), "server")
    try:
        address = await ready
        bar.close()
        yield address, key
    except CANNOT_START as error:
        raise Refused(error) from error
    finally:
        bar.close()
        serving.cancel()
        await asyncio.wait({serving})
