"""A server that generates nothing: the same HTTP libraries, JSON read, n events written at once.

No server in Python with these answers sooner, so this is what of a first token's time is HTTP.
"""

from __future__ import annotations

import json
import socket

import uvloop
from aiohttp import web

from llama_srb.dialects.events import CONTENT_TYPE


class Stream(web.StreamResponse):
    """As ours: headers go with the first events."""

    _send_headers_immediately = False


async def answer(http: web.Request) -> web.StreamResponse:
    """One token of each sequence."""
    body = json.loads(await http.read())
    events = [{"event": "stream", "index": i, "text": "x"} for i in range(body["n"])]
    events += [{"event": "stop", "index": i, "length": 1} for i in range(body["n"])]
    response = Stream(headers={"Content-Type": CONTENT_TYPE})
    await response.prepare(http)
    await response.write(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))
    return response


def main() -> None:
    """Says where it listens as llama-srb does."""
    app = web.Application()
    app.router.add_post("/v1/events", answer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        uvloop.install()
        web.run_app(app, sock=listening, print=None, access_log=None)


if __name__ == "__main__":
    main()
