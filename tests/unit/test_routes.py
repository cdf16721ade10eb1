"""The table of routes, and the OpenAPI document that is made from it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from llama_srb.http.openapi import document
from llama_srb.http.openapi.hoisting import hoisted
from llama_srb.http.openapi.requests import schemas
from llama_srb.http.routes import ROUTES
from llama_srb.request.fields import CANONICAL, ROWS
from llama_srb.request.parse import KNOWN_NAMES, Defaults
from llama_srb.serving.keys.scopes import EVERY_KEY
from tests.support.bad_input import CASES
from tests.support.rows import each_row

DOCUMENT: Any = json.loads(json.dumps(document(ROUTES, Defaults(n=5, max_n=64), "1.2.3")))
SCHEMAS = DOCUMENT["components"]["schemas"]


def accepts(schema: str, value: Any) -> bool:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": {"schemas": SCHEMAS}}
    return bool(Draft202012Validator(whole).is_valid(value))


def test_the_document_is_openapi_3_1() -> None:
    OpenAPIV31SpecValidator(DOCUMENT).validate()
    assert DOCUMENT["openapi"].startswith("3.1")


def test_every_route_is_an_operation_with_all_its_statuses() -> None:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        assert {int(status) for status in operation["responses"]} == route.answers.keys()
        parameters = {(p["in"], p["name"]) for p in operation.get("parameters", ())}
        assert {name for place, name in parameters if place == "path"} == set(
            re.findall(r"{(\w+)}", route.path)
        )
        assert (("query", "model") in parameters) == route.names_model
        assert not route.names_model or 404 in route.answers


def test_no_image_in_a_foreign_page_asks_for_what_only_some_keys_may_read() -> None:
    cheap = {"/v1/memories", "/api/extra/generate/check", "/api/extra/last_logprobs", "/api/extra/perf"}
    of_some = [route for route in ROUTES if route.method == "GET" and 0 < len(route.scopes) < len(EVERY_KEY)]
    assert {route.path for route in of_some if not route.works} == cheap


def test_every_schema_is_used() -> None:
    used = set(re.findall(r"#/components/schemas/(\w+)", json.dumps(DOCUMENT)))
    assert used == SCHEMAS.keys()


def test_each_type_of_an_answer_has_a_name_of_its_own() -> None:
    assert [name for name in SCHEMAS if "__" in name] == []  # pydantic's, for two types of one name


def test_every_alias_of_every_field_is_described() -> None:
    assert {*CANONICAL, *KNOWN_NAMES, "stream", "model"} <= SCHEMAS["Request"]["properties"].keys()


def test_the_defaults_are_the_servers() -> None:
    assert SCHEMAS["Request"]["properties"]["n"]["description"].endswith("Default: 5.")
    assert accepts("Request", {"prompt": "x", "n": 64})
    assert not accepts("Request", {"prompt": "x", "n": 65})


@each_row("row", [row for row in ROWS.values() if row.name != "prompt"], ids=lambda row: row.name)
def test_a_schema_accepts_default_and_null_and_no_value_out_of_bounds(row: Any) -> None:
    for alias in (row.name, *row.aliases):
        assert accepts("Request", {"prompt": "x", alias: None})
        assert accepts("Request", {"prompt": "x", alias: json.loads(json.dumps(row.default))})
        if row.low is not None:
            assert not accepts("Request", {"prompt": "x", alias: row.low - 1})


BODIES = [
    {"prompt": [1, 2]},
    {"prompt": ["x"]},
    {"prompt": [[1, 2]]},
    {"prompt": "x", "temperature": [0.5, None], "n": 2},
    {"prompt": "x", "sequences": [{}, {"temp": 1, "stop": "x"}]},
    {"prompt": "x", "logit_bias": {"5": -100}, "stop": "x"},
    {"prompt": "x", "logit_bias": [[5, False], ["word", 1.5]], "unknown": 7},
    {"prompt": "x", "continue": {"id": "17", "index": 0, "at": 3}},
    {"continue": {"id": "cmpl-17", "index": 0, "at": None}},
    {"prompt": "x", "json_schema": {"type": "object"}},
    {"prompt": "x", "choice": ["yes", "no"], "response_format": {"type": "text"}},
]


@each_row("body", BODIES, ids=str)
def test_valid_bodies_fit_the_schema(body: Any) -> None:
    assert accepts("Request", body)


CHAT = {"/v1/chat/completions": "ChatRequest"}
WRONG = [
    case for case in CASES if re.search(r"must be (a |between|true|an )", case.message) and case.status == 400
]
BEYOND = {  # rules that a schema cannot express, or only at length
    *(case.what for case in CASES if case.what.startswith("samplers ")),
    "min_tokens above max_tokens", "two prompts for one prefix",
    'logit_bias {"5": 1e10}', "a token id above the vocabulary", "rank_by overlap with a model",
    "rank_by embeddings without a model", "rank_by embeddings of an unknown model",
    "rank_by vote with dedupe", "finish.first above n", "prune.at falls", "prune.keep above n",
    "then '{'",
    "rank_by vote (", r"rank_by vote (a)\1", "rank_by vote (?=a)", r"rank_by vote \pL{500}",
}  # fmt: skip


@each_row(
    "case", [c for c in WRONG if not isinstance(c.body, bytes) and c.what not in BEYOND], ids=lambda c: c.what
)
def test_refused_bodies_do_not_fit_the_schema(case: Any) -> None:
    schema = {"/v1/prefix": "Prefix", "/v1/completions/17/extend": "Extension", **CHAT}.get(
        case.path, "Request"
    )
    assert not accepts(schema, case.body)


# What generators of clients need


def parts_of(schema: Any) -> Iterator[Any]:
    """A schema and all that is in it, without what `not` says."""
    if isinstance(schema, list):
        for one in schema:
            yield from parts_of(one)
    elif isinstance(schema, dict):
        yield schema
        for name, one in schema.items():
            if name not in ("not", "default", "enum", "const", "required", "x-frame"):
                yield from parts_of([*one.values()] if name == "properties" else one)


def contents() -> Iterator[tuple[str, Any]]:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            bodies = [operation["requestBody"]] if "requestBody" in operation else []
            for body in (*bodies, *operation["responses"].values()):
                yield from ((path, content) for content in body["content"].values())


def test_each_body_and_each_answer_is_a_component() -> None:
    assert [path for path, content in contents() if content["schema"].keys() != {"$ref"}] == []
    references = [one["$ref"] for one in parts_of([*SCHEMAS.values()]) if "$ref" in one]
    assert [one for one in references if not re.fullmatch(r"#/components/schemas/\w+", one)] == []


def test_each_array_says_what_its_items_are() -> None:
    lists = [one for one in parts_of([*SCHEMAS.values()]) if "array" in one.get("type", ())]
    assert [one for one in lists if not one.keys() & {"items", "prefixItems"}] == []


def test_an_object_in_a_choice_is_a_reference_and_no_object_is_a_choice() -> None:
    for schema in parts_of([*SCHEMAS.values()]):
        options = [one for name in ("anyOf", "oneOf") for one in schema.get(name, ())]
        assert "properties" not in schema or not options
        assert not isinstance(schema.get("type"), list) or "object" not in schema["type"]
        assert [one for one in options if "properties" in one] == []


def test_no_body_has_a_default_which_clients_would_send() -> None:
    bodies = hoisted(schemas(ROUTES, Defaults()))
    assert [one for one in parts_of([*bodies.values()]) if "default" in one] == []


def test_no_component_has_the_name_of_a_class_that_generated_clients_have() -> None:
    assert (
        SCHEMAS.keys() & {"Client", "AuthenticatedClient", "Response", "File", "Unset", "HTTPStatus"} == set()
    )
