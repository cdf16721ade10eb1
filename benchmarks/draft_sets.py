"""Recorded texts that repeat what stands before them, or each other, as the answers of n sequences.

Each item is a prompt, the texts that n sequences answer (the first one as it was recorded, the others with
changes of their own), and further fields of the request.
"""

from __future__ import annotations

import difflib
import json
import lzma
import random
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema

from tests.support.lines import Lines

ROOT = Path(__file__).resolve().parents[1]
SHORTEST, LONGEST = 1200, 4000  # characters of a file that is edited
SENTENCE = re.compile(r"[^.!?]+[.!?]+[\"']?\s*")
N_MOST = 9  # texts of an item


@dataclass(frozen=True)
class Item:
    prompt: str
    answers: list[str]
    fields: dict[str, Any] = field(default_factory=dict)


def git(*arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True, errors="replace"
    ).stdout


def changed_files() -> Iterator[tuple[str, str]]:
    """Files before and after a commit of this repository, newest first."""
    for commit in git("log", "--format=%H", "--no-merges", "-n", "400").split():
        for line in git("diff-tree", "-r", "--diff-filter=M", "--no-commit-id", commit).splitlines():
            _, _, old, new, rest = line.split(" ", 4)
            if rest.endswith((".py", ".cpp", ".h", ".js", ".md")):
                before = git("cat-file", "blob", old)
                if SHORTEST < len(before) < LONGEST:
                    yield before, git("cat-file", "blob", new)


def edits(draw: random.Random) -> Iterator[Item]:
    """A file, then the changed file; a sibling leaves some of the changes out."""
    for before, after in changed_files():
        old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
        codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
        answers = [after]
        for _ in range(N_MOST - 1):
            parts = []
            for what, a, b, c, d in codes:
                parts += old[a:b] if what == "equal" or draw.random() < 0.3 else new[c:d]
            answers.append("".join(parts))
        yield Item(f"The file:\n{before}\nThe changed file:\n", answers)


def sentences(corpus: Path) -> list[list[str]]:
    """The sentences of each story."""
    stories = corpus.read_text().split("<|endoftext|>")
    return [found for story in stories if len(found := SENTENCE.findall(story)) > 8]


def prose(draw: random.Random, stories: list[list[str]]) -> Iterator[Item]:
    """A story, then the same with a few sentences changed."""
    while True:
        story = [one for part in draw.sample(stories, 2) for one in part]
        answers = [
            "".join(draw.choice(draw.choice(stories)) if draw.random() < 0.1 else one for one in story)
            for _ in range(N_MOST)
        ]
        yield Item(f"The story:\n{''.join(story)}\n\nThe story, better told:\n", answers)


def quotes(draw: random.Random, stories: list[list[str]]) -> Iterator[Item]:
    """A document, and answers that quote it between words of their own."""
    while True:
        document = [one for part in draw.sample(stories, 3) for one in part]
        answers = []
        for _ in range(N_MOST):
            said = [f'{draw.choice(draw.choice(stories))}The text says: "{one.strip()}" ' for one in
                    draw.sample(document, 5)]  # fmt: skip
            answers.append("".join(said))
        yield Item(f"{''.join(document)}\n\nAn answer that quotes the text:\n", answers)


def chats(draw: random.Random) -> Iterator[Item]:
    """A chat about a file: the answer is the file with another name for what it names most."""
    for before, _ in changed_files():
        names = Counter(re.findall(r"\b[a-z_]{6,}\b", before)).most_common(3)
        if len(names) < 3 or names[0][1] < 4:
            continue
        answers = []
        for i in range(N_MOST):
            name = names[i % 3][0]
            code = re.sub(rf"\b{name}\b", f"{draw.choice(['new', 'other', 'my'])}_{name}", before)
            answers.append(f"Of course. I have renamed `{name}` everywhere:\n```\n{code}```\n")
        yield Item(f"User: Here is my file.\n```\n{before}```\nRename a name in it.\nAssistant: ", answers)


def changed_strings(value: Any, draw: random.Random) -> Any:
    """The same with other words in its free texts."""
    if isinstance(value, dict):
        return {key: changed_strings(one, draw) for key, one in value.items()}
    if isinstance(value, list):
        return [changed_strings(one, draw) for one in value]
    if isinstance(value, str):
        return "".join(
            draw.choice("aeionrst") if one.isalpha() and draw.random() < 0.5 else one for one in value
        )
    return value


def in_order(value: Any, schema: Any) -> Any:
    """The same with the properties in the schema's order, where it says one at this place."""
    if isinstance(value, list):
        items = schema.get("items") if isinstance(schema, dict) else None
        return [in_order(one, items) for one in value]
    if isinstance(value, dict):
        named = schema.get("properties", {}) if isinstance(schema, dict) else {}
        names = [*(name for name in named if name in value), *(name for name in value if name not in named)]
        return {name: in_order(value[name], named.get(name)) for name in names}
    return value


def objects(draw: random.Random, schemas: Path) -> Iterator[Item]:
    """JSON by a schema that stands in the prompt; a sibling has other texts where the schema allows them."""
    with lzma.open(schemas, "rt") as file:
        rows = [json.loads(line) for line in file]
    draw.shuffle(rows)
    for row in rows:
        valid = [test["data"] for test in row["tests"] if test["valid"]]
        schema = json.dumps(row["schema"])
        sized = [one for one in valid if 200 < len(json.dumps(one)) < 1500]
        if not sized or len(schema) > 6000:
            continue
        checks = jsonschema.validators.validator_for(row["schema"])(row["schema"])
        first = in_order(sized[0], row["schema"])
        answers = [first]
        for _ in range(N_MOST - 1):
            other = changed_strings(first, draw)
            answers.append(other if checks.is_valid(other) else first)
        texts = [json.dumps(one, separators=(",", ":"), ensure_ascii=False) for one in answers]
        fields = {"json_schema": schema, "json_whitespace": "compact"}
        yield Item(f"A JSON object by this schema:\n{schema}\n", texts, fields)


def stories_of(engine: Lines, draw: random.Random, stories: list[list[str]]) -> Iterator[Item]:
    """n stories of one beginning, as the model of this engine really samples them."""
    while True:
        prompt = "".join(draw.choice(stories)[:3])
        sampling = {"temperature": 0.8, "seed": draw.randrange(1000), "ignore_eos": True}
        yield Item(prompt, engine.generate(prompt=prompt, n=8, max_tokens=160, sampling=sampling).texts)


def sets(shared: Path, count: int) -> dict[str, list[Item]]:
    """The items of each set, the same ones in each run. shared: a folder with corpus/ and schemas/."""
    stories = sentences(shared / "corpus/tinystories_heldout_val.txt")
    with Lines("-np", "8") as engine:
        made = {
            "edits": edits(random.Random(1)),
            "edits, again": edits(random.Random(1)),
            "prose": prose(random.Random(2), stories),
            "JSON": objects(random.Random(3), shared / "schemas/real.jsonl.xz"),
            "quotes": quotes(random.Random(4), stories),
            "chats": chats(random.Random(5)),
            "stories": stories_of(engine, random.Random(6), stories),
        }
        return {name: list(islice(items, count)) for name, items in made.items()}
