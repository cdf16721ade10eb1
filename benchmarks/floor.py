"""A minimal server for the engine: aiohttp and uvloop, which forward the engine's lines, and nothing else.

It serves one request at a time and checks nothing. The time to the first token that our server takes beyond
this one is our overhead; the time that this one takes beyond the engine alone is HTTP's. The arguments are
the engine's command.
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
ENDS = (b'{"event":"done"', b'{"event":"error"')  # never split: the engine writes a step's events at once

ENGINE: web.AppKey[asyncio.subprocess.Process] = web.AppKey("engine", asyncio.subprocess.Process)


class Stream(web.StreamResponse):
    """A stream whose headers are sent with the first events, as in our server."""

    _send_headers_immediately = False


async def start(app: web.Application) -> AsyncIterator[None]:
    """Runs the engine until the server stops."""
    pipe = asyncio.subprocess.PIPE
    engine = await asyncio.create_subprocess_exec(*sys.argv[1:], stdin=pipe, stdout=pipe, limit=LIMIT)
    app[ENGINE] = engine
    while b'{"event":"ready"' not in await read(engine):
        pass
    yield
    engine.terminate()
    await engine.wait()


async def read(engine: asyncio.subprocess.Process) -> bytes:
    """Reads some of the engine's output; RuntimeError if it has ended."""
    assert engine.stdout
    data = await engine.stdout.read(LIMIT)
    if not data:
        raise RuntimeError("the engine ended")
    return data


async def answer(http: web.Request) -> web.StreamResponse:
    """Answers a request. The response is prepared while the engine already works."""
    body, engine = json.loads(await http.read()), http.app[ENGINE]
    wanted = {"tokens": body.pop("prompt"), "n": body.pop("n"), "max_tokens": body.pop("max_tokens")}
    command = {"op": "generate", "id": "1", **wanted, "sampling": body}
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
    """Serves on a free port, and prints the address as llama-srb does."""
    app = web.Application()
    app.cleanup_ctx.append(start)
    app.router.add_post("/v1/events", answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvloop.install()
        web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
