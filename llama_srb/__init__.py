"""llama-srb: n continuations of one prompt, all streaming at once, the prompt computed once.

`Client` and `AsyncClient` call a server from Python, `serve()` starts one (docs/python.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llama_srb.client import AsyncClient as AsyncClient
    from llama_srb.client import Client as Client
    from llama_srb.client.server_process import serve as serve

__version__ = "0.1.0"

# Imported when they are first used, so that --help is quick.
_AT = {"AsyncClient": "client", "Client": "client", "serve": "client.server_process"}


def __getattr__(name: str) -> Any:
    if name not in _AT:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_AT[name]}", __name__), name)
