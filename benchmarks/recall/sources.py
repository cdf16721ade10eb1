"""The texts of the yardstick: our own ones, and those that are made of what this machine has.

Nothing of another project is kept here: descriptions of installed packages, manual pages in English, German
and Chinese, and stories of a file are read where they are. What is not there is left out.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
# Of the project's docs; texts/ has parts of the others.
DOCS = """
api batches clients cluster containers dialects diversity flags grpc install models monitoring python ray
rollouts rpc scope security stories structure
"""
PACKAGES = """
pydantic yarl tqdm openai orjson regex usearch python-dotenv httpcore propcache wcwidth rich semchunk
annotated-types pathspec sortedcontainers schemathesis attrs h11 idna
"""
PAGES = {
    "en": "ls cp mv sort find tar gzip curl tmux make xargs less diff patch ps",
    "de": "ps pgrep passwd chage gpasswd useradd usermod man xz free pmap dpkg-deb",
    "zh_CN": "chage gpasswd groupadd useradd usermod login.defs passwd",
}
MANUALS = Path("/usr/share/man")
STORIES = 300


@dataclass(frozen=True)
class Text:
    """kind: own, docs, package, manual or story. language: en, de or zh."""

    name: str
    text: str
    kind: str
    language: str = "en"


def texts(stories: Path | None = None) -> list[Text]:
    """All texts in an order that stays. stories: a file of stories between <|endoftext|>."""
    return [*_own(), *_docs(), *_packages(), *_manuals(), *(_stories(stories) if stories else ())]


def _own() -> Iterator[Text]:
    languages = {"glockengiesser.md": "de", "denghuo.md": "zh"}
    for path in sorted((HERE / "texts").glob("*.md")):
        yield Text(path.name, path.read_text(), "own", languages.get(path.name, "en"))


def _docs() -> Iterator[Text]:
    for name in DOCS.split():
        if (path := HERE.parents[1] / "docs" / f"{name}.md").exists():
            yield Text(f"docs/{name}.md", path.read_text(), "docs")


def _packages() -> Iterator[Text]:
    for name in PACKAGES.split():
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        yield from described(name, found)


def described(name: str, package: metadata.Distribution) -> Iterator[Text]:
    """The description of a package, if it has one."""
    found = package.metadata
    if isinstance(text := found.get_payload() or found["Description"], str):
        yield Text(f"package/{name}", text, "package")


def _manuals() -> Iterator[Text]:
    for language, names in PAGES.items():
        folder = MANUALS if language == "en" else MANUALS / language
        for name in names.split():
            for path in sorted(folder.glob(f"man[158]/{name}.[158].gz"))[:1]:
                if text := shown(path):
                    yield Text(f"manual/{language}/{name}", text, "manual", language[:2])


def shown(path: Path) -> str:
    """A manual page as plain text; empty: it cannot be shown."""
    command = ["man", "--no-hyphenation", "--no-justification", "-P", "cat", str(path)]
    plain = {"MANWIDTH": "100", "LC_ALL": "C.UTF-8", "MAN_KEEP_FORMATTING": "", "GROFF_NO_SGR": "1"}
    environment = {**os.environ, **plain}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return re.sub(r".\x08", "", done.stdout.decode(errors="replace"))


def _stories(path: Path) -> Iterator[Text]:
    for i, story in enumerate(path.read_text().split("<|endoftext|>")[1 : STORIES + 1]):
        yield Text(f"story/{i:03}", story.strip(), "story")
