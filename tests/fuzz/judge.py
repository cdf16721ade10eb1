"""Says by the jsonschema package which values are valid, with the formats of 2020-12 and exact numbers.

Each line of stdin is {"schema": text, "values": [texts]}, each line of stdout {"valid": [booleans]}, or
{"error": text} for a schema that is none. It runs in an environment that has jsonschema[format-nongpl] and
imports nothing of ours.
"""

import json
import sys
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.validators import validator_for


def number(text: str) -> int | Decimal:
    """A number without a fraction is an integer, however it is written."""
    value = Decimal(text)
    return int(value) if abs(value.adjusted()) < 400 and value == value.to_integral_value() else value


READ: dict[str, Any] = {"parse_float": number}


def verdicts(schema: Any, values: list[str]) -> list[bool]:
    """A schema without `$schema` is of 2020-12, or of draft 7 if it is none of 2020-12: a list of `items`."""
    made = validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        made.check_schema(schema)
    except jsonschema.SchemaError:
        if "$schema" in schema:
            raise
        made = jsonschema.Draft7Validator
        made.check_schema(schema)
    validator = made(schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER)
    return [validator.is_valid(json.loads(value, **READ)) for value in values]


def answer(line: str) -> dict[str, Any]:
    asked = json.loads(line)
    try:
        return {"valid": verdicts(json.loads(asked["schema"], **READ), asked["values"])}
    except Exception as error:  # a schema that is none, in each of the package's ways to say so
        return {"error": f"{type(error).__name__}: {error}"[:300]}


def main() -> None:
    sys.setrecursionlimit(5000)
    for line in sys.stdin:
        print(json.dumps(answer(line)), flush=True)


if __name__ == "__main__":
    main()
