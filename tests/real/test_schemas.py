"""Schemas of other packages and random ones: the engine admits no invalid value, and refuses by name."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

from tests.fuzz import judge
from tests.fuzz.schemas import ENGINE, Found, answers, line_of, play
from tests.support.places import ROOT

WRITTEN = ROOT / "tests/conformance/schemas/written.jsonl"
REFUSED = {  # what the engine has no rules for, by the end of the schema's name
    ": FreeSets": "/numbers/uniqueItems: items that must differ have a rule only where they are an enum",
    "zod 4: When": "/properties/lasts/pattern: ",  # look-ahead in its midst
}


def faults(rows: list[dict[str, Any]], is_open: bool) -> Iterator[str]:
    """What the engine does otherwise; where objects are closed by default it may reject valid values."""
    rows = rows if is_open else [row for row in rows if not refusal_of(row["id"])]
    values = [[json.dumps(test["data"]) for test in row["tests"]] for row in rows]
    asked = [line_of(row["schema"], some, open=is_open) for row, some in zip(rows, values, strict=True)]
    for row, said in zip(rows, answers(ENGINE, asked), strict=True):
        why = refusal_of(row["id"])
        if why or "error" in said:
            if not why or why not in said.get("error", ""):
                yield f"{row['id']}: {said.get('error', 'is taken now')}"
            continue
        for test, is_admitted in zip(row["tests"], said["admitted"], strict=True):
            if is_admitted != test["valid"] and (is_open or is_admitted):
                yield f"{row['id']}: {'admits' if is_admitted else 'rejects'} {test['data']}"


def refusal_of(name: str) -> str:
    return next((why for end, why in REFUSED.items() if name.endswith(end)), "")


TEXT = {"type": "string"}
MASKED = [  # what has plain characters in known numbers, and a text
    ({"schema": TEXT}, '"a b <é\\n"'),
    ({"schema": {**TEXT, "maxLength": 20}}, '"twenty letters at mo"'),
    ({"schema": {**TEXT, "minLength": 3, "maxLength": 7}}, '"seven o"'),  # a part of the tree has 8
    ({"schema": {**TEXT, "pattern": "^.", "maxLength": 7}}, '"seven o"'),
    ({"schema": {"type": "array", "items": {**TEXT, "maxLength": 3}, "maxItems": 2}}, '["a", "the"]'),
    ({"schema": {**TEXT, "pattern": r"^(?:\S+\s+){0,3}\S+$", "maxLength": 30}}, '"four words of text"'),
    ({"schema": {**TEXT, "pattern": "^.{4,}x$"}}, '"a fox"'),
    ({"schema": {"properties": {"the": {"type": "null"}, "they": {}}}, "open": True}, '{"them": "a"}'),
    ({"schema": {"patternProperties": {"^th": TEXT}}, "open": True}, '{"them": "a", "a": 1}'),
    ({"kind": "grammar", "text": r"""root ::= "'" char{2,12} "'" [^'"\\]*
        char ::= [^'"\\\x7F\x00-\x1F] | "\\" ["\\nt]"""}, "'a day'there"),
    ({"kind": "structural_tag", "text": {"format": {
        "type": "triggered_tags", "triggers": ["<f=", "at the end"],
        "tags": [{"begin": "<f=a>", "content": {"type": "any_text", "max_chars": 20}, "end": "</f>"},
                 {"begin": "at the end.", "content": {"type": "any_text"}, "end": "over"}]}}},
        "so <f=a>a text</f> at the end. It is over"),
]  # fmt: skip


def test_masks_hold_the_tokens_that_are_allowed_one_by_one() -> None:
    """Most of a vocabulary is known at once where any text may follow."""
    lines = []
    for what, text in MASKED:
        texts = {key: json.dumps(value) for key, value in what.items() if isinstance(value, dict)}
        lines.append(json.dumps({**what, **texts, "texts": [text], "n": 0, "check": True}))
    command = [ENGINE[0], "--masks", str(ROOT / "models/storyteller.gguf")]
    done = subprocess.run(
        command, input="\n".join(lines), capture_output=True, text=True, timeout=100, check=True
    )
    said = [json.loads(line) for line in done.stdout.splitlines()[1:]]
    assert [one.get("error") for one in said] == [None] * len(MASKED)
    assert all(len(one["alone"]) > 3 for one in said)


def test_schemas_as_other_packages_write_them_hold_exactly() -> None:
    """Of pydantic 1 and 2, msgspec, attrs, zod 3 and 4, TypeBox and schemars: tests/conformance/schemas."""
    rows: list[dict[str, Any]] = [json.loads(line) for line in WRITTEN.read_text("utf-8").split("\n") if line]
    assert len(rows) > 130
    wrong = [one for is_open in (True, False) for one in faults(rows, is_open)]
    assert not wrong, "\n".join(wrong)


def verdicts(lines: list[str]) -> list[dict[str, Any]]:
    """Those of the tests' own jsonschema, which knows fewer formats: it calls no valid text invalid."""
    return [judge.answer(line) for line in lines]


def test_texts_by_random_schemas_are_valid_and_no_invalid_value_is_admitted() -> None:
    """A short game of tests/fuzz/schemas.py; scripts/long plays 10,000 texts."""
    found = Found()
    play(range(1, 41), verdicts, found)
    assert not found.wrong, "\n".join(found.wrong)
    assert found.texts > 200
