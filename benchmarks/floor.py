"""The least server there can be on the engine: aiohttp and uvloop, its lines as they come, nothing else.

One request at a time, and nothing is checked. What our server's first token takes beyond this is ours; what
this takes beyond the engine alone is HTTP. The arguments are the engine's command.
"""

from __future__ import annotations

import asyncio
import asyncio.subprocess
import json
import socket
import sys
from collections.abc import AsyncIterator

import uvloop
from aiohttp import web

LIMIT = 1 << 20  # bytes of one read
ENDS = (b'{"event":"done"', b'{"event":"error"')  # a step's events leave in one write

ENGINE: web.AppKey[asyncio.subprocess.Process] = web.AppKey("engine", asyncio.subprocess.Process)


class Stream(web.StreamResponse):
    """As ours: headers go with the first events."""

    _send_headers_immediately = False


async def start(app: web.Application) -> AsyncIterator[None]:
    """The engine, until the server stops."""
    pipe = asyncio.subprocess.PIPE
    engine = await asyncio.create_subprocess_exec(*sys.argv[1:], stdin=pipe, stdout=pipe, limit=LIMIT)
    app[ENGINE] = engine
    while b'{"event":"ready"' not in await read(engine):
        pass
    yield
    engine.terminate()
    await engine.wait()


async def read(engine: asyncio.subprocess.Process) -> bytes:
    """What it has written; it ends with the server only."""
    assert engine.stdout
    data = await engine.stdout.read(LIMIT)
    if not data:
        raise RuntimeError("the engine ended")
    return data


async def answer(http: web.Request) -> web.StreamResponse:
    """The response is made while the engine works."""
    body, engine = json.loads(await http.read()), http.app[ENGINE]
    wanted = {"tokens": body["prompt"], "n": body["n"], "max_tokens": body["max_tokens"]}
    command = {"op": "generate", "id": "1", **wanted, "sampling": {"ignore_eos": True}}
    assert engine.stdin
    engine.stdin.write(json.dumps(command).encode() + b"\n")
    response = Stream(headers={"Content-Type": "application/x-ndjson"})
    await response.prepare(http)
    data = b""
    while not any(end in data for end in ENDS):
        data = await read(engine)
        await response.write(data)
    return response


def main() -> None:
    """Says where it listens as llama-srb does."""
    app = web.Application()
    app.cleanup_ctx.append(start)
    app.router.add_post("/v1/events", answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvloop.install()
        web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
