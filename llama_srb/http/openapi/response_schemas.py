"""Schemas of answers, made from the types in the rows of routes.py; each TypedDict is a component. Pure.

Making them takes some 0.1 s, so they are made once, at the first request of the document.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import GenericAlias
from typing import Any

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema

from llama_srb.dialects.common.response_types import Frames
from llama_srb.http.route import Route, Schema


class _Untitled(GenerateJsonSchema):
    def field_title_should_be_set(self, schema: Any) -> bool:
        return False  # a title would repeat the field's name


@dataclass(frozen=True, slots=True)
class AnswerSchemas:
    """components: schemas by name. by_type: the schema of each type of an answer or a frame."""

    components: Mapping[str, Schema]
    by_type: Mapping[Any, Schema]

    def of(self, content: Any) -> Schema:
        """The schema of an answer's content, which is a type, a stream, or several streams."""
        match content:
            case tuple():
                return {"anyOf": [self.of(one) for one in content]}
            case Frames():
                return {
                    "type": "string",
                    "description": content.meaning,
                    "x-frame": self.by_type[content.of],
                }
        return self.by_type[content]


@functools.cache
def answer_schemas(routes: tuple[Route, ...]) -> AnswerSchemas:
    """The schemas of all routes, made together, so that they share their components."""
    types = tuple(dict.fromkeys(_types(routes)))
    all_types: Any = GenericAlias(tuple, types)
    schema = TypeAdapter(all_types).json_schema(
        ref_template="#/components/schemas/{model}", schema_generator=_Untitled
    )
    return AnswerSchemas(schema["$defs"], dict(zip(types, schema["prefixItems"], strict=True)))


def _types(routes: tuple[Route, ...]) -> Iterator[Any]:
    for route in routes:
        for answer in route.answers.values():
            for content in answer.content.values():
                streams = content if isinstance(content, tuple) else (content,)
                yield from (one.of if isinstance(one, Frames) else one for one in streams)
