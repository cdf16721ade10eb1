"""How often a memory finds the whole of a function in source code: chunks that end between functions help.

python -m benchmarks.recall.code [--tokens 200]

The texts are modules of Python's standard library. A question is the name of a function and the beginning of
its docstring, and its passage the function's last line: of 250 functions that have 60 words or more and fit
into a chunk.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import sysconfig
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.recall.rules import SHORTEST, Question, plain
from benchmarks.recall.run import BEST, figures, filled
from benchmarks.recall.sources import Text
from llama_srb.memory.records import NO_MODEL
from llama_srb.memory.words import count_words

MODULES = """
argparse ast base64 bisect calendar cmd codeop configparser contextlib copy csv datetime difflib dis
doctest enum fileinput fnmatch fractions ftplib functools getopt getpass gettext glob gzip hashlib heapq
hmac imaplib inspect ipaddress linecache locale lzma mailbox mimetypes netrc numbers operator optparse os
pathlib pdb pickle platform plistlib poplib posixpath pprint profile queue random reprlib sched secrets
selectors shelve shlex shutil smtplib socket socketserver statistics string subprocess tarfile tempfile
textwrap threading timeit tokenize traceback types typing uuid warnings wave weakref webbrowser zipfile
"""
QUESTIONS, LEAST_WORDS, ASKED = 250, 60, 80  # ASKED: characters of a docstring


def texts() -> list[Text]:
    paths = [Path(sysconfig.get_path("stdlib"), f"{name}.py") for name in MODULES.split()]
    return [Text(one.stem, one.read_text(), "code") for one in paths if one.exists()]


def questions(some: Sequence[Text], most_words: int) -> list[Question]:
    whole = "\n".join(plain(one.text) for one in some)
    found = [q for one in some for q in _functions(one, most_words) if whole.count(q.passage) == 1]
    random.Random(1).shuffle(found)
    return found[:QUESTIONS]


def _functions(text: Text, most_words: int) -> Iterator[Question]:
    lines = text.text.split("\n")
    for one in ast.walk(ast.parse(text.text)):
        if not isinstance(one, ast.FunctionDef) or one.end_lineno is None:
            continue
        own, about = lines[one.lineno - 1 : one.end_lineno], ast.get_docstring(one)
        last, (words,) = own[-1].strip(), count_words(["\n".join(own)])
        if about and LEAST_WORDS < words < most_words and len(last) >= SHORTEST:
            yield Question("code", "en", text.name, plain(last), f"{one.name} {plain(about)[:ASKED]}")


async def main(tokens: int) -> None:
    some = texts()
    asked = questions(some, tokens)
    async with filled(NO_MODEL, tokens, some) as memory:
        found = await figures(partial(memory.search, k=max(BEST), by="words"), asked)
    print(f"{len(asked)} questions, {len(some)} texts\n\n| tokens | @1 | @5 | @10 | MRR |")
    print(f"| {tokens} | " + " | ".join(f"{one:.2f}" for one in (*map(found.hit, BEST), found.mrr)) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=200, help="most tokens of a chunk")
    asyncio.run(main(parser.parse_args().tokens))
