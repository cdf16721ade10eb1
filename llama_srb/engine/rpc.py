"""The RPC servers (llama.cpp's ggml-rpc-server) whose memory an engine uses, and which of them do not answer.

llama.cpp aborts when it loses one, so the engine ends with SIGABRT (ggml-rpc.cpp, RPC_STATUS_ASSERT).
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Sequence
from itertools import pairwise

PATIENCE = 2.0  # seconds that a server may take to accept a connection
PAUSE = 1.0  # seconds between two looks for a server that does not answer


def servers_of(command: Sequence[str]) -> tuple[str, ...]:
    """The addresses, host:port, that an engine's command names."""
    lists = [value for flag, value in pairwise(command) if flag == "--rpc"]
    return tuple(server for one in lists for server in one.split(",") if server)


async def silent(servers: Sequence[str]) -> list[str]:
    """Those that do not accept a connection. It is closed at once: such a server has one client at a time."""
    answers = await asyncio.gather(*map(_answers, servers))
    return [server for server, answered in zip(servers, answers, strict=True) if not answered]


def told(servers: Sequence[str]) -> str:
    """What is wrong with servers that do not answer."""
    which = "server " + servers[0] if len(servers) == 1 else "servers " + ", ".join(servers)
    verb = "does" if len(servers) == 1 else "do"
    return f"the RPC {which} {verb} not answer (is ggml-rpc-server running there?)"


async def lost(command: Sequence[str], code: int | None) -> str:
    """Which servers are why an engine has ended with this code, in words; "" if none is."""
    servers = servers_of(command)
    if away := await silent(servers):
        return told(away)
    return f"an RPC server was lost: {' or '.join(servers)}" if servers and code == -signal.SIGABRT else ""


async def wait_for(servers: Sequence[str], fail: Callable[[str], None], goes_on: Callable[[], bool]) -> bool:
    """Waits until all of them answer, as long as `goes_on`; `fail` gets which do not, whenever that changes.

    True: some were away, and all are back.
    """
    last: list[str] = []
    while (away := await silent(servers)) and goes_on():
        if away != last:
            fail(told(away) + "; the engine starts as soon as all answer")
        last = away
        await asyncio.sleep(PAUSE)
    return bool(last) and not away


async def _answers(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        async with asyncio.timeout(PATIENCE):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    except (OSError, ValueError, OverflowError):  # a TimeoutError is an OSError
        return False
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return True
