"""The HTTP API as an OpenAPI document: the operations are the rows of routes.py.

`requests` makes the schemas of request bodies, `answers` those of answers. Knows no aiohttp and no processes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from llama_srb.http.openapi.hoisting import camel, hoisted, reference
from llama_srb.http.openapi.requests import schemas
from llama_srb.http.openapi.response_schemas import AnswerSchemas, answer_schemas
from llama_srb.http.route import FORM, JSON, NDJSON, PARAMETERS, QUERY, SSE, Route, Schema
from llama_srb.request.parse import Defaults
from llama_srb.serving.batches.asked import HOUR, KEPT

KEYS: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key or a JSON Web Token."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

SHARED: dict[str, Schema] = {
    "Text": {"type": "string"},
    "FileContent": {"type": "string", "format": "binary"},
    "Upload": {
        "type": "object",
        "properties": {
            "file": {"type": "string", "format": "binary"},
            "purpose": {"const": "batch"},
            "expires_after[anchor]": {"const": "created_at"},
            "expires_after[seconds]": {"type": "integer", "minimum": HOUR, "maximum": KEPT},
        },
        "required": ["file", "purpose"],
    },
}

ABOUT = """n continuations of one prompt, all streaming at once, the prompt computed once.

Errors have the form of their path's dialect. A wrong method of a path is 405 with Allow, an unknown path 404.
OPTIONS answers 204, at llama-server's paths 200, for pages of the origins that --cors allows."""


def document(routes: tuple[Route, ...], defaults: Defaults, version: str, prefix: str = "") -> Schema:
    """The whole API as an OpenAPI 3.1 document; defaults: the server's; prefix: of its paths."""
    answers = NamedAnswers(answer_schemas(routes))
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, answers)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llama-srb",
            "version": version,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": prefix or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**hoisted(schemas(routes, defaults)), **answers.components},
            "securitySchemes": KEYS,
        },
    }


class NamedAnswers:
    """The components of answers: those of their types, and one for each other schema, which equal ones share.

    Generators of clients name what they make of a schema as its component.
    """

    ENDINGS: Mapping[str, str] = MappingProxyType({JSON: "Answer", SSE: "Stream", NDJSON: "Lines"})

    def __init__(self, answers: AnswerSchemas) -> None:
        self._answers = answers
        self.components = {**answers.components, **SHARED}
        self._names = {json.dumps(schema): name for name, schema in SHARED.items()}

    def of(self, content: Any, operation: str, kind: str) -> Schema:
        """The reference to the component of an answer's content."""
        schema = self._answers.of(content)
        if schema.keys() == {"$ref"}:
            return schema
        name = self._names.setdefault(json.dumps(schema), camel(operation) + self.ENDINGS.get(kind, "Text"))
        assert self.components.setdefault(name, schema) == schema, name
        return reference(name)


def _operation(route: Route, answers: NamedAnswers) -> Schema:
    operation: Schema = {
        "operationId": route.operation,
        "summary": route.summary,
        "security": [{"bearer": []}, {"header": []}, {}] if route.scopes else [],
        "responses": {
            str(status): {
                "description": answer.meaning,
                "content": {
                    kind: {"schema": answers.of(content, route.operation, kind)}
                    for kind, content in answer.content.items()
                },
            }
            for status, answer in sorted(route.answers.items())
        },
    }
    if route.request:
        body = {"required": True, "content": {JSON: {"schema": reference(route.request)}}}
        operation["requestBody"] = body
    if route.files:
        content = {
            kind: {"schema": reference("Upload" if kind == FORM else "FileContent")} for kind in route.files
        }
        operation["requestBody"] = {"required": True, "content": content}
    parameters = [_parameter(name, "path", *PARAMETERS[name]) for name in route.parameters]
    parameters += [_parameter(name, "query", *QUERY[name]) for name in route.query]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(name: str, place: str, meaning: str, schema: Schema) -> Schema:
    is_needed = place == "path"
    return {"name": name, "in": place, "required": is_needed, "description": meaning, "schema": schema}
