"""Stories as files, one each: a line of JSON about the story, then the story as it was sent.

DIR/OWNER/ID.story is written under another name and renamed, so a reader finds a whole story. All of an
owner's changes hold the lock of its folder, so several servers may share DIR. It knows no HTTP.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import logging
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias

from pydantic import TypeAdapter

from llama_srb.request.values import RequestError, wrong

State: TypeAlias = Literal["kept", "trash", "removed"]
log = logging.getLogger(__name__)

MOST_STORIES = 1000  # of an owner, with those in the trash
MOST_REMOVED = 10_000  # entries of removed ones, by which other devices learn of it; the oldest are dropped
OWNERS_PART = 4  # an owner may have a quarter of all bytes
MAX_HEAD = 16 << 10  # bytes of the first line
MAX_NAME, MAX_KIND = 1000, 20  # characters


class StoriesError(Exception):
    """The folder cannot be used; the message is one line for the operator."""


@dataclass(frozen=True, slots=True)
class About:
    """What a story says about itself."""

    name: str
    kind: str


def about_of(story: Mapping[str, Any]) -> About:
    """What a body says about the story in it, which is kept as it is; RequestError if it is none."""
    name, kind = story.get("name"), story.get("kind", "story")
    if not isinstance(name, str) or len(name) > MAX_NAME:
        raise wrong("name", name, f"a text of at most {MAX_NAME} characters")
    if not isinstance(kind, str) or len(kind) > MAX_KIND:
        raise wrong("kind", kind, f"a text of at most {MAX_KIND} characters")
    nodes, root = story.get("nodes"), story.get("root")
    if not isinstance(nodes, dict):
        raise wrong("nodes", nodes, "an object of nodes by id")
    if not isinstance(root, str) or root not in nodes:
        raise wrong("root", root, "the id of one of the nodes")
    return About(name, kind)


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a file. changed: milliseconds since 1970. bytes: of the story behind it."""

    id: str
    version: str
    name: str
    kind: str
    changed: int
    bytes: int
    state: State


_HEAD = TypeAdapter(Head)
_VERSION = re.compile("[0-9a-f]{32}")
_PART = re.compile(r"[a-z0-9_-]{1,100}\.[0-9a-f]{16}\.part")
PART_AGE = 3600.0  # seconds: another server may have the folder, too


@dataclass(frozen=True, slots=True)
class Expected:
    """The version that a change replaces. version: None: any one that is there. is_new: none is there."""

    version: str | None = None
    is_new: bool = False


class StoryStore:
    """The stories of all owners. most: bytes of all files together."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder, self._most = folder, most
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (folder / ".try").write_bytes(b"")
            (folder / ".try").unlink()
            _remove_parts(folder)
        except OSError as error:
            raise StoriesError(f"--stories {folder} cannot be used: {error.strerror}") from None

    def heads(self, owner: str) -> list[Head]:
        """The stories of an owner, the last changed first."""
        found = []
        for path in self._files(owner):
            try:
                if (head := _head(path)) is not None:
                    found.append(head)
            except RequestError as error:
                log.warning("%s is left out of a list: %s", path, error.message)
        return sorted(found, key=lambda head: -head.changed)

    def get(self, owner: str, id: str) -> tuple[Head, bytes] | None:
        """A story; None if there is none, or if it is removed. RequestError 503 if it cannot be read."""
        path = self._file(owner, id)
        with _readable("the story"), contextlib.suppress(FileNotFoundError), _open(path) as file:
            head = _read(file)
            return None if head is None or head.state == "removed" else (head, file.read())
        return None

    def put(self, owner: str, id: str, about: About, story: bytes, expected: Expected) -> Head:
        """Stores a story; one in the trash comes back. The same again is no change. RequestError."""
        version = sha256(story).hexdigest()[:32]
        now = time.time_ns() // 1_000_000
        head = Head(id, version, about.name, about.kind, now, len(story), "kept")
        with self._locked(owner):
            path = self._file(owner, id)
            old = _head(path)
            if old is not None and (old.version, old.state) == (version, "kept"):
                return old
            _require(old, expected)
            if old is None or old.state == "removed":
                self._require_number(owner)
            with _lock(self._folder):  # what all owners have is counted and written by one at a time
                self._require_room(owner, len(story) - (old.bytes if old else 0))
                if old is None:
                    _set_aside(path)
                self._write(owner, head, story)
        return head

    def to_trash(self, owner: str, id: str, expected: Expected) -> Head:
        """Moves a story to the trash. RequestError."""
        return self._change(owner, id, expected, "trash")

    def remove(self, owner: str, id: str, expected: Expected) -> Head:
        """Removes a story for ever; its entry stays. RequestError."""
        return self._change(owner, id, expected, "removed")

    def _change(self, owner: str, id: str, expected: Expected, state: State) -> Head:
        with self._locked(owner):
            if (found := self.get(owner, id)) is None:
                raise no_story(id)
            head, story = found
            _require(head, expected)
            head = replace(head, state=state, changed=time.time_ns() // 1_000_000)
            if state == "removed":
                head, story = replace(head, bytes=0), b""
            self._write(owner, head, story)
            self._forget_removed(owner)
        return head

    def _write(self, owner: str, head: Head, story: bytes) -> None:
        path = self._file(owner, head.id)
        part = path.with_suffix(f".{secrets.token_hex(8)}.part")
        try:
            with part.open("xb") as file:
                file.write(json.dumps(asdict(head)).encode() + b"\n")
                file.write(story)
                file.flush()
                os.fsync(file.fileno())
            part.replace(path)
            _sync(path.parent)
        except OSError as error:
            with contextlib.suppress(OSError):
                part.unlink()
            message = f"the story cannot be stored: {error.strerror}"
            raise RequestError(message, status=503, code="no_room") from None

    def _forget_removed(self, owner: str) -> None:
        removed = [head for head in self.heads(owner) if head.state == "removed"]
        for head in removed[MOST_REMOVED:]:
            self._file(owner, head.id).unlink(missing_ok=True)

    def _require_number(self, owner: str) -> None:
        count = sum(head.state != "removed" for head in self.heads(owner))
        if count >= MOST_STORIES:
            message = f"you have {count} stories here, and may have {MOST_STORIES}; remove some for ever"
            raise RequestError(message, status=403, code="too_many_stories")

    def _require_room(self, owner: str, more: int) -> None:
        """An owner may have a part of the room, so that nobody keeps all others from saving."""
        for whose, files, most in (
            ("all stories here have", self._folder.glob("*/*.story"), self._most),
            ("your stories here have", self._files(owner), self._most // OWNERS_PART),
        ):
            used = sum(map(_size, files))
            if more > 0 and used + more > most:
                message = f"{whose} {used} bytes, and may have {most} (--stories-size); "
                raise RequestError(message + f"no room for {more} more", status=503, code="no_room")

    @contextlib.contextmanager
    def _locked(self, owner: str) -> Iterator[None]:
        """Only one thread of all servers is in the block for an owner."""
        place = self._place(owner)
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise _unchangeable(error) from None
        with _lock(place):
            yield

    def _place(self, owner: str) -> Path:
        """The folder of an owner, whose name may have any characters."""
        return self._folder / sha256(owner.encode()).hexdigest()[:32]

    def _files(self, owner: str) -> list[Path]:
        """The files of an owner's stories; RequestError 503 if they cannot be listed."""
        with _readable("the folder of your stories"), contextlib.suppress(FileNotFoundError):
            return [path for path in self._place(owner).iterdir() if path.suffix == ".story"]
        return []

    def _file(self, owner: str, id: str) -> Path:
        return self._place(owner) / f"{id}.story"


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Only one thread of all servers is in the block for a folder; RequestError."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unchangeable(error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _unchangeable(error: OSError) -> RequestError:
    message = f"the stories cannot be changed: {error.strerror}"
    return RequestError(message, status=503, code="no_room")


def no_story(id: str) -> RequestError:
    return RequestError(f"you have no story {id}", param="story", status=404, code="no_such_story")


def _require(old: Head | None, expected: Expected) -> None:
    """RequestError 412 if the story was changed elsewhere."""
    here = old.version if old is not None and old.state != "removed" else None
    if expected.is_new and here is None:
        return
    if here is not None and not expected.is_new and expected.version in (None, here):
        return
    now = f'its version here is "{here}"' if here else "there is none here"
    wanted = "none" if expected.is_new else f'"{expected.version or "*"}"'
    message = f"the story was changed elsewhere: you expect {wanted}, {now}; get it, and decide what stays"
    raise RequestError(message, param="story", status=412, code="version_conflict")


def _size(path: Path) -> int:
    with contextlib.suppress(OSError):  # it was removed a moment ago
        return path.stat().st_size
    return 0


@contextlib.contextmanager
def _readable(what: str) -> Iterator[None]:
    """RequestError 503 for an error of the system: permissions, too many open files, a disk that fails."""
    try:
        yield
    except OSError as error:
        message = f"{what} cannot be read: {error.strerror}"
        raise RequestError(message, param="story", status=503, code="disk_unusable") from None


def _head(path: Path) -> Head | None:
    """What a file says of its story; None if there is none, or if it is damaged. RequestError 503."""
    with _readable("the story"), contextlib.suppress(FileNotFoundError), _open(path) as file:
        return _read(file)
    return None


def _open(path: Path) -> BinaryIO:
    """Opens a file to read; a FIFO without waiting for its other end."""
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _set_aside(path: Path) -> None:
    """Gives a file that was read and is no story another name, which no file has: nothing is lost."""
    names = (path.with_suffix(f".damaged{number or ''}") for number in count())
    with contextlib.suppress(FileNotFoundError):
        path.rename(next(name for name in names if not name.exists()))


def _read(file: BinaryIO) -> Head | None:
    """The head of a file; None if the file is another's, or its story is not whole."""
    found, path = os.fstat(file.fileno()), Path(file.name)
    line = file.readline(MAX_HEAD) if stat.S_ISREG(found.st_mode) else b""
    with contextlib.suppress(ValueError):
        head = _HEAD.validate_json(line, strict=True)
        if (head.id, len(line) + head.bytes) == (path.stem, found.st_size) and _VERSION.fullmatch(
            head.version
        ):
            return head
    log.warning("%s is no story of ours; it is left out", path)
    return None


def _remove_parts(folder: Path) -> None:
    """Removes what a server that was killed has begun to write."""
    for path in folder.glob("*/*.part"):
        with contextlib.suppress(OSError):
            if _PART.fullmatch(path.name) and time.time() - path.lstat().st_mtime > PART_AGE:
                path.unlink()


def _sync(folder: Path) -> None:
    """Waits until the folder's names are on the disk."""
    place = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(place)
    finally:
        os.close(place)
