"""The HTTP API as an OpenAPI document: the operations are the rows of routes.py.

`requests` makes the schemas of request bodies, `answers` those of answers. Knows no aiohttp and no processes.
"""

from __future__ import annotations

from llama_srb.http.openapi.requests import schemas
from llama_srb.http.openapi.response_schemas import AnswerSchemas, answer_schemas
from llama_srb.http.route import JSON, PARAMETERS, QUERY, Route, Schema
from llama_srb.request.parse import Defaults

KEYS: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key or a JSON Web Token."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

ABOUT = """n continuations of one prompt, all streaming at once, the prompt computed once.

Errors have the form of their path's dialect. A wrong method of a path is 405 with Allow, an unknown path 404.
OPTIONS answers 204, at llama-server's paths 200, for pages of the origins that --cors allows."""


def document(routes: tuple[Route, ...], defaults: Defaults, version: str, prefix: str = "") -> Schema:
    """The whole API as an OpenAPI 3.1 document; defaults: the server's; prefix: of its paths."""
    answers = answer_schemas(routes)
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
            "schemas": {**schemas(routes, defaults), **answers.components},
            "securitySchemes": KEYS,
        },
    }


def _operation(route: Route, answers: AnswerSchemas) -> Schema:
    operation: Schema = {
        "operationId": route.operation,
        "summary": route.summary,
        "security": [{"bearer": []}, {"header": []}, {}] if route.scopes else [],
        "responses": {
            str(status): {
                "description": answer.meaning,
                "content": {
                    kind: {"schema": answers.of(content)} for kind, content in answer.content.items()
                },
            }
            for status, answer in sorted(route.answers.items())
        },
    }
    if route.request:
        body = {"$ref": f"#/components/schemas/{route.request}"}
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": body}}}
    if route.files:
        operation["requestBody"] = {"required": True, "content": {kind: {} for kind in route.files}}
    parameters = [_parameter(name, "path", *PARAMETERS[name]) for name in route.parameters]
    parameters += [_parameter(name, "query", *QUERY[name]) for name in route.query]
    if parameters:
        operation["parameters"] = parameters
    return operation


def _parameter(name: str, place: str, meaning: str, schema: Schema) -> Schema:
    is_needed = place == "path"
    return {"name": name, "in": place, "required": is_needed, "description": meaning, "schema": schema}
