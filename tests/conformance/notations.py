"""Lark and structural tags beside llguidance and xgrammar: .venv/bin/python -m tests.conformance.notations

Each grammar is asked for all short texts over some letters, and for some longer ones: what engine-tests
admits must be what llguidance (Lark) and xgrammar (both) accept. A grammar that a peer refuses is not asked
of it. KNOWN says where and why a peer differs. Takes a minute.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from tests.conformance.notation_cases import DEADLY, KNOWN, LARK, REFUSED, TAGS
from tests.conformance.suites import environment, folder
from tests.support.places import BINARY

PACKAGES = ("llguidance==1.9.1", "xgrammar==0.2.8")
PEERS = r"""
import json, sys
import xgrammar as xgr
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from xgrammar.testing import _is_grammar_accept_string


class Bytes:
    tokens = [bytes([i]) for i in range(256)] + [b"<eos>"]
    eos_token_id, bos_token_id, special_token_ids = 256, None, [256]

    def __call__(self, text):
        return list(text if isinstance(text, bytes) else text.encode())


tokenizer = LLTokenizer(TokenizerWrapper(Bytes()))


def llguidance(text, texts):
    begun = LLMatcher(tokenizer, text, log_level=0)
    if begun.is_error():
        raise ValueError(begun.get_error())
    for one in texts:
        matcher, given = begun.deep_copy(), list(one.encode())
        yield matcher.try_consume_tokens(given) == len(given) and matcher.is_accepting()


def xgrammar(kind, text, texts):
    made = xgr.Grammar.from_lark(text) if kind == "grammar" else xgr.Grammar.from_structural_tag(text)
    for one in texts:
        yield _is_grammar_accept_string(made, one)


for line in sys.stdin:
    case, answers = json.loads(line), {}
    kind, text, texts = case["kind"], case["text"], case["texts"]
    asked = {} if case["deadly"] else {"xgrammar": lambda: xgrammar(kind, text, texts)}
    if kind == "grammar":
        asked["llguidance"] = lambda: llguidance(text, texts)
    for name, ask in asked.items():
        try:
            answers[name] = {"admitted": list(ask())}
        except Exception as error:
            answers[name] = {"error": str(error)}
    print(json.dumps(answers), flush=True)
"""


def texts_over(letters: str, longest: int) -> Iterator[str]:
    for n in range(longest + 1):
        yield from map("".join, itertools.product(letters, repeat=n))


def cases() -> list[dict[str, Any]]:
    made = []
    for kind, rows in (("grammar", LARK), ("structural_tag", TAGS)):
        for text, letters, longest, more in rows:
            given = text if isinstance(text, str) else json.dumps(text)
            texts = [*dict.fromkeys([*texts_over(letters, longest), *more])]
            made.append({"kind": kind, "text": given, "texts": texts, "deadly": given in DEADLY})
    return made


def ask(command: list[str], asked: list[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(one | {"space": "free"}) + "\n" for one in asked)
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True, encoding="utf-8")
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> int:
    python = environment(folder("notations"), PACKAGES)
    asked = cases()
    ours = ask([str(BINARY.with_name("engine-tests")), "--admits"], asked)
    peers = ask([str(python), "-c", PEERS], asked)
    refused = ask(
        [str(BINARY.with_name("engine-tests")), "--admits"],
        [{"kind": "grammar", "text": text, "texts": []} for text in REFUSED],
    )
    faults, used = [], set()
    same = {"llguidance": 0, "xgrammar": 0}
    for case, own, others in zip(asked, ours, peers, strict=True):
        if "error" in own:
            faults.append(f"refused: {case['text']!r}: {own['error']}")
            continue
        for name, other in others.items():
            wrong = [
                (text, mine, theirs)
                for text, mine, theirs in zip(
                    case["texts"], own["admitted"], other.get("admitted", own["admitted"]), strict=True
                )
                if mine != theirs
            ]
            known = (name, case["text"]) in KNOWN
            if known and (wrong or "error" in other):
                used.add((name, case["text"]))
            elif "error" in other:
                faults.append(f"{name} refuses {case['text']!r}: {other['error'][:200]}")
            elif wrong:
                faults.append(f"{name} differs: {case['text']!r}: {wrong[:3]} ({len(wrong)} texts)")
            else:
                same[name] += len(case["texts"])
    faults += [
        f"admitted: {text!r}" for text, own in zip(REFUSED, refused, strict=True) if "error" not in own
    ]
    faults += [f"stands in KNOWN for nothing: {one}" for one in KNOWN.keys() - used]
    print(f"{len(LARK)} Lark grammars, {len(TAGS)} structural tags, {len(REFUSED)} refusals")
    print(
        f"the same: {same['llguidance']} texts as llguidance, {same['xgrammar']} as xgrammar; "
        f"{len(used)} grammars are known to differ"
    )
    for fault in faults:
        print("  " + fault)
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
