"""Where the server listens: at a port, or at a Unix socket, which is a file."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from ssl import SSLContext

from aiohttp import web

from llama_srb.config import Settings
from llama_srb.serving.faults import StartError

BACKLOG = 1024  # connections that wait to be accepted; further ones try again after a second


@contextlib.asynccontextmanager
async def listening(
    runner: web.AppRunner, settings: Settings, certificate: SSLContext | None, lines: str | None
) -> AsyncIterator[web.BaseSite]:
    """Listens within the block, or until the site is stopped; StartError. A socket's file goes with it.

    lines: the Unix socket through which the server gets the lines of batches from itself, if there is one.
    """
    await runner.setup()
    if settings.socket is None:
        site = await _at_port(runner, settings, certificate)
        await _for_lines(runner, lines)
        yield site
        return
    if certificate is not None:
        raise StartError(f"--tls-cert is for a port; {settings.host} is a Unix socket, which needs none")
    opened = _open(settings.socket, settings.socket_mode)
    inode = os.stat(settings.socket).st_ino
    try:
        site = web.SockSite(runner, opened, backlog=BACKLOG)
        await site.start()
        await _for_lines(runner, lines)
        yield site
    finally:
        opened.close()
        with contextlib.suppress(OSError):
            if os.stat(settings.socket).st_ino == inode:  # else another server has made its own
                settings.socket.unlink()


async def _for_lines(runner: web.AppRunner, path: str | None) -> None:
    if path is None:
        return
    try:
        await web.UnixSite(runner, path).start()
    except OSError as error:
        raise StartError(f"cannot listen on {path}, for batches: {error.strerror or error}") from None


async def _at_port(runner: web.AppRunner, settings: Settings, certificate: SSLContext | None) -> web.BaseSite:
    site = web.TCPSite(
        runner,
        settings.host,
        settings.port,
        ssl_context=certificate,
        backlog=BACKLOG,
        reuse_port=settings.reuse_port or None,
    )
    try:
        await site.start()
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise StartError(
            f"cannot listen on {settings.host} port {settings.port}: {reason}; try --port"
        ) from None
    return site


def _open(path: Path, mode: int) -> socket.socket:
    """A socket with its file, which replaces that of a server that has ended; StartError."""
    if fault := socket_fault(path):
        raise StartError(fault)
    opened = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o777 & ~mode)  # so that the file has this mode from its first moment
    try:
        path.unlink(missing_ok=True)
        opened.bind(str(path))
    except OSError as error:
        opened.close()
        raise StartError(f"cannot listen on {path}: {(error.strerror or str(error)).lower()}") from None
    finally:
        os.umask(mask)
    return opened


def socket_fault(path: Path) -> str:
    """Why no server can listen there; empty if one can, also in place of one that has ended."""
    try:
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            return f"cannot listen on {path}: it is no socket; --host unix:FILE takes another"
    except FileNotFoundError:
        return "" if path.parent.is_dir() else f"cannot listen on {path}: there is no folder {path.parent}"
    except OSError as error:
        return f"cannot listen on {path}: {(error.strerror or str(error)).lower()}"
    with socket.socket(socket.AF_UNIX) as asked, contextlib.suppress(OSError):
        asked.connect(str(path))
        return f"cannot listen on {path}: a server listens there; --host unix:FILE takes another"
    return ""


def address_of(site: web.BaseSite, runner: web.AppRunner, settings: Settings) -> str:
    """The server's URL, with the real port; localhost if the server listens on all interfaces.

    Of a Unix socket unix:FILE, and :PREFIX behind it if there is one.
    """
    prefix = settings.api_prefix
    if settings.socket is not None:
        return f"unix:{settings.socket}" + (f":{prefix}" if prefix else "")
    host, port = runner.addresses[0][:2]
    host = {"0.0.0.0": "localhost", "::": "localhost"}.get(host, host)
    scheme = site.name.partition(":")[0]
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix}"
