"""Opens files of a folder in which other programs may leave anything: only regular ones, without waiting."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


def opened(path: Path, *, may_be_link: bool = False) -> BinaryIO:
    """A regular file to read; OSError for a folder, a socket, or a FIFO, whose other end may never come."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if may_be_link else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(handle, "rb")
