"""Random schemas, texts that the engine makes by them, and values that are nearly right.

`python -m tests.fuzz.schemas --texts 10000` needs build/bin/engine-tests, no model. Each text of the engine
must be valid by the jsonschema package, and no value that this calls invalid may be admitted; valid ones that
are not admitted are counted, since some keywords hold less than the standard. `--seed 7 --schemas 1` plays a
schema again. The verdicts are those of judge.py, in an environment of its own.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.fuzz.judging import answers, judge
from tests.fuzz.values import STRANGE, is_exact, mutated
from tests.support.places import ROOT

ENGINE = [str(ROOT / "build/bin/engine-tests"), "--admits"]
TEXTS = 12  # of each schema
CHANGES = 4  # of each text
AT_ONCE = 100  # schemas

Schema = Any  # a JSON schema: an object or a boolean
Judge = Callable[[list[str]], list[dict[str, Any]]]
Dice = random.Random

DRAFTS = {
    "2020": "https://json-schema.org/draft/2020-12/schema",
    "2019": "https://json-schema.org/draft/2019-09/schema",
    "7": "http://json-schema.org/draft-07/schema#",
    "6": "http://json-schema.org/draft-06/schema#",
}
NAMES = ["a", "b", "ab", "x-1", "größe", "", 'q"\\', "kind"]
PATTERNS = ["^a", "b$", "^[a-z]+$", r"\d{2}", "^(a|bc)*$", "x", "^.{2,3}$", r"^[^\s]*$", "ü|🦊", r"^\w+-\d$"]
FORMATS = ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri", "uuid", "iri"]
FORMATS += ["uri-reference", "json-pointer", "relative-json-pointer", "regex", "uri-template", "unheard-of"]
SCALARS: list[Any] = [None, True, False, 0, 1, -3, 2.5, 1.0, "", "a", "b", "ab", "x-1", "ž🦊"]


class Maker:
    """Makes one schema of a draft."""

    def __init__(self, dice: Dice, draft: str) -> None:
        self.dice, self.draft = dice, draft
        self.defs = [f"d{i}" for i in range(dice.randrange(3))]

    def document(self) -> Schema:
        made = self.schema(3)
        if not isinstance(made, dict):
            return made
        if self.defs:
            keyword = "$defs" if self.draft.startswith("20") else "definitions"
            made[keyword] = {name: self.schema(2) for name in self.defs}
        return (
            {"$schema": DRAFTS[self.draft], **made}
            if self.dice.random() < 0.8 or self.draft != "2020"
            else made
        )

    def schema(self, depth: int) -> Schema:
        dice = self.dice
        if dice.random() < 0.04:
            return dice.random() < 0.7
        wide = [self.object, self.object, self.array, self.union, self.reference, self.merged]
        plain = [self.string, self.string, self.integer, self.number, self.values, self.types]
        made = dice.choice(wide if depth and dice.random() < 0.25 + 0.2 * depth else plain)(max(0, depth - 1))
        if dice.random() < 0.1:
            made |= {dice.choice(["title", "description", "x-note"]): "a word"}
        return made

    def some(self, most: int, least: int = 0) -> range:
        return range(self.dice.randint(least, most))

    def bounds(self, low: str, high: str, most: int) -> dict[str, int]:
        """One of two counts, or both, or none; the lower one is rarely above the higher one."""
        dice = self.dice
        pair = sorted([dice.randint(0, most), dice.randint(0, most)], reverse=dice.random() < 0.03)
        both = {low: pair[0], high: pair[1]}
        return {name: both[name] for name in both if dice.random() < 0.4}

    # ---- types

    def types(self, _: int) -> dict[str, Any]:
        names = ["null", "boolean", "integer", "number", "string", "object", "array"]
        some = self.dice.sample(names, self.dice.randint(1, 3))
        return {"type": some if len(some) > 1 else some[0]}

    def string(self, _: int) -> dict[str, Any]:
        dice = self.dice
        made: dict[str, Any] = {"type": "string"} | self.bounds("minLength", "maxLength", 5)
        if dice.random() < 0.3:
            made["pattern"] = dice.choice(PATTERNS)
        elif dice.random() < 0.2:
            made = {"type": "string", "format": dice.choice(FORMATS)}
        return made

    def integer(self, _: int) -> dict[str, Any]:
        return {"type": "integer"} | self.limits(lambda: self.dice.randint(-120, 120))

    def number(self, _: int) -> dict[str, Any]:
        return {"type": "number"} | self.limits(
            lambda: self.dice.choice([-2.5, 0, 0.1, 3, 1e3, -0.001, 99.75])
        )

    def limits(self, value: Callable[[], float]) -> dict[str, Any]:
        dice = self.dice
        low, high = sorted([value(), value()])
        made: dict[str, Any] = {}
        if dice.random() < 0.4:
            made[dice.choice(["minimum", "exclusiveMinimum"])] = low
        if dice.random() < 0.4:
            made[dice.choice(["maximum", "exclusiveMaximum"])] = high
        if dice.random() < 0.15:
            made["multipleOf"] = dice.choice([1, 2, 3, 7, 0.5, 0.01])
        return made

    def values(self, _: int) -> dict[str, Any]:
        dice = self.dice
        some = [*dice.sample(SCALARS, dice.randint(1, 4)), *([[1, "a"]] if dice.random() < 0.2 else [])]
        return {"const": some[0]} if dice.random() < 0.3 else {"enum": some}

    def object(self, depth: int) -> dict[str, Any]:
        dice = self.dice
        names = dice.sample(NAMES, dice.randint(0, 4))
        made: dict[str, Any] = {"type": "object"} if dice.random() < 0.9 else {}
        made["properties"] = {name: self.schema(depth) for name in names}
        chances: dict[str, tuple[float, Callable[[], Any]]] = {
            "required": (0.6, lambda: dice.sample(NAMES if dice.random() < 0.3 else names or ["a"], 1)),
            "additionalProperties": (0.4, lambda: dice.choice([False, False, True, self.schema(depth)])),
            "patternProperties": (
                0.2,
                lambda: {dice.choice(PATTERNS): self.schema(depth) for _ in self.some(2, 1)},
            ),
            "propertyNames": (
                0.1,
                lambda: dice.choice([{"maxLength": 2}, {"pattern": "^[a-z]"}, {"enum": NAMES[:4]}]),
            ),
            "minProperties": (0.1, lambda: dice.randint(0, len(names) + 1)),
            "maxProperties": (0.1, lambda: dice.randint(0, 3)),
        }
        if self.draft == "2020":  # jsonschema 4.26 reads it wrong in 2019-09 beside additionalProperties
            chances["unevaluatedProperties"] = (0.1, lambda: dice.random() < 0.3)
        if self.draft.startswith("20"):
            chances["dependentRequired"] = (0.1, lambda: {dice.choice(NAMES): dice.sample(NAMES, 1)})
            chances["dependentSchemas"] = (0.05, lambda: {dice.choice(NAMES): self.schema(depth)})
        else:
            chances["dependencies"] = (0.1, lambda: {dice.choice(NAMES): dice.sample(NAMES, 1)})
        made |= {name: make() for name, (chance, make) in chances.items() if dice.random() < chance}
        return made

    def array(self, depth: int) -> dict[str, Any]:
        dice = self.dice
        made: dict[str, Any] = {"type": "array"} | self.bounds("minItems", "maxItems", 4)
        first, rest = ("prefixItems", "items") if self.draft == "2020" else ("items", "additionalItems")
        if dice.random() < 0.35:
            made[first] = [self.schema(depth) for _ in self.some(3, 1)]
            if dice.random() < 0.5:
                made[rest] = dice.choice([False, self.schema(depth)])
        elif dice.random() < 0.9:
            made["items"] = self.schema(depth)
        if dice.random() < 0.1:
            made["uniqueItems"] = True
        if dice.random() < 0.12:
            made["contains"] = self.schema(0)
            if self.draft.startswith("20"):
                made |= self.bounds("minContains", "maxContains", 3)
        if self.draft.startswith("20") and dice.random() < 0.1:
            made["unevaluatedItems"] = dice.choice([False, self.schema(depth)])
        return made

    # ---- several schemas

    def union(self, depth: int) -> dict[str, Any]:
        dice = self.dice
        if dice.random() < 0.25:  # as programs tell kinds apart
            kinds = dice.sample(["cat", "dog", "bird"], dice.randint(2, 3))
            tagged = [self.object(depth) for _ in kinds]
            for kind, one in zip(kinds, tagged, strict=True):
                one["properties"] = {"kind": {"const": kind}} | one["properties"] | {"kind": {"const": kind}}
                one["required"] = sorted({"kind", *one.get("required", [])})
            return {dice.choice(["oneOf", "anyOf"]): tagged}
        made = {dice.choice(["anyOf", "anyOf", "oneOf"]): [self.schema(depth) for _ in self.some(3, 1)]}
        return self.beside(made, depth)

    def reference(self, depth: int) -> dict[str, Any]:
        if not self.defs:
            return self.object(depth)
        keyword = "$defs" if self.draft.startswith("20") else "definitions"
        made: dict[str, Any] = {"$ref": f"#/{keyword}/{self.dice.choice(self.defs)}"}
        return self.beside(made, depth) if self.draft.startswith("20") else made

    def merged(self, depth: int) -> dict[str, Any]:
        dice = self.dice
        match dice.randrange(4):
            case 0:
                return self.beside({"not": self.schema(0)}, depth)
            case 1 if self.draft != "6":
                names = ["if", "then", *(["else"] if dice.random() < 0.6 else [])]
                return self.beside({name: self.schema(depth) for name in names}, depth)
            case _:
                return self.beside({"allOf": [self.schema(depth) for _ in self.some(3, 1)]}, depth)

    def beside(self, made: dict[str, Any], depth: int) -> dict[str, Any]:
        """What stands beside a keyword of several schemas."""
        if self.dice.random() < 0.5:
            return made
        return self.dice.choice([self.object, self.string, self.number, self.types])(depth) | made


# ---- a game -------------------------------------------------------------------------------------------


@dataclass
class Found:
    """What some schemas have shown."""

    schemas: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    texts: int = 0
    values: int = 0
    rejected: int = 0  # valid values
    valid: int = 0
    empty: list[str] = field(
        default_factory=list
    )  # schemas that the engine says no value fits, though one does
    wrong: list[str] = field(default_factory=list)


def options_of(dice: Dice) -> dict[str, Any]:
    return {
        "open": dice.random() < 0.5,
        "any_order": dice.random() < 0.15,
        "space": dice.choice(["one", "compact", "free"]),
    }


def line_of(schema: Schema, values: Iterable[str], **options: Any) -> str:
    return json.dumps({"schema": json.dumps(schema), "values": list(values), **options})


def play(seeds: range, judged: Judge, found: Found) -> None:
    """Plays the schemas of some seeds."""
    games = []
    for seed in seeds:
        dice = Dice(seed)
        made = Maker(dice, dice.choice(list(DRAFTS))).document()
        games.append((seed, dice, made, options_of(dice)))
    asked = [line_of(made, [], texts=TEXTS, seed=seed, **options) for seed, _, made, options in games]
    said = answers(ENGINE, asked)
    found.schemas += len(said)
    found.refused.update(one["error"].partition(": ")[0].rpartition("/")[2] for one in said if "error" in one)
    taken = [(game, one.get("texts") or []) for game, one in zip(games, said, strict=True)]
    refused = [
        game for game, one in zip(games, said, strict=True) if one.get("error", "").endswith(NONE_FITS)
    ]
    judge_refusals([game for game in refused if game[3]["open"]], judged, found)
    judge_texts(taken, judged, found)
    judge_values(taken, judged, found)


Game = tuple[int, Dice, Schema, dict[str, Any]]


NONE_FITS = "no value fits it"


def judge_refusals(refused: list[Game], judged: Judge, found: Found) -> None:
    """Looks for a value that fits a schema of which the engine says that none does."""
    values = [json.dumps(one) for one in [*STRANGE, *SCALARS]]
    for (seed, _, made, _), said in zip(
        refused, judged([line_of(made, values) for _, _, made, _ in refused]), strict=True
    ):
        if any(said.get("valid", [])):
            found.empty.append(f"seed {seed}: {json.dumps(made)}")


def judge_texts(taken: list[tuple[Game, list[str]]], judged: Judge, found: Found) -> None:
    """Each text of the engine is valid."""
    asked = [line_of(made, texts) for (_, _, made, _), texts in taken]
    for ((seed, _, made, options), texts), said in zip(taken, judged(asked), strict=True):
        found.texts += len(texts)
        for text, is_valid in zip(texts, said.get("valid", [True] * len(texts)), strict=True):
            if not is_valid:
                found.wrong.append(f"seed {seed}: a text is invalid: {text}\n  {json.dumps(made)} {options}")


def judge_values(taken: list[tuple[Game, list[str]]], judged: Judge, found: Found) -> None:
    """No invalid value is admitted."""
    asked = []
    for (_, dice, made, options), texts in taken:
        some = [mutated(json.loads(text), dice) for text in texts for _ in range(CHANGES)]
        values = sorted({json.dumps(one) for one in [*some, *dice.sample(STRANGE, 3)] if is_exact(one)})
        asked.append((made, values, options))
    verdicts = judged([line_of(made, values) for made, values, _ in asked])
    admitted = answers(ENGINE, [line_of(made, values, **options) for made, values, options in asked])
    for ((seed, *_), _), (made, values, options), verdict, said in zip(
        taken, asked, verdicts, admitted, strict=True
    ):
        if "error" in said or "error" in verdict:
            continue
        found.values += len(values)
        for value, is_valid, is_admitted in zip(values, verdict["valid"], said["admitted"], strict=True):
            found.valid += is_valid
            found.rejected += is_valid and not is_admitted
            if is_admitted and not is_valid:
                found.wrong.append(f"seed {seed}: admitted: {value}\n  {json.dumps(made)} {options}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--texts", type=int, default=10_000)
    parser.add_argument("--schemas", type=int, help="so many in place of texts")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found, begin, seed = Found(), time.monotonic(), given.seed
    while found.texts < given.texts if given.schemas is None else found.schemas < given.schemas:
        n = AT_ONCE if given.schemas is None else min(AT_ONCE, given.schemas - found.schemas)
        play(range(seed, seed + n), judge, found)
        seed += n
    print(*found.wrong[:20], sep="\n")
    refused = sum(found.refused.values())
    print(
        f"{found.schemas} schemas, {refused} refused; {found.texts} texts; {found.values} values, of"
        f" {found.valid} valid ones {found.rejected} not admitted; {len(found.wrong)} wrong;"
        f" {time.monotonic() - begin:.0f} s"
    )
    print(f"{len(found.empty)} schemas are refused as if no value fitted them", *found.empty[:5], sep="\n  ")
    print("refused:", ", ".join(f"{name} {n}" for name, n in found.refused.most_common(12)))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
