"""The HTTP API as an OpenAPI document: the operations are the rows of routes.py.

Schemas of requests come from the rows of request/fields.py, those of events from engine/events.py.
Pure: knows neither aiohttp nor processes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter

from llama_srb.engine import events
from llama_srb.http import foreign
from llama_srb.http.routes import JSON, PARAMETERS, ROUTES, SUFFIX, Route, Schema
from llama_srb.request.aliases import CONVERTED, NON_SAMPLING_FIELDS, UNSUPPORTED
from llama_srb.request.fields import OVERRIDE_ROWS, ROWS, TOOL_CHOICES, Row
from llama_srb.request.parse import Defaults
from llama_srb.request.values import (
    INT32_MAX,
    MAX_ADAPTER_SCALE,
    MAX_ADAPTERS,
    MAX_EMBEDDED,
    MAX_INDEX,
    MAX_LOGPROBS,
    MAX_MESSAGES,
    MAX_PROMPTS,
    MAX_SCORED,
    MAX_TEXTS,
)

# ----------------------------------------------------------------------------------------------------
# Schemas of requests, from the rows of request.py
# ----------------------------------------------------------------------------------------------------

TEXTS: Schema = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": MAX_TEXTS}]
}
ADAPTERS: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 0},
            "scale": {
                "type": ["number", "null"],
                "minimum": -MAX_ADAPTER_SCALE,
                "maximum": MAX_ADAPTER_SCALE,
                "default": 1,
            },
        },
        "required": ["id"],
        "additionalProperties": False,
    },
    "maxItems": MAX_ADAPTERS,
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
    "items": {
        "type": "object",
        "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
        "required": ["type", "text"],
    },
}
OF_TYPE: dict[str, Schema] = {
    "int": {"type": "integer"},
    "float": {"type": "number"},
    "bool": {"type": "boolean"},
    "text": {"type": "string"},
    "texts": TEXTS,
    "raw or processed": {"enum": ["raw", "processed", "raw_logprobs", "processed_logprobs"]},
    "choices": {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {
                "type": "array",
                "items": {"type": "string", "minLength": 1},
                "minItems": 1,
                "maxItems": MAX_TEXTS,
            },
        ]
    },
    "messages": {
        "type": ["array", "string"],
        "items": {
            "type": "object",
            "properties": {"role": {"type": "string"}, "content": CONTENT},
            "required": ["role"],
        },
        "minItems": 1,
        "maxItems": MAX_MESSAGES,
    },
    "tools": {
        "type": ["array", "string"],
        "items": {
            "type": "object",
            "properties": {
                "type": {"const": "function"},
                "function": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}},
                    "required": ["name"],
                },
            },
            "required": ["type", "function"],
        },
    },
    "tool choice": {"anyOf": [{"enum": [*TOOL_CHOICES]}, {"type": "object"}]},
    "JSON object": {"type": ["object", "string"]},
    "JSON schema": {"anyOf": [{"type": "object"}, {"type": "string"}]},
    "biases": BIASES,
    "adapters": ADAPTERS,
    "text or tokens": PROMPT,
    "object": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}},
    "sequence": {"$ref": "#/components/schemas/SequenceName"},
}

# Of the fields that become others: where more can be said than that.
CONVERTED_SHAPES: dict[str, Schema] = {
    "response_format": {
        "type": ["object", "null"],
        "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
        "required": ["type"],
    },
    "structured_outputs": {"type": ["object", "null"]},
    "post_sampling_probs": {"type": ["boolean", "null"]},
    "preset": {"type": ["string", "null"]},
}

# What OpenAI's clients send beside the rows; the dialects read these themselves.
OPENAI_FIELDS: dict[str, Schema] = {
    "stream": {
        "type": ["boolean", "null"],
        "description": "Given, true or false, it asks for OpenAI's form: chunks, or one body.",
    },
    "stream_options": {
        "type": ["object", "null"],
        "properties": {"include_usage": {"type": ["boolean", "null"]}},
        "description": "include_usage: a last chunk without choices has the usage of all.",
    },
    "model": {
        "type": ["string", "null"],
        "description": "The served model's name; given, it asks for OpenAI's form.",
    },
    "user": {"description": "Not used."},
    "truncation_length": {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": INT32_MAX,
        "description": "text-generation-webui's: a prompt that is too long for so many tokens, the answer's "
        "among them, is cut from the left and warned of; else it is refused. Not of the event stream.",
    },
    "suffix": {
        "description": "What follows; used where the model has infill tokens, else named in warnings."
    },
}


def _base(row: Row) -> Schema:
    bounds = {"minimum": row.low, "maximum": row.high}
    return OF_TYPE[row.type] | {
        name: int(bound) if bound.is_integer() else bound
        for name, bound in bounds.items()
        if bound is not None
    }


def _field(row: Row, *, of_one: bool) -> Schema:
    """A row as a property; where a number stands, a list of one per sequence may, unless of_one sequence."""
    base = _base(row)
    shapes = [*base.get("anyOf", [base]), {"type": "null"}]
    if row.is_number and row.name in OVERRIDE_ROWS and not of_one:
        shapes.append({"type": "array", "items": {"anyOf": [base, {"type": "null"}]}})
    if row.name == "prompt":
        return {"anyOf": shapes, "description": row.meaning}
    return {"anyOf": shapes, "default": row.default, "description": row.meaning}


def _fields(rows: Mapping[str, Row], schema: str, *, of_one: bool = False) -> Schema:
    """Rows and their aliases as properties."""
    properties = {name: _field(row, of_one=of_one) for name, row in rows.items()}
    for name, row in rows.items():
        for alias in row.aliases:
            properties[alias] = {
                "$ref": f"#/components/schemas/{schema}/properties/{name}",
                "description": f"Another name of {name}.",
            }
    return properties


def _request(defaults: Defaults) -> Schema:
    rows = ROWS | {
        "n": dataclasses.replace(ROWS["n"], default=defaults.n, high=float(defaults.max_n)),
        "max_tokens": dataclasses.replace(ROWS["max_tokens"], default=defaults.max_tokens),
    }
    converted = {
        name: CONVERTED_SHAPES.get(name, {}) | {"description": f"Becomes: {meaning}."}
        for name, meaning in CONVERTED.items()
    }
    neutral = {
        name: {"description": f"Not used; named in warnings unless it is {neutral_text(values)}."}
        for name, values in UNSUPPORTED.items()
    }
    not_used = {"description": "Not used; it says nothing about the text."}
    neutral |= dict.fromkeys(sorted(NON_SAMPLING_FIELDS), not_used)
    return {
        "type": "object",
        "description": "A prompt and how to continue it. null is absent. n and max_tokens default to "
        "OpenAI's 1 and 16 in OpenAI's form. Unknown fields are named in warnings, or refused with --strict.",
        "properties": _fields(rows, "Request") | converted | neutral | OPENAI_FIELDS,
        "anyOf": [
            {"properties": {"prompt": {"not": {"type": "null"}}}, "required": ["prompt"]},
            {"properties": {"continue": {"type": "object"}}, "required": ["continue"]},
            {"properties": {"messages": {"not": {"type": "null"}}}, "required": ["messages"]},
        ],
    }


def _chat_request(defaults: Defaults) -> Schema:
    """As any request, but for what OpenAI's clients write otherwise in a chat."""
    schema = _request(defaults)
    properties = {
        name: field for name, field in schema["properties"].items() if name not in ("prompt", "suffix")
    }
    return {
        "type": "object",
        "description": "A chat and how to answer it. n defaults to 1, max_tokens to the end or the context.",
        "properties": properties | CHAT_FIELDS,
        "anyOf": schema["anyOf"][-1:],
    }


CHAT_FIELDS: dict[str, Schema] = {
    "logprobs": {"type": ["boolean", "null"], "description": "Log-probabilities of each token."},
    "top_logprobs": {
        "type": ["integer", "null"],
        "minimum": 0,
        "maximum": MAX_LOGPROBS,
        "description": "And of this many alternatives.",
    },
}


PREFIX: Schema = {
    "allOf": [{"$ref": "#/components/schemas/Request"}],
    "description": "The prompt or messages; it may be all the request that will follow, of which nothing "
    "else is used.",
    "properties": {"continue": {"type": "null"}},
}


def _named_sequence(*needed: str) -> Schema:
    """A sequence: id of its request (unless that is clear), index, and how many of its tokens."""
    properties: dict[str, Schema] = {
        "id": {"type": "string", "minLength": 1, "description": "Of its request, with or without `cmpl-`."},
        "index": {"type": "integer", "minimum": 0, "maximum": MAX_INDEX},
        "at": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": INT32_MAX,
            "description": "Only its first tokens, so many.",
        },
    }
    return {
        "type": "object",
        "properties": {name: properties[name] for name in (*needed, "at")},
        "required": list(needed),
        "additionalProperties": False,
    }


EXTENSION: Schema = {
    "type": "object",
    "properties": {
        "add": {
            "type": ["integer", "null"],
            "minimum": 0,
            "maximum": MAX_INDEX,
            "default": 1,
            "description": "How many more; with those that there are at most --max-n.",
        },
        "max_tokens": {
            "type": ["integer", "null"],
            "minimum": -1,
            "maximum": INT32_MAX,
            "description": "Tokens per sequence from now on, also of those that run.",
        },
        "fork": {
            "anyOf": [_named_sequence("index"), {"type": "null"}],
            "description": "The new ones begin as this one of the request; only what follows is streamed.",
        },
    },
}


TEXT_OR_IDS: Schema = {"anyOf": [{"type": "string"}, IDS]}


def _maybe(kind: str, description: str, **more: Any) -> Schema:
    """A property that may be null, which is absent."""
    return {"type": [kind, "null"], **more, "description": description}


def _texts_or_ids(most: int, description: str) -> Schema:
    many = {"type": "array", "items": TEXT_OR_IDS, "minItems": 1, "maxItems": most}
    return {"anyOf": [{"type": "string", "minLength": 1}, IDS, many], "description": description}


MODEL = _maybe("string", "The served model's name.")
SCORE: Schema = {
    "type": "object",
    "properties": {
        "texts": _texts_or_ids(MAX_SCORED, "What is scored, each by itself after the same prompt."),
        "prompt": {
            "anyOf": [*TEXT_OR_IDS["anyOf"], {"type": "null"}],
            "default": "",
            "description": "What stands before each of them; computed once. It is not scored.",
        },
        "logprobs": _maybe(
            "integer",
            "So many of the likeliest tokens beside each token.",
            minimum=0,
            maximum=MAX_LOGPROBS,
            default=0,
        ),
        "cache": _maybe("boolean", "Use and keep the computed prompt.", default=True),
        "lora": {"anyOf": [ADAPTERS, {"type": "null"}], "description": ROWS["lora"].meaning},
        "model": MODEL,
    },
    "required": ["texts"],
}


EMBEDDING_INPUT: Schema = {
    "type": "object",
    "properties": {
        "input": _texts_or_ids(MAX_EMBEDDED, "The texts, or their token ids."),
        "encoding_format": {
            "enum": ["float", "base64", None],
            "default": "float",
            "description": "base64: 32-bit floats, little-endian.",
        },
        "dimensions": _maybe(
            "integer", "Only the first numbers, so many, brought to length 1 again.", minimum=1
        ),
        "model": MODEL,
        "user": {"description": "Not used."},
    },
    "required": ["input"],
}


def neutral_text(values: tuple[object, ...]) -> str:
    """The values at which a field does nothing, in words."""
    return " or ".join("empty" if value in ("", []) else str(value).lower() for value in values)


# ----------------------------------------------------------------------------------------------------
# Schemas of answers
# ----------------------------------------------------------------------------------------------------


def _object(optional: str = "", **properties: Schema) -> Schema:
    """An object whose properties are all there, but for the optional ones."""
    required = [name for name in properties if name not in optional.split()]
    return {"type": "object", "properties": properties, "required": required}


def _list(of: Schema) -> Schema:
    return {"type": "array", "items": of}


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
MAYBE_TEXT: Schema = {"type": ["string", "null"]}
WARNINGS = _list(TEXT)
LOGPROB: Schema = {"type": ["number", "null"]}

EVENTS = (
    events.Queued, events.Start, events.Prompt, events.Progress, events.Stream, events.Stop,
    events.Extend, events.Done, events.Error,
)  # fmt: skip
NAMES_ITSELF = (events.Queued, events.Start)  # the events whose frame has the id


def _event(event: type[Any]) -> Schema:
    """An engine's event as its frame: `event` names it, the id is known from the start."""
    schema: Schema = TypeAdapter(event).json_schema(mode="serialization")
    properties, required = schema["properties"], schema["required"]
    if event not in NAMES_ITSELF:
        del properties["id"]
    if "tokens" in properties:
        properties["tokens"] = _list(_ref("Token"))
    if "tool_calls" in properties:
        properties["tool_calls"] = _list(_ref("CallPiece"))
    if event is events.Start:
        properties["warnings"] = WARNINGS
    for one in properties.values():
        one.pop("default", None)
        one.pop("title", None)
    return {
        "type": "object",
        "description": " ".join((event.__doc__ or "").split()),
        "properties": {"event": {"const": event.__name__.lower()}, **properties},
        "required": ["event", *(name for name in required if name in properties)],
    }


def _choice(finish_reason: Schema) -> Schema:
    logprobs = {"anyOf": [_ref("Logprobs"), {"type": "null"}]}
    return _object(
        "scores duplicate_of",
        text=TEXT,
        index=COUNT,
        logprobs=logprobs,
        finish_reason=finish_reason,
        scores=_ref("Scores"),
        duplicate_of=COUNT,
    )


ENDS = ["stop", "length"]
OF_COMPLETION: dict[str, Schema] = {
    "id": TEXT,
    "object": {"const": "text_completion"},
    "created": COUNT,
    "model": TEXT,
}
CHAT_ENDS = [*ENDS, "tool_calls"]
OF_CHAT: dict[str, Schema] = OF_COMPLETION | {"object": {"const": "chat.completion"}}
CHAT_LOGPROBS: Schema = {"anyOf": [_ref("ChatLogprobs"), {"type": "null"}]}
ANSWERS: dict[str, Schema] = {
    "Completion": _object(
        "warnings",
        **OF_COMPLETION,
        choices=_list(_choice({"enum": ENDS})),
        usage=_ref("Usage"),
        warnings=WARNINGS,
    ),
    "Chunk": _object(
        "usage warnings ranking",
        **OF_COMPLETION,
        choices={**_list(_choice({"enum": [*ENDS, None]})), "maxItems": 1},
        usage={"anyOf": [_ref("Usage"), {"type": "null"}]},
        warnings=WARNINGS,
        ranking=_list(COUNT),
    ),
    "Scores": _object(
        logprob={"type": "number"},
        mean_logprob={"type": "number"},
        length=COUNT,
        distinct_2={"type": "number"},
    ),
    "ChatCompletion": _object(
        "warnings",
        **OF_CHAT,
        choices=_list(
            _object(
                index=COUNT,
                message=_ref("Message"),
                logprobs=CHAT_LOGPROBS,
                finish_reason={"enum": CHAT_ENDS},
            )
        ),
        usage=_ref("Usage"),
        warnings=WARNINGS,
    ),
    "ChatChunk": _object(
        "usage warnings",
        **OF_CHAT | {"object": {"const": "chat.completion.chunk"}},
        choices={
            **_list(
                _object(
                    index=COUNT,
                    delta=_ref("Delta"),
                    logprobs=CHAT_LOGPROBS,
                    finish_reason={"enum": [*CHAT_ENDS, None]},
                )
            ),
            "maxItems": 1,
        },
        usage={"anyOf": [_ref("Usage"), {"type": "null"}]},
        warnings=WARNINGS,
    ),
    "ChatStream": {
        "type": "string",
        "description": "Frames `data: <ChatChunk>`, each with one choice; `data: [DONE]` last, "
        "or a frame with an error.",
        "x-frame": {"anyOf": [_ref("ChatChunk"), _ref("Error")]},
    },
    "Message": _object(
        "reasoning_content tool_calls",
        role={"const": "assistant"},
        content=MAYBE_TEXT,
        reasoning_content=TEXT,
        tool_calls=_list(_ref("ToolCall")),
    ),
    "Delta": _object(
        "role content reasoning_content tool_calls",
        role={"const": "assistant"},
        content=TEXT,
        reasoning_content=TEXT,
        tool_calls=_list(_ref("CallDelta")),
    ),
    "ToolCall": _object(id=TEXT, type={"const": "function"}, function=_object(name=TEXT, arguments=TEXT)),
    "CallDelta": _object(
        "id type",
        index=COUNT,
        id=TEXT,
        type={"const": "function"},
        function=_object("name", name=TEXT, arguments=TEXT),
    ),
    "CallPiece": _object("id name", index=COUNT, id=TEXT, name=TEXT, arguments=TEXT),
    "ChatLogprobs": _object(content=_list(_ref("ChatToken"))),
    "ChatToken": _object(
        "top_logprobs",
        token=TEXT,
        logprob={"type": "number"},
        bytes=_list(COUNT),
        top_logprobs=_list(_ref("ChatToken")),
    ),
    "Logprobs": _object(
        tokens=_list(TEXT),
        token_logprobs=_list(LOGPROB),
        top_logprobs=_list({"type": ["object", "null"], "additionalProperties": {"type": "number"}}),
        text_offset=_list(COUNT),
    ),
    "Usage": _object(
        prompt_tokens=COUNT,
        completion_tokens=COUNT,
        total_tokens=COUNT,
        prompt_tokens_details=_object(cached_tokens=COUNT),
    ),
    "Token": _object("top", id=COUNT, text=TEXT, logprob=LOGPROB, top=_list(_ref("Alternative"))),
    "Alternative": _object(id=COUNT, text=TEXT, logprob={"type": "number"}),
    "Event": {"oneOf": [_ref(event.__name__ + "Event") for event in EVENTS]},
    "EventStream": {
        "type": "string",
        "description": "Frames `data: <Event>`, each with an empty line behind it; start first, "
        "done or error last. Lines that begin with a colon say nothing.",
        "x-frame": _ref("Event"),
    },
    "ChunkStream": {
        "type": "string",
        "description": "Frames `data: <Chunk>`, each with one choice; `data: [DONE]` last, "
        "or a frame with an error.",
        "x-frame": {"anyOf": [_ref("Chunk"), _ref("Error")]},
    },
    "Stream": {
        "anyOf": [_ref("ChunkStream"), _ref("EventStream")],
        "description": "Chunks when stream is true, else events.",
    },
    "Error": _object(
        error=_object(
            message=TEXT,
            type={"enum": ["invalid_request_error", "server_error"]},
            param=MAYBE_TEXT,
            code=MAYBE_TEXT,
        )
    ),
    "ScoredTexts": _object(
        "warnings",
        id=TEXT,
        object={"const": "list"},
        model=TEXT,
        data=_list(_ref("ScoredText")),
        usage=_ref("Usage"),
        warnings=WARNINGS,
    ),
    "ScoredText": _object(
        object={"const": "score"},
        index=COUNT,
        sum={"type": "number", "description": "Of the tokens' log-probabilities (natural logarithm)."},
        mean={"type": ["number", "null"], "description": "sum / count; null when count is 0."},
        perplexity={"type": ["number", "null"], "description": "exp(-mean)."},
        count={**COUNT, "description": "Tokens that have a log-probability."},
        greedy={"type": "boolean", "description": "Each token was the likeliest."},
        tokens=_list(_ref("Token")),
    ),
    "Embeddings": _object(
        "warnings",
        object={"const": "list"},
        model=TEXT,
        data=_list(
            _object(
                object={"const": "embedding"},
                index=COUNT,
                embedding={"anyOf": [_list({"type": "number"}), TEXT]},
            )
        ),
        usage=_object(prompt_tokens=COUNT, total_tokens=COUNT),
        warnings=WARNINGS,
    ),
    "Extended": _object("warnings", id=TEXT, first=COUNT, count=COUNT, warnings=WARNINGS),
    "Computed": _object(
        "superseded warnings",
        id=TEXT,
        prompt_tokens=COUNT,
        cached_tokens=COUNT,
        superseded={"const": True, "description": "The next one came before it was done."},
        warnings=WARNINGS,
    ),
    "Cancelled": _object(id=TEXT, cancelled={"const": True}),
    "Models": _object(object={"const": "list"}, data=_list(_ref("Model"))),
    "Model": _object(
        id=TEXT,
        object={"const": "model"},
        created=COUNT,
        owned_by=TEXT,
        meta=_object(
            "embedding",
            embedding=_object(
                only={"type": "boolean", "description": "It generates nothing."},
                pooling={"enum": ["mean", "cls", "last", "rank"]},
                dimensions=COUNT,
                max_tokens=COUNT,
            ),
            name=TEXT,
            architecture=TEXT,
            parameters=COUNT,
            quantisation=TEXT,
            context=COUNT,
            size_bytes=COUNT,
            n_ctx={"type": ["integer", "null"]},
        ),
    ),
    "Adapters": _object(object={"const": "list"}, data=_ref("AdapterList")),
    "AdapterList": _list(_object(id=COUNT, name=TEXT, path=TEXT, scale={"type": "number"})),
    "Presets": _object(
        object={"const": "list"}, data=_list(_object(name=TEXT, about=TEXT, fields={"type": "object"}))
    ),
    "Fields": _object(
        samplers=_list(_ref("Field")),
        request=_list(_ref("Field")),
        converted={"type": "object", "additionalProperties": TEXT},
    ),
    "Field": _object(
        name=TEXT,
        type={"enum": [*OF_TYPE]},
        default={},
        low={"type": ["number", "null"]},
        high={"type": ["number", "null"]},
        neutral={},
        aliases=_list(TEXT),
        group=TEXT,
        per_choice={"type": "boolean"},
        meaning=TEXT,
    ),
    "Health": _object(
        "progress error",
        status={"enum": ["ok", "loading", "ready", "failed", "draining", "stopped"]},
        progress={"type": "number", "minimum": 0, "maximum": 1},
        error={"type": "string", "description": "Of failed: why, and what to do."},
    ),
    "Text": {"type": "string"},
    "Stats": _object(
        "progress",
        status={"enum": ["ready", "loading", "failed", "draining", "stopped"]},
        progress={"type": "number"},
        uptime_seconds={"type": "number"},
        requests=COUNT,
        requests_open=COUNT,
        prompt_tokens=COUNT,
        cached_tokens=COUNT,
        completion_tokens=COUNT,
        engine_starts=COUNT,
        engine_memory_bytes=COUNT,
        engine={"type": "object", "description": "Its own counts of cells, requests and sequences."},
    ),
    "Document": {"type": "object", "description": "OpenAPI 3.1"},
}


def _of_others_schemas() -> dict[str, Schema]:
    made = dict(foreign.ERRORS.values())
    for path in foreign.PATHS:
        made |= {path.name + SUFFIX[kind]: schema for kind, schema in path.answers.items()}
        if path.request is not None:
            made[path.name + "Body"] = {"type": "object", "properties": path.request}
    return made


# ----------------------------------------------------------------------------------------------------
# The document
# ----------------------------------------------------------------------------------------------------

KEYS: dict[str, Schema] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A key or a JSON Web Token."},
    "header": {"type": "apiKey", "in": "header", "name": "x-api-key"},
}

ABOUT = """n continuations of one prompt, all streaming at once, the prompt computed once.

Every error has OpenAI's body. A method that a path does not take is 405 with Allow, an unknown path 404.
OPTIONS answers 204 for pages of the origins that --cors names."""


def document(defaults: Defaults, version: str) -> Schema:
    """The whole API as OpenAPI 3.1; defaults are the server's."""
    paths: dict[str, Schema] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    schemas = {
        "Request": _request(defaults),
        "ChatRequest": _chat_request(defaults),
        "Prefix": PREFIX,
        "Extension": EXTENSION,
        "Score": SCORE,
        "EmbeddingInput": EMBEDDING_INPUT,
        "SequenceName": _named_sequence("id", "index"),
        "Override": {
            "type": "object",
            "description": "What one sequence has otherwise than its request.",
            "properties": _fields(OVERRIDE_ROWS, "Override", of_one=True),
        },
        **{event.__name__ + "Event": _event(event) for event in EVENTS},
        **ANSWERS,
        **_of_others_schemas(),
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "llama-srb",
            "version": version,
            "description": ABOUT,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": KEYS},
    }


def _operation(route: Route) -> Schema:
    operation: Schema = {
        "operationId": route.operation,
        "summary": route.summary,
        "security": [{"bearer": []}, {"header": []}, {}] if route.scopes else [],
        "responses": {
            str(status): {
                "description": answer.meaning,
                "content": {kind: {"schema": _ref(name)} for kind, name in answer.content.items()},
            }
            for status, answer in sorted(route.answers.items())
        },
    }
    if route.request:
        body = {"required": True, "content": {JSON: {"schema": _ref(route.request)}}}
        operation["requestBody"] = body
    if route.parameters:
        operation["parameters"] = [_parameter(name) for name in route.parameters]
    return operation


def _parameter(name: str) -> Schema:
    meaning, schema = PARAMETERS[name]
    return {"name": name, "in": "path", "required": True, "description": meaning, "schema": schema}
