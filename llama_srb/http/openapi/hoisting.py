"""Gives each object of the bodies' schemas a name: generators of clients make a class of each. Pure.

A generator finds no name, or the same one twice, for an object inside a choice of types. So an object stands
alone as a component, and a choice has a reference to it. A default is said in words: clients that know it
send it, and then an alias of the field is not used, or they ask for a value of each field that has one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from llama_srb.http.route import Schema

INSIDE = {"properties", "anyOf", "prefixItems"}  # keywords with several schemas
ANY_OBJECT = "AnyObject"  # of an object without properties
WITHIN = {"items", "additionalProperties"}  # keywords with one


def reference(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def camel(name: str) -> str:
    """A name as one word: StoryNote for story_note."""
    return "".join(word[:1].upper() + word[1:] for word in name.split("_"))


def hoisted(components: Mapping[str, Schema]) -> dict[str, Schema]:
    """The components, and one for each object in them. Equal ones share the first one's name."""
    return _Hoisting(components).components


class _Hoisting:
    def __init__(self, components: Mapping[str, Schema]) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[str, str] = {}  # by the schema's JSON
        for name, schema in components.items():
            self.components[name] = (
                self._choices(schema, name) if _is_choice(schema) else self._inner(schema, name)
            )

    def _inner(self, schema: Schema, name: str) -> Schema:
        """A schema whose parts are hoisted; name: of the component that it is or would be."""
        made = _told(schema)
        for keyword in INSIDE & made.keys():
            made[keyword] = self._several(made[keyword], name)
        for keyword in WITHIN & made.keys():
            if isinstance(made[keyword], dict):
                made[keyword] = self._part(made[keyword], name + ("Item" if keyword == "items" else "Value"))
        return made

    def _several(self, schemas: Any, name: str) -> Any:
        if isinstance(schemas, list):
            return [self._part(one, name + _ending(one)) for one in schemas]
        return {key: self._part(one, name + camel(key)) for key, one in schemas.items()}

    def _part(self, schema: Schema, name: str) -> Schema:
        """A part of a schema: a reference, if it is an object."""
        if _is_choice(schema):
            return self._choices(schema, name)
        made = self._inner(schema, name)
        if made.get("type") != "object":
            return made
        name = ANY_OBJECT if made == {"type": "object"} else name
        free = (new for new in _numbered(name) if new not in self.components)
        own = self._names.setdefault(json.dumps(made), next(free))
        self.components[own] = made
        return reference(own)

    def _choices(self, schema: Schema, name: str) -> Schema:
        """An object or another type, as a choice of both; what is said about all of it stays beside them."""
        alone = _told(schema)
        beside = {"description": alone.pop("description")} if "description" in alone else {}
        options = [
            self._part({**alone, "type": kind} if kind == "object" else {"type": kind}, name + kind.title())
            for kind in schema["type"]
        ]
        return {"anyOf": options, **beside}


def _told(schema: Schema) -> Schema:
    """A schema with its default as words."""
    made = {keyword: value for keyword, value in schema.items() if keyword != "default"}
    if schema.get("default") is not None:
        about = [
            made.get("description", ""),
            f"Default: {json.dumps(schema['default'], ensure_ascii=False)}.",
        ]
        made["description"] = " ".join(filter(None, about))
    return made


def _is_choice(schema: Schema) -> bool:
    return isinstance(schema.get("type"), list) and "object" in schema["type"]


def _ending(option: Schema) -> str:
    """What an option's name ends with: that of its only property, as a ranker's."""
    keys = [*option.get("properties", ())]
    return camel(keys[0]) if len(keys) == 1 else "Object"


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}{number}"
        number += 1
