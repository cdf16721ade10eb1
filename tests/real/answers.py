"""Compares a server's answers with its own /openapi.json; a key that is not described is a fault, too."""

from __future__ import annotations

import json
import re
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

JSON, SSE, NDJSON = "application/json", "text/event-stream", "application/x-ndjson"


class Description:
    """A server's OpenAPI document, read so that an object may have no property that is not described."""

    def __init__(self, document: Any) -> None:
        self._paths = document["paths"]
        self._components = closed(document["components"])
        self._validators: dict[str, Draft202012Validator] = {}

    def check(self, route: str, status: int, form: str, data: bytes) -> None:
        """Checks an answer of a route ("GET /path"): its body, or each frame of its stream."""
        method, path = route.split()
        content = self._paths[path][method.lower()]["responses"][str(status)]["content"]
        name = content[form]["schema"]["$ref"].rsplit("/", 1)[1]
        schema = self._components["schemas"][name]
        if form in (SSE, NDJSON):
            self._check_stream(schema.get("anyOf", [schema]), frames(data.decode(), form))
        else:
            self.check_value(schema, json.loads(data) if form == JSON else data.decode())

    def check_value(self, schema: Any, value: Any) -> None:
        fault = self._fault(schema, value)
        assert fault is None, fault

    def _check_stream(self, streams: list[Any], told: list[Any]) -> None:
        """All frames fit one of the streams that the route may answer with."""
        faults = [
            next((fault for frame in told if (fault := self._fault(stream["x-frame"], frame))), None)
            for stream in streams
        ]
        assert told
        assert None in faults, faults

    def _fault(self, schema: Any, value: Any) -> str | None:
        """A difference between a value and its schema; None if there is none."""
        name = json.dumps(schema)
        if name not in self._validators:
            whole = closed(schema) | {"components": self._components}
            self._validators[name] = Draft202012Validator(whole)
        error = best_match(self._validators[name].iter_errors(value))
        return f"{error.json_path} of {value}: {error.message}" if error else None


def closed(schema: Any) -> Any:
    """Closes a schema: its objects may have only the properties that it names."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: closed(one) for name, one in schema.items()}
    if made.get("type") == "object" and "properties" in made:
        made.setdefault("additionalProperties", False)
    return made


def frames(text: str, form: str) -> list[Any]:
    """The data of a stream's frames, without comments and [DONE]."""
    if form == NDJSON:
        return [json.loads(line) for line in text.splitlines()]
    *parts, rest = text.split("\n\n")
    assert rest == "", "the last frame is whole"
    told = [re.sub(r"\A(?:event|id): [\w.]+\n", "", part) for part in parts if not part.startswith(":")]
    assert all(one.startswith("data: ") for one in told)
    return [json.loads(one[6:]) for one in told if one != "data: [DONE]"]
