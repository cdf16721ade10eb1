"""Writes questions with the chunks that a search by words finds for each, to train a reranker with.

python -m benchmarks.recall.pairs PAIRS.jsonl --stories FILE

models/train/reranker.py reads the file. Questions and passages are made by the rules of the yardstick
(rules.py), but of documents that it does not search: descriptions of other packages, documentation that is
installed, other manual pages, other stories. --stories: another file than the yardstick's. The questions of
the first part of the documents ("held_out") don't train.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from collections.abc import Iterator, Sequence
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.recall.rules import Wanted, made
from benchmarks.recall.run import filled
from benchmarks.recall.sources import MANUALS, PACKAGES, PAGES, Text, described, shown, texts
from llama_srb.memory.records import NO_MODEL

TOKENS = (45, 30, 45, 60, 30, 45, 30, 45)  # of a chunk, in each part of the documents; the first is held out
FOUND = 20  # chunks that a question has
PAGES_OF = {"en": 300, "de": 90, "zh_CN": 30}
MARKDOWN = ("/usr/share/doc", "/usr/lib/node_modules")
FILES = 150
STORIES = 1500
LONGEST = 60_000  # characters of a document
WANTED: Wanted = {  # in each part
    "exact": {
        ("docs", "en"): 60, ("manual", "en"): 160, ("package", "en"): 60, ("manual", "de"): 40,
        ("manual", "zh"): 20,
    },
    "heading": {("docs", "en"): 200, ("package", "en"): 60},
    "typos": {("story", "en"): 60, ("package", "en"): 40, ("manual", "en"): 40, ("manual", "de"): 20},
    "inflection": {("story", "en"): 80, ("package", "en"): 40, ("manual", "en"): 60, ("manual", "de"): 30},
    "long": {("story", "en"): 60, ("package", "en"): 40, ("manual", "en"): 40, ("manual", "de"): 20},
}  # fmt: skip


def others(stories: Path) -> list[Text]:
    """Documents that the yardstick does not search, in an order by chance that stays."""
    searched = {one.text for one in texts()}
    found = [*_packages(), *_markdown(), *_manuals(), *_stories(stories)]
    kept = {one.text[:LONGEST]: one for one in found if one.text not in searched}
    some = [Text(one.name, text, one.kind, one.language) for text, one in kept.items()]
    random.Random(1).shuffle(some)
    return some


def _packages() -> Iterator[Text]:
    for package in sorted(metadata.distributions(), key=lambda one: one.name):
        if package.name not in PACKAGES.split():
            yield from described(package.name, package)


def _markdown() -> Iterator[Text]:
    """Documentation of what else is installed."""
    files = sorted(path for folder in MARKDOWN for path in Path(folder).rglob("*.md"))
    for path in files[:: max(1, len(files) // FILES)]:
        yield Text(str(path), path.read_text(errors="replace"), "docs")


def _manuals() -> Iterator[Text]:
    """Pages of other names than the yardstick's, whatever language those are in."""
    searched = set(" ".join(PAGES.values()).split())
    for language, count in PAGES_OF.items():
        folder = MANUALS if language == "en" else MANUALS / language
        pages = [one for one in sorted(folder.glob("man[158]/*.gz")) if _program(one) not in searched]
        some = [one for one in pages if not one.name.startswith("gcloud")]
        for path in some[:: max(1, len(some) // count)]:
            if text := shown(path):
                yield Text(f"manual/{language}/{_program(path)}", text, "manual", language[:2])


def _program(page: Path) -> str:
    return page.name.rsplit(".", 2)[0]


def _stories(path: Path) -> Iterator[Text]:
    for i, story in enumerate(islice(path.read_text().split("<|endoftext|>"), STORIES)):
        yield Text(f"story/{i:04}", story.strip(), "story")


async def pairs(some: Sequence[Text], tokens: int) -> list[dict[str, Any]]:
    """Each question of these texts, of which a search by words finds the passage and something else."""
    found = []
    async with filled(NO_MODEL, tokens, some) as memory:
        for one in made(some, WANTED):
            hits = await memory.search(one.question, FOUND, by="words")
            right = [i for i, hit in enumerate(hits) if one.is_in(hit.document, hit.text)]
            if 0 < len(right) < len(hits):
                line = {"kind": one.kind, "question": one.question, "right": right}
                found.append(line | {"passages": [hit.text for hit in hits]})
    return found


async def main(given: argparse.Namespace) -> None:
    some = others(given.stories)
    print(f"{len(some)} documents of {sum(len(one.text) for one in some):,} characters")
    with given.file.open("w", encoding="utf-8") as file:
        for part, tokens in enumerate(TOKENS):
            made_here = await pairs(some[part :: len(TOKENS)], tokens)
            print(f"chunks of {tokens} tokens: {len(made_here)} questions", flush=True)
            for line in made_here:
                file.write(json.dumps(line | {"held_out": part == 0}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, metavar="PAIRS.jsonl")
    parser.add_argument("--stories", type=Path, required=True, help="a file of stories")
    asyncio.run(main(parser.parse_args()))
