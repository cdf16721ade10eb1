"""The folder of models from a hub: which files were checked, under which name, and when they were last used.

Each repository is a folder with its files and a list of them. It knows nothing of the network.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Gets what is done (a line), and of how many bytes how many are done."""

PREFIX = "hf:"
QUANTISATION = "Q4_K_M"
NAME = re.compile(r"hf:(\w[\w.-]*/\w[\w.-]*)(?::(.+))?")
LIST = "checked.json"
CHUNK = 8 << 20  # bytes


class HubError(Exception):
    """A model of a hub cannot be used; the message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class HubName:
    """A model on a hub. selector: a quantisation, or a file (it ends with .gguf) in the repository."""

    repository: str
    selector: str

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}:{self.selector}"

    @property
    def is_file(self) -> bool:
        return self.selector.endswith(".gguf")


def name_from(text: str) -> HubName:
    """Reads hf:USER/REPO[:QUANT or FILE]; HubError."""
    if (found := NAME.fullmatch(text)) is None:
        raise HubError(f"{text[:200]!r} is no name of a hub; write hf:USER/REPO, hf:USER/REPO:Q8_0 "
                       "or hf:USER/REPO:FILE.gguf")  # fmt: skip
    selector = found[2] or QUANTISATION
    return HubName(found[1], selector if selector.endswith(".gguf") else selector.upper())


@dataclass(frozen=True, slots=True)
class Kept:
    """A model in the folder. path: its file, the first one if there are several; used: seconds since 1970."""

    name: HubName
    path: Path
    size_bytes: int
    used: float


@dataclass(slots=True)
class _List:
    """A repository's list: names -> files and last use, files -> size, time of change and checksum."""

    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)


class Cache:
    """The models in a folder, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def place(self, name: HubName) -> Path:
        """The folder of the name's repository."""
        return self.folder / name.repository

    @contextmanager
    def locked(self, name: HubName) -> Iterator[None]:
        """Lets one process at a time change a repository's folder."""
        place = self.place(name)
        place.mkdir(parents=True, exist_ok=True)
        with (place / ".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def find(self, name: HubName, on_progress: OnProgress) -> Path | None:
        """The model's file, if all its files are there. A changed file is checked again; HubError."""
        place, known = self.place(name), self._read(name)
        if (entry := known.names.get(name.selector)) is None:
            return None
        for file in entry["files"]:
            path, stamp = place / file, known.files[file]
            if not path.is_file():
                return None
            if _stamp(path) != (stamp["size"], stamp["changed"]):
                check(path, stamp["sha256"], on_progress)
                stamp["size"], stamp["changed"] = _stamp(path)
        entry["used"] = time.time()
        with suppress(OSError):  # the folder may be read-only
            self._write(name, known)
        return Path(place / entry["files"][0])

    def has(self, name: HubName, file: str, checksum: str) -> bool:
        """Whether a file is there that was checked and has this checksum."""
        path, stamp = self.place(name) / file, self._read(name).files.get(file)
        if stamp is None or stamp["sha256"] != checksum or not path.is_file():
            return False
        return _stamp(path) == (stamp["size"], stamp["changed"])

    def add_file(self, name: HubName, file: str, checksum: str) -> None:
        """Remembers that a file was checked."""
        known = self._read(name)
        size, changed = _stamp(self.place(name) / file)
        known.files[file] = {"size": size, "changed": changed, "sha256": checksum}
        self._write(name, known)

    def add(self, name: HubName, files: list[str]) -> Path:
        """Remembers which files a name has, all of them checked; the first one's path."""
        known = self._read(name)
        known.names[name.selector] = {"files": files, "used": time.time()}
        self._write(name, known)
        return self.place(name) / files[0]

    def all(self) -> list[Kept]:
        """The models that are there, in the order of their names."""
        lists = sorted(self.folder.glob(f"*/*/{LIST}"))
        names = [HubName(f"{path.parent.parent.name}/{path.parent.name}", "") for path in lists]
        return [
            Kept(HubName(name.repository, selector), self.place(name) / entry["files"][0],
                 sum(known.files[file]["size"] for file in entry["files"]), entry["used"])
            for name in names
            for known in [self._read(name)]
            for selector, entry in sorted(known.names.items())
        ]  # fmt: skip

    def remove(self, name: HubName) -> None:
        """Removes a model's files but those that another name has, too; HubError if it is not there."""
        if str(name) not in (names := [str(kept.name) for kept in self.all()]):
            there = f"there are {', '.join(names)}" if names else "there is no model of a hub"
            raise HubError(f"{name} is not in {self.folder}; {there}")
        with self.locked(name):
            known = self._read(name)
            del known.names[name.selector]
            wanted = {file for entry in known.names.values() for file in entry["files"]}
            for file in known.files.keys() - wanted:
                del known.files[file]
                (self.place(name) / file).unlink(missing_ok=True)
                for part in parts_of_downloads(self.place(name) / file):
                    part.unlink(missing_ok=True)
            self._write(name, known)
        if not known.names:
            self._remove_place(name)

    def _remove_place(self, name: HubName) -> None:
        place = self.place(name)
        for file in (LIST, ".lock"):
            (place / file).unlink(missing_ok=True)
        below = sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True)
        for folder in (*below, place, place.parent):
            with suppress(OSError):  # not empty: there may be a download that was interrupted
                folder.rmdir()

    def _read(self, name: HubName) -> _List:
        try:
            found = json.loads((self.place(name) / LIST).read_text())
            return _List(found["names"], found["files"])
        except FileNotFoundError:
            return _List()
        except (ValueError, KeyError, TypeError, OSError) as error:
            path = self.place(name) / LIST
            raise HubError(
                f"cannot read {path}: {error}; remove it, and its files are checked again"
            ) from None

    def _write(self, name: HubName, known: _List) -> None:
        path = self.place(name) / LIST
        new = path.with_name(f"{LIST}.{os.getpid()}")
        try:
            new.write_text(json.dumps({"names": known.names, "files": known.files}, indent=1))
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)


def parts_of_downloads(path: Path) -> list[Path]:
    """What is there of downloads of a file that were interrupted."""
    return [one for one in path.parent.glob("*.part") if one.name.startswith(path.name + ".")]


def check(path: Path, checksum: str, on_progress: OnProgress) -> None:
    """Compares a file's SHA-256; if it is another one, the file is removed: HubError."""
    digest, size, done = sha256(), path.stat().st_size, 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            on_progress(f"checking {path.name}", done, size)
    if digest.hexdigest() != checksum:
        path.unlink()
        raise HubError(f"{path} was removed: its SHA-256 is {digest.hexdigest()}, the hub's is {checksum}; "
                       "download it again")  # fmt: skip


def _stamp(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_size, status.st_mtime_ns
