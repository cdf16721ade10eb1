"""Downloads models from a hub into the cache, each file checked by its SHA-256 before it has its name.

`huggingface_hub` finds and reads the files; it is an extra, and imported when a download begins. Its own
downloads start anew after an interruption and compare sizes only, so the files here are written by its
`http_get`, which can resume. This module knows nothing of servers and engines.
"""

from __future__ import annotations

import errno
import io
import logging
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from .cache import Cache, HubError, HubName, OnProgress, check, parts_of_downloads
from .fingerprint import PART, parts_of

INSTALL = "pip install 'llama-srb[hub]'"
TIMEOUT = 30.0  # seconds for the list of files
LARGEST = 50_000_000_000  # bytes; larger files are not given by HTTP: huggingface_hub.constants
NO_MODELS = ("mmproj", "imatrix")
CHECKSUM = re.compile("[0-9a-f]{64}")
UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError)  # of an answer of another form
DISK_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


@dataclass(frozen=True, slots=True)
class _File:
    """A file of a repository. checksum: SHA-256; None if the hub does not say it."""

    name: str
    size: int
    checksum: str | None


def fetch(
    name: HubName, cache: Cache, on_progress: OnProgress, *, offline: bool = False, newest: bool = False
) -> Path:
    """The path of a model, downloaded if it is not there; HubError.

    newest: the hub is asked for a newer version in any case; otherwise a model that is there is used.
    """
    if not newest and (path := cache.find(name, on_progress)):
        return path
    if offline:
        raise HubError(f"{name} is not in {cache.folder}, and --offline forbids to download it")
    try:
        with cache.locked(name):
            if not newest and (path := cache.find(name, on_progress)):  # by another process, meanwhile
                return path
            return _download(name, cache, on_progress)
    except OSError as error:
        raise _on_disk(error, cache) from None


def _on_disk(error: OSError, cache: Cache) -> HubError:
    if error.errno in DISK_FULL:
        return HubError(f"no room in {cache.folder}: {error.strerror}; what is there is kept: make room, and "
                        "run it again")  # fmt: skip
    return HubError(f"cannot write to {cache.folder}: {error}")


def _download(name: HubName, cache: Cache, on_progress: OnProgress) -> Path:
    with _hub_errors(name):
        files, commit = _files(name.repository)
    chosen = choose(name, files)
    parts: dict[_File, Path] = {}
    for file in chosen:
        if file.checksum is None:
            raise HubError(f"the hub has no SHA-256 of {file.name}, so it cannot be checked: it is not used")
        if not cache.has(name, file.name, file.checksum):
            with _hub_errors(name):
                path = cache.place(name) / file.name
                parts[file] = _download_file(name.repository, commit, file, path, on_progress)
    for file, part in parts.items():  # all at the end: a model never has files of two versions
        _give_name(part, cache.place(name) / file.name)
        cache.add_file(name, file.name, str(file.checksum))
    return cache.add(name, [file.name for file in chosen])


def _give_name(part: Path, path: Path) -> None:
    part.replace(path)
    for old in parts_of_downloads(path):
        old.unlink(missing_ok=True)


def _files(repository: str) -> tuple[list[_File], str]:
    """The GGUF files of a repository's main branch, and its commit."""
    from huggingface_hub import HfApi

    info = HfApi(library_name="llama-srb").model_info(repository, files_metadata=True, timeout=TIMEOUT)
    found = [
        _file(one.rfilename, one.lfs.size if one.lfs else one.size or 0, one.lfs.sha256 if one.lfs else None)
        for one in info.siblings or ()
        if one.rfilename.endswith(".gguf") and _is_inside(one.rfilename)
    ]
    commit = info.sha or "main"
    if not isinstance(commit, str):
        raise TypeError(f"the commit is {str(commit)[:80]!r}")
    return found, commit


def _file(name: str, size: object, checksum: object) -> _File:
    """ValueError if the hub says of a file what no file has."""
    if type(size) is not int or not 0 <= size < 2**63:
        raise ValueError(f"the size of {name} is {str(size)[:80]!r}")
    if checksum is not None and not (isinstance(checksum, str) and CHECKSUM.fullmatch(checksum)):
        raise ValueError(f"the SHA-256 of {name} is {str(checksum)[:80]!r}")
    return _File(name, size, checksum)


def _is_inside(name: str) -> bool:
    """Whether a name is that of a file in its folder; it may also be shown on a terminal."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and name.isprintable()


# ----------------------------------------------------------------------------------------------------
# Which files
# ----------------------------------------------------------------------------------------------------


def choose(name: HubName, files: Iterable[_File]) -> list[_File]:
    """The files of the model that a name means, the first part first; HubError lists the possible files."""
    known = {file.name: file for file in files}
    models = [one for one in known if not any(word in PurePosixPath(one).name.lower() for word in NO_MODELS)]
    firsts = sorted({_parts(one)[0] for one in models})
    found = [one for one in firsts if _is_meant(name, one)]
    if len(found) != 1:
        listed = ", ".join(firsts) or "no model"
        what = f"{len(found)} models are" if found else "no model is"
        raise HubError(f"{what} {name.selector} in {name.repository}, which has {listed}; "
                       f"name one: hf:{name.repository}:FILE")  # fmt: skip
    parts = _parts(found[0])
    if missing := [part for part in parts if part not in known]:
        raise HubError(f"{name.repository} lacks {len(missing)} of {len(parts)} parts: {', '.join(missing)}")
    return [known[part] for part in parts]


def _parts(file: str) -> list[str]:
    return [path.as_posix() for path in parts_of(Path(file))]


def _is_meant(name: HubName, first: str) -> bool:
    """Whether the name means this file; first: the first part if there are several."""
    if name.is_file:
        return _parts(name.selector)[0] == first
    part = PART.fullmatch(PurePosixPath(first).name)
    base = part[1] if part else PurePosixPath(first).stem
    path = PurePosixPath(first).with_name(base).as_posix()
    return re.search(rf"(^|[-._/]){re.escape(name.selector)}(?=[-./]|$)", path, re.IGNORECASE) is not None


# ----------------------------------------------------------------------------------------------------
# One file
# ----------------------------------------------------------------------------------------------------


def _download_file(repository: str, commit: str, file: _File, path: Path, on_progress: OnProgress) -> Path:
    """Writes a file beside the path, goes on with what is there of it, and checks it; its path."""
    assert file.checksum is not None
    part = path.with_name(f"{path.name}.{file.checksum[:16]}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    there = part.stat().st_size if part.exists() else 0
    if there > file.size:
        part.unlink()
        there = 0
    _require_room(file, path.parent, there)
    try:
        with _Bounded(part, file) as opened:
            _read_into(opened, repository, commit, file, on_progress)
    except _NotAsSaid:
        part.unlink()
        raise
    check(part, file.checksum, on_progress)
    return part


def _require_room(file: _File, folder: Path, there: int) -> None:
    if file.size > LARGEST:
        raise HubError(f"{file.name} has {file.size / 1e9:.0f} GB, and the hub gives no file above "
                       f"{LARGEST / 1e9:.0f} GB by HTTP; use hf download, and --model FILE")  # fmt: skip
    free = shutil.disk_usage(folder).free
    if file.size - there > free:
        raise HubError(f"no room in {folder}: {file.name} needs {file.size - there:,} bytes more; "
                       f"{free:,} are free")  # fmt: skip


class _NotAsSaid(HubError):
    """A file is not as long as the hub has said, so that nothing of it is kept."""


class _Bounded(io.BufferedWriter):
    """A file's part, which takes no more bytes than the hub has said; _NotAsSaid."""

    def __init__(self, part: Path, file: _File) -> None:
        super().__init__(io.FileIO(part, "ab"))
        self._file = file

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self._file.size:
            raise _NotAsSaid(f"the hub sends more of {self._file.name} than the {self._file.size:,} bytes "
                             "that it has said; nothing is kept")  # fmt: skip
        return super().write(data)


def _read_into(opened: _Bounded, repository: str, commit: str, file: _File, on_progress: OnProgress) -> None:
    """Reads a file from where `opened` ends; a lost connection is opened again while it brings something."""
    from httpx2 import ReadError
    from huggingface_hub import hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils._headers import build_hf_headers

    logging.getLogger("huggingface_hub").setLevel(
        logging.ERROR
    )  # its warnings have the addresses of redirects, which are signed
    headers = build_hf_headers(library_name="llama-srb") | {"Accept-Encoding": "identity"}
    url, bar = hf_hub_url(repository, file.name, revision=commit), _bar_of(file, on_progress)
    while True:
        before = opened.tell()
        try:
            return http_get(
                url, opened, resume_size=before, headers=headers, expected_size=file.size, tqdm_class=bar
            )
        except ReadError:
            if opened.tell() == before:
                raise
        except OSError as error:
            if error.errno is not None or isinstance(error, HfHubHTTPError):
                raise
            raise _NotAsSaid(f"the hub has sent {opened.tell():,} of the {file.size:,} bytes of {file.name} "
                             "that it has said; nothing is kept") from None  # fmt: skip


def _bar_of(file: _File, on_progress: OnProgress) -> Any:
    """A class in the place of tqdm's, of which the download uses these methods."""

    class Bar:
        def __init__(self, *_: Any, initial: int = 0, **__: Any) -> None:
            self.done = initial

        def __enter__(self) -> Bar:
            self.update(0)
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def update(self, more: int) -> None:
            self.done += more
            on_progress(f"downloading {file.name}", self.done, file.size)

    return Bar


# ----------------------------------------------------------------------------------------------------
# Errors
# ----------------------------------------------------------------------------------------------------


@contextmanager
def _hub_errors(name: HubName) -> Iterator[None]:
    """Turns the errors of huggingface_hub into HubError; those of the disk stay as they are."""
    try:
        from httpx2 import HTTPError
        from huggingface_hub import constants
        from huggingface_hub.errors import (
            GatedRepoError,
            HfHubHTTPError,
            HFValidationError,
            OfflineModeIsEnabled,
            RepositoryNotFoundError,
        )
    except ImportError:
        raise HubError(f"models of a hub need huggingface_hub: {INSTALL}") from None
    hub = constants.ENDPOINT
    try:
        yield
    except GatedRepoError:
        raise HubError(f"{name.repository} is gated: accept its terms at {hub}/{name.repository}, and set "
                       "HF_TOKEN") from None  # fmt: skip
    except RepositoryNotFoundError:
        raise HubError(f"{hub} has no {name.repository}, or it is private: then set HF_TOKEN to a token that "
                       "may read it") from None  # fmt: skip
    except HfHubHTTPError as error:
        status = error.response.status_code
        advice = "; is HF_TOKEN right?" if status in (401, 403) else ""
        raise HubError(f"{hub} answers {status} for {name}{advice}") from None
    except HFValidationError as error:
        raise HubError(f"{name.repository} is no name of a repository: {_line(error)}") from None
    except UNREADABLE as error:
        raise HubError(f"{hub} does not answer as a hub does for {name} ({_line(error)}); is HF_ENDPOINT "
                       "right?") from None  # fmt: skip
    except OfflineModeIsEnabled:
        raise HubError(f"{name} cannot be downloaded: HF_HUB_OFFLINE is set") from None
    except HTTPError as error:
        reason = str(error) or type(error).__name__
        raise HubError(f"the connection to {hub} failed: {reason}; what is there of {name} is kept: run it "
                       "again") from None  # fmt: skip


def _line(error: Exception) -> str:
    """An error in one short line, which a terminal may show."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:200].encode("unicode_escape").decode()
