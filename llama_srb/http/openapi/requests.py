"""Schemas of request bodies, from the rows of request/fields.py and of other servers' paths. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Any

from llama_srb.http.openapi.adapter_schemas import ADAPTERS, TO_LOAD, TO_UNLOAD
from llama_srb.http.openapi.batches import BATCH
from llama_srb.http.openapi.memories import MEMORY_SEARCH
from llama_srb.http.openapi.rankers import RANKING
from llama_srb.http.openapi.sequences import named_sequence
from llama_srb.http.openapi.stored_stories import STORED_STORY
from llama_srb.http.openapi.stories import STORY
from llama_srb.http.route import Route, Schema
from llama_srb.request.aliases import CONVERTED, NON_SAMPLING_FIELDS, REFUSED, UNSUPPORTED
from llama_srb.request.fields import BY_LIST, OVERRIDE_ROWS, ROWS, STRUCTURES, TOOL_CHOICES, Row
from llama_srb.request.parse import Defaults
from llama_srb.request.phrases import ALIASES, MAX_PHRASE, MAX_PHRASE_BIAS, MAX_PHRASES
from llama_srb.request.shapes import SIDES
from llama_srb.request.values import (
    INT32_MAX,
    MAX_EMBEDDED,
    MAX_INDEX,
    MAX_LOGPROBS,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_SALT,
    MAX_SCORED,
    MAX_TEXTS,
)


def _object(properties: Schema, *required: str, **more: Any) -> Schema:
    """The schema of an object with these properties; more: other keywords of JSON Schema."""
    keyword = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **keyword, **more}


def _maybe(kind: str, description: str, **more: Any) -> Schema:
    """The schema of a property that may be null; null counts as absent."""
    return {"type": [kind, "null"], **more, "description": description}


TEXTS: Schema = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": MAX_TEXTS}]
}
BIASES: Schema = {
    "anyOf": [
        {"type": "object", "additionalProperties": {"type": ["number", "boolean"]}},
        {
            "type": "array",
            "items": {
                "type": "array",
                "prefixItems": [{"type": ["integer", "string"]}, {"type": ["number", "boolean"]}],
                "minItems": 2,
                "maxItems": 2,
            },
        },
    ]
}
PHRASES: Schema = {
    "type": "array",
    "items": _object(
        {
            "text": {"type": "string", "minLength": 1, "maxLength": MAX_PHRASE},
            "bias": {"type": "number", "minimum": -MAX_PHRASE_BIAS, "maximum": MAX_PHRASE_BIAS},
            **{key: {"type": ["boolean", "null"]} for key in ("finish", "once", *ALIASES)},
        },
        "text",
        "bias",
        additionalProperties=False,
    ),
    "maxItems": MAX_PHRASES,
}
IDS: Schema = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
PROMPT: Schema = {
    "anyOf": [
        {"type": "string"},
        IDS,
        {
            "type": "array",
            "items": {"anyOf": [{"type": "string"}, IDS]},
            "minItems": 1,
            "maxItems": MAX_PROMPTS,
        },
    ]
}
CONTENT: Schema = {
    "type": ["string", "array", "null"],
    "items": _object({"type": {"const": "text"}, "text": {"type": "string"}}, "type", "text"),
}
CHOICES: Schema = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "minItems": 1,
            "maxItems": MAX_TEXTS,
        },
    ]
}
SECOND: dict[str, Schema] = {  # the properties of then
    "text": {"type": "string"},
    "grammar": {"type": "string"},
    "json_schema": {"type": ["object", "string"]},
    "regex": {"type": "string"},
    "choice": CHOICES,
    "structural_tag": {"type": ["object", "string"]},
    "max_tokens": {"type": "integer", "minimum": -1, "maximum": INT32_MAX, "not": {"const": 0}},
    "stop": TEXTS,
    "return_free": {"type": "boolean"},
}
BANNED_REGEX = _object({"regex": {"type": "string", "minLength": 1}}, "regex", additionalProperties=False)
TWO_STRUCTURES = [*combinations(STRUCTURES, 2)]
OF_TYPE: dict[str, Schema] = {  # the types of values that are no component
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "text": {"type": "string"},
    "texts": TEXTS,
    "bans": {
        "anyOf": [
            {"type": "string"},
            BANNED_REGEX,
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, BANNED_REGEX]},
                "maxItems": MAX_TEXTS,
            },
        ]
    },
    "raw, processed or both": {"enum": ["raw", "processed", "both", "raw_logprobs", "processed_logprobs"]},
    "token ids": IDS | {"minItems": 0},
    "choices": CHOICES,
    "text or tokens": PROMPT,
    "sequence": {"$ref": "#/components/schemas/SequenceName"},
}
COMPONENTS: dict[str, Schema] = {  # by type; a generator of clients makes a class of each
    "messages": {
        "type": ["array", "string"],
        "items": _object({"role": {"type": "string"}, "content": CONTENT}, "role"),
        "minItems": 1,
        "maxItems": MAX_MESSAGES,
    },
    "tools": {
        "type": ["array", "string"],
        "items": _object(
            {"type": {"const": "function"}, "function": _object({"name": {"type": "string"}}, "name")},
            "type",
            "function",
        ),
    },
    "tool choice": {"anyOf": [{"enum": [*TOOL_CHOICES]}, {"type": "object"}]},
    "JSON object": {"type": ["object", "string"]},
    "bool or object": {"type": ["boolean", "object", "string"]},
    "second answer": _object(SECOND, "text", additionalProperties=False)
    | {"type": ["object", "string"], "not": {"anyOf": [{"required": list(two)} for two in TWO_STRUCTURES]}},
    "story": STORY,
    **RANKING,
    "JSON schema": {"anyOf": [{"type": "object"}, {"type": "string"}]},
    "structural tag": {"anyOf": [{"type": "object"}, {"type": "string"}]},
    "biases": BIASES,
    "phrases": PHRASES,
    "adapters": ADAPTERS,
    "list of objects": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}},
}


def _component(kind: str) -> str:
    """The name of a type's component: ToolChoiceField for `tool choice`."""
    return "".join(word[:1].upper() + word[1:] for word in kind.split()) + "Field"


OF_TYPE |= {kind: {"$ref": f"#/components/schemas/{_component(kind)}"} for kind in COMPONENTS}

# Shapes of some of the fields that are converted to others.
CONVERTED_SHAPES: dict[str, Schema] = {
    "response_format": {
        "type": ["object", "null"],
        "properties": {"type": {"enum": ["text", "json_object", "json_schema", "structural_tag"]}},
        "required": ["type"],
    },
    "structured_outputs": {"type": ["object", "null"]},
    "post_sampling_probs": {"type": ["boolean", "null"]},
    "preset": {"type": ["string", "null"]},
}

# Fields of OpenAI's clients that are not rows; the dialects read them.
LENGTHS: dict[str, Schema] = {"cache_salt": {"minLength": 1, "maxLength": MAX_SALT}}
OPENAI_FIELDS: dict[str, Schema] = {
    "stream": {
        "type": ["boolean", "null"],
        "description": "If given, true or false, the answer has OpenAI's form: chunks, or one body.",
    },
    "stream_options": {
        "type": ["object", "null"],
        "properties": {"include_usage": {"type": ["boolean", "null"]}},
        "description": "include_usage: the last chunk, without choices, has the usage of all choices.",
    },
    "model": {
        "type": ["string", "null"],
        "description": "The model's name; if given, the answer has OpenAI's form.",
    },
    "user": {"description": "Not used."},
    "truncation_length": {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": INT32_MAX,
        "description": "text-generation-webui's limit of tokens, prompt and answer together: a longer prompt "
        "is truncated at its beginning, with a warning; without this field it is refused. Not in the event "
        "stream.",
    },
    "suffix": {
        "description": "The text after the generated one; a warning if the model has no infill tokens."
    },
}


def _base(row: Row) -> Schema:
    bounds = {"minimum": row.low, "maximum": row.high, **LENGTHS.get(row.name, {})}
    return OF_TYPE[row.type] | {name: bound for name, bound in bounds.items() if bound is not None}


def _field(row: Row, *, of_one: bool) -> Schema:
    """A row as a property; without of_one it may also be a list for all sequences, a number {from, to}."""
    base = _base(row)
    shapes = [*base.get("anyOf", [base]), {"type": "null"}]
    if row.name in BY_LIST and not of_one:
        shapes += [{"type": "array", "items": {"anyOf": [base, {"type": "null"}]}}]
    if row.is_number and row.name in BY_LIST and not of_one:
        ends = {"type": "object", "properties": {"from": base, "to": base}, "required": ["from", "to"]}
        shapes += [ends]
    if row.name == "prompt":
        return {"anyOf": shapes, "description": row.meaning}
    return {"anyOf": shapes, "default": row.default, "description": row.meaning}


def _fields(rows: Mapping[str, Row], *, of_one: bool = False) -> Schema:
    """Rows and their aliases as properties."""
    properties = {name: _field(row, of_one=of_one) for name, row in rows.items()}
    for name, row in rows.items():
        for alias in row.aliases:
            properties[alias] = {**properties[name], "description": f"Another name of {name}."}
    return properties


def _one_of(*names: str) -> Schema:
    """Keywords for an object that has one of these properties, not null.

    By `not`, not by `anyOf`, which generators of clients read as a choice of types without properties.
    """
    return {"not": {"properties": {name: {"type": "null"} for name in names}}}


def _request(defaults: Defaults) -> Schema:
    rows = ROWS | {
        "n": dataclasses.replace(ROWS["n"], default=defaults.n, high=float(defaults.max_n)),
        "max_tokens": dataclasses.replace(ROWS["max_tokens"], default=defaults.max_tokens),
    }
    rows |= {name: dataclasses.replace(rows[name], default=at) for name, at in defaults.operator.items()}
    converted = {
        name: CONVERTED_SHAPES.get(name, {}) | {"description": f"Becomes: {meaning}."}
        for name, meaning in CONVERTED.items()
    }
    neutral = {
        name: {"description": f"Not used; named in warnings unless it is {neutral_text(values)}."}
        for name, values in UNSUPPORTED.items()
    }
    neutral |= {
        name: {"description": f"Refused unless it is {at}: {why}."} for name, (at, why) in REFUSED.items()
    }
    not_used = {"description": "Not used; it does not change the text."}
    neutral |= dict.fromkeys(sorted(NON_SAMPLING_FIELDS), not_used)
    return _object(
        _fields(rows) | converted | neutral | OPENAI_FIELDS,
        description="A prompt and how to continue it. null is absent. n and max_tokens default to "
        "OpenAI's 1 and 16 in OpenAI's form. Unknown fields are named in warnings, or refused with --strict.",
        **_one_of("prompt", "continue", "messages"),
    )


def _chat_request(defaults: Defaults) -> Schema:
    """As _request(), but with the fields of a chat of OpenAI's clients."""
    schema = _request(defaults)
    properties = {
        name: field for name, field in schema["properties"].items() if name not in ("prompt", "suffix")
    }
    return _object(
        properties | CHAT_FIELDS,
        description="A chat and how to answer it. n defaults to 1; max_tokens has no limit but the context.",
        **_one_of("messages"),
    )


CHAT_FIELDS: dict[str, Schema] = {
    "logprobs": _maybe("boolean", "Log-probabilities of each token."),
    "top_logprobs": _maybe(
        "integer", "Number of alternatives for each token.", minimum=0, maximum=MAX_LOGPROBS
    ),
}


FIM: Schema = {
    "allOf": [{"$ref": "#/components/schemas/Request"}],
    "description": "A prompt and the text after it. n defaults to 1; only the context limits max_tokens.",
    "properties": {
        "suffix": _maybe("string", "The text after the generated one; the model needs infill tokens."),
        "random_seed": {"description": "Another name of seed."},
    },
    "required": ["prompt"],
    "not": {"properties": {"prompt": {"not": {"type": "string"}}}},
}
PREFIX: Schema = {
    "allOf": [{"$ref": "#/components/schemas/Request"}],
    "description": "The prompt or messages. It may be the whole later request; other fields are not used.",
    "not": {"properties": {"continue": {"not": {"type": "null"}}}, "required": ["continue"]},
}
TRIAL: Schema = {
    "allOf": [{"$ref": "#/components/schemas/Request"}],
    "description": "A request, and the task that is tried: by its name as model, or its table as toml.",
    "properties": {"toml": _maybe("string", "One table [tasks.NAME], as the file of settings has them.")},
}


EXTENSION = _object(
    {
        "add": _maybe(
            "integer",
            "Number of new sequences; with the existing ones at most --max-n.",
            minimum=0,
            maximum=MAX_INDEX,
            default=1,
        ),
        "max_tokens": _maybe(
            "integer",
            "New limit of tokens of each sequence, also of the running ones.",
            minimum=-1,
            maximum=INT32_MAX,
        ),
        "fork": {
            "anyOf": [named_sequence("index"), {"type": "null"}],
            "description": "The new sequences begin as this one; only their new text is streamed.",
        },
    }
)
TEXT_OR_IDS: Schema = {"anyOf": [{"type": "string"}, IDS]}


def _texts_or_ids(most: int, description: str) -> Schema:
    many = {"type": "array", "items": TEXT_OR_IDS, "minItems": 1, "maxItems": most}
    return {"anyOf": [{"type": "string", "minLength": 1}, IDS, many], "description": description}


MODEL = _maybe("string", "The served model's name.")
SALT = _maybe("string", ROWS["cache_salt"].meaning, **LENGTHS["cache_salt"])
SCORE = _object(
    {
        "texts": _texts_or_ids(MAX_SCORED, "The texts to score, each one after the same prompt."),
        "prompt": {
            "anyOf": [*TEXT_OR_IDS["anyOf"], {"type": "null"}],
            "default": "",
            "description": "The text before each of them; computed once, not scored.",
        },
        "logprobs": _maybe(
            "integer",
            "Number of alternatives for each token.",
            minimum=0,
            maximum=MAX_LOGPROBS,
            default=0,
        ),
        "cache": _maybe("boolean", "Use the prefix cache, and add the prompt to it.", default=True),
        "certainty": _maybe("boolean", "Also how certain the model is, on average.", default=False),
        "lora": {"anyOf": [ADAPTERS, {"type": "null"}], "description": ROWS["lora"].meaning},
        "cache_salt": SALT,
        "model": MODEL,
    },
    "texts",
)
RERANK_INPUT = _object(
    {
        "query": {"type": "string", "minLength": 1},
        "documents": {
            "type": ["array", "null"],
            "items": {
                "anyOf": [
                    {"type": "string"},
                    _object({"text": {"type": "string"}}, "text"),
                ]
            },
            "minItems": 1,
            "maxItems": MAX_EMBEDDED,
        },
        "texts": {
            "type": ["array", "null"],
            "items": {"type": "string"},
            "description": "documents as Text Embeddings Inference calls them, which asks for its form.",
        },
        "top_n": _maybe("integer", "The most documents of the answer.", minimum=1),
        "return_documents": _maybe("boolean", "The answer has the documents, too."),
        "truncate": _maybe("boolean", "Documents that are too long with the query are cut."),
        "raw_scores": _maybe("boolean", "With texts: what the model's head gives, not a number up to 1."),
        "model": _maybe("string", "A model that ranks."),
    },
    "query",
)
EMBEDDING_INPUT = _object(
    {
        "input": _texts_or_ids(MAX_EMBEDDED, "The texts, or their token ids."),
        "encoding_format": {
            "enum": ["float", "base64", None],
            "default": "float",
            "description": "base64: 32-bit floats, little-endian.",
        },
        "dimensions": _maybe(
            "integer", "Only this many first numbers, normalized to length 1 again.", minimum=1
        ),
        "truncate_prompt_tokens": _maybe(
            "integer",
            "A longer text is cut to so many tokens; -1: to what the model takes.",
            minimum=-1,
            maximum=INT32_MAX,
        ),
        "truncation_side": {
            "enum": [*SIDES, None],
            "default": "right",
            "description": "Where it is cut: left, at its beginning, or right, at its end.",
        },
        "cache_salt": SALT,
        "model": MODEL,
        "user": {"description": "Not used."},
    },
    "input",
)

MAYBE_TEXT: Schema = {"type": ["string", "null"]}


def _of_others(route: Route, properties: Schema) -> Schema:
    """The schema of a body of another server's path."""
    whole = _object({**({"model": MAYBE_TEXT} if route.names_model else {}), **properties})
    return {"anyOf": [whole, {"type": "array", "items": {}}]} if route.list_as else whole


def neutral_text(values: tuple[object, ...]) -> str:
    """The values with which a field has no effect, in words."""
    return " or ".join("empty" if value in ("", []) else str(value).lower() for value in values)


def schemas(routes: Iterable[Route], defaults: Defaults) -> dict[str, Schema]:
    """All schemas of request bodies by name; defaults: the server's."""
    return {
        "Request": _request(defaults),
        "ChatRequest": _chat_request(defaults),
        "FimRequest": FIM,
        "Prefix": PREFIX,
        "Trial": TRIAL,
        "Extension": EXTENSION,
        "Score": SCORE,
        "EmbeddingInput": EMBEDDING_INPUT,
        "RerankInput": RERANK_INPUT,
        "MemorySearch": MEMORY_SEARCH,
        "BatchInput": BATCH,
        "StoredStory": STORED_STORY,
        **{_component(kind): schema for kind, schema in COMPONENTS.items()},
        "AdapterToLoad": TO_LOAD,
        "AdapterToUnload": TO_UNLOAD,
        "SequenceName": named_sequence("id", "index"),
        "Override": _object(
            _fields(OVERRIDE_ROWS, of_one=True),
            description="Fields of one sequence that differ from its request.",
        ),
        **{route.request: _of_others(route, route.body) for route in routes if route.body is not None},
    }
